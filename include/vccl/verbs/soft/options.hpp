#pragma once
/// \file
/// What a software fabric is made with. Read by whoever creates one (`soft_fabric::create`); a plain value, any thread.

#include <vccl/base/time.hpp>

#include <cstdint>

namespace vccl::inline v0::verbs {

/// What outstanding work sees when its own port dies. All four were seen on soft-RoCE, depending on the kernel;
/// NICs retry.
enum class port_down_behaviour : std::uint8_t {
    retry,     ///< time-outs, then RETRY_EXC_ERR and flush errors
    op_error,  ///< LOC_QP_OP_ERR at once, then flush errors
    flush,     ///< flush errors only
    silent,    ///< nothing, ever: the QP stays in RTS, also after the port is back
};

/// Fixed at the creation of the fabric; faults and rates can be changed later by commands.
struct soft_options {
    static constexpr std::uint32_t most_processes = 64;  ///< that a shared fabric may be made for

    std::uint32_t mtu{4096};             ///< active path MTU of every port: 256, 512, 1024, 2048 or 4096
    std::uint64_t bytes_per_second{0};   ///< line rate of every port; 0: the topology's, and if that is 0 unlimited
    nanoseconds latency{0};              ///< one way, every path
    std::uint64_t seed{1};               ///< of every random choice (loss, duplication, reordering)
    bool manual_time{false};             ///< nothing moves except by `step()` and `advance()`; one thread, one process
    port_down_behaviour on_port_down{port_down_behaviour::retry};  ///< of all ports; a NIC that exists does one of these
    std::uint32_t processes{32};         ///< how many may use a shared fabric at once, at most `most_processes`
    std::uint32_t ring_bytes{512u << 10};///< in flight between two processes, each way; a power of two, 64 KiB or more
    std::uint64_t memory_bytes{0};       ///< of a shared fabric, that each process may allocate (soft::allocate); rounded up
                                         ///< to pages, and backed only where it is allocated
};

}  // namespace vccl::inline v0::verbs
