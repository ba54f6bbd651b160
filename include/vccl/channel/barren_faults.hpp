#pragma once
/// \file
/// Failovers that bring nothing: a fault of this end's own making, again and again, with no chunk received in between. Pure.
/// Owner thread only.

#include <vccl/base/time.hpp>

#include <cstdint>

namespace vccl::inline v0 {

/// How many there were, and for how long.
class barren_faults {
public:
    /// A fault of another kind. `head`: what has been received so far.
    void over(std::uint64_t head, nanoseconds now) noexcept {
        times_ = 0;
        head_ = head;
        since_ = now;
    }
    /// Another one. Returns: how many there were since anything was received, but for the first.
    unsigned again(std::uint64_t head, nanoseconds now) noexcept {
        if (head == head_) return ++times_;
        over(head, now);
        return 0;
    }
    nanoseconds lasted(nanoseconds now) const noexcept { return now - since_; }  ///< since the first of them

private:
    std::uint64_t head_{~std::uint64_t{0}};
    unsigned times_{};
    nanoseconds since_{};
};

}  // namespace vccl::inline v0
