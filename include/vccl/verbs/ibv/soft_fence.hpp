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

/// The highest place in the run queues while it lives, where the thread may have it: busy processors are then reached in
/// microseconds instead of time slices.
class urgent {
public:
    urgent() noexcept : before_(::sched_getscheduler(0)) {
        sched_param now{};
        now.sched_priority = ::sched_get_priority_max(SCHED_FIFO);
        raised_ = before_ >= 0 && ::sched_getparam(0, &param_) == 0 && ::sched_setscheduler(0, SCHED_FIFO, &now) == 0;
    }
    urgent(const urgent&) = delete;
    ~urgent() {
        if (raised_) ::sched_setscheduler(0, before_, &param_);
    }

private:
    int before_;
    sched_param param_{};
    bool raised_{};
};

/// Effects: runs on every other processor in turn, so that what each was doing in the kernel before is over. Where the thread
/// may not choose its processor, gives a packet's copy a millisecond instead.
inline void let_every_processor_finish() noexcept {
    static const long count = ::sysconf(_SC_NPROCESSORS_CONF);
    const int here = ::sched_getcpu();  // this one runs us: it has finished
    cpu_set_t before;
    bool everywhere = here >= 0 && count <= CPU_SETSIZE && ::sched_getaffinity(0, sizeof before, &before) == 0;
    if (everywhere && count > 1) {
        const urgent for_the_tour;
        for (long cpu = 0; everywhere && cpu < count; ++cpu) {
            if (cpu == here) continue;
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            everywhere = ::sched_setaffinity(0, sizeof one, &one) == 0;
        }
        ::sched_setaffinity(0, sizeof before, &before);
    }
    if (everywhere) return;
    const timespec a_millisecond{0, 1'000'000};
    ::nanosleep(&a_millisecond, nullptr);
}

}  // namespace vccl::inline v0::verbs::ibv_detail
