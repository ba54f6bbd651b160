/// \file
/// The same protocol in other shapes: chunk sizes, windows, long sequences and many epochs. Manual clock.

#include "sizes.hpp"

using namespace vccl_test;

namespace {

constexpr lane_id primary{0}, backup{1};

template <class World>
void survives_a_port(world_options o, std::uint64_t chunks = 60) {
    World w(o);
    start(w);
    REQUIRE(w.transfer(chunks, at_chunk(w, chunks / 2, "down A.nic0.p0")));
    CHECK(w.rx->active_lane() == backup);
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(2 * chunks, at_chunk(w, 3 * chunks / 2, "cable-down B.nic0.p0")));
    exact(w, 2 * chunks);
    CHECK(w.rx->handler().count(event::failed_over) == 2);
}

}  // namespace

TEST_CASE("Chunks of no byte, one byte and odd sizes survive failures on one QP") {
    sizes_survive<soft_world<>>({0, 1, 7, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 65537}, 16);
    sizes_survive<soft_world<>>({0}, 4);
    sizes_survive<soft_world<>>({1}, 4);
}
TEST_CASE("Chunks of four MiB survive failures") { sizes_survive<soft_world<>>({4u << 20, (4u << 20) - 1}, 3); }

TEST_CASE("Chunks from and to addresses of every alignment survive failures") {
    world_options o;
    o.chunk = 64 * 1024 + 1;  // so the buffers lie at every address modulo 16
    survives_a_port<soft_world<>>(o);
    survives_a_port<soft_world<4>>(o);
}

TEST_CASE("A window of one receive") {
    world_options o;
    o.rx.window = 1;
    survives_a_port<soft_world<>>(o);
}
TEST_CASE("The largest window") {
    world_options o;
    o.rx.window = 256;
    o.buffers = 256;
    o.chunk = 4096;
    survives_a_port<soft_world<1, hold_down<1>, sibling_port, rollback_fifo<1024>>>(o, 2000);
}
TEST_CASE("A rollback FIFO of one chunk") { survives_a_port<soft_world<1, hold_down<1>, sibling_port, rollback_fifo<1>>>({}); }

TEST_CASE("Sixteen lanes: the ports die one after the other, and the last one carries the rest") {
    world_options o;
    o.nics = 1;
    o.ports = o.tx.lanes = o.rx.lanes = max_lanes;
    soft_world<> w(o);
    start(w);
    CHECK(w.tx->lanes() == max_lanes);
    for (unsigned l = 0; l + 1 < max_lanes; ++l) {
        CAPTURE(l);
        const std::string end = l % 2 ? "B" : "A";
        REQUIRE(w.transfer(20 * (l + 1), at_chunk(w, 20 * l + 10, ("down " + end + ".nic0.p" + std::to_string(l)).c_str())));
        CHECK(w.rx->active_lane() == lane_id{static_cast<std::uint8_t>(l + 1)});
    }
    exact(w, 20 * (max_lanes - 1));
    CHECK(w.rx->handler().count(event::failed_over) == max_lanes - 1);
    REQUIRE(w.command("up A.nic0.p14"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == lane_id{14}; }, 2_s));
    REQUIRE(w.transfer(20 * max_lanes));
    exact(w, 20 * max_lanes);
}

TEST_CASE("Sequences beyond the bits that an immediate has for them") {
    world_options o;
    o.chunk = 48;
    soft_world<> w(o);
    start(w);
    std::uint64_t goal = 0;
    // Failures right at the laps of 14 and of 16 bits.
    for (std::uint64_t at : {16'380u, 16'390u, 32'760u, 65'530u, 65'545u}) {
        REQUIRE(w.transfer(goal = at + 100, at_chunk(w, at, "down A.nic0.p0")));
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.command("up A.nic0.p0"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    }
    REQUIRE(w.transfer(66'000));
    exact(w, 66'000);
    CHECK(w.rx->handler().count(event::failed_over) == 5);
}

TEST_CASE("More failovers than the bits that an immediate has for epochs") {
    world_options o;
    o.chunk = 512;
    soft_world<1, immediate_failback> w(o);
    start(w);
    w.pass_time = 20_us;
    std::uint64_t goal = 0;
    for (unsigned i = 0; i < 1100; ++i) {
        const std::string fault = i % 2 ? "error B.nic0.p0" : "error A.nic0.p0";
        REQUIRE(w.transfer(goal + 24, at_chunk(w, goal + 4, fault)));
        goal += 24;
        REQUIRE(w.until([&] { return w.rx->handler().count(event::failed_over) > i && w.rx->active_lane() == primary; }, 2_s));
    }
    CHECK(w.rx->epoch().value > immediate::epoch_mask + 1);
    exact(w, goal);
}
