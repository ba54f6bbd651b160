#pragma once
/// \file
/// Time and patience of device code: %globaltimer and __nanosleep in a kernel; in a host build a clock and a pass of whatever
/// the waiter waits for, both of which a test may supply. Any thread.

#include <vccl/base/config.hpp>

#include <cstdint>
#if !defined(__CUDA_ARCH__)
#include <vccl/base/clock.hpp>

#include <sched.h>
#endif

namespace vccl::inline v0::device {

/// How a host build waits: `pass` is called again and again, `now` is the clock. Kernels do not look at it.
struct host_wait {
    /// Called with `self`; null: the machine's clock, and a pause of the processor.
    /// @{
    void* self{};
    void (*pass)(void* self){};
    std::int64_t (*now)(void* self){};
    /// @}
};

/// Nanoseconds on the clock that deadlines are measured by.
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE std::int64_t now(const host_wait* host) noexcept {
#if defined(__CUDA_ARCH__)
    (void)host;
    std::int64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
#else
    return host && host->now ? host->now(host->self) : steady_clock{}.now().count;
#endif
}

/// One round of waiting.
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void pause(const host_wait* host) noexcept {
#if defined(__CUDA_ARCH__)
    (void)host;
    __nanosleep(32);
#else
    if (host && host->pass)
        host->pass(host->self);
    else
        ::sched_yield();
#endif
}

/// One round of waiting for another poster, which is about to do what is waited for: no sleep.
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void spin(const host_wait* host) noexcept {
#if defined(__CUDA_ARCH__)
    (void)host;
#else
    pause(host);
#endif
}

/// A point in time after which a wait ends. The clock is first read when something has to be waited for.
class deadline {
public:
    /// So many nanoseconds from the first look on; 0 or less: one look and no more.
    VCCL_HOST_DEVICE deadline(const host_wait* host, std::int64_t timeout_ns) noexcept : host_(host), left_(timeout_ns) {}
    /// Has the time come? Reads the clock.
    VCCL_HOST_DEVICE bool passed() noexcept {
        const std::int64_t t = now(host_);
        begin(t);
        return t >= left_;
    }
    /// Effects: counts from now on, if it did not yet; so copies end together.
    VCCL_HOST_DEVICE void begin() noexcept { begin(now(host_)); }
    /// True at every eighth call: for looks that are dear.
    VCCL_HOST_DEVICE bool now_and_then() noexcept { return (++rounds_ & 7) == 0; }
    /// Null in kernels.
    VCCL_HOST_DEVICE const host_wait* host() const noexcept { return host_; }

private:
    VCCL_HOST_DEVICE void begin(std::int64_t t) noexcept {
        if (!begun_) left_ += t;
        begun_ = true;
    }

    const host_wait* host_;
    std::int64_t left_;  ///< the timeout; once begun, the end
    bool begun_{};
    unsigned rounds_{};
};

}  // namespace vccl::inline v0::device
