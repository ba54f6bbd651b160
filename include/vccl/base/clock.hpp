#pragma once
/// \file
/// The two stock clocks: the machine's monotonic one, and one that a test moves by hand.

#include <vccl/base/time.hpp>

#include <time.h>

namespace vccl::inline v0 {

/// CLOCK_MONOTONIC: the same on every process of a host. Any thread.
struct steady_clock {
    using policy_axis = axis::clock;
    /// One `clock_gettime`, which the kernel's vDSO answers without a system call.
    nanoseconds now() const noexcept {
        timespec t{};
        ::clock_gettime(CLOCK_MONOTONIC, &t);
        return {static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec};
    }
};

/// Shows the time that its source holds; copies share the source. Owner thread only.
struct manual_clock {
    using policy_axis = axis::clock;
    const nanoseconds* source{};  ///< must be set before the first now() and live as long as the copies do
    /// What the source holds at this moment; moving it is its owner's business.
    nanoseconds now() const noexcept { return *source; }
};

static_assert(clock_source<steady_clock>);
static_assert(clock_source<manual_clock>);

}  // namespace vccl::inline v0
