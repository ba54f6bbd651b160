#pragma once
/// \file
/// `verbs::ibv`: the backend on real hardware (and soft-RoCE) through rdma-core. RC queue pairs on InfiniBand or RoCE.
/// A cheap handle to copy: what it holds is configuration. Link with libibverbs (`vccl::ibv`). Threads: each object one at
/// a time, as backend.hpp says; different objects of a port may be used by different threads.

#include <vccl/verbs/ibv/discover.hpp>

#include <unistd.h>

namespace vccl::inline v0::verbs {

/// Configuration only: what is open belongs to the ports that open() gives.
struct ibv {
    using policy_axis = axis::verbs;
    using port = ibv_port;  ///< what open() gives
    /// Compile-time: dma-buf where the headers of rdma-core have it.
    static constexpr backend_capabilities capabilities{
        .dmabuf = ibv_detail::can_register_dmabuf<ibv_pd>, .manual_time = false, .loopback = true, .atomics = true};

    ibv_path path{};           ///< how ports are opened; the default suits
    fixed_name<48> devices{};  ///< discover only devices whose name begins with this

    /// Returns: `no_device` when there is none, `permission` when /dev/infiniband may not be opened.
    result<topology> discover() const {
        auto found = ibv_detail::find_devices(devices.view());
        if (!found) return found.error();
        char host[48] = "localhost";
        ::gethostname(host, sizeof host - 1);
        return arrange(host, *found, ibv_detail::find_gpus());
    }

    /// `name`: "mlx5_0:1" or, for the first port, "mlx5_0". Returns: `no_device`, `no_port`, `permission`, `no_memory`.
    result<port> open(const port_name& name) const noexcept { return port::open(name.view(), path); }

    /// The network interface of a RoCE port, for `ip link` and for people; nothing for InfiniBand.
    std::string netdev(const port_name& name) const {
        const auto where = ibv_detail::parse(name.view());
        return where ? ibv_detail::netdev_of(std::string{where->device}, where->port) : std::string{};
    }
};
static_assert(verbs_backend<ibv>);

}  // namespace vccl::inline v0::verbs
