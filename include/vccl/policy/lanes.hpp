#pragma once
/// \file
/// From a topology and a port policy to the ordered lane list of a channel, and the check that both ends agree on it.
/// Each end computes its own list; lane i of one end is cabled to lane i of the other, and on a fault both ends move to
/// the same i, so that a backup never crosses rails. Called while a channel connects; set-up thread.

#include <vccl/policy/lane_list.hpp>
#include <vccl/policy/port.hpp>
#include <vccl/policy/port_nearest.hpp>

namespace vccl::inline v0 {

namespace detail {

template <class P>
VCCL_COLD result<lane_list> lanes_of_valid(const topology& t, port_id primary, channel_id c, const P& policy,
                                           unsigned max) noexcept {
    lane_list lanes;
    lanes.add(primary);
    if (max == 1) return lanes;
    const result<lane_list> backups = all_backups(policy, t, primary, c);
    if (!backups) return backups.error();
    for (port_id b : *backups) {
        if (!t.valid(b) || t.host_of(b) != t.host_of(primary)) return status{errc::no_port, subject::port, b.value};
        if (lanes.size() == max) break;
        lanes.add(b);
    }
    return lanes;
}

VCCL_COLD inline status check_lanes_arguments(const topology& t, unsigned max) noexcept {
    if (max == 0 || max > max_lanes) return status{errc::invalid_argument, max};
    return validate(t);
}

}  // namespace detail

/// The lane list of a channel whose primary port is given: for machines without GPUs.
/// Returns: the primary first, then the policy's backups, at most `max` ports, none twice. `no_port` with the port in
/// `detail` when the primary does not exist or the policy named a port of another host or of none.
template <class P>
VCCL_COLD result<lane_list> lanes_for(const topology& t, port_id primary, channel_id c, const P& policy,
                                      unsigned max = max_lanes) noexcept {
    static_assert(check_port_policy<P>::ok);
    if (const status s = detail::check_lanes_arguments(t, max); !s) return s;
    if (!t.valid(primary)) return status{errc::no_port, subject::port, primary.value};
    return detail::lanes_of_valid(t, primary, c, policy, max);
}

/// The lane list of a GPU's channel. The policy chooses the primary port if it can; else it is the nearest one.
template <class P>
VCCL_COLD result<lane_list> lanes_for(const topology& t, gpu_id g, channel_id c, const P& policy,
                                      unsigned max = max_lanes) noexcept {
    static_assert(check_port_policy<P>::ok);
    if (const status s = detail::check_lanes_arguments(t, max); !s) return s;
    if (!t.valid(g)) return status{errc::invalid_argument, g.value};
    result<port_id> primary = errc::no_port;
    if constexpr (chooses_primary<P>)
        primary = policy.primary_for(t, g, c);
    else
        primary = nearest_port(t, g);
    if (!primary) return primary.error();
    if (!t.valid(*primary) || t.host_of(*primary) != t.gpus[g.value].host)
        return status{errc::no_port, subject::port, primary->value};
    return detail::lanes_of_valid(t, *primary, c, policy, max);
}

/// The rails of a lane list, lane by lane: what one end tells the other about its list.
struct rail_list {
    rail_id rails[max_lanes]{};  ///< of lane 0, lane 1, ...; beyond `size` 0
    std::uint8_t size{};  ///< lanes
    friend constexpr bool operator==(const rail_list&, const rail_list&) noexcept = default;
};

/// Requires: the lane list was made from `t`.
VCCL_COLD inline rail_list rails_of(const topology& t, const lane_list& lanes) noexcept {
    rail_list out;
    for (port_id p : lanes) out.rails[out.size++] = t.ports[p.value].rail;
    return out;
}

/// Returns: ok when lane i of both ends is on one rail for every i. `policy_mismatch` when the ends have different
/// numbers of lanes (`detail` ours, `extra` the peer's); `rail_mismatch` with the lane, our rail in `detail` and the
/// peer's in `extra`.
VCCL_COLD inline status match_rails(const rail_list& local, const rail_list& peer) noexcept {
    if (local.size != peer.size || peer.size > max_lanes)
        return status{errc::policy_mismatch, subject::lanes, local.size, peer.size};
    for (std::uint8_t i = 0; i < local.size; ++i)
        if (local.rails[i] != peer.rails[i]) {
            status s{errc::rail_mismatch, subject::rail, local.rails[i].value, peer.rails[i].value};
            s.lane = i;
            return s;
        }
    return {};
}

}  // namespace vccl::inline v0
