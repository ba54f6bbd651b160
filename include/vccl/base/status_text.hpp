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
        case errc::invalid_argument: return "an argument is out of its range; see the function's description";
        case errc::not_registered:
            return "the buffer is not registered memory; register it, and keep the handle while it is used";
        case errc::out_of_range: return "the span leaves its registered memory; register more or ask for less";
        case errc::too_large: return "the chunk is above the configured maximum; send it in pieces or raise the maximum";
        case errc::would_block: return "the queue is full; make progress, then try again";
        case errc::busy: return "work in flight still uses it; wait for the work, then try again";
        case errc::not_connected: return "the endpoint is not connected yet; call connect first";
        case errc::already_connected: return "the endpoint is connected already; make a new one for another peer";
        case errc::bad_blob: return "the connection blob is damaged or not one; exchange whole blobs, unchanged";
        case errc::version_mismatch: return "the peer speaks another wire version; build both ends from one version";
        case errc::wrong_peer: return "the blob is of another channel, session or role; check what was exchanged with whom";
        case errc::policy_mismatch: return "the ends differ in QP count, lanes or limits; give both the same policies";
        case errc::rail_mismatch:
            return "a lane's two ports are on different rails; choose ports so that lane i is on one rail at both ends";
        case errc::protocol_violation: return "the peer sent what the protocol forbids; the channel cannot be trusted any more";
        case errc::message_too_long:
            return "the send was larger than the receive that it met; post receives as large as the largest send";
        case errc::no_device: return "no such NIC, or none at all; list them with `ibv_devices`";
        case errc::no_port: return "no such port; check its name against the topology";
        case errc::permission: return "the kernel refused: rights or the memlock limit; see `ulimit -l`";
        case errc::no_memory: return "out of memory, or of the NIC's or kernel's objects";
        case errc::unsupported: return "this backend or device cannot do that";
        case errc::system: return "a system call failed";
        case errc::lane_failed: return "a lane died; the channel goes on over another";
        case errc::port_down: return "the port is not ACTIVE; check its cable and `ip link`";
        case errc::no_lane_left: return "every lane is dead and none came back in time; check the ports and the give-up time";
        case errc::remote_access: return "the peer's NIC refused the address or key; the peer may have deregistered its memory";
        case errc::local_protection:
            return "this end's NIC refused an address or key of its own; is the memory still registered?";
        case errc::fence_failed: return "an old QP could be neither moved to ERR nor destroyed, so nothing may be replayed";
        case errc::peer_lost: return "the peer's process is gone, or cannot be reached by any way";
        case errc::aborted: return "this end or the peer gave the channel up";
        case errc::closed: return "the peer closed the channel in order";
        case errc::timeout: return "the deadline passed";
        case errc::cq_overrun: return "a completion queue was too small";
        case errc::no_replay_log:
            return "a lane died and the channel was built with no_replay; use rollback_fifo to survive that";
        case errc::parse_error: return "the text could not be read";
        case errc::not_found: return "the named thing does not exist";
        case errc::already_exists: return "it exists already";
        case errc::io_error: return "reading or writing failed";
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

/// Returns: the whole status in a line: the code's words, then lane, completion status and errno where there are any.
/// `lane_name`: how to call the lane, if the caller knows.
inline std::string describe(const status& s, std::string_view lane_name = {}) {
    std::string out(text(s.code));
    if (s.lane != status::no_lane)
        out += lane_name.empty() ? " (lane " + std::to_string(s.lane) + ")" : " (" + std::string(lane_name) + ")";
    if (s.wc != wc_status::success) out += " [" + std::string(text(s.wc)) + "]";
    if (s.code == errc::system && s.detail != 0) out += ": " + std::string(std::strerror(static_cast<int>(s.detail)));
    return out;
}

}  // namespace vccl::inline v0
