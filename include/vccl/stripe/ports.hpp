#pragma once
/// \file
/// Which ports the stripes of a channel begin on, and where each goes when its port dies. Each end computes its own lists,
/// like lanes_for; hosts that are built alike come to the same rails. Set-up thread.

#include <vccl/model/path_distance.hpp>
#include <vccl/policy/lanes.hpp>

namespace vccl::inline v0 {

/// A port policy that names the ports of the stripes itself: as many as it likes, the primary first. What is missing to
/// `count` is chosen as without it.
template <class P>
concept chooses_stripes = requires(const P p, const topology& t, port_id primary, unsigned count) {
    { p.stripes_for(t, primary, count) } noexcept -> std::same_as<lane_list>;
};

namespace detail {

/// How far NIC `n` is for stripes that begin at `primary`, nearest first: its own NIC, then by distance from the GPU (or,
/// without one, from the primary's NIC), then in order from the primary's NIC on, and round.
VCCL_COLD inline std::uint64_t stripe_order(const topology& t, const gpu_id* gpu, port_id primary, nic_id n) noexcept {
    const nic_id own = t.ports[primary.value].nic;
    if (n == own) return 0;
    const distance d = gpu ? distance_to(t, *gpu, n) : path_distance({t.nics[own.value].numa, {}}, {t.nics[n.value].numa, {}});
    const std::uint64_t round = (n.value + t.nics.size() - own.value) % t.nics.size();
    return (std::uint64_t{d} << 16 | round) + 1;
}

}  // namespace detail

/// Requires: validate(t), valid(primary). Returns: the port of each of `count` stripes: the primary, then those that the
/// policy names, then the other ports of the primary's NIC, then those of the next nearest NICs of its host. `no_port`, with
/// how many there are in `detail`, if that is too few.
template <class Port>
VCCL_COLD result<lane_list> stripe_ports(const topology& t, const gpu_id* gpu, port_id primary, unsigned count,
                                         const Port& policy) noexcept {
    lane_list out;
    out.add(primary);
    if constexpr (chooses_stripes<Port>)
        for (port_id p : policy.stripes_for(t, primary, count)) {
            if (!t.valid(p) || t.host_of(p) != t.host_of(primary)) return status{errc::no_port, subject::port, p.value};
            if (out.size() < count) out.add(p);
        }
    while (out.size() < count) {
        std::uint64_t best_key = ~std::uint64_t{0};
        port_id best{};
        for (std::uint16_t i = 0; i < t.ports.size(); ++i) {
            const port_id p{i};
            if (t.host_of(p) != t.host_of(primary) || out.contains(p)) continue;
            const std::uint64_t key = detail::stripe_order(t, gpu, primary, t.ports[i].nic) << 8 | t.place_in_nic(p);
            if (key < best_key) {
                best_key = key;
                best = p;
            }
        }
        if (best_key == ~std::uint64_t{0}) return status{errc::no_port, out.size()};
        out.add(best);
    }
    return out;
}

/// The port policy of one stripe: the backups that the user's policy names, then the other stripes' ports in turn. So the
/// share of a dead port goes to a survivor as long as there is one.
template <class Port>
struct stripe_port {
    using policy_axis = axis::port;
    [[no_unique_address]] Port own{};  ///< the policy that the user named, asked first
    lane_list of_stripes{};  ///< where each stripe begins: these stand in after what `own` names

    /// What `own` names, then the other stripes' ports, from the next stripe's on.
    lane_list backups_for(const topology& t, port_id primary, channel_id c) const noexcept {
        lane_list out;
        if (const auto named = all_backups(own, t, primary, c)) out = *named;
        unsigned at = 0;
        while (at < of_stripes.size() && of_stripes[at] != primary) ++at;
        for (unsigned i = 1; i < of_stripes.size(); ++i) (void)out.add(of_stripes[(at + i) % of_stripes.size()]);
        return out;
    }
    /// The first of them.
    result<port_id> backup_for(const topology& t, port_id primary, channel_id c) const noexcept {
        if (const auto named = all_backups(own, t, primary, c); !named) return named.error();
        const lane_list all = backups_for(t, primary, c);
        return all.empty() ? result<port_id>(status{errc::no_port, subject::port, primary.value}) : all[0];
    }
};

}  // namespace vccl::inline v0
