/// \file
/// What users of other transports reported, as a scenario each. The thread that it comes from stands in the name. Those that need
/// atomics, GPUs or real NICs are listed in docs/proof.md.

#include "../host/checks.hpp"

using namespace vccl_test;

namespace {

/// A transfer during which `begin` is done at chunk 40, and `end` a while later.
template <class World = soft_world<2>>
void survives(std::string begin, std::string end, nanoseconds lasts, world_options o = {}) {
    CAPTURE(begin);
    CAPTURE(lasts.count);
    World w(o);
    start(w);
    REQUIRE(w.transfer(40));
    REQUIRE(w.command(begin));
    const nanoseconds until = w.fabric.now() + lasts;
    w.pass_time = lasts > 1_s ? nanoseconds{200'000} : 20_us;
    REQUIRE(w.until(
        [&] {
            w.users(80, [&](std::uint64_t) { return w.o.chunk; });
            return w.checked == 80 && w.tx->acknowledged().value == 80;
        },
        10_s));
    w.rest(until > w.fabric.now() ? until - w.fabric.now() : nanoseconds{}, 5_ms);
    REQUIRE(w.command(end));
    w.rest(1_s, 1_ms);
    w.pass_time = 2_us;
    REQUIRE(w.transfer(120));
    exact(w, 120);
    CHECK(w.rx->active_lane().value == 0);
}

}  // namespace

TEST_CASE("NVIDIA/nccl#998, #2044: a port goes down in the middle; the transfer goes on, and comes back under traffic") {
    survives("down A.nic0.p0", "up A.nic0.p0", 500_ms);
    survives("down B.nic0.p0", "up B.nic0.p0", 500_ms);
}

TEST_CASE("NVIDIA/nccl#905: every path is gone: every wait ends, with an error that says why") {
    world_options o;
    o.tx.give_up_after = o.rx.give_up_after = 2_s;
    soft_world<> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    w.users(30, [&](std::uint64_t) { return w.o.chunk; });
    REQUIRE(w.command("down all"));
    w.pass_time = 100_us;
    REQUIRE(w.until([&] { return !w.tx->health() && !w.rx->health(); }, 10_s));
    CHECK(w.tx->health().code == errc::no_lane_left);
    CHECK(w.rx->health().code == errc::no_lane_left);
    CHECK(w.tx->wait(sequence{29}, 1_s).code == errc::no_lane_left);
}

TEST_CASE("NVIDIA/nccl#1557: a flap of any length, a tenth of a second to a minute, is ridden out") {
    for (const nanoseconds down : {nanoseconds{100'000'000}, nanoseconds{300'000'000}, 1_s, 3_s, 10_s, 60_s})
        survives("down A.nic0.p0", "up A.nic0.p0", down);
}

TEST_CASE("NVIDIA/nccl#1555: the NIC's own timers are minutes long; detection does not wait for them") {
    world_options o;
    o.tx.timers.timeout = o.rx.timers.timeout = 22;
    o.tx.timers.retry_count = o.rx.timers.retry_count = 7;
    soft_world<> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("switch-down rail0"));  // no port reports it
    const nanoseconds begin = w.fabric.now();
    w.pass_time = 20_us;
    REQUIRE(w.transfer(60));
    CHECK(w.fabric.now() - begin < detection_times{}.worst_case() + 10_ms);
    exact(w, 60);
}

TEST_CASE("NVIDIA/nccl#1333, #1819, PR 2183: the GID is another after a flap, and the event comes for another port, too") {
    soft_world<> w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("down A.nic0.p0"));
    REQUIRE(w.command("gid-change A.nic0.p0"));
    REQUIRE(w.command("gid-change A.nic1.p0"));  // not a lane of this channel
    REQUIRE(w.transfer(60));
    REQUIRE(w.command("up A.nic0.p0"));
    w.rest(500_ms, 200_us);
    REQUIRE(w.transfer(100));
    CHECK(w.rx->active_lane().value == 0);
    CHECK(w.rx->handler().count(event::failed_over) == 1);
    exact(w, 100);
}

TEST_CASE("NVIDIA/nccl#2157: the ends notice at very different times, and the failed lane is restored nevertheless") {
    for (const char* late : {"A", "B"}) {
        soft_world<> w;
        start(w);
        REQUIRE(w.transfer(20));
        REQUIRE(w.command(std::string("no-event ") + late + ".nic0.p0"));
        REQUIRE(w.command("down A.nic0.p0"));
        REQUIRE(w.command("down B.nic0.p0"));
        // One end alone runs for a while.
        for (int i = 0; i < 2000; ++i) {
            late[0] == 'A' ? w.rx->progress() : w.tx->progress();
            w.fabric.advance(100_us);
        }
        REQUIRE(w.transfer(60));
        REQUIRE(w.command("clear all"));
        REQUIRE(w.command("up A.nic0.p0"));
        w.rest(700_ms, 200_us);  // the other port comes back much later
        REQUIRE(w.command("up B.nic0.p0"));
        w.rest(700_ms, 200_us);
        CHECK(w.rx->active_lane().value == 0);
        REQUIRE(w.transfer(100));
        exact(w, 100);
    }
}

TEST_CASE("NVIDIA/nccl#2192: single-port NICs: the neighbour's NIC stands in, and without one the lane itself is rebuilt") {
    world_options o;
    o.ports = 1;
    survives<soft_world<1, hold_down<1>, adjacent_gpu>>("down A.nic0.p0", "up A.nic0.p0", 300_ms, o);
    soft_world<1, hold_down<1>, no_backup> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("error A.nic0.p0"));
    REQUIRE(w.transfer(60));
    CHECK(w.rx->lanes() == 1);
    CHECK(w.rx->handler().count(event::lane_restored) == 1);
    exact(w, 60);
}

TEST_CASE("NVIDIA/nccl PR 1311, PR 2318, ROCm/rccl#1423: a port dies at each step of connecting; nobody hangs") {
    for (int pass = 0; pass < 12; ++pass) {
        CAPTURE(pass);
        soft_world<> w;
        w.pass_time = 500_us;
        if (pass == 0) REQUIRE(w.command("down A.nic0.p0"));
        REQUIRE(w.connect());
        for (int i = 1; i < pass; ++i) w.pass();
        if (pass != 0) REQUIRE(w.command("down A.nic0.p0"));
        REQUIRE(w.until([&] { return w.tx->connected() && w.rx->connected(); }, 2_s));
        w.pass_time = 2_us;
        REQUIRE(w.transfer(40));
        exact(w, 40);
    }
}

TEST_CASE("kvcache-ai/Mooncake#3596: after the repair the transfer is as fast as before") {
    soft_world<4> w;
    start(w);
    auto time_of = [&](std::uint64_t upto) {
        const nanoseconds begin = w.fabric.now();
        REQUIRE(w.transfer(upto));
        return (w.fabric.now() - begin).count;
    };
    const auto before = time_of(100);
    REQUIRE(w.command("down A.nic0.p0"));
    REQUIRE(w.transfer(120));
    REQUIRE(w.command("up A.nic0.p0"));
    w.rest(1_s, 200_us);
    REQUIRE(w.rx->active_lane().value == 0);
    const auto after = time_of(220);
    CHECK(after <= before + before / 10);
}

TEST_CASE("kvcache-ai/Mooncake#3523: work hangs without a completion, and PORT_ACTIVE never comes") {
    soft_world<> w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("no-event A.nic0.p0"));
    REQUIRE(w.command("hang A.nic0.p0"));
    w.pass_time = 20_us;
    REQUIRE(w.transfer(60));
    REQUIRE(w.command("down A.nic0.p0"));
    w.rest(300_ms, 200_us);
    REQUIRE(w.command("up A.nic0.p0"));
    REQUIRE(w.command("clear A.nic0.p0"));
    w.rest(1_s, 200_us);
    REQUIRE(w.transfer(100));
    CHECK(w.rx->active_lane().value == 0);
    exact(w, 100);
}

TEST_CASE("kvcache-ai/Mooncake PR 2427: a driver drops work without completions; nobody waits for them") {
    world_options o;
    o.fabric.on_port_down = verbs::port_down_behaviour::silent;
    soft_world<> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    const nanoseconds begin = w.fabric.now();
    REQUIRE(w.command("down A.nic0.p0"));
    REQUIRE(w.transfer(60));
    CHECK(w.fabric.now() - begin < 100_ms);
    exact(w, 60);
}

TEST_CASE("kvcache-ai/Mooncake PR 3584: a stale handshake revives no QP") {
    soft_world<> w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("error A.nic0.p0"));
    REQUIRE(w.transfer(40));
    w.rest(300_ms, 200_us);
    const auto generation = w.tx->lane_health(lane_id{0}).generation;
    REQUIRE(generation > 1);
    control_message m = w.forged(control_kind::restore, 0);
    m.generation = 1;
    m.end.generation = 1;
    for (int i = 0; i < 5; ++i) w.tell_sender(m);
    REQUIRE(w.transfer(80));
    CHECK(w.tx->lane_health(lane_id{0}).generation == generation);
    exact(w, 80);
}

TEST_CASE("novitalabs/pegaflow#403, meta-pytorch/monarch#3804, ydb-platform/nbs#5729: late packets find no reused buffer") {
    soft_world<2> w;
    start(w);
    REQUIRE(w.transfer(20));
    REQUIRE(w.command("delay A.nic0.p0 400ms"));
    w.users(60, [&](std::uint64_t) { return w.o.chunk; });
    for (int i = 0; i < 20; ++i) w.pass();
    REQUIRE(w.command("error A.nic0.p0"));
    REQUIRE(w.transfer(120));
    REQUIRE(w.command("clear A.nic0.p0"));
    w.rest(1_s, 200_us);
    REQUIRE(w.transfer(160));
    exact(w, 160);
}

TEST_CASE("NVIDIA/nccl#1957: the ends have different MTUs; the smaller one is used") {
    world_options o;
    o.fabric.mtu = 1024;
    soft_world<2> w(o);
    start(w);
    REQUIRE(w.transfer(40));
    exact(w, 40);
}

TEST_CASE("deepseek-ai/DeepEP#301, #180: more sends than any queue holds: refused, never overrun") {
    soft_world<> w;
    start(w);
    unsigned taken = 0;
    while (w.tx->send(w.out_memory.view(0, 64))) ++taken;
    CHECK(taken == 64);
    CHECK(w.tx->send(w.out_memory.view(0, 64)).error().code == errc::would_block);
    for (int i = 0; i < 50; ++i) w.pass();
    CHECK(w.tx->health());
}
