/// \file
/// Sender and receiver on the software RNIC under a manual clock: faults of every kind in the middle of a transfer.

#include "world.hpp"

#include <doctest/doctest.h>

using namespace vccl_test;
using kind = channel_event::kind;

namespace {

template <class World>
void exact(World& w, std::uint64_t chunks) {
    CHECK(w.wrong == 0);
    CHECK(w.checked == chunks);
    CHECK(w.rx->handler().chunks.size() == chunks);
    CHECK(w.tx->handler().chunks.size() == chunks);
    for (std::uint64_t i = 0; i < w.rx->handler().chunks.size(); ++i) CHECK(w.rx->handler().chunks[i].sequence.value == i);
}

}  // namespace

TEST_CASE("Chunks arrive once, in order and whole") {
    soft_world<> w;
    REQUIRE(w.connect());
    REQUIRE(w.run());
    REQUIRE(w.transfer(200));
    exact(w, 200);
    CHECK(w.rx->handler().count(kind::failed_over) == 0);
}

TEST_CASE("The sender's own port dies in the middle: the transfer goes on over the backup and comes back") {
    soft_world<> w;
    REQUIRE(w.connect());
    REQUIRE(w.run());
    REQUIRE(w.transfer(50));
    REQUIRE(w.command("down A.nic0.p0"));
    REQUIRE(w.transfer(100));
    CHECK(w.rx->active_lane() == lane_id{1});
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == lane_id{0}; }));
    REQUIRE(w.transfer(200));
    exact(w, 200);
    CHECK(w.tx->handler().count(kind::failed_over) == 1);
    CHECK(w.rx->handler().count(kind::failed_back) == 1);
}
