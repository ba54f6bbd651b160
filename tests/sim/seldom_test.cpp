/// \file
/// What random schedules meet too seldom, or would not tell from the right thing: a case each. Most were found by breakages of
/// tests/sim/mutations that nothing else noticed.

#include "../host/checks.hpp"

using namespace vccl_test;

namespace {

/// A NIC that shows its completions late: while `held`, polls find nothing.
struct late_nic : verbs::soft {
    struct cq : verbs::soft::port::cq {
        using base = verbs::soft::port::cq;
        explicit cq(base&& c) noexcept : base(std::move(c)) {}
        result<unsigned> poll(completion* out, unsigned room) noexcept {
            return held ? result<unsigned>(0) : base::poll(out, room);
        }
    };
    struct port : verbs::soft::port {
        using base = verbs::soft::port;
        using cq = late_nic::cq;
        port() = default;
        explicit port(base&& p) noexcept : base(std::move(p)) {}
        result<cq> create_cq(std::uint32_t depth) noexcept {
            auto c = base::create_cq(depth);
            if (!c) return c.error();
            return cq(std::move(*c));
        }
    };
    static inline bool held{};

    late_nic(verbs::soft nic) noexcept : verbs::soft(std::move(nic)) {}
    result<port> open(const port_name& name) const noexcept {
        auto p = verbs::soft::open(name);
        if (!p) return p.error();
        return port(std::move(*p));
    }
};
static_assert(verbs_backend<late_nic>);

}  // namespace

TEST_CASE("A port that goes down and up between two looks counts as down") {
    for (const char* port : {"A.nic0.p0", "B.nic0.p0"}) {
        soft_world<> w;
        start(w);
        REQUIRE(w.transfer(20));
        REQUIRE(w.command(std::string("down ") + port));
        REQUIRE(w.command(std::string("up ") + port));
        w.rest(5_ms);
        REQUIRE(w.transfer(60));
        const auto& seen = port[0] == 'A' ? w.tx->handler() : w.rx->handler();
        REQUIRE(seen.first(event::lane_failed) != nullptr);
        CHECK(seen.first(event::lane_failed)->cause == fault_cause::own_port);
        CHECK(w.rx->handler().count(event::failed_over) == 1);
        exact(w, 60);
    }
}

TEST_CASE("A fence takes a few passes, however many completions it has to look at") {
    world_options o;
    o.chunk = 128 * 1024;
    soft_world<8> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    w.users(30, [&](std::uint64_t) { return w.o.chunk; });
    for (int i = 0; i < 3; ++i) w.pass();
    w.pass_time = 1_ms;  // a thread that drives many channels
    REQUIRE(w.command("down B.nic0.p0"));
    const auto before = w.rx->epoch();
    unsigned fencing = 0;  // passes after which it goes on
    for (unsigned i = 0; i < 100 && (w.rx->epoch() == before || w.rx->state() == channel_state::fencing); ++i) {
        w.pass();
        fencing += w.rx->state() == channel_state::fencing;
    }
    CHECK(w.rx->epoch() != before);
    CHECK(fencing <= 3);  // passes in which chunks move look at nothing else, three of four
    REQUIRE(w.transfer(60));
    exact(w, 60);
}

TEST_CASE("An immediate counts only on the lane and in the generation that its chunk was granted for") {
    ledger l(4);
    for (unsigned n = 0; n < 2; ++n) {
        l.post(4096 * n, 4096, nullptr);
        (void)l.posted();
        incoming& c = l.at(n);
        c.lane = 1;
        c.generation = 0x10003;
        c.expected.immediate = immediate::whole(5, n).raw;
        c.phase = chunk_phase::granted;
    }
    const immediate part = immediate::make(epoch{5}.value, 1, 0, 1, false);
    std::uint64_t s = 0;
    for (unsigned lane = 0; lane < 3; ++lane)
        for (std::uint32_t generation = 0; generation < 6; ++generation)
            if (lane != 1 || generation != 3) CHECK(l.take(lane, generation, part, 100, s) == ledger::arrival::stale);
    CHECK(l.at(1).arrived == 0);
    CHECK(l.take(1, 3, part, 100, s) == ledger::arrival::complete);
    CHECK(s == 1);
}

TEST_CASE("Packets of a QP's earlier life, however late and however young both lives, are not taken by the next") {
    soft_world<1, never_failback> w;
    start(w);
    for (unsigned n = 0; n < 4; ++n) REQUIRE(w.rx->recv(w.in_memory.view(n * w.o.chunk, w.o.chunk)));
    for (int i = 0; i < 20; ++i) w.pass();  // the grants get there in time
    REQUIRE(w.command("delay A.nic0.p0 400ms"));
    w.users(4, [&](std::uint64_t) { return w.o.chunk; });
    for (int i = 0; i < 20; ++i) w.pass();
    REQUIRE(w.command("clear A.nic0.p0"));
    REQUIRE(w.command("error A.nic0.p0"));
    REQUIRE(w.transfer(4));
    w.rest(60_ms);
    REQUIRE(w.rx->lane_health(lane_id{0}).health == lane_health::up);
    REQUIRE(w.rx->lane_health(lane_id{0}).generation > 1);
    const auto came_in = [&] { return w.port("B.nic0.p0").bytes_in; };
    REQUIRE(came_in() < 4 * w.o.chunk);
    w.rest(400_ms);
    CHECK(came_in() >= 4 * w.o.chunk);
    CHECK(w.rx->stale_arrivals() == 0);
    exact(w, 4);
}

TEST_CASE("Completions of a lane's earlier life that come only after it was rebuilt change nothing in its next") {
    using sender = host_sender<late_nic, qp_group<4>, journal, manual_clock, testing::memory_oob, hold_down<1>>;
    using receiver = host_receiver<late_nic, qp_group<4>, journal, manual_clock, testing::memory_oob, hold_down<1>>;
    world_options o;
    o.chunk = 128 * 1024;
    world<sender, receiver, late_nic> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    w.users(30, [&](std::uint64_t) { return w.o.chunk; });
    for (int i = 0; i < 4; ++i) w.pass();
    const auto life = [&] { return w.rx->lane_health(lane_id{0}); };
    late_nic::held = true;
    REQUIRE(w.command("down B.nic0.p0"));
    REQUIRE(w.until([&] { return life().health == lane_health::fenced; }));
    REQUIRE(w.command("up B.nic0.p0"));
    REQUIRE(w.until([&] { return life().generation > 1; }));
    late_nic::held = false;
    REQUIRE(w.transfer(60));
    w.rest(1_s, 200_us);
    CHECK(life().generation == 2);
    CHECK(life().health == lane_health::up);
    REQUIRE(w.transfer(200));
    CHECK(w.rx->active_lane().value == 0);
    CHECK(w.rx->handler().count(event::lane_failed) == 1);
    CHECK(w.tx->handler().count(event::lane_failed) == 1);
    exact(w, 200);
}
