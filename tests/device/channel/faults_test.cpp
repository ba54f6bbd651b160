// Every fault gives a kernel a result, within its deadline.
#include "../../host/shy_nic.hpp"
#include "world.hpp"

#include <doctest/doctest.h>

using namespace vccl_test;

namespace {

/// Rings whose first QP has the faults that a test wants.
struct faulty_rings {
    using policy_axis = axis::rings;
    static inline device::ring_faults faults{};
    struct source : device::ring_nic<verbs::soft, device::heap_memory, manual_clock> {
        using ring_nic::ring_nic;
        bool done{};
        result<qp> create_qp(port_type& port, const device::ring_limits& limits) noexcept {
            auto made = ring_nic::create_qp(port, limits);
            if (made && !std::exchange(done, true)) (void)made->inject(faults);
            return made;
        }
    };
};

template <class Log = rollback_fifo<64>>
using faulty_world =
    world<device_sender<verbs::soft, sibling_port, Log, journal, manual_clock, testing::memory_oob, faulty_rings>,
          device_receiver<verbs::soft, sibling_port, journal, manual_clock, testing::memory_oob, hold_down<1>>>;

template <class Act>
device_result timed(auto& w, std::int64_t limit, Act&& act) {
    const std::int64_t begin = w.fabric.now().count;
    const device_result r = act();
    CHECK(w.fabric.now().count - begin <= limit + 1'000'000);
    return r;
}

}  // namespace

TEST_CASE("Out of the peer's window: remote access error, at once") {
    soft_world<> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    CHECK(tx.put(thread_scope{}, w.in.size() - 4, 0, 8));
    const device_result r = timed(w, 1'000'000, [&] { return tx.flush(thread_scope{}); });
    CHECK(r.what == outcome::error);
    CHECK(r.why == syndrome::remote_access);
    w.rest(2_ms);
    CHECK(w.tx->health().code == errc::remote_access);
    CHECK(std::count(w.in.begin(), w.in.end(), 0) == static_cast<std::ptrdiff_t>(w.in.size()));
}

TEST_CASE("A signal word that there is not, or a message too long: an error, and no other word is touched") {
    soft_world<1> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    std::uint64_t old = 0;
    syndrome expected = syndrome::remote_access;
    SUBCASE("the first beyond") { CHECK(tx.signal(thread_scope{}, w.rx->ref().words(), 1)); }
    SUBCASE("the first beyond, added to") { CHECK(tx.fetch_add(thread_scope{}, w.rx->ref().words(), 1, old)); }
    SUBCASE("far beyond, added to") { CHECK(tx.fetch_add(thread_scope{}, 4'000'000'000, 1, old)); }
    SUBCASE("2^32 bytes and a few") {
        CHECK(tx.put_signal(thread_scope{}, 0, 0, (std::uint64_t{1} << 32) + 8, 0, 1));
        expected = syndrome::local_length;
    }
    const device_result r = tx.flush(thread_scope{});
    CHECK(r.what == outcome::error);
    CHECK(r.why == expected);
    for (unsigned word = 0; word < w.rx->ref().words(); ++word) CHECK(w.rx->ref().peek(word) == 0);
}

TEST_CASE("Out of the own window: local protection error") {
    soft_world<> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    CHECK(tx.put(thread_scope{}, 0, w.out.size() - 4, 8));
    const device_result r = timed(w, 1'000'000, [&] { return tx.flush(thread_scope{}); });
    CHECK(r.what == outcome::error);
    CHECK(r.why == syndrome::local_protection);
}

TEST_CASE("A bad key: remote access error") {
    soft_world<> w;
    REQUIRE(w.connect());
    device::queue_view v = w.tx->ref().view();
    for (auto& ring : v.rings) ring.remote_key ^= 0x5555;
    const device::sender_ref<typename decltype(w.tx)::element_type::policies::queue> tx(&v, 1, 1'000'000'000);
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    const device_result r = timed(w, 1'000'000, [&] { return tx.flush(thread_scope{}); });
    CHECK(r.what == outcome::error);
    CHECK(r.why == syndrome::remote_access);
}

TEST_CASE("A WQE that makes no sense: local QP operation error, replayed nowhere without a replay log") {
    soft_world<1, hold_down<1>, sibling_port, no_replay<64>> w;
    REQUIRE(w.connect());
    const device::queue_ref<typename decltype(w.tx)::element_type::policies::queue> q(&w.tx->ref().view());
    device::deadline until(&w.waiting, 1'000'000'000);
    CHECK(q.post(device::single{}, 1, until, [](unsigned, const device::wqe_head& h, const device::ring_view&) {
        device::wqe_block b = nop(h);
        b.word[0] ^= 0xff000000;  // no such operation
        return b;
    }));
    const device_result r = q.wait(1, until);
    CHECK(r.what == outcome::error);
    CHECK(r.why == syndrome::local_qp_operation);
}

TEST_CASE("A QP in ERR flushes: an error without a replay log, a move with one") {
    world_options o;
    o.fabric.on_port_down = verbs::port_down_behaviour::flush;
    SUBCASE("without") {
        soft_world<1, hold_down<1>, sibling_port, no_replay<64>> w(o);
        REQUIRE(w.connect());
        const auto tx = w.tx->ref();
        CHECK(w.command("rate all 1MB/s"));
        CHECK(tx.put(thread_scope{}, 0, 0, 100'000));
        w.rest(100_us);
        CHECK(w.command("down A.nic0.p0"));
        const device_result r = timed(w, 1'000'000, [&] { return tx.flush(thread_scope{}); });
        CHECK_FALSE(r);
        CHECK((r.what == outcome::error || r.what == outcome::aborted));
        w.rest(2_ms);
        CHECK(w.tx->health().code == errc::no_replay_log);
    }
    SUBCASE("with") {
        soft_world<> w(o);
        REQUIRE(w.connect());
        const auto tx = w.tx->ref();
        CHECK(w.command("rate all 10MB/s"));
        CHECK(tx.put(thread_scope{}, 0, 0, 100'000));
        w.rest(100_us);
        CHECK(w.command("down A.nic0.p0"));
        CHECK(tx.flush(thread_scope{}).what == outcome::moved);
        CHECK(std::memcmp(w.in.data(), w.out.data(), 100'000) == 0);
    }
}

TEST_CASE("The peer is gone: aborted as soon as the channel knows, long before the deadline") {
    soft_world<> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref().within(60'000'000'000);
    w.rx.reset();
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    CHECK(timed(w, 10'000'000'000, [&] { return tx.flush(thread_scope{}); }).what == outcome::aborted);
    CHECK_FALSE(w.tx->health());
    CHECK_FALSE(tx.signal(thread_scope{}, 0, 1).what == outcome::error);
}

TEST_CASE("Kernels of an end that was never set up can be aborted: there are none") {
    soft_world<> w;
    w.tx->abort_kernels();
    w.rx->abort_kernels();
    CHECK(w.connect());
}

TEST_CASE("The sender is gone: a kernel that waits for its signal is told") {
    soft_world<> w;
    REQUIRE(w.connect());
    w.tx.reset();
    CHECK(timed(w, 10'000'000'000, [&] { return w.rx->ref().within(60'000'000'000).wait_signal(thread_scope{}, 0, 1); }).what ==
          outcome::aborted);
}

TEST_CASE("The host's service is dead while a port fails: posting goes on until credit ends, and every wait ends in time") {
    soft_world<> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref().within(300'000'000);
    w.service = false;
    CHECK(w.command("down A.nic0.p0"));
    unsigned posted = 0;
    device_result r{};
    while ((r = timed(w, 300'000'000, [&] { return tx.signal(thread_scope{}, 0, posted + 1); }))) ++posted;
    CHECK(posted == 64);
    CHECK(r.what == outcome::timeout);
    r = timed(w, 300'000'000, [&] { return tx.flush(thread_scope{}); });
    CHECK(r.what == outcome::timeout);
    CHECK(r.why == syndrome::transport_retry);
    SUBCASE("and when it lives again, all goes on") {
        w.service = true;
        CHECK(tx.within(2'000'000'000).flush(thread_scope{}));
        CHECK(w.rx->ref().peek(0) == posted);
    }
    SUBCASE("or its owner ends the waits") {
        w.every = [&] { w.tx->abort_kernels(); };
        CHECK(timed(w, 1'000'000, [&] { return tx.flush(thread_scope{}); }).what == outcome::aborted);
    }
}

TEST_CASE("A lost doorbell: the record makes good for it, or the queue moves") {
    faulty_rings::faults = {};
    faulty_rings::faults.lost_doorbells = 1;
    SUBCASE("the NIC looks at the record") {
        faulty_rings::faults.record_after = 50_us;
        faulty_world<> w;
        REQUIRE(w.connect());
        CHECK(w.tx->ref().signal(thread_scope{}, 0, 1));
        CHECK(timed(w, 1'000'000, [&] { return w.tx->ref().flush(thread_scope{}); }).what == outcome::ok);
    }
    SUBCASE("the NIC never does: work stands still, which the service sees") {
        faulty_world<> w;
        REQUIRE(w.connect());
        CHECK(w.tx->ref().fetch_add(thread_scope{}, 0, 3));
        CHECK(timed(w, 3'000'000'000, [&] { return w.tx->ref().flush(thread_scope{}); }).what == outcome::moved);
        CHECK(w.rx->ref().peek(0) == 3);
    }
}

TEST_CASE("A late CQE is waited for, and is no second completion after the queue has moved") {
    faulty_rings::faults = {};
    faulty_rings::faults.cqe_delay = 2_ms;
    faulty_world<> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    CHECK(tx.fetch_add(thread_scope{}, 0, 3));
    CHECK(tx.flush(thread_scope{}).what == outcome::ok);
    CHECK(tx.fetch_add(thread_scope{}, 0, 4));
    w.rest(100_us);  // applied, but not completed
    CHECK(w.rx->ref().peek(0) == 7);
    CHECK(w.command("down A.nic0.p0"));
    CHECK(tx.flush(thread_scope{}).what == outcome::moved);
    CHECK(tx.fetch_add(thread_scope{}, 0, 5));
    CHECK(tx.flush(thread_scope{}));
    CHECK(w.rx->ref().peek(0) == 12);
}

TEST_CASE("A completion queue overruns: its QP is lost, and the queue moves") {
    faulty_rings::faults = {};
    faulty_rings::faults.cq_overrun = true;
    faulty_world<> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    CHECK(tx.fetch_add(thread_scope{}, 0, 3));
    CHECK(timed(w, 3'000'000'000, [&] { return tx.flush(thread_scope{}); }).what == outcome::moved);
    CHECK(w.rx->ref().peek(0) == 3);
}

TEST_CASE("Without a lane the queue waits; with the lane's return all that was posted arrives, once") {
    world_options o;
    o.nics = 1;
    o.ports = 1;
    soft_world<> w(o);
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    CHECK(tx.put_signal(thread_scope{}, 0, 0, 1000, 0, 1));
    CHECK(tx.flush(thread_scope{}));
    CHECK(w.command("down B.nic0.p0"));
    CHECK(tx.fetch_add(thread_scope{}, 1, 5));
    CHECK(tx.put_signal(thread_scope{}, 1000, 1000, 1000, 0, 2));
    w.rest(400_ms);
    CHECK(w.tx->state() == channel_state::suspended);
    CHECK(w.command("up B.nic0.p0"));
    CHECK(tx.flush(thread_scope{}));
    CHECK(w.rx->ref().peek(0) == 2);
    CHECK(w.rx->ref().peek(1) == 5);
    CHECK(std::memcmp(w.in.data(), w.out.data(), 2000) == 0);
}

TEST_CASE("A lane that came up at the sender alone: the queues are told, and move to the one that both ends have") {
    using shy_world = world<device_sender<shy_nic, journal, manual_clock, testing::memory_oob>,
                            device_receiver<shy_nic, journal, manual_clock, testing::memory_oob, never_failback>, shy_nic>;
    shy_nic::shy_at("B.nic0.p0", ~0u);
    shy_world w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    for (int i = 0; i < 20; ++i) {
        REQUIRE(tx.put(thread_scope{}, 0, 0, 4096));
        REQUIRE(tx.flush(thread_scope{}));
    }
    w.rest(50_ms);
    for (int i = 0; i < 20; ++i) {
        REQUIRE(tx.put(thread_scope{}, 4096, 4096, 4096));
        REQUIRE(tx.flush(thread_scope{}));
    }
    CHECK(std::equal(w.in.begin(), w.in.begin() + 8192, w.out.begin()));
}
