#pragma once
// A port policy of one's own: the backup is the port at the same place on the host's next NIC.
#include <vccl/policy/port.hpp>

namespace p2p {

struct next_nic {
    using policy_axis = vccl::axis::port;

    vccl::result<vccl::port_id> backup_for(const vccl::topology& t, vccl::port_id primary, vccl::channel_id) const noexcept {
        if (!t.valid(primary)) return vccl::errc::invalid_argument;
        const vccl::nic_id own = t.ports[primary.value].nic;
        for (std::size_t step = 1; step < t.nics.size(); ++step) {
            const vccl::nic_id other{static_cast<std::uint16_t>((own.value + step) % t.nics.size())};
            if (t.nics[other.value].host != t.nics[own.value].host) continue;
            if (const auto p = t.port_at(other, t.place_in_nic(primary))) return p;
        }
        return vccl::errc::no_port;
    }
};
static_assert(vccl::port_policy<next_nic>);

}  // namespace p2p
