#pragma once
/// \file
/// All that a program under a launcher needs: its place (bootstrap/place.hpp), the job's secret, and the bootstrap itself. Set-up
/// thread. Link OpenSSL (libcrypto).

#include <vccl/bootstrap/tcp.hpp>

namespace vccl::inline v0 {

/// `get(name)` as for read_job_place. Returns: what the launcher, or VCCL_JOB, calls the job, so that two jobs of one secret and one port
/// turn each other's ranks away; empty if nothing names it. The first variable that is there counts: those after it may differ
/// between hosts where launchers are nested.
template <class Get>
std::string read_job_name(Get&& get) {
    for (const char* n : {"VCCL_JOB", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"})
        if (const char* const text = get(n)) return std::string("\n").append(n).append("=").append(text);
    return {};
}

/// `get(name)` as above. Returns: the secret of VCCL_SECRET, of this job alone (read_job_name). Errors: not_found, invalid_argument (too short), with `why`.
template <class Get>
result<job_secret> read_job_secret(Get&& get, std::string& why) {
    const char* const text = get("VCCL_SECRET");
    if (!text) {
        why = "set VCCL_SECRET to one text for all ranks, say with: export VCCL_SECRET=$(openssl rand -hex 32)";
        return errc::not_found;
    }
    if (std::string_view(text).size() < job_secret::least_text) {
        why = "VCCL_SECRET must have at least " + std::to_string(job_secret::least_text) + " characters; it has " +
              std::to_string(std::string_view(text).size());
        return errc::invalid_argument;
    }
    return job_secret::from_text(text + read_job_name(get));
}

}  // namespace vccl::inline v0
