#pragma once
/// \file
/// Chunks of many sizes under failures, for a channel of any shape.

#include "checks.hpp"

namespace vccl_test {

/// Chunks of these sizes in turn, with failures in between.
template <class World>
void sizes_survive(const std::vector<std::uint32_t>& sizes, unsigned buffers) {
    world_options o;
    o.chunk = std::max(1u, *std::max_element(sizes.begin(), sizes.end()));
    o.buffers = buffers;
    World w(o);
    start(w);
    const std::uint64_t turn = std::max<std::uint64_t>(sizes.size(), 2 * buffers), rounds = 4 * turn;
    auto size = [&](std::uint64_t s) { return sizes[s % sizes.size()]; };
    auto down = at_chunk(w, turn, "down A.nic0.p0"), up = at_chunk(w, 2 * turn, "up A.nic0.p0"),
         error = at_chunk(w, 3 * turn, "error B.nic0.p0");
    REQUIRE(w.transfer_of(rounds, size, [&] {
        down();
        up();
        error();
    }));
    exact(w, rounds);
    for (std::uint64_t s = 0; s < rounds; ++s) CHECK(w.rx->handler().chunks[s].bytes == sizes[s % sizes.size()]);
    CHECK(w.rx->handler().count(event::failed_over) >= 1);
}

}  // namespace vccl_test
