/// \file
/// Sender and receiver on the software RNIC under a manual clock: every kind of fault in the middle of a transfer.

#include "checks.hpp"

using namespace vccl_test;

namespace {

using ordinary = soft_world<>;

/// For much traffic in simulated time that costs little in ours.
world_options small_chunks() {
    world_options o;
    o.chunk = 1024;
    return o;
}
constexpr lane_id primary{0}, backup{1};

/// The path breaks in the middle of a transfer, the transfer goes on over the backup, the path is mended, and it returns.
void one_failure(const std::string& breaks, const std::string& mends, verbs::port_down_behaviour on_down = {}) {
    CAPTURE(breaks);
    CAPTURE(static_cast<int>(on_down));
    world_options o;
    o.fabric.on_port_down = on_down;
    ordinary w(o);
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, breaks)));
    CHECK(w.rx->active_lane() == backup);
    CHECK(w.tx->active_lane() == backup);
    REQUIRE(w.command(mends));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(140));
    CHECK(w.tx->active_lane() == primary);
    exact(w, 140);
    CHECK(w.tx->handler().count(event::failed_over) == 1);
    CHECK(w.rx->handler().count(event::failed_over) == 1);
    CHECK(w.rx->handler().count(event::resumed) == 1);
    CHECK(w.rx->handler().count(event::failed_back) == 1);
    CHECK(w.tx->handler().count(event::suspended) + w.rx->handler().count(event::suspended) == 0);
}

fault_cause first_cause(const journal& j) {
    const channel_event* e = j.first(event::lane_failed);
    return e ? e->cause : fault_cause::none;
}

}  // namespace

TEST_CASE("Without a fault chunks arrive once, in order and whole, and nothing happens to the lanes") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(200));
    exact(w, 200);
    CHECK(repeated_parts(w) == 0);
    CHECK(w.tx->handler().events.size() == 1);
    CHECK(w.rx->handler().events.size() == 1);
}

TEST_CASE("The sender's own port dies in the middle: the transfer goes on over the backup and comes back") {
    for (auto b : behaviours) one_failure("down A.nic0.p0", "up A.nic0.p0", b);
}
TEST_CASE("The receiver's port dies in the middle: the transfer goes on over the backup and comes back") {
    for (auto b : behaviours) one_failure("down B.nic0.p0", "up B.nic0.p0", b);
}
TEST_CASE("The sender's cable is pulled and put back: the transfer goes on and comes back") {
    for (auto b : behaviours) one_failure("cable-down A.nic0.p0", "cable-up A.nic0.p0", b);
}
TEST_CASE("The receiver's cable is pulled and put back: the transfer goes on and comes back") {
    for (auto b : behaviours) one_failure("cable-down B.nic0.p0", "cable-up B.nic0.p0", b);
}
TEST_CASE("The switch between them dies, which no port reports: the transfer goes on and comes back") {
    one_failure("switch-down rail0", "switch-up rail0");
}
TEST_CASE("Every packet is lost, which no port reports: the transfer goes on and comes back") {
    one_failure("loss A.nic0.p0 100%", "clear A.nic0.p0");
}
TEST_CASE("Work requests hang at the sender without a completion: the transfer goes on and comes back") {
    one_failure("hang A.nic0.p0", "clear A.nic0.p0");
}
TEST_CASE("Work requests hang at the receiver without a completion: the transfer goes on and comes back") {
    one_failure("hang B.nic0.p0", "clear B.nic0.p0");
}

TEST_CASE("A port's death is blamed on the port at its own end and on the notice at the other") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0")));
    CHECK(first_cause(w.tx->handler()) == fault_cause::own_port);
    CHECK(first_cause(w.rx->handler()) == fault_cause::peer_notice);
    REQUIRE(w.tx->handler().first(event::failed_over));
    CHECK(w.tx->handler().first(event::failed_over)->lane == primary);
    CHECK(w.tx->handler().first(event::failed_over)->to == backup);
}

TEST_CASE("Both ends lose the port at once: one failover") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(80, [&, done = false]() mutable {
        if (done || w.checked < 40) return;
        done = true;
        REQUIRE(w.command("down A.nic0.p0"));
        REQUIRE(w.command("down B.nic0.p0"));
    }));
    CHECK(first_cause(w.tx->handler()) == fault_cause::own_port);
    CHECK(first_cause(w.rx->handler()) == fault_cause::own_port);
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.command("up B.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(140));
    exact(w, 140);
    CHECK(w.rx->handler().count(event::failed_over) == 1);
}

TEST_CASE("The backup is lost while the failover to it is under way: the channel is suspended, then resumes") {
    for (const std::string end : {"A", "B"})
        for (auto during : {channel_state::fencing, channel_state::announcing}) {
            CAPTURE(end);
            CAPTURE(static_cast<int>(during));
            ordinary w;
            start(w);
            bool broken = false, both = false;
            const std::string p = "down " + end + ".nic0.p";
            auto every = [&] {
                if (!broken && w.checked >= 40) broken = static_cast<bool>(w.command(p + "0"));
                // Fencing may be over within one pass; what comes after it will do.
                if (broken && !both && w.rx->state() != channel_state::running && w.rx->state() >= during)
                    both = static_cast<bool>(w.command(p + "1"));
            };
            REQUIRE_FALSE(w.transfer(80, every, 300_ms));
            CHECK(both);
            CHECK(w.rx->state() == channel_state::suspended);
            if (end == "A") CHECK(w.tx->state() == channel_state::suspended);
            CHECK(w.rx->handler().count(event::suspended) == 1);
            w.rest(3_s);
            REQUIRE(w.rx->health());
            REQUIRE(w.command("up " + end + ".nic0.p1"));
            REQUIRE(w.transfer(80, every, 2_s));
            CHECK(w.rx->active_lane() == backup);
            REQUIRE(w.command("up " + end + ".nic0.p0"));
            REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
            REQUIRE(w.transfer(120));
            exact(w, 120);
        }
}

TEST_CASE("No lane is left until the deadline: both ends give up in time, and nothing completes afterwards") {
    for (const std::string all : {"down A", "down B", "down all"}) {
        CAPTURE(all);
        world_options o;
        o.tx.give_up_after = o.rx.give_up_after = 2_s;
        ordinary w(o);
        start(w);
        CHECK_FALSE(w.transfer(200, at_chunk(w, 60, all), 200_ms));
        const nanoseconds broken = w.fabric.now();
        REQUIRE(w.rx->health());
        REQUIRE(w.tx->health());
        w.pass_time = 50_us;
        REQUIRE(w.until([&] { return !w.tx->health() && !w.rx->health(); }, 2500_ms));
        CHECK(w.fabric.now() - broken > 1500_ms);
        CHECK(w.tx->health().code == errc::no_lane_left);
        CHECK(w.rx->health().code == errc::no_lane_left);
        CHECK(w.tx->handler().count(event::failed) == 1);
        CHECK(w.rx->handler().count(event::failed) == 1);

        const sequence received = w.rx->received(), acknowledged = w.tx->acknowledged();
        const std::size_t told_rx = w.rx->handler().chunks.size(), told_tx = w.tx->handler().chunks.size();
        CHECK(told_rx == received.value);
        CHECK(told_tx == acknowledged.value);
        CHECK(acknowledged <= received);
        REQUIRE(w.command("up all"));
        w.rest(2_s);
        CHECK(w.rx->received() == received);
        CHECK(w.tx->acknowledged() == acknowledged);
        CHECK(w.rx->handler().chunks.size() == told_rx);
        CHECK(w.tx->handler().chunks.size() == told_tx);
        CHECK(w.rx->outcome(sequence{received.value - 1}).value_or(0) == w.o.chunk);
        CHECK(w.rx->outcome(received).error().code == errc::no_lane_left);
        CHECK(w.rx->wait(received, 1_s).error().code == errc::no_lane_left);
        CHECK(w.tx->wait(acknowledged, 1_s).code == errc::no_lane_left);
        CHECK(w.tx->send(w.out_memory.view(0, 8)).error().code == errc::no_lane_left);
        CHECK(w.rx->recv(w.in_memory.view(0, 8)).error().code == errc::no_lane_left);
        CHECK(w.out_memory.release());
        CHECK(w.in_memory.release());
    }
}

TEST_CASE("Chunks that came in but were not polled before the receiver gave up are not received afterwards") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.users(36, [&](std::uint64_t) { return w.o.chunk; });
    w.rx->progress();  // grants; and from now on the receiver does not look
    const auto before = w.port("B.nic0.p0").bytes_in;
    for (int i = 0; i < 1000; ++i) {
        w.tx->progress();
        w.fabric.advance(w.pass_time);
    }
    REQUIRE(w.port("B.nic0.p0").bytes_in - before > 10 * std::uint64_t{w.o.chunk});
    w.rx->abort();
    w.rest(100_ms);
    CHECK(w.rx->received().value == 20);
    CHECK(w.rx->handler().chunks.size() == 20);
    CHECK(w.tx->handler().chunks.size() == 20);
    CHECK(w.rx->health().code == errc::aborted);
    CHECK(w.tx->health().code == errc::aborted);
    CHECK(w.out_memory.release());
    CHECK(w.in_memory.release());
}

TEST_CASE("Acknowledgements that came in before the sender gave up are not told afterwards") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.users(36, [&](std::uint64_t) { return w.o.chunk; });
    REQUIRE(w.until([&] { return w.tx->acknowledged().value > 24; }));
    const std::size_t told = w.tx->handler().chunks.size();
    for (int i = 0; i < 1000; ++i) {  // the sender does not look
        w.rx->progress();
        w.fabric.advance(w.pass_time);
    }
    w.tx->abort();
    w.rest(100_ms);
    CHECK(w.tx->handler().chunks.size() == told);
    CHECK(w.tx->acknowledged().value == told);
    CHECK(w.rx->health().code == errc::aborted);
    CHECK(w.out_memory.release());
    CHECK(w.in_memory.release());
}

TEST_CASE("The same port fails ten times in a row: the transfer leaves it and returns to it every time") {
    ordinary w;
    start(w);
    for (unsigned i = 1; i <= 10; ++i) {
        CAPTURE(i);
        const std::uint64_t from = w.checked;
        REQUIRE(w.transfer(from + 60, at_chunk(w, from + 30, "down A.nic0.p0")));
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.command("up A.nic0.p0"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        CHECK(w.rx->handler().count(event::failed_over) == i);
        CHECK(w.rx->handler().count(event::failed_back) == i);
    }
    REQUIRE(w.transfer(650));
    exact(w, 650);
}

TEST_CASE("An outage of minutes: traffic stays on the backup and returns when it is over") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, "down B.nic0.p0")));
    w.pass_time = 1_ms;
    std::uint64_t goal = w.checked;
    for (int minute = 0; minute < 5; ++minute) {
        REQUIRE(w.transfer(goal += 20));
        w.rest(60_s, 2_ms);
    }
    CHECK(w.rx->active_lane() == backup);
    CHECK(w.rx->handler().count(event::failed_over) == 1);
    w.pass_time = 2_us;
    REQUIRE(w.command("up B.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(goal += 50));
    exact(w, goal);
}

TEST_CASE("A suspension of minutes below the deadline loses nothing") {
    world_options o;
    o.tx.give_up_after = o.rx.give_up_after = 600_s;
    ordinary w(o);
    start(w);
    REQUIRE_FALSE(w.transfer(80, at_chunk(w, 40, "down A"), 200_ms));
    w.rest(300_s, 2_ms);
    REQUIRE(w.tx->health());
    REQUIRE(w.rx->health());
    REQUIRE(w.command("up A"));
    REQUIRE(w.transfer(
        120, [] {}, 2_s));
    exact(w, 120);
}

TEST_CASE("Traffic goes on before a lane is rebuilt, which would hold it up") {
    for (const std::string breaks : {"switch-down rail0", "cable-down A.nic0.p0", "partial A.nic0.p0 3"}) {
        CAPTURE(breaks);
        ordinary w;
        start(w);
        unsigned seen = 0;
        const auto at = at_chunk(w, 40, breaks);
        REQUIRE(w.transfer(80, [&] {
            at();
            const journal& j = w.rx->handler();
            if (j.count(event::lane_failed) == j.count(event::resumed)) return;
            ++seen;
            CHECK(w.rx->lane_health(primary).health != lane_health::restoring);
        }));
        CHECK(seen > 0);
        exact(w, 80);
    }
}

TEST_CASE("The second lane fails while the first recovers") {
    for (auto stage : {lane_health::restoring, lane_health::verifying, lane_health::up}) {
        CAPTURE(static_cast<int>(stage));
        ordinary w(small_chunks());
        start(w);
        REQUIRE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0")));
        REQUIRE(w.command("up A.nic0.p0"));
        w.pass_time = 200_us;  // traffic for longer than a port may settle
        bool broken = false;
        REQUIRE(w.transfer(
            12'000,
            [&] {
                if (broken || w.rx->lane_health(primary).health != stage) return;
                broken = static_cast<bool>(w.command("down A.nic0.p1"));
            },
            10_s));
        CHECK(broken);
        CHECK(w.rx->active_lane() == primary);
        REQUIRE(w.command("up A.nic0.p1"));
        REQUIRE(w.until([&] { return w.rx->lane_health(backup).health == lane_health::up; }, 2_s));
        exact(w, 12'000);
    }
}

TEST_CASE("A port that flaps every few milliseconds costs time, not data") {
    for (const std::string flap : {"flap A.nic0.p0 2ms 3ms 60x", "flap B.nic0.p0 1ms 5ms 60x", "flap A.nic0 3ms 2ms 40x"}) {
        CAPTURE(flap);
        world_options o;
        o.chunk = 2048;
        ordinary w(o);
        start(w);
        w.pass_time = 10_us;
        REQUIRE(w.command(flap));
        std::uint64_t goal = 0;
        const nanoseconds end = w.fabric.now() + 400_ms;
        while (w.fabric.now() < end) REQUIRE(w.transfer(goal += 40));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(goal += 100));
        exact(w, goal);
        CHECK(w.rx->handler().count(event::lane_failed) >= 1);
    }
}

TEST_CASE("A port that flaps slowly enough to be used in between is left and used again every time") {
    for (const std::string flap : {"flap A.nic0.p0 20ms 100ms 8x", "flap B.nic0.p0 5ms 90ms 8x", "flap A.nic0 10ms 90ms 8x"}) {
        CAPTURE(flap);
        world_options o;
        o.chunk = 2048;
        ordinary w(o);
        start(w);
        REQUIRE(w.command(flap));
        std::uint64_t goal = 0;
        const nanoseconds end = w.fabric.now() + 1_s;
        while (w.fabric.now() < end) {
            w.pass_time = 10_us;
            REQUIRE(w.transfer(goal += 20));
            w.rest(500_us, 50_us);
        }
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(goal += 100));
        exact(w, goal);
        CHECK(w.rx->handler().count(event::failed_over) + w.rx->handler().count(event::suspended) >= 8);
    }
}

TEST_CASE("An idle lane dies in silence: a probe finds out in time, and the next chunk takes the other lane at once") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.rest(1_s);
    REQUIRE(w.rx->handler().count(event::lane_failed) == 0);
    REQUIRE(w.command("switch-down rail0"));
    const nanoseconds dead = w.fabric.now();
    w.pass_time = 50_us;
    REQUIRE(w.until([&] {
        return w.rx->lane_health(primary).health != lane_health::up && w.tx->lane_health(primary).health != lane_health::up;
    }));
    CHECK(w.fabric.now() - dead <= detection_times{}.worst_case() + 50_ms);
    w.pass_time = 2_us;
    w.rest(20_ms);
    const nanoseconds again = w.fabric.now();
    REQUIRE(w.transfer(40));
    CHECK(w.fabric.now() - again < 5_ms);
    CHECK(w.rx->active_lane() == backup);
    exact(w, 40);
}

TEST_CASE("The idle backup dies in silence: the transfer does not notice, and a later failover does not choose it") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("switch-down rail1"));
    w.rest(1_s);
    CHECK(w.rx->lane_health(backup).health != lane_health::up);
    REQUIRE(w.transfer(60));
    CHECK(w.rx->handler().count(event::failed_over) == 0);
    CHECK(w.rx->active_lane() == primary);
    REQUIRE_FALSE(w.transfer(120, at_chunk(w, 80, "down A.nic0.p0"), 300_ms));
    CHECK(w.rx->state() == channel_state::suspended);
    REQUIRE(w.command("switch-up rail1"));
    REQUIRE(w.transfer(
        120, [] {}, 5_s));
    CHECK(w.rx->active_lane() == backup);
    exact(w, 120);
}

TEST_CASE("PORT_ACTIVE never comes: the port is found to be back by looking") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0")));
    REQUIRE(w.command("no-event A.nic0.p0"));
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 1_s));
    REQUIRE(w.transfer(140));
    exact(w, 140);
}
TEST_CASE("PORT_ERR never comes: the port's death is found out without it") {
    for (auto b : behaviours) {
        CAPTURE(static_cast<int>(b));
        world_options o;
        o.fabric.on_port_down = b;
        ordinary w(o);
        start(w);
        REQUIRE(w.command("no-event A.nic0.p0"));
        REQUIRE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0")));
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.command("up A.nic0.p0"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(140));
        exact(w, 140);
    }
}
TEST_CASE("PORT_ACTIVE comes twice: the second changes nothing") {
    ordinary w;
    start(w);
    REQUIRE(w.command("twice A.nic0.p0"));
    REQUIRE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0")));
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 1_s));
    REQUIRE(w.transfer(140));
    exact(w, 140);
    CHECK(w.rx->handler().count(event::failed_over) == 1);
}

TEST_CASE("A one-sided error at the sender moves both ends, and the healthy port is used again") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, "error A.nic0.p0")));
    CHECK(first_cause(w.tx->handler()) == fault_cause::local_error);
    CHECK(w.rx->handler().count(event::failed_over) == 1);
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 1_s));
    REQUIRE(w.transfer(140));
    exact(w, 140);
}
TEST_CASE("A one-sided error at the receiver moves both ends, and the healthy port is used again") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, "error B.nic0.p0")));
    CHECK(first_cause(w.rx->handler()) == fault_cause::local_error);
    CHECK(w.tx->handler().count(event::failed_over) == 1);
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 1_s));
    REQUIRE(w.transfer(140));
    exact(w, 140);
}

TEST_CASE("Data arrived but every acknowledgement was lost: it counts as delivered and none of it is sent again") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    // Receives are granted and chunks are under way; then nothing comes back from B any more.
    bool mute = false;
    REQUIRE(w.transfer(36, [&] {
        if (mute || w.sent < 36) return;
        if (w.rx->received().value < 22) return;
        mute = w.command("partial B.nic0.p0 0") && w.command("drop-acks A.nic0.p0");
    }));
    CHECK(mute);
    exact(w, 36);
    const channel_event* e = w.tx->handler().first(event::failed_over);
    REQUIRE(e);
    CHECK(e->already_delivered > 0);
    CHECK(e->replayed == 0);
    CHECK(repeated_parts(w) == 0);
    CHECK(w.port("A.nic0.p1").bytes_out < w.o.chunk);
}

TEST_CASE("Acknowledgements are lost for ever on one lane: the transfer leaves it and no part counts twice") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(200, at_chunk(w, 40, "drop-acks A.nic0.p0")));
    REQUIRE(w.command("clear A.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(260));
    exact(w, 260);
    CHECK(w.rx->handler().count(event::failed_over) >= 1);
}

TEST_CASE("A port's GID changes: the lane is rebuilt with the new address") {
    for (const std::string port : {"A.nic0.p0", "B.nic0.p0"}) {
        CAPTURE(port);
        ordinary w;
        start(w);
        REQUIRE(w.transfer(80, at_chunk(w, 40, "gid-change " + port)));
        CHECK(
            (first_cause(w.tx->handler()) == fault_cause::gid_change || first_cause(w.rx->handler()) == fault_cause::gid_change));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        const auto before = w.port("A.nic0.p0").bytes_out;
        REQUIRE(w.transfer(140));
        CHECK(w.port("A.nic0.p0").bytes_out - before >= 60 * std::uint64_t{w.o.chunk});
        exact(w, 140);
        CHECK(w.rx->handler().count(event::failed_over) == 1);
    }
}
TEST_CASE("A GID changes while its port is down: the lane comes back with the new address") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0")));
    REQUIRE(w.command("gid-change A.nic0.p0"));
    w.rest(20_ms);
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(140));
    exact(w, 140);
}

TEST_CASE("A flush fails: its chunk is not received before a later flush succeeds") {
    world_options o;
    o.rx.flush = flush_mode::always;
    ordinary w(o);
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("fail-flush B.nic0"));
    // The bytes land on one lane, then on the other, and are received on neither.
    const auto landed = [&] { return w.port("B.nic0.p0").bytes_in + w.port("B.nic0.p1").bytes_in; };
    const auto before = landed();
    auto send = [&] { w.users(40, [&](std::uint64_t) { return w.o.chunk; }); };
    REQUIRE(w.until(
        [&] {
            send();
            return w.rx->handler().count(event::failed_over) >= 2;
        },
        200_ms));
    CHECK(landed() - before > 2 * w.o.chunk);
    CHECK(w.rx->received().value == 20);
    CHECK(w.tx->acknowledged().value == 20);
    CHECK(w.rx->handler().chunks.size() == 20);
    REQUIRE(w.command("clear B.nic0"));
    REQUIRE(w.transfer(40));
    exact(w, 40);
}

TEST_CASE("By default a chunk in memory that is called a GPU's counts only after its flush, one in host memory without") {
    for (const bool device : {false, true}) {
        CAPTURE(device);
        ordinary w;
        start(w);
        std::vector<std::byte> bytes(4096);
        auto to = w.b.register_memory(bytes.data(), bytes.size(), device);
        REQUIRE(to);
        REQUIRE(w.command("fail-flush B.nic0"));
        REQUIRE(w.rx->recv(to->view()));
        w.out[0] = std::byte{0x5a};
        REQUIRE(w.tx->send(w.out_memory.view(0, 4096)));
        const bool received = w.until([&] { return w.rx->received().value == 1; }, 50_ms);
        CHECK(received == !device);
        CHECK(bytes[0] == std::byte{0x5a});  // the bytes are there either way
        REQUIRE(w.command("clear B.nic0"));
        REQUIRE(w.until([&] { return w.rx->received().value == 1 && w.tx->acknowledged().value == 1; }, 2_s));
        CHECK(bytes[0] == std::byte{0x5a});
    }
}

TEST_CASE("Chunks in memory that is called a GPU's are read by the NIC, never by the CPU, however small") {
    ordinary w;
    start(w);
    std::vector<std::byte> bytes(64, std::byte{1});
    for (const bool device : {false, true}) {
        CAPTURE(device);
        auto from = w.a.register_memory(bytes.data(), bytes.size(), device);
        REQUIRE(from);
        REQUIRE(w.rx->recv(w.in_memory.view(0, 64)));
        REQUIRE(w.until([&] { return w.tx->acknowledged() == w.tx->next(); }, 10_ms));
        w.rest(1_ms);  // the grant is there: the chunk is posted in the next pass
        bytes[0] = std::byte{1};
        REQUIRE(w.tx->send(from->view()));
        w.tx->progress();
        bytes[0] = std::byte{2};  // after the post, before the NIC runs
        REQUIRE(w.until([&] { return w.tx->acknowledged() == w.tx->next(); }, 10_ms));
        CHECK(w.in[0] == (device ? std::byte{2} : std::byte{1}));
    }
}

TEST_CASE("Flushes fail on one port only: chunks are received over the other") {
    world_options o;
    o.rx.flush = flush_mode::always;
    ordinary w(o);
    start(w);
    REQUIRE(w.transfer(120, at_chunk(w, 40, "fail-flush B.nic0.p0")));
    CHECK(first_cause(w.rx->handler()) == fault_cause::local_error);
    REQUIRE(w.command("clear B.nic0.p0"));
    REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    REQUIRE(w.transfer(160));
    exact(w, 160);
}

TEST_CASE("Packets that come late, after the failover, touch no buffer that was consumed") {
    for (const std::string late : {"delay A.nic0.p0 6ms", "reorder A.nic0.p0 60%", "dup A.nic0.p0 80%"}) {
        CAPTURE(late);
        ordinary w;
        start(w);
        REQUIRE(w.transfer(20));
        REQUIRE(w.command("delay A.nic0.p0 6ms"));
        REQUIRE(w.command(late));
        nanoseconds broken{};
        REQUIRE(w.transfer(60, [&] {
            if (broken.count != 0 || w.sent < 36 || w.port("A.nic0.p0").bytes_out < 24 * std::uint64_t{w.o.chunk}) return;
            REQUIRE(w.command("error A.nic0.p0"));
            broken = w.fabric.now();
        }));
        REQUIRE(broken.count != 0);
        REQUIRE(w.fabric.now() - broken < 6_ms);  // everything is consumed, and the first copies are still under way
        const auto before = w.port("B.nic0.p0");
        w.rest(20_ms);
        const auto after = w.port("B.nic0.p0");
        CHECK((after.dropped - before.dropped > 16 || after.bytes_in - before.bytes_in > w.o.chunk));
        exact(w, 60);
    }
}

TEST_CASE("A part of a chunk lands and the rest is lost: the chunk arrives whole") {
    for (const std::string packets : {"0", "1", "3", "15"}) {
        CAPTURE(packets);
        ordinary w;
        start(w);
        REQUIRE(w.transfer(80, at_chunk(w, 40, "partial A.nic0.p0 " + packets)));
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.command("clear A.nic0.p0"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(140));
        exact(w, 140);
    }
}

TEST_CASE("Failing back sends nothing again") {
    ordinary w(small_chunks());
    start(w);
    REQUIRE(w.transfer(80, at_chunk(w, 40, "down A.nic0.p0")));
    const std::size_t arrived = w.rx->handler().arrivals.size();
    REQUIRE(w.command("up A.nic0.p0"));
    w.pass_time = 200_us;  // traffic for longer than a port may settle
    REQUIRE(w.transfer(12'000));
    CHECK(w.rx->active_lane() == primary);
    CHECK(w.rx->handler().count(event::failed_back) == 1);
    CHECK(w.rx->handler().arrivals.size() - arrived == 12'000 - 80);
    CHECK(w.rx->stale_arrivals() == 0);
    CHECK(w.tx->handler().count(event::failed_over) == 1);
    exact(w, 12'000);
}

TEST_CASE("Flushes fail on every lane for longer than the deadline: a typed error, and nothing was received wrongly") {
    world_options o;
    o.rx.flush = flush_mode::always;
    o.rx.give_up_after = 2_s;
    ordinary w(o);
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("fail-flush B"));
    const nanoseconds broken = w.fabric.now();
    w.pass_time = 20_us;
    CHECK_FALSE(w.transfer(
        40, [] {}, 4_s));
    REQUIRE(w.until([&] { return !w.tx->health() && !w.rx->health(); }, 100_ms));
    CHECK(w.fabric.now() - broken >= 2_s);
    CHECK(w.rx->health().code == errc::lane_failed);
    CHECK(w.tx->health().code == errc::aborted);
    CHECK(w.rx->received().value == 20);
    CHECK(w.rx->handler().events.size() < 200);  // it slowed down
}

TEST_CASE("An acknowledgement dies with a lane that is no longer in use: it is said again over the other") {
    soft_world<1, hold_down<5>> w;
    start(w);
    REQUIRE(w.transfer(40, at_chunk(w, 20, "down A.nic0.p0")));
    REQUIRE(w.command("up A.nic0.p0"));
    auto up = [&](auto& end) { return end->lane_health(primary).health == lane_health::up; };
    REQUIRE(w.until([&] { return up(w.rx) && up(w.tx); }, 1_s));
    REQUIRE(w.rx->active_lane() == backup);
    w.users(41, [&](std::uint64_t) { return w.o.chunk; });
    REQUIRE(w.until([&] { return w.rx->received().value == 41; }, 2_ms));
    REQUIRE(w.command("partial B.nic0.p1 0"));  // from now on nothing that B writes on that lane arrives
    REQUIRE(w.tx->acknowledged().value == 40);
    REQUIRE(w.rx->active_lane() == backup);
    REQUIRE(w.transfer(
        41, [] {}, 2_s));
    CHECK(w.rx->active_lane() == primary);
    exact(w, 41);
}
