#pragma once
/// \file
/// Port policies that stay on one NIC: `sibling_port` and `channel_parity`. Asked at connect; set-up thread.
/// Source: the rule for dual-port NICs in VCCL's fault-tolerance design (each port backs the other up), and its
/// split of NVSHMEM channels over the ports of a NIC by channel number.

#include <vccl/policy/port.hpp>
#include <vccl/policy/port_nearest.hpp>

namespace vccl::inline v0 {

/// The other port of the same NIC. On a NIC with more than two ports: the rest, in turn, starting after the primary.
struct sibling_port {
    using policy_axis = axis::port;

    /// The next port of the NIC, after the last the first; `no_port` on a NIC of one port.
    result<port_id> backup_for(const topology& t, port_id primary, channel_id) const noexcept {
        if (!t.valid(primary)) return status{errc::invalid_argument, primary.value};
        return after(t, primary, 1);
    }
    /// The NIC's other ports, from the next on.
    lane_list backups_for(const topology& t, port_id primary, channel_id) const noexcept {
        lane_list backups;
        if (!t.valid(primary)) return backups;
        for (unsigned step = 1; step < t.port_count(t.ports[primary.value].nic) && !backups.full(); ++step)
            if (const auto p = after(t, primary, step)) backups.add(*p);
        return backups;
    }

private:
    static result<port_id> after(const topology& t, port_id primary, unsigned step) noexcept {
        const nic_id nic = t.ports[primary.value].nic;
        const unsigned count = t.port_count(nic);
        if (count < 2) return status{errc::no_port, subject::port, primary.value};
        return t.port_at(nic, (t.place_in_nic(primary) + step) % count);
    }
};

/// Channels take the ports of the GPU's nearest NIC in turn, by channel number; the backup is the next port of the NIC.
struct channel_parity {
    using policy_axis = axis::port;

    /// Port `c` modulo the number of ports, of the NIC nearest to `g`.
    result<port_id> primary_for(const topology& t, gpu_id g, channel_id c) const noexcept {
        const result<nic_id> nic = nearest_nic(t, g);
        if (!nic) return nic.error();
        return t.port_at(*nic, c.value % t.port_count(*nic));
    }
    /// As sibling_port says.
    result<port_id> backup_for(const topology& t, port_id primary, channel_id c) const noexcept {
        return sibling_port{}.backup_for(t, primary, c);
    }
};

static_assert(port_policy<sibling_port> && enumerates_backups<sibling_port>);
static_assert(port_policy<channel_parity> && chooses_primary<channel_parity>);

}  // namespace vccl::inline v0
