#pragma once
/// \file
/// Errors of the bootstrap in sentences: what happened, where, and what to do. For messages. Any thread.

#include <vccl/base/status_text.hpp>
#include <vccl/bootstrap/tcp.hpp>

namespace vccl::inline v0 {

namespace detail {

inline std::string reason_text(const status& s) {
    return s.about == subject::system_error && s.detail != 0 ? errno_text(s.detail) : "";
}
inline std::string in_brackets(const std::string& text) { return text.empty() ? text : " (" + text + ")"; }

/// What keeps rank 0 from listening, and what to do.
inline std::string listen_fault(const status& s) {
    const char* const what = s.detail == EADDRINUSE
                                 ? "another job or program listens there: end it, or give this job another port"
                             : s.detail == EADDRNOTAVAIL ? "this host does not have that address: give one of rank 0's host"
                             : s.detail == EACCES        ? "this user may not listen there: give a port above 1023"
                                                         : "give another address or port";
    return "rank 0 cannot listen" + in_brackets(reason_text(s)) + "; " + what + " (VCCL_ROOT or VCCL_PORT, for all ranks)";
}

/// What is wrong with what someone sent, where the code says it all; else nothing.
inline std::string stream_fault(errc code, const std::string& who) {
    switch (code) {
        case errc::too_large:
            return who + " sends or is sent more than an exchange carries; raise bootstrap_limits::frame_bytes at all ranks";
        case errc::wrong_peer: return "a message of " + who + " was changed on its way; see who is on the network between";
        case errc::protocol_violation: return who + " sends what it must not; build all ranks from one version";
        default: return "";
    }
}

inline std::string join_fault(const status& s, const job_place& p) {
    const std::string first = std::to_string(s.detail), second = std::to_string(s.extra);
    switch (s.code) {
        case errc::invalid_argument:
            if (p.ranks == 0 || p.ranks > most_bootstrap_ranks)
                return "a job has 1 to " + std::to_string(most_bootstrap_ranks) + " ranks, not " + std::to_string(p.ranks);
            if (p.rank >= p.ranks) return "ranks count from 0, and there are only " + std::to_string(p.ranks);
            return "that is no address; write HOST:PORT, such as 10.0.0.1:29555 (VCCL_ROOT)";
        case errc::not_found:
            return "this host does not know that name; give an address, or a name that all ranks know (VCCL_ROOT)";
        case errc::system: return p.rank == 0 ? listen_fault(s) : "a system call failed" + in_brackets(reason_text(s));
        case errc::timeout:
            if (s.about == subject::rank)
                return "rank " + first + (s.extra > 1 ? " and " + std::to_string(s.extra - 1) + " more" : "") +
                       " did not come in time; see what they say. Were all ranks started, with this address and this secret?";
            return "rank 0 did not answer in time" + in_brackets(reason_text(s)) +
                   "; see what it says. Does it run, and can this host reach that address?";
        case errc::wrong_peer:
            if (s.about == subject::secret)
                return "who answers there does not know this job's secret; give all ranks the same VCCL_SECRET and, if it is "
                       "set, "
                       "VCCL_JOB; or another port, if another job has this one";
            if (s.about == subject::ranks)
                return "this rank was told that there are " + first + " ranks, rank 0 that there are " + second +
                       "; start all with the same number";
            if (s.about == subject::rank) return "rank 0 does not take this rank's number, " + first + "; it counts ranks from 0";
            return stream_fault(s.code, "rank 0");
        case errc::bad_blob:
            return "who answers there is no rank 0 of a job; give this job another port (VCCL_ROOT or VCCL_PORT)";
        case errc::version_mismatch:
            return "this rank speaks version " + first + " of the bootstrap, rank 0 version " + second +
                   "; build all ranks from one version";
        case errc::already_exists:
            return "another process is rank " + first + " already; give each its own rank, and each job its own port or secret";
        case errc::too_large:
        case errc::protocol_violation: return stream_fault(s.code, "rank 0");
        default: return describe(s);
    }
}

}  // namespace detail

/// Returns: a sentence on why this rank could not join its job. `s`: the error of `tcp_bootstrap::join(p, …)`.
inline std::string describe_join_fault(const status& s, const job_place& p) {
    return "rank " + std::to_string(p.rank) + " cannot join the job at \"" + p.root + "\": " + detail::join_fault(s, p);
}

/// Returns: a sentence on why ranks that had joined could not exchange something. `s`: the error of an `exchange` or `barrier`.
inline std::string describe_exchange_fault(const status& s) {
    const std::string who = s.about == subject::rank ? "rank " + std::to_string(s.detail) : "a rank";
    switch (s.code) {
        case errc::invalid_argument: return "a parcel is for " + who + ", which this job does not have";
        case errc::io_error: return "MPI failed; see what it says";
        case errc::peer_lost: return who + " is gone: its process ended or its connection broke; see what it says";
        case errc::timeout: return who + " did not come along in time; see what it says, or wait longer";
        case errc::aborted: return who + " gave up; see what it says";
        case errc::too_large:
        case errc::wrong_peer:
        case errc::protocol_violation: return detail::stream_fault(s.code, who);
        default: return describe(s);
    }
}

}  // namespace vccl::inline v0
