#pragma once
/// \file
/// Which events met the protocol in which states, and which moves between states followed. Counted by the core simulation for
/// every call of a core; printed as a table, and compared with the model's and the documentation's by check_table.py.

#include <vccl/channel/core.hpp>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

namespace vccl_sim {

using namespace vccl;

/// What a core can be told: the control messages by their numbers, then the rest.
enum class told : std::uint8_t {
    hello = 1,
    hello_ack,
    notify,
    notify_ack,
    sync,
    sync_ack,
    restore,
    restore_ack,
    restore_nak,
    port_back,
    probe,
    probe_ack,
    goodbye,
    goodbye_ack,
    abort,
    abort_ack,
    fault,          ///< lane_fault: an error completion, a device event, a refused post
    port_down,
    port_up,
    fence_done,
    fence_failed,
    oob_down,
    oob_up,
    arrival,        ///< sender: an acknowledgement in the ring.  receiver: a part that arrived
    tick,
    wish,           ///< the user's: abort at either end, part at the sender
    count_
};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(told::count_)> told_names{
    "",          "hello",   "hello_ack",   "notify",       "notify_ack", "sync",
    "sync_ack",  "restore", "restore_ack", "restore_nak",  "port_back",  "probe",
    "probe_ack", "goodbye", "goodbye_ack", "abort",        "abort_ack",  "fault",
    "port_down", "port_up", "fence_done",  "fence_failed", "oob_down",   "oob_up",
    "arrival",   "tick",    "wish"};
inline constexpr std::array<std::string_view, 7> state_names{"connecting", "running", "fencing", "announcing",
                                                             "suspended",  "failed",  "closed"};
inline constexpr std::array<std::string_view, 5> health_names{"up", "failed", "fenced", "restoring", "verifying"};
inline constexpr std::array<std::string_view, 2> end_names{"sender", "receiver"};

struct coverage {
    static constexpr std::size_t events = static_cast<std::size_t>(told::count_);
    std::uint64_t channel[2][7][events]{};   ///< end, state before, event
    std::uint64_t lane[2][5][events]{};      ///< end, health of the lane that it speaks of, event
    std::uint64_t channel_moves[2][events][7][7]{}, lane_moves[2][events][5][5]{};  ///< end, event, before, after

    void add(const coverage& o) {
        auto sum = [](auto& to, const auto& from) {
            auto* a = reinterpret_cast<std::uint64_t*>(&to);
            const auto* b = reinterpret_cast<const std::uint64_t*>(&from);
            for (std::size_t i = 0; i < sizeof to / sizeof *a; ++i) a[i] += b[i];
        };
        sum(channel, o.channel);
        sum(lane, o.lane);
        sum(channel_moves, o.channel_moves);
        sum(lane_moves, o.lane_moves);
    }
};

/// May this end be told that by an honest peer, or by its own machine, at all?
constexpr bool speaks(unsigned end, told e) {
    switch (e) {
        case told::hello:
        case told::notify:
        case told::sync_ack:
        case told::restore_ack:
        case told::restore_nak:
        case told::port_back: return end == 1;
        case told::hello_ack:
        case told::notify_ack:
        case told::sync:
        case told::restore:
        case told::goodbye_ack: return end == 0;
        case told::goodbye: return end == 1;
        default: return static_cast<unsigned>(e) != 0;
    }
}
/// Can this event come in this state? What cannot, and why, is listed here and nowhere else.
constexpr bool reachable(unsigned end, channel_state s, told e) {
    if (!speaks(end, e)) return false;
    const bool over = s == channel_state::failed || s == channel_state::closed;
    if (e == told::abort_ack) return s == channel_state::failed;  // only who has given up says so
    if (end == 0) {
        if (s == channel_state::announcing) return false;  // the sender announces nothing
        // An end that is not running has sent no probe and no goodbye.
        if (s == channel_state::connecting && (e == told::probe_ack || e == told::goodbye_ack)) return false;
        // A sync tells all that an acknowledgement could until it is followed; after the end nobody looks at the ring.
        if (e == told::arrival && (s == channel_state::fencing || over)) return false;
        return true;
    }
    // Before hello the receiver has asked for nothing, has granted nothing, and the sender neither probes nor parts.
    if (s == channel_state::connecting && (e == told::sync_ack || e == told::restore_ack || e == told::restore_nak ||
                                           e == told::probe || e == told::probe_ack || e == told::goodbye || e == told::arrival))
        return false;
    return true;  // also an arrival while suspended: the lane that failed last may still be on its way to its fence
}

}  // namespace vccl_sim
