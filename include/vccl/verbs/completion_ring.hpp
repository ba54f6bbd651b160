#pragma once
/// \file
/// A completion queue of a backend in software whose ports one thread uses.

#include <vccl/base/status.hpp>
#include <vccl/model/work.hpp>

#include <bit>
#include <cstdint>
#include <new>
#include <vector>

namespace vccl::inline v0::verbs {

/// As many completions as were asked for, or some more. One that finds it full is lost, as others then are: see take().
class completion_ring {
public:
    /// More entries than this no NIC has, either.
    static constexpr std::uint32_t most_depth = 1u << 22;

    /// Throws: std::bad_alloc, also for more than most_depth.
    explicit completion_ring(std::uint32_t depth) : ring_(depth > most_depth ? throw std::bad_alloc{} : std::bit_ceil(depth)) {}

    /// Effects: the youngest completion. Never blocks.
    void push(const completion& c) noexcept { ring_[tail_++ & (ring_.size() - 1)] = c; }
    /// Returns: how many, the oldest first, were put into `out`, at most `room`. Errors: cq_overrun, for ever.
    result<unsigned> take(completion* out, unsigned room) noexcept {
        if (tail_ - head_ > ring_.size()) return errc::cq_overrun;
        unsigned n = 0;
        for (; n < room && head_ != tail_; ++n) out[n] = ring_[head_++ & (ring_.size() - 1)];
        return n;
    }

private:
    std::vector<completion> ring_;
    std::uint64_t head_{}, tail_{};
};

}  // namespace vccl::inline v0::verbs
