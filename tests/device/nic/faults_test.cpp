// What the ring NIC does when something is wrong: a dead path, lost doorbells, late CQEs, a full completion queue, a device that
// hangs. Simulated time; no case waits.

#include "world.hpp"

namespace {

using namespace ring_test;

void put_some(world<>& w, int many, std::uint64_t first = 1) {
    for (int i = 0; i < many; ++i)
        w.post.put(inline_write(w.post.head(), w.there(8 * static_cast<std::size_t>(i)), first + static_cast<unsigned>(i)));
    w.post.ring_it();
}

TEST_CASE("A port that dies gives transport retries exceeded once, after the QP's own timers, then flush errors") {
    auto w = make_world();
    REQUIRE(w.fabric.command("down B.nic0.p0"));
    put_some(w, 4);
    w.settle();
    CHECK(w.post.poll().empty());
    const nanoseconds retry_time{std::int64_t{4096} << w.options.timers.timeout};
    w.pass_time(retry_time * (w.options.timers.retry_count + 1) - 1_us);
    CHECK(w.post.poll().empty());
    w.pass_time(2_us);
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 4);
    CHECK(cqes[0].why == syndrome::transport_retry);
    for (unsigned i = 0; i < 4; ++i) {
        CHECK(cqes[i].index == i);
        if (i != 0) CHECK(cqes[i].why == syndrome::flushed);
    }
    CHECK(take(w.qp.state()) == qp_state::error);
    CHECK(w.far_words[0] == 0);
}

TEST_CASE("WQEs that ended well before the error keep their success") {
    auto w = make_world();
    put_some(w, 2);
    w.settle();
    REQUIRE(w.fabric.command("down B.nic0.p0"));
    put_some(w, 1, 50);
    w.pass_time(10_s);
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 3);
    CHECK(cqes[0].why == syndrome::none);
    CHECK(cqes[1].why == syndrome::none);
    CHECK(cqes[2].why == syndrome::transport_retry);
    CHECK(w.far_words[0] == 1);
}

TEST_CASE("A wrong key or range of the peer's memory is a remote access error; of the own memory a local protection error") {
    struct wrong {
        wqe_remote to;
        wqe_local from;
        syndrome why;
    };
    auto w = make_world();
    const std::uint32_t end = static_cast<std::uint32_t>(w.options.bytes);
    const wrong cases[] = {
        {{w.there(0).addr, w.there(0).rkey ^ 1}, w.here(0, 8), syndrome::remote_access},
        {{w.there(0).addr, 0}, w.here(0, 8), syndrome::remote_access},
        {w.there(end - 4), w.here(0, 8), syndrome::remote_access},
        {{0, w.there(0).rkey}, w.here(0, 8), syndrome::remote_access},
        {{~0ull, w.there(0).rkey}, w.here(0, 8), syndrome::remote_access},
        {w.there(0), {w.here(0, 8).addr, w.here(0, 8).lkey ^ 0x100, 8}, syndrome::local_protection},
        {w.there(0), {w.here(0, 8).addr, w.there(0).rkey, 8}, syndrome::local_protection},
        {w.there(0), w.here(end - 4, 8), syndrome::local_protection},
        {w.there(0), {~0ull - 3, w.here(0, 8).lkey, 8}, syndrome::local_protection},
    };
    for (const wrong& c : cases) {
        w.post.put(write(w.post.head(0), c.to, c.from));
        w.post.put(inline_write(w.post.head(), w.there(0), 99));
        w.post.ring_it();
        w.pass_time(1_s);
        const auto cqes = w.post.poll();
        REQUIRE(cqes.size() == 2);
        CHECK(cqes[0].why == c.why);
        CHECK(cqes[1].why == syndrome::flushed);
        REQUIRE(w.qp.to_reset());
        REQUIRE(w.far_qp.to_reset());
        w.post = poster(w.qp.memory());
        w.connect();
    }
    CHECK(w.far_words[0] == 0);
}

TEST_CASE("A lost doorbell is made good by the record, after the time that was set") {
    auto w = make_world();
    REQUIRE(w.qp.inject({.lost_doorbells = 1, .record_after = 50_us}));
    put_some(w, 2);
    w.pass_time(49_us);
    CHECK(w.post.poll().empty());
    w.pass_time(2_us);
    CHECK(w.post.poll().size() == 2);
    put_some(w, 1);
    w.settle();
    CHECK(w.post.poll().size() == 1);
}

TEST_CASE("A NIC that never looks at the record stands still after a lost doorbell, until the next one") {
    auto w = make_world();
    REQUIRE(w.qp.inject({.lost_doorbells = 1}));
    put_some(w, 2);
    w.pass_time(100_s);
    CHECK(w.post.poll().empty());
    CHECK(take(w.qp.state()) == qp_state::ready_to_send);
    put_some(w, 1, 7);
    w.settle();
    CHECK(w.post.poll().size() == 3);
}

TEST_CASE("ERR brings no CQE for WQEs of a lost doorbell: the NIC does not know them") {
    auto w = make_world();
    REQUIRE(w.qp.inject({.lost_doorbells = 1}));
    put_some(w, 2);
    w.settle();
    REQUIRE(w.qp.to_error());
    CHECK(w.post.poll().empty());
}

TEST_CASE("Late CQEs come late and in order, and the bytes are there before them") {
    auto w = make_world();
    REQUIRE(w.qp.inject({.cqe_delay = 1_ms}));
    put_some(w, 3);
    w.pass_time(900_us);
    CHECK(w.far_words[2] == 3);
    CHECK(w.post.poll().empty());
    w.pass_time(200_us);
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 3);
    CHECK(cqes[2].index == 2);
}

TEST_CASE("A completion queue that is not polled overruns: no more CQEs, the QP in ERR, until RESET") {
    world_options o;
    o.limits = {16, 4};
    auto w = make_world(o);
    put_some(w, 5);
    w.settle();
    CHECK(w.qp.overrun());
    CHECK(take(w.qp.state()) == qp_state::error);
    auto cqes = w.post.poll();
    CHECK(cqes.size() == 4);
    for (const auto& c : cqes) CHECK(c.why == syndrome::none);
    put_some(w, 2);
    w.settle();
    CHECK(w.post.poll().empty());
    REQUIRE(w.qp.to_reset());
    CHECK_FALSE(w.qp.overrun());
    REQUIRE(w.far_qp.to_reset());
    w.post = poster(w.qp.memory());
    w.connect();
    put_some(w, 1, 70);
    w.settle();
    cqes = w.post.poll();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].why == syndrome::none);
}

TEST_CASE("An overrun can be had at any time") {
    auto w = make_world();
    put_some(w, 1);
    w.settle();
    CHECK(w.post.poll().size() == 1);
    REQUIRE(w.qp.inject({.cq_overrun = true}));
    put_some(w, 3);
    w.settle();
    CHECK(w.qp.overrun());
    CHECK(w.post.poll().empty());
}

TEST_CASE("A device that hangs makes no CQE until its QP is moved to ERR") {
    world_options o;
    o.fabric.on_port_down = verbs::port_down_behaviour::silent;
    o.fabric.latency = 10_us;
    auto w = make_world(o);
    put_some(w, 3);
    REQUIRE(w.nic.progress());
    REQUIRE(w.fabric.command("down A.nic0.p0"));
    w.pass_time(100_s);
    CHECK(w.post.poll().empty());
    CHECK(take(w.qp.state()) == qp_state::ready_to_send);
    REQUIRE(w.qp.to_error());
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 3);
    for (const auto& c : cqes) CHECK(c.why == syndrome::flushed);
}

TEST_CASE("Bytes of WQEs that ERR has flushed arrive no more") {
    world_options o;
    o.fabric.latency = 10_us;
    auto w = make_world(o);
    put_some(w, 4);
    (void)w.nic.progress();
    REQUIRE(w.qp.to_error());
    REQUIRE(w.far_qp.to_error());
    w.pass_time(1_s);
    CHECK(w.far_words[0] == 0);
    CHECK(w.post.poll().size() == 4);
}

TEST_CASE("CQEs of an earlier life of the QP do not end WQEs of the next") {
    auto w = make_world();
    REQUIRE(w.fabric.command("down B.nic0.p0"));
    put_some(w, 8);
    w.settle();
    REQUIRE(w.qp.to_error());
    CHECK(w.post.poll().size() == 8);
    REQUIRE(w.fabric.command("up B.nic0.p0"));
    for (int life = 0; life < 5; ++life) {
        REQUIRE(w.qp.to_reset());
        REQUIRE(w.far_qp.to_reset());
        w.post = poster(w.qp.memory());
        w.connect();
        put_some(w, 8, static_cast<std::uint64_t>(life) * 100);
        (void)w.nic.progress();  // posted to the backend, not completed
        REQUIRE(w.qp.to_reset());
        REQUIRE(w.far_qp.to_reset());
        w.post = poster(w.qp.memory());
        w.connect();
        put_some(w, 1, 1000);
        CHECK(w.post.poll().empty());
        w.settle();
        const auto cqes = w.post.poll();
        REQUIRE(cqes.size() == 1);
        CHECK(cqes[0].why == syndrome::none);
        CHECK(w.far_words[0] == 1000);
    }
}

/// The software RNIC, but its QPs take two work requests and no more.
struct stubborn {
    using policy_axis = axis::verbs;
    static constexpr backend_capabilities capabilities{};
    struct qp : verbs::soft_qp {
        unsigned left{2};
        explicit qp(verbs::soft_qp q) noexcept : soft_qp(std::move(q)) {}
        status post(const work& w) noexcept { return post(std::span<const work>(&w, 1)).error(); }
        result<unsigned> post(std::span<const work> many) noexcept {
            const auto n = many.size() < left ? static_cast<unsigned>(many.size()) : left;
            left -= n;
            if (n == 0) return errc::no_memory;
            return soft_qp::post(many.first(n));
        }
    };
    struct port : verbs::soft_port {
        using qp = stubborn::qp;
        explicit port(verbs::soft_port p) noexcept : soft_port(std::move(p)) {}
        result<qp> create_qp(cq& completions, const qp_limits& limits) noexcept {
            auto made = soft_port::create_qp(completions, limits);
            if (!made) return made.error();
            return qp(std::move(*made));
        }
    };
    soft beneath;
    result<topology> discover() const { return beneath.discover(); }
    result<port> open(const port_name& name) noexcept {
        auto made = beneath.open(name);
        if (!made) return made.error();
        return port(std::move(*made));
    }
};

TEST_CASE("What the backend does not take gets an error CQE, behind what it took") {
    auto w = make_world();
    REQUIRE(w.far_qp.to_reset());
    stubborn backend{take(w.fabric.host("A"))};
    auto port = take(backend.open("A.nic0.p0"));
    ring_nic<stubborn, heap_memory, manual_clock> nic(w.fabric.clock());
    auto q = take(nic.create_qp(port, {8, 8}));
    const auto here = take(port.query()), there = take(w.b.query());
    REQUIRE(q.to_init());
    REQUIRE(w.far_qp.to_init());
    REQUIRE(q.to_ready_to_receive({w.far_qp.number(), {}, there.address, 0, there.mtu}, {}));
    REQUIRE(w.far_qp.to_ready_to_receive({q.number(), {}, here.address, 0, here.mtu}, {}));
    REQUIRE(q.to_ready_to_send({}, {}));
    poster post(q.memory());
    for (std::uint64_t i = 0; i < 4; ++i) post.put(inline_write(post.head(0), w.there(8 * i), i + 1));
    post.ring_it();
    while (nic.progress() || w.fabric.step()) {}
    const auto cqes = post.poll();
    REQUIRE(cqes.size() == 2);
    CHECK(cqes[0].index == 2);
    CHECK(cqes[0].vendor == static_cast<int>(wqe_fault::refused));
    CHECK(cqes[1].why == syndrome::flushed);
    CHECK(w.far_words[1] == 2);
    CHECK(w.far_words[2] == 0);
}

}  // namespace
