#pragma once
/// \file
/// A status in words: what happened, and what to do about it. For messages; never on the data path. Any thread.

#include <vccl/base/status.hpp>

#include <cstring>
#include <string>
#include <string_view>

namespace vccl::inline v0 {

/// Returns: what the code means and what to do, without a full stop.
constexpr std::string_view text(errc c) noexcept {
    switch (c) {
        case errc::ok: return "no error";
        case errc::invalid_argument: return "an argument or option is out of its range; see the function's description";
        case errc::not_registered:
            return "the buffer is not registered memory; register it, and keep the handle while it is used";
        case errc::out_of_range: return "the span leaves its registered memory; register more or ask for less";
        case errc::too_large: return "more than the configured maximum; do it in pieces or raise the maximum";
        case errc::would_block: return "the queue is full; make progress, then try again";
        case errc::busy: return "work in flight still uses it; wait for the work, then try again";
        case errc::not_connected: return "the endpoint is not connected yet; call connect first";
        case errc::already_connected: return "the endpoint is connected already; make a new one for another peer";
        case errc::bad_blob: return "the connection blob is damaged or not one; exchange whole blobs, unchanged";
        case errc::version_mismatch: return "the peer speaks another wire version; build both ends from one version";
        case errc::wrong_peer:
            return "the other end is of another channel, session, role or job; check what was exchanged with whom";
        case errc::policy_mismatch: return "the ends differ in QP count, lanes or limits; give both the same policies";
        case errc::rail_mismatch:
            return "a lane's two ports are on different rails; choose ports so that lane i is on one rail at both ends";
        case errc::protocol_violation: return "the peer sent what the protocol forbids; the channel cannot be trusted any more";
        case errc::message_too_long:
            return "the send was larger than the receive that it met; post receives as large as the largest send";
        case errc::no_device: return "no such NIC, or none at all; list them with `ibv_devices`";
        case errc::no_port: return "no such port; check its name, and what the port policy chose, against the topology";
        case errc::permission: return "the kernel refused: rights or the memlock limit; see `ulimit -l`";
        case errc::no_memory:
            return "out of memory, or of the NIC's or kernel's objects; ask for less, or close what is not needed";
        case errc::unsupported: return "this backend or device cannot do that; see its capabilities";
        case errc::system: return "a system call failed; see the reason";
        case errc::lane_failed:
            return "lanes failed again and again with a local error and nothing was received; look at the completion status: "
                   "most "
                   "likely this end's own request is at fault";
        case errc::port_down: return "no port is ACTIVE, or it has no address; check cables and `ip link`";
        case errc::no_lane_left: return "every lane is dead and none came back in time; check the ports and the give-up time";
        case errc::remote_access: return "the peer's NIC refused the address or key; the peer may have deregistered its memory";
        case errc::local_protection:
            return "this end's NIC refused an address or key of its own; is the memory still registered?";
        case errc::fence_failed:
            return "an old QP could be neither moved to ERR nor destroyed, so nothing may be replayed; see the kernel's log";
        case errc::peer_lost:
            return "the peer's process is gone, or cannot be reached by any way; look at the peer and at the out-of-band address";
        case errc::aborted:
            return "this end or the peer gave the channel up; received() and acknowledged() say what was delivered";
        case errc::closed: return "the peer closed the channel in order";
        case errc::timeout: return "the deadline passed; the work goes on: wait again, or abort";
        case errc::cq_overrun: return "a completion queue was too small; with the library's own sizes, report a bug";
        case errc::no_replay_log:
            return "a lane died and the channel was built with no_replay; use rollback_fifo to survive that";
        case errc::parse_error: return "the text could not be read; correct it where the number says";
        case errc::not_found: return "the named thing does not exist; check the name";
        case errc::already_exists: return "it exists already; choose another name, or attach to it";
        case errc::io_error: return "reading or writing failed; see the reason";
    }
    return "unknown error";
}

/// Returns: the name that libibverbs gives it.
constexpr std::string_view text(wc_status s) noexcept {
    constexpr std::string_view names[] = {
        "SUCCESS",           "LOC_LEN_ERR",       "LOC_QP_OP_ERR",    "LOC_EEC_OP_ERR",     "LOC_PROT_ERR",   "WR_FLUSH_ERR",
        "MW_BIND_ERR",       "BAD_RESP_ERR",      "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",    "REM_ACCESS_ERR", "REM_OP_ERR",
        "RETRY_EXC_ERR",     "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",  "INV_EECN_ERR",
        "INV_EEC_STATE_ERR", "FATAL_ERR",         "RESP_TIMEOUT_ERR", "GENERAL_ERR"};
    const auto i = static_cast<std::size_t>(s);
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown completion status";
}

namespace detail {

// GNU's strerror_r returns the text, POSIX' a number, and has put it into the buffer.
inline const char* errno_words(const char* said, const char*) noexcept { return said; }
inline const char* errno_words(int, const char* buffer) noexcept { return buffer; }
/// What the system calls an errno. Any thread, which strerror is not for.
inline std::string errno_text(std::uint32_t error) {
    char buffer[128] = "unknown error";
    return errno_words(::strerror_r(static_cast<int>(error), buffer, sizeof buffer), buffer);
}

inline std::string number_text(subject about, std::uint32_t n) {
    if (about == subject::role && (n == 1 || n == 2)) return n == 1 ? "sender" : "receiver";
    if (about == subject::link && n < 2) return n == 0 ? "InfiniBand" : "Ethernet";
    return std::to_string(n);
}

/// What the numbers say, with a separator in front; nothing if they say nothing.
inline std::string numbers_text(const status& s) {
    const auto both = [&s](std::string_view what) {
        return " (" + std::string(what) + ": " + number_text(s.about, s.detail) + " here, " + number_text(s.about, s.extra) +
               " at the peer)";
    };
    const auto missing = [&s](std::string_view what) {
        return s.detail == unnamed_index
                   ? std::string(" (no ").append(what).append(" of that name in the topology)")
                   : std::string(" (").append(what).append(" ").append(std::to_string(s.detail)).append(" of the topology)");
    };
    const std::string first = std::to_string(s.detail), second = std::to_string(s.extra);
    switch (s.about) {
        case subject::none: return s.code == errc::system && s.detail != 0 ? ": error " + first : "";
        case subject::system_error: return s.detail == 0 ? "" : ": " + errno_text(s.detail);
        case subject::peer_code:
            if (s.detail == 0) return "";
            if (s.detail == static_cast<std::uint32_t>(errc::aborted)) return " (the peer did)";
            return "; the peer's reason: " + std::string(text(errc{static_cast<std::uint8_t>(s.detail)}));
        case subject::in_flight: return " (chunks in flight: " + first + ")";
        case subject::room: return " (it holds " + first + ")";
        case subject::memlock: return " (the limit is " + second + " KiB)";
        case subject::bytes:
            return " (bytes: " + second + (s.extra == ~0u ? " or more" : "") + " asked for, " + first + " at most)";
        case subject::suspended: return " (no lane is up at present)";
        case subject::shared_memory:
            return " (" + first + " MiB of /dev/shm wanted, " + second +
                   " MiB free; remove files there or enlarge it: mount -o remount,size=SIZE /dev/shm, or docker run --shm-size)";
        case subject::peer_address:
            return " (nobody has told the peer's Ethernet address so far; check its port, cables, switch and VLAN)";
        case subject::secret: return " (it does not know the job's secret)";
        case subject::rank: return " (rank " + first + (s.extra > 1 ? " and " + std::to_string(s.extra - 1) + " more" : "") + ")";
        case subject::host: return missing("host");
        case subject::nic: return missing("NIC");
        case subject::port: return missing("port");
        case subject::gpu: return missing("GPU");
        case subject::fabric: return " (a software fabric of that name; `vccl-fabric list` shows what there is)";
        case subject::owner:
            return " (the software fabric of that name is user " + first + "'s: choose another name, or run as that user)";
        case subject::wire_version: return both("wire version");
        case subject::role: return both("role");
        case subject::session_low: return both("session");
        case subject::session_high: return both("high half of the session");
        case subject::channel: return both("channel");
        case subject::qps: return both("QPs a lane");
        case subject::lanes: return both("lanes");
        case subject::stripes: return both("stripes");
        case subject::ranks: return both("ranks");
        case subject::slice: return both("bytes a slice");
        case subject::link: return both("link layer");
        case subject::rail: return both("rail");
    }
    return "";
}

}  // namespace detail

/// Returns: the whole status in a line: the code's words, then lane and completion status where there are any, and what was
/// expected and found. `lane_name`: how to call the lane, if the caller knows.
inline std::string describe(const status& s, std::string_view lane_name = {}) {
    std::string out(text(s.code));
    if (s.lane != status::no_lane)
        out += lane_name.empty() ? " (lane " + std::to_string(s.lane) + ")" : " (" + std::string(lane_name) + ")";
    if (s.wc != wc_status::success)
        out += " [" + std::string(text(s.wc)) + (s.extra == 0 ? "" : ", vendor error " + std::to_string(s.extra)) + "]";
    return out + detail::numbers_text(s);
}

}  // namespace vccl::inline v0
