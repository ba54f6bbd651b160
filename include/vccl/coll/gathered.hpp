#pragma once
/// \file
/// A small all-reduce, whose time is that of its hops: every rank gets every rank's elements, in half as many hops as a ring needs to
/// combine and to spread them, and combines them by itself. In the order in which the ring would have, so that the bits are the same.
/// Pure but for the compute. Owner thread of the collective only.

#include <vccl/coll/compute.hpp>
#include <vccl/coll/ring.hpp>

#include <span>

namespace vccl::inline v0 {

/// Work that takes no time of its own to begin, so that many small pieces cost little.
template <class Compute>
concept computes_at_once = element_compute<Compute> && Compute::at_once;

/// An all-reduce of so many bytes is gathered, if the memory for it is there.
inline constexpr std::uint64_t most_gathered_bytes = 8 * 1024;

/// Effects: `out` becomes what a ring_task for ring `share` of `shares` would have made of its parts of all blocks. `all`: rank r's
/// `count` elements at r * count. Returns: the ticket of the last piece of work.
template <computes_at_once Compute>
std::uint64_t combine_gathered(Compute& compute, std::span<const std::uint32_t> order, std::uint32_t share, std::uint32_t shares,
                               const std::byte* all, std::byte* out, std::uint64_t count, element_type type,
                               reduce_op op) noexcept {
    const std::uint64_t size = size_of(type), grain = 64 / size;
    const auto ranks = static_cast<std::uint32_t>(order.size());
    std::uint64_t ticket = 0;
    for (std::uint32_t p = 0; p < ranks; ++p) {  // position p owns its block: the next one begins it
        const element_range block = split({0, count}, ranks, order[p], grain), part = split(block, shares, share, grain);
        if (part.count == 0) continue;
        const auto of = [&](std::uint32_t k) { return all + (order[(p + k) % ranks] * count + part.begin) * size; };
        std::byte* const to = out + part.begin * size;
        const std::byte* sum = of(1);
        for (std::uint32_t k = 2; k <= ranks; ++k, sum = to) ticket = compute.combine({to, sum, of(k), part.count, type, op});
    }
    return ticket;
}

}  // namespace vccl::inline v0
