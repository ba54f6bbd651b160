#pragma once
/// \file
/// Which NIC and port a GPU is nearest to. Asked by port policies and by lanes_for; set-up thread.

#include <vccl/model/topology.hpp>

namespace vccl::inline v0 {

namespace detail {

/// Unknown distances count as equal, so that they spread over the NICs instead of piling up on one.
inline distance distance_to(const topology& t, gpu_id g, nic_id n) noexcept {
    const topology::gpu& gpu = t.gpus[g.value];
    return gpu.to_nic.empty() ? 0 : gpu.to_nic[n.value];
}

/// Only NICs of the GPU's host that have a port at all are candidates.
inline bool reachable(const topology& t, gpu_id g, nic_id n) noexcept {
    return t.nics[n.value].host == t.gpus[g.value].host && t.port_count(n) != 0;
}

/// Returns: true when no candidate is nearer to the GPU than this one.
VCCL_COLD inline bool is_nearest(const topology& t, gpu_id g, nic_id n) noexcept {
    if (!reachable(t, g, n)) return false;
    for (std::size_t i = 0; i < t.nics.size(); ++i) {
        const nic_id other{static_cast<std::uint16_t>(i)};
        if (reachable(t, g, other) && distance_to(t, g, other) < distance_to(t, g, n)) return false;
    }
    return true;
}

VCCL_COLD inline bool same_nearest_nics(const topology& t, gpu_id a, gpu_id b) noexcept {
    for (std::size_t i = 0; i < t.nics.size(); ++i) {
        const nic_id n{static_cast<std::uint16_t>(i)};
        if (is_nearest(t, a, n) != is_nearest(t, b, n)) return false;
    }
    return true;
}

}  // namespace detail

/// Requires: validate(t). Returns: the nearest NIC with a port, on the GPU's host. GPUs that are equally near to the
/// same several NICs take them in turn, by GPU order. `no_device` when the host has no such NIC.
VCCL_COLD inline result<nic_id> nearest_nic(const topology& t, gpu_id g) noexcept {
    if (!t.valid(g)) return status{errc::invalid_argument, g.value};
    unsigned candidates = 0;
    for (std::size_t i = 0; i < t.nics.size(); ++i)
        candidates += detail::is_nearest(t, g, nic_id{static_cast<std::uint16_t>(i)}) ? 1U : 0U;
    if (candidates == 0) return status{errc::no_device, subject::gpu, g.value};

    unsigned turn = 0;
    for (std::uint16_t other = 0; other < g.value; ++other) turn += detail::same_nearest_nics(t, gpu_id{other}, g) ? 1U : 0U;
    turn %= candidates;
    for (std::size_t i = 0; i < t.nics.size(); ++i) {
        const nic_id n{static_cast<std::uint16_t>(i)};
        if (detail::is_nearest(t, g, n) && turn-- == 0) return n;
    }
    return status{errc::no_device, subject::gpu, g.value};
}

/// Requires: validate(t). Returns: the first port of the GPU's nearest NIC.
VCCL_COLD inline result<port_id> nearest_port(const topology& t, gpu_id g) noexcept {
    const result<nic_id> n = nearest_nic(t, g);
    if (!n) return n.error();
    return t.port_at(*n, 0);
}

}  // namespace vccl::inline v0
