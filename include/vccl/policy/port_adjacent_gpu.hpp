#pragma once
/// \file
/// `adjacent_gpu`: the GPUs of a host are paired in order, first with second, third with fourth; each GPU's backup is
/// its partner's nearest NIC. For single-port NICs. Asked at connect; set-up thread.
/// Source: the rule for single-port NICs in VCCL's fault-tolerance design.

#include <vccl/policy/port.hpp>
#include <vccl/policy/port_nearest.hpp>

namespace vccl::inline v0 {

/// The partner GPU's nearest NIC stands in; both ends agree where GPUs are cabled alike.
struct adjacent_gpu {
    using policy_axis = axis::port;

    /// Returns: the port of the partner's nearest NIC with the primary's place in its NIC, else that NIC's first port.
    /// `no_port` when no GPU has the primary's NIC for its own, when that GPU is the odd one out, or when the partner
    /// uses the same NIC. Where several GPUs share the primary's NIC the first with such a partner decides.
    result<port_id> backup_for(const topology& t, port_id primary, channel_id) const noexcept {
        if (!t.valid(primary)) return status{errc::invalid_argument, primary.value};
        const nic_id own = t.ports[primary.value].nic;
        for (std::uint16_t i = 0; i < t.gpus.size(); ++i) {
            if (const auto nic = nearest_nic(t, gpu_id{i}); !nic || *nic != own) continue;
            const result<gpu_id> other = partner(t, gpu_id{i});
            if (!other) continue;
            const result<nic_id> nic = nearest_nic(t, *other);
            if (!nic || *nic == own) continue;
            const result<port_id> same_place = t.port_at(*nic, t.place_in_nic(primary));
            return same_place ? same_place : t.port_at(*nic, 0);
        }
        return status{errc::no_port, subject::port, primary.value};
    }

    /// Returns: the other GPU of the pair; `not_found` for the last GPU of a host with an odd number of them.
    static result<gpu_id> partner(const topology& t, gpu_id g) noexcept {
        result<gpu_id> before = errc::not_found;
        bool second_of_pair = false;
        for (std::uint16_t i = 0; i < g.value; ++i)
            if (t.gpus[i].host == t.gpus[g.value].host) {
                before = gpu_id{i};
                second_of_pair = !second_of_pair;
            }
        if (second_of_pair) return before;
        for (std::size_t i = g.value + std::size_t{1}; i < t.gpus.size(); ++i)
            if (t.gpus[i].host == t.gpus[g.value].host) return gpu_id{static_cast<std::uint16_t>(i)};
        return status{errc::not_found, g.value};
    }
};
static_assert(port_policy<adjacent_gpu>);

}  // namespace vccl::inline v0
