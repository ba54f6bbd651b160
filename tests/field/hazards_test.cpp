/// \file
/// The ways in which fault-tolerant transports go wrong that have no user's thread of their own here: two or more at once, numbered as
/// in docs/protocol.md, "Hazards". Those that one test of tests/host shows are named in docs/proof.md.

#include "../host/checks.hpp"

using namespace vccl_test;

TEST_CASE("Hazards 2, 3 and 4: data that arrived unacknowledged, a part of a chunk, and consumed chunks, all in one failure") {
    soft_world<4> w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("drop-acks A.nic0.p0"));
    w.users(28, [&](std::uint64_t) { return w.o.chunk; });
    for (int i = 0; i < 6; ++i) w.pass();
    REQUIRE(w.command("partial A.nic0.p0 3"));
    REQUIRE(w.transfer(60));
    REQUIRE(w.command("clear A.nic0.p0"));
    w.rest(1_s, 200_us);
    REQUIRE(w.transfer(90));
    CHECK(w.rx->handler().count(event::failed_over) >= 1);
    exact(w, 90);
}

TEST_CASE("Hazards 5, 6 and 10: both ends fail, then the backup during the failover, and one end hears nothing of it") {
    soft_world<2, hold_down<1>, each_of<sibling_port, adjacent_gpu>> w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("no-event B.nic0.p0"));
    REQUIRE(w.command("down A.nic0.p0"));
    REQUIRE(w.command("down B.nic0.p0"));
    const auto failed = [&] { return w.rx->state() != channel_state::running || w.tx->handler().count(event::lane_failed) != 0; };
    w.users(60, [&](std::uint64_t) { return w.o.chunk; });
    REQUIRE(w.until(failed, 1_s));
    REQUIRE(w.command("down A.nic0.p1"));
    REQUIRE(w.transfer(60));
    CHECK(w.rx->active_lane().value == 2);
    for (const char* p : {"up A.nic0.p0", "up B.nic0.p0", "up A.nic0.p1"}) REQUIRE(w.command(p));
    w.rest(1_s, 200_us);
    REQUIRE(w.transfer(100));
    CHECK(w.rx->active_lane().value == 0);
    exact(w, 100);
}

TEST_CASE("Hazards 8 and 9: a flush fails while grants are lost with their lane") {
    world_options o;
    o.rx.flush = flush_mode::always;
    soft_world<> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("fail-flush B.nic0.p0"));
    REQUIRE(w.command("hang B.nic0.p0"));
    w.pass_time = 20_us;
    REQUIRE(w.transfer(60));
    REQUIRE(w.command("clear B.nic0.p0"));
    w.rest(1_s, 200_us);
    w.pass_time = 2_us;
    REQUIRE(w.transfer(90));
    exact(w, 90);
}

TEST_CASE("Hazard 11: the way back is taken while the other lane dies") {
    soft_world<2, immediate_failback> w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("down A.nic0.p0"));
    REQUIRE(w.transfer(40));
    REQUIRE(w.command("up A.nic0.p0"));
    w.users(80, [&](std::uint64_t) { return w.o.chunk; });
    REQUIRE(w.until(
        [&] {
            w.users(400, [&](std::uint64_t) { return w.o.chunk; });
            return w.rx->handler().count(event::failed_back) != 0;
        },
        2_s));
    REQUIRE(w.command("down B.nic0.p1"));
    REQUIRE(w.transfer(450));
    CHECK(w.rx->active_lane().value == 0);
    exact(w, 450);
}

TEST_CASE(
    "Hazards 12 and 17: a lane fails and returns again and again with a new address each time; every life has a generation of "
    "its own") {
    soft_world<> w;
    start(w);
    std::uint32_t last = 0;
    for (std::uint64_t round = 1; round <= 6; ++round) {
        REQUIRE(w.transfer(round * 20));
        REQUIRE(w.command("gid-change B.nic0.p0"));
        w.rest(1_s, 200_us);
        const auto generation = w.rx->lane_health(lane_id{0}).generation;
        CHECK(generation > last);
        CHECK(generation == w.tx->lane_health(lane_id{0}).generation);
        last = generation;
    }
    exact(w, 120);
}

TEST_CASE("Hazards 19 and 20: the peer is gone in the middle of a chunk: it is not received, and the reason is not a dead link") {
    soft_world<4> w;
    start(w);
    REQUIRE(w.transfer(20));
    w.users(36, [&](std::uint64_t) { return w.o.chunk; });
    for (int i = 0; i < 4; ++i) w.pass();
    w.tx.reset();
    const auto told = w.rx->received().value;
    for (int i = 0; i < 100'000 && w.rx->health(); ++i) {
        w.rx->progress();
        w.fabric.advance(100_us);
    }
    const errc why = w.rx->health().code;
    CHECK((why == errc::aborted || why == errc::peer_lost));
    const auto received = w.rx->received().value;
    CHECK(received >= told);
    CHECK(w.rx->handler().chunks.size() == received);
    CHECK_FALSE(w.rx->outcome(sequence{received}));
}
