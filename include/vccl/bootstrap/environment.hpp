#pragma once
/// \file
/// A process's place in its job, from what its launcher has put into the environment: torchrun, Open MPI's mpirun, Slurm's
/// srun, PMI (MPICH and its relatives), or one's own VCCL_RANK, VCCL_RANKS, VCCL_ROOT. Set-up thread.

#include <vccl/bootstrap/tcp.hpp>

#include <cstdlib>
#include <optional>

namespace vccl::inline v0 {

/// Where rank 0 listens if nothing says another port: one above torchrun's own, or this one.
inline constexpr std::uint32_t default_bootstrap_port = 29555;

/// The first host of a Slurm node list: "node[03-07,9],other" is "node03".
inline std::string first_host(std::string_view list) {
    const std::size_t end = list.find_first_of("[,");
    std::string host(list.substr(0, end));
    if (end != std::string_view::npos && list[end] == '[') {
        const std::string_view numbers = list.substr(end + 1);
        host += numbers.substr(0, numbers.find_first_of("-,]"));
        const std::size_t close = numbers.find(']');
        const std::string_view rest = close == std::string_view::npos ? std::string_view{} : numbers.substr(close + 1);
        host += rest.substr(0, rest.find(','));
    }
    return host;
}

namespace detail {

/// What each launcher calls things. The first whose rank is there counts.
struct launcher_words {
    const char *name, *rank, *ranks, *local_rank, *local_ranks;
};
inline constexpr launcher_words launchers[] = {
    {"VCCL_RANK", "VCCL_RANK", "VCCL_RANKS", "VCCL_LOCAL_RANK", "VCCL_LOCAL_RANKS"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

inline std::optional<std::uint32_t> to_number(const char* text) {
    if (!text || *text < '0' || *text > '9') return std::nullopt;
    char* end = nullptr;
    const unsigned long long n = std::strtoull(text, &end, 10);
    if (*end != '\0' || n > 0x7fffffff) return std::nullopt;
    return static_cast<std::uint32_t>(n);
}

}  // namespace detail

/// `get(name)`: the variable's text or null. Returns: the place; not_found when no launcher has left any (the process is
/// alone), parse_error when what there is makes no sense. `why` then says in a sentence what to do.
template <class Get>
result<job_place> read_job_place(Get&& get, std::string& why) {
    const auto bad = [&](std::string text) {
        why = std::move(text);
        return errc::parse_error;
    };
    for (const detail::launcher_words& l : detail::launchers) {
        if (!get(l.rank)) continue;
        job_place p;
        const auto rank = detail::to_number(get(l.rank)), ranks = detail::to_number(get(l.ranks));
        if (!rank || !ranks || *rank >= *ranks)
            return bad(std::string(l.rank) + " and " + l.ranks + " must be a rank and a larger number of ranks");
        p.rank = *rank;
        p.ranks = *ranks;
        p.local_rank = detail::to_number(get(l.local_rank)).value_or(0);
        p.local_ranks = l.local_ranks ? detail::to_number(get(l.local_ranks)).value_or(1) : 1;
        if (p.local_rank >= p.local_ranks) p.local_ranks = p.local_rank + 1;

        if (const char* root = get("VCCL_ROOT")) {
            p.root = root;
            return p;
        }
        const char* const set_port = get("VCCL_PORT");
        const auto port = detail::to_number(set_port);
        if (set_port && (!port || *port == 0 || *port > 65535)) return bad("VCCL_PORT must be a port, 1 to 65535");
        const char* const slurm = get("SLURM_STEP_NODELIST") ? get("SLURM_STEP_NODELIST") : get("SLURM_JOB_NODELIST");
        std::string host;
        std::uint32_t chosen = port.value_or(default_bootstrap_port);
        if (const char* master = get("MASTER_ADDR")) {
            host = master;
            // torchrun itself listens at MASTER_PORT.
            if (const auto taken = detail::to_number(get("MASTER_PORT")); taken && !port && *taken < 65535) chosen = *taken + 1;
        } else if (slurm) {
            host = first_host(slurm);
        } else if (p.local_ranks == p.ranks) {
            host = "127.0.0.1";
        } else {
            return bad(std::string("started by ") + l.name +
                       " on several hosts: set VCCL_ROOT=HOST:PORT, an address of rank 0's host, for all ranks");
        }
        p.root = host + ":" + std::to_string(chosen);
        return p;
    }
    why = "no launcher has set a rank; start it under torchrun, mpirun or srun, or set VCCL_RANK, VCCL_RANKS and VCCL_ROOT";
    return errc::not_found;
}

/// `get(name)` as above. Returns: what the launcher, or VCCL_JOB, calls the job, so that two jobs of one secret and one port
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
        why = "VCCL_SECRET must have at least " + std::to_string(job_secret::least_text) + " characters";
        return errc::invalid_argument;
    }
    return job_secret::from_text(text + read_job_name(get));
}

/// The real environment, as `find_place` reads it unless it is given another reader.
inline const char* process_environment(const char* name) noexcept { return std::getenv(name); }

}  // namespace vccl::inline v0
