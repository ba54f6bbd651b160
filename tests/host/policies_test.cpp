/// \file
/// Which lane a channel starts on, goes to and returns to: ports down at the start, fail-back policies, forced backup,
/// other port policies, no_replay. Manual clock.

#include "checks.hpp"

using namespace vccl_test;

namespace {
constexpr lane_id primary{0}, backup{1};

}  // namespace

TEST_CASE("A port is down before the start: the channel starts on the backup and goes to the primary when it is up") {
    for (const std::string port : {"A.nic0.p0", "B.nic0.p0"}) {
        CAPTURE(port);
        soft_world<> w;
        REQUIRE(w.command("down " + port));
        start(w);
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.transfer(60));
        CHECK(w.port("A.nic0.p1").bytes_out >= 60 * std::uint64_t{w.o.chunk});
        REQUIRE(w.command("up " + port));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(120));
        CHECK(w.port("A.nic0.p0").bytes_out >= 40 * std::uint64_t{w.o.chunk});
        exact(w, 120);
    }
}
TEST_CASE("The backup is down before the start: it joins when it is up, and takes over later") {
    for (const std::string port : {"A.nic0.p1", "B.nic0.p1"}) {
        CAPTURE(port);
        soft_world<> w;
        REQUIRE(w.command("down " + port));
        start(w);
        REQUIRE(w.transfer(60));
        REQUIRE(w.command("up " + port));
        REQUIRE(w.until([&] { return w.rx->lane_health(backup).health == lane_health::up; }, 2_s));
        REQUIRE(w.transfer(120, at_chunk(w, 80, "down A.nic0.p0")));
        CHECK(w.rx->active_lane() == backup);
        exact(w, 120);
    }
}
TEST_CASE("Every port is down at the start: the channel waits and runs once one is up") {
    for (const std::string all : {"A", "B", "all"}) {
        CAPTURE(all);
        soft_world<> w;
        REQUIRE(w.command("down " + all));
        REQUIRE(w.connect());
        CHECK_FALSE(w.until([&] { return w.tx->connected() && w.rx->connected(); }, 50_ms));
        w.rest(2_s);
        CHECK(w.tx->health());
        CHECK(w.rx->health());
        REQUIRE(w.command(all == "all" ? "up A" : "up " + all + ".nic0.p1"));
        if (all == "all") {
            w.rest(100_ms);
            REQUIRE(w.command("up B.nic0.p1"));
        }
        REQUIRE(w.transfer(
            60, [] {}, 2_s));
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.command("up all"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(120));
        exact(w, 120);
    }
}
TEST_CASE("Every port stays down from the start: both ends give up at the deadline") {
    world_options o;
    o.tx.give_up_after = o.rx.give_up_after = 2_s;
    soft_world<> w(o);
    REQUIRE(w.command("down all"));
    REQUIRE(w.connect());
    w.pass_time = 100_us;
    REQUIRE(w.until([&] { return !w.tx->health() && !w.rx->health(); }, 3_s));
    CHECK(w.fabric.now() >= 2_s);
    CHECK(w.tx->health().code == errc::no_lane_left);
    CHECK(w.rx->health().code == errc::no_lane_left);
}

TEST_CASE("Forced backup: everything goes over the lane that was asked for, and comes back to it after a failure") {
    world_options o;
    o.tx.first_lane = o.rx.first_lane = 1;
    soft_world<> w(o);
    start(w);
    REQUIRE(w.transfer(60));
    CHECK(w.port("A.nic0.p1").bytes_out >= 60 * std::uint64_t{w.o.chunk});
    CHECK(w.port("A.nic0.p0").bytes_out < w.o.chunk);
    REQUIRE(w.transfer(120, at_chunk(w, 80, "down A.nic0.p1")));
    CHECK(w.rx->active_lane() == primary);
    REQUIRE(w.command("up A.nic0.p1"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == backup; }, 2_s));
    REQUIRE(w.transfer(180));
    exact(w, 180);
}
TEST_CASE("never_failback stays on the backup, and still uses the restored primary when the backup dies") {
    soft_world<1, never_failback> w;
    start(w);
    REQUIRE(w.transfer(60, at_chunk(w, 30, "down A.nic0.p0")));
    REQUIRE(w.command("up A.nic0.p0"));
    w.rest(10_s);
    CHECK(w.rx->lane_health(primary).health == lane_health::up);
    REQUIRE(w.transfer(90));
    CHECK(w.rx->active_lane() == backup);
    CHECK(w.rx->handler().count(event::failed_back) == 0);
    REQUIRE(w.transfer(150, at_chunk(w, 120, "down A.nic0.p1")));
    CHECK(w.rx->active_lane() == primary);
    exact(w, 150);
}
TEST_CASE("immediate_failback returns as soon as the lane has answered a probe, hold_down after its time") {
    auto back_after = [](auto& w) {
        start(w);
        REQUIRE(w.transfer(60, at_chunk(w, 30, "down A.nic0.p0")));
        w.rest(50_ms);
        REQUIRE(w.command("up A.nic0.p0"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 5_s));
        const channel_event* restored = w.rx->handler().first(event::lane_restored);
        const channel_event* back = w.rx->handler().first(event::failed_back);
        REQUIRE(restored);
        REQUIRE(back);
        REQUIRE(w.transfer(120));
        exact(w, 120);
        return back->at - restored->at;
    };
    soft_world<1, immediate_failback> at_once;
    CHECK(back_after(at_once) <= 1_ms);
    soft_world<1, hold_down<200>> held;
    const nanoseconds after = back_after(held);
    CHECK(after >= 200_ms);
    CHECK(after <= 210_ms);
}
TEST_CASE("no_replay: a lane lost with chunks on it ends the channel with an error at both ends") {
    soft_world<1, hold_down<1>, sibling_port, no_replay<64>> w;
    start(w);
    CHECK_FALSE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0"), 2_s));
    REQUIRE(w.until([&] { return !w.tx->health() && !w.rx->health(); }, 1_s));
    CHECK(w.tx->health().code == errc::no_replay_log);
    CHECK(w.tx->health().lane == 0);
    CHECK(w.rx->health().code == errc::aborted);
    CHECK(w.rx->handler().chunks.size() == w.rx->received().value);
    CHECK(w.out_memory.release());
    CHECK(w.in_memory.release());
}
TEST_CASE("no_replay: a lane lost with nothing on it is replaced like any other") {
    soft_world<1, hold_down<1>, sibling_port, no_replay<64>> w;
    start(w);
    REQUIRE(w.transfer(40));
    w.rest(1_ms);
    REQUIRE(w.command("down A.nic0.p0"));
    w.rest(100_ms);
    REQUIRE(w.transfer(80));
    CHECK(w.rx->active_lane() == backup);
    exact(w, 80);
}

TEST_CASE("Single-port NICs: the neighbouring GPU's port is the backup") {
    world_options o;
    o.ports = 1;
    soft_world<1, hold_down<1>, adjacent_gpu> w(o);
    start(w);
    REQUIRE(w.transfer(60, at_chunk(w, 30, "down A.nic0.p0")));
    CHECK(w.tx->lane_port(backup).view() == "A.nic1.p0");
    CHECK(w.rx->lane_port(backup).view() == "B.nic1.p0");
    CHECK(w.port("A.nic1.p0").bytes_out > w.o.chunk);
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(120));
    exact(w, 120);
}
TEST_CASE("More than two lanes: the list is walked to its end, and the way back leads to the first") {
    soft_world<1, hold_down<1>, each_of<sibling_port, adjacent_gpu>> w;
    start(w);
    REQUIRE(w.tx->lanes() >= 3);
    std::uint64_t goal = 0;
    for (unsigned l = 0; l + 1 < w.tx->lanes(); ++l) {
        CAPTURE(l);
        const std::string port(w.tx->lane_port(lane_id{static_cast<std::uint8_t>(l)}).view());
        REQUIRE(w.transfer(goal + 60, at_chunk(w, goal + 30, "down " + port)));
        goal += 60;
        CHECK(w.rx->active_lane().value == l + 1);
    }
    REQUIRE(w.command("up all"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(goal += 60));
    exact(w, goal);
}

TEST_CASE("A port dies between the exchange of blobs and the connection: the channel starts on the backup at once") {
    for (const std::string port : {"A.nic0.p0", "B.nic0.p0"}) {
        CAPTURE(port);
        soft_world<> w;
        REQUIRE(w.tx->local_info());
        REQUIRE(w.rx->local_info());
        REQUIRE(w.command("down " + port));
        w.a.poll_events(true);  // as another endpoint of the host does now and then
        w.b.poll_events(true);
        start(w);
        const nanoseconds started = w.fabric.now();
        REQUIRE(w.transfer(20));
        CHECK(w.fabric.now() - started < 50_ms);
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.command("up " + port));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(60));
        exact(w, 60);
    }
}
