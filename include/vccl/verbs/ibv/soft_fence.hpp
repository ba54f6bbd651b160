#pragma once
/// \file
/// What soft-RoCE lacks of a fence. A NIC answers "QP to ERR" behind its writes to memory; `rdma_rxe` answers at once, while
/// another processor may still be copying a packet (seen: bytes that landed after the answer, on Linux 6.1 and 6.12).
/// Called by `ibv_queue_pair::to_error` for such devices only; any thread, which keeps its affinity in the end.
/// Source: Linux, drivers/infiniband/sw/rxe: the responder looks at the QP's state before each packet, and handles a packet
/// in a soft interrupt or a worker that a kernel without full preemption does not interrupt for a user's thread.

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace vccl::inline v0::verbs::ibv_detail {

inline constexpr std::uint32_t rxe_vendor = 0xffffff;

/// Effects: runs on every other processor in turn, so that what each was doing in the kernel before is over. Where the thread may
/// not choose its processor, gives a packet's copy a millisecond instead.
inline void let_every_processor_finish() noexcept {
    static const long count = ::sysconf(_SC_NPROCESSORS_CONF);
    const int here = ::sched_getcpu();  // this one runs us: it has finished
    cpu_set_t before;
    bool moved = false;
    bool everywhere = here >= 0 && count <= CPU_SETSIZE && ::sched_getaffinity(0, sizeof before, &before) == 0;
    for (long cpu = 0; everywhere && cpu < count; ++cpu) {
        if (cpu == here) continue;
        moved = true;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        everywhere = ::sched_setaffinity(0, sizeof one, &one) == 0;
    }
    if (moved) ::sched_setaffinity(0, sizeof before, &before);
    if (everywhere) return;
    const timespec a_millisecond{0, 1'000'000};
    ::nanosleep(&a_millisecond, nullptr);
}

}  // namespace vccl::inline v0::verbs::ibv_detail
