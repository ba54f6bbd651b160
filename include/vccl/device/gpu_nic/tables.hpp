#pragma once
/// \file
/// What the host tells the NIC in a kernel, and what that tells the host. Every word has one writer. All but the regions lie in
/// mapped host memory.

#include <vccl/device/receive_queue.hpp>

namespace vccl::inline v0::device::gpu_nic_detail {

inline constexpr unsigned max_ports = 64, max_ends = 1024, max_regions = 256, max_queues = 64, max_blocks = 64;

/// Registered memory. In GPU memory: it is looked up for every WQE.
struct region {
    std::uint64_t base{}, bytes{};
    std::uint32_t lkey{}, rkey{};
    std::uint32_t port{};
    std::uint32_t live{};  ///< written last, and first when the region goes
};

enum class queue_state : std::uint32_t { idle, running, error };

/// A ring. Written by the host; a new `generation` hands over the rest.
struct alignas(128) queue_entry {
    ring memory{};
    std::uint64_t retry_time{};  ///< nanoseconds for which an unreachable peer is tried
    std::uint32_t port{};
    std::uint32_t peer{};        ///< of `ends`
    std::uint32_t peer_qpn{};    ///< the QP that was there when the ring was connected
    std::uint32_t end{};         ///< the QP itself, of `ends`
    std::uint32_t rnr_retry{};   ///< times that a peer without a receive is asked again; 7: for ever
    std::uint32_t generation{};
    queue_state state{};
};
/// Any QP that can be written to. Written by the host; all but `accepts` while that is 0.
struct alignas(128) end_entry {
    std::uint32_t accepts{};     ///< the QPN whose packets are taken: that of the peer it was connected to. 0: nobody's
    std::uint32_t port{};
    std::uint32_t qpn{};         ///< its own. 0: the place is free
    ring receives{};             ///< the receive queue, if it has one
    std::uint64_t rnr_wait{};    ///< nanoseconds after which a sender may ask again whether there is a receive
    std::uint32_t generation{};  ///< a new one hands the receive queue over as new
};
/// How far the receives of an end were taken. By the runner of its peer while the end accepts, by its own after that.
struct end_progress {
    receive_consumer receives{};
    std::uint32_t generation{};

    /// Effects: what the host has handed over last is what is taken from. False: this end has no receive queue.
    VCCL_HOST_DEVICE bool begin(const end_entry& e) noexcept {
        if (e.generation != generation) {
            generation = e.generation;
            receives = receive_consumer(e.receives);
        }
        return e.receives.cq != nullptr;
    }
};
/// Written by the kernel.
struct alignas(128) queue_report {
    std::uint32_t failed{};   ///< the generation that is in ERR, by an error of its own
    std::uint32_t overrun{};  ///< the generation whose completion queue overran
};
struct alignas(128) pass_count {
    std::uint64_t passes{};   ///< written by one block of the kernel
};

struct tables {
    queue_entry* queues{};
    end_entry* ends{};
    queue_report* reports{};
    std::uint32_t* port_up{};
    pass_count* blocks{};
    std::uint32_t* queue_count{};
    std::uint32_t* stop{};
    std::uint32_t* region_count{};  ///< those behind are not live
    const region* regions{};
    const std::uint32_t* pace{};    ///< picoseconds that a byte takes on its port; 0: no limit
    end_progress* progress{};       ///< one an end, zeroed; in GPU memory, by the kernel
    std::uint64_t* port_free{};  ///< when each port has sent what was given to it, in `link_ticks`. In GPU memory, by the kernel
};

/// Eighths of a nanosecond: a count of them since 1970 has room in 64 bits, and 8 bytes at 400 Gbit/s are more than nothing.
inline constexpr std::uint64_t link_ticks = 8;

}  // namespace vccl::inline v0::device::gpu_nic_detail
