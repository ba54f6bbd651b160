#pragma once
/// \file
/// Policies of device endpoints whose rings a NIC in a kernel consumes: the rings' source, and a count of moves.

#include <vccl/device/compose.hpp>
#include <vccl/model/event.hpp>

#include <atomic>

namespace vccl_gpu_test {

template <class Nic>
struct kernel_rings {
    using policy_axis = vccl::axis::rings;
    using source = Nic;
};

/// Counts failovers and fail-backs.
struct happenings {
    using policy_axis = vccl::axis::completion;
    std::atomic<unsigned>* moves{};
    void on_event(const vccl::channel_event& e) noexcept {
        using kind = vccl::channel_event::kind;
        if (moves && (e.what == kind::failed_over || e.what == kind::failed_back)) ++*moves;
    }
};

}  // namespace vccl_gpu_test
