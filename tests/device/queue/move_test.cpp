#include "rig.hpp"

#include <vccl/device/sender_ref.hpp>

#include <doctest/doctest.h>

using namespace vccl_test;

namespace {

using policy = queue_policy<>;
using ref = sender_ref<policy>;

/// As where the rings lie in a GPU's memory: the service may reach them by `read`, `write` and `upload` only.
struct copied_rings : host_space {
    static constexpr bool rings_are_local = true;
    template <class Word>
    static Word read(const Word* p) noexcept {
        if constexpr (sizeof(Word) <= 8)
            return load<order::seq_cst, scope::system>(p);
        else
            return *p;
    }
};

template <queue_space Space>
struct failing_rig_in : rig_in<Space> {
    using base = rig_in<Space>;
    using base::base, base::service, base::nic, base::word, base::view, base::rings, base::signals;
    std::uint32_t epoch{1};
    unsigned lane{};
    typename queue_service<Space>::moved last{};

    ref sender(std::int64_t timeout = 10'000'000) { return {&view, 1, timeout}; }
    /// What the channel does about a dead lane: nobody reads its CQ, its QP is fenced at both ends, the peer's words are read,
    /// and the queue goes on over the other lane.
    void fail_over() {
        service.close();
        nic[lane]->stop_before = 0;  // fenced: takes effect no more
        lane ^= 1;
        last = service.move(lane, ++epoch, view.rings[lane].ring.qpn, word, signals);
    }
    /// The dead lane gets a fresh ring.
    bool restore(unsigned l) {
        if (!service.quiescent(l)) return false;
        rings[l].clear();
        nic[l] = std::make_unique<copying_nic>(rings[l].view());
        return true;
    }
};
using failing_rig = failing_rig_in<host_space>;

}  // namespace

TEST_CASE_TEMPLATE("What was not done is posted again on the other lane, with its QP, index and keys", Space, host_space,
                   copied_rings) {
    failing_rig_in<Space> r;
    r.nic[0]->stop_before = 2;
    const ref tx = r.sender();
    for (std::uint64_t i = 1; i <= 5; ++i) CHECK(tx.put(thread_scope{}, 64 * i, 0, 64));
    r.pass();
    r.fail_over();
    CHECK(r.last.replayed == 3);
    CHECK(r.last.delivered == 0);
    CHECK(tx.put(thread_scope{}, 0, 0, 1));  // the kernel goes on
    const device_result done = tx.flush(thread_scope{});
    CHECK(done);
    CHECK(done.epoch == 2);
    REQUIRE(r.nic[1]->seen.size() == 4);
    for (unsigned i = 0; i < 4; ++i) {
        CHECK(r.nic[1]->seen[i].head.index == i);
        CHECK(r.nic[1]->seen[i].head.qpn == 101);
        CHECK(r.nic[1]->seen[i].local.lkey == 11);
        CHECK(r.nic[1]->seen[i].remote.rkey == 21);
    }
    CHECK(r.nic[1]->seen[0].remote.addr == r.view.remote + 64 * 3);
}

TEST_CASE("A flush that waits while the lane fails ends with moved") {
    failing_rig r;
    r.nic[0]->fail_at = 1;
    const ref tx = r.sender();
    for (std::uint64_t i = 1; i <= 4; ++i) CHECK(tx.put_signal(thread_scope{}, 64 * i, 0, 64, 0, i));
    r.on_pass = [&] {
        if (r.epoch == 1 && r.time > 20'000) {
            CHECK(r.service.failure().why == syndrome::transport_retry);
            r.fail_over();
        }
    };
    const device_result done = tx.flush(thread_scope{});
    CHECK(done.what == outcome::moved);
    CHECK(done.epoch == 2);
    CHECK(r.word[0] == 4);
}

TEST_CASE("A signal or an addition that took effect unacknowledged is not done twice; one that did not is done once") {
    for (unsigned applied = 0; applied <= 8; ++applied) {
        failing_rig r;
        const ref tx = r.sender();
        r.nic[0]->silent = true;  // takes effect, but nobody is told
        r.nic[0]->stop_before = applied;
        for (std::uint64_t i = 1; i <= 4; ++i) {
            CHECK(tx.fetch_add(thread_scope{}, 5, 10 * i));
            CHECK(tx.signal(thread_scope{}, 6, i));
        }
        r.pass();
        CHECK(r.nic[0]->executed == applied);
        r.fail_over();
        CHECK(r.last.delivered == applied);
        CHECK(r.last.replayed == 8 - applied);
        CHECK(tx.flush(thread_scope{}));
        CHECK(r.word[5] == 100);
        CHECK(r.word[6] == 4);
        CHECK(tx.fetch_add(thread_scope{}, 5, 1));
        CHECK(tx.flush(thread_scope{}));
        CHECK(r.word[5] == 101);
    }
}

TEST_CASE("With everything delivered there is nothing to replay, and waits end") {
    failing_rig r;
    const ref tx = r.sender();
    r.nic[0]->silent = true;
    for (std::uint64_t i = 1; i <= 4; ++i) CHECK(tx.signal(thread_scope{}, 6, i));
    r.pass();
    r.fail_over();
    CHECK(r.last.replayed == 0);
    CHECK(r.last.delivered == 4);
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.nic[1]->seen.empty());
}

TEST_CASE("Completions that no kernel has polled count") {
    failing_rig r;
    const ref tx = r.sender();
    for (std::uint64_t i = 1; i <= 4; ++i) CHECK(tx.put(thread_scope{}, 0, 0, 8));
    r.nic[0]->stop_before = 3;
    r.pass();
    CHECK(r.service.scan().done == 3);
    CHECK(completions{r.words.completed}.index() == 0);
    r.fail_over();
    CHECK(r.last.replayed == 1);
    CHECK(tx.flush(thread_scope{}));
    CHECK(queue_ref<policy>(&r.view).poll());
    CHECK(completions{r.words.completed}.index() == 4);
}

TEST_CASE("Who was on the way with WQEs for the old lane") {
    failing_rig r;
    queue_ref<policy> q(&r.view);
    deadline until = r.within(10'000'000);
    unsigned asked = 0;
    bool overtaken = false;
    const auto encode = [&](unsigned, const wqe_head& h, const ring_view& l) {
        if (asked++ == 0) {  // between reservation and publication
            r.fail_over();
            // As if the one before had published on the new lane meanwhile.
            if (overtaken) r.words.ready = stamp::make(0, gate{r.words.open}).raw;
        }
        return write(h, {r.view.remote, l.remote_key}, {r.view.window, l.local_key, 4});
    };
    SUBCASE("publishes there if nobody else has published on the new one, and is carried over") {
        CHECK(q.post(single{}, 1, until, encode));
        CHECK(asked == 1);
    }
    SUBCASE("rewrites them for the new one if somebody has") {
        overtaken = true;
        CHECK(q.post(single{}, 1, until, encode));
        CHECK(asked == 2);
    }
    CHECK(q.wait(1, until));
    REQUIRE(r.nic[1]->seen.size() == 1);
    CHECK(r.nic[1]->seen[0].head.qpn == 101);
    CHECK(r.nic[1]->seen[0].local.lkey == 11);
    CHECK(r.nic[0]->seen.empty());
}

TEST_CASE("What is still published on the old lane is carried over") {
    failing_rig r;
    const ref tx = r.sender();
    CHECK(tx.signal(thread_scope{}, 1, 1));
    r.pass();
    CHECK(tx.flush(thread_scope{}));
    // A poster that read the gate before it moved, and publishes afterwards: as if the store were late.
    const std::uint64_t old_gate = r.words.open, old_adopted = r.words.adopted;
    r.fail_over();
    const std::uint64_t new_gate = r.words.open, new_adopted = r.words.adopted;
    r.words.open = old_gate;
    r.words.adopted = old_adopted;
    CHECK(tx.signal(thread_scope{}, 1, 2));
    CHECK(tx.signal(thread_scope{}, 1, 3));
    r.words.open = new_gate;
    r.words.adopted = new_adopted;
    CHECK(r.word[1] == 1);
    SUBCASE("by the service") {
        CHECK_FALSE(r.service.quiescent(1));
        CHECK(r.service.adopt());
        CHECK_FALSE(r.service.adopt());
        CHECK(tx.flush(thread_scope{}));
        CHECK(r.word[1] == 3);
    }
    SUBCASE("before anybody publishes on the new one") {
        CHECK(tx.signal(thread_scope{}, 1, 4));  // its wait lets the service work
        CHECK(tx.flush(thread_scope{}));
        CHECK(r.word[1] == 4);
        CHECK(r.nic[1]->seen.size() == 3);
    }
    SUBCASE("and also when the lane that carries it over dies in turn") {
        CHECK(r.restore(0));
        r.fail_over();
        CHECK(tx.signal(thread_scope{}, 1, 4));
        CHECK(tx.flush(thread_scope{}));
        CHECK(r.word[1] == 4);
    }
    SUBCASE("also by a poster whose deadline passes while no service works: it leaves its work on the old lane") {
        const auto service = r.service;
        r.on_pass = [&] {
            r.service = queue_service<host_space>{};
            r.service = service;
        };
        struct idle {
            static void pass(void* self) { static_cast<rig*>(self)->time += 1000; }
        };
        r.waiting.pass = &idle::pass;
        CHECK(r.sender(20'000).signal(thread_scope{}, 1, 4));  // posted: nothing blocks behind it
        CHECK(r.sender(20'000).signal(thread_scope{}, 1, 5));
        CHECK(r.sender(20'000).flush(thread_scope{}).what == outcome::timeout);
        r.waiting.pass = [](void* self) { static_cast<rig*>(self)->pass(); };
        CHECK(tx.flush(thread_scope{}));
        CHECK(r.word[1] == 5);
    }
}

TEST_CASE("Who left the doorbell to the next one is carried over, too, when the lane dies in between") {
    failing_rig r;
    queue_ref<policy> q(&r.view);
    deadline until = r.within(1'000'000);
    bool left = false;
    const auto encode = [&](unsigned, const wqe_head& h, const ring_view& l) {
        if (!std::exchange(left, true)) r.words.reserve += 1;  // as if another poster had reserved behind
        return inline_write(h, {r.view.signals, l.signal_key}, std::uint64_t{1});
    };
    CHECK(q.post(single{}, 1, until, encode));
    r.words.reserve -= 1;
    CHECK(r.service.rung().index() == 0);
    r.fail_over();
    CHECK(r.last.replayed == 0);
    CHECK(r.sender(1'000'000).signal(thread_scope{}, 0, 2));
    CHECK(r.sender(1'000'000).flush(thread_scope{}));
    CHECK(r.time < 500'000);  // before any deadline
    CHECK(r.word[0] == 2);
    CHECK(r.nic[1]->seen.size() == 2);
}

TEST_CASE("A ring is used anew only when nobody can still write there") {
    failing_rig r;
    queue_ref<policy> q(&r.view);
    deadline until = r.within(10'000'000);
    CHECK_FALSE(r.service.quiescent(0));  // in use
    bool asked = false;
    const auto encode = [&](unsigned, const wqe_head& h, const ring_view& l) {
        if (!asked) {
            asked = true;
            r.fail_over();
            CHECK_FALSE(r.service.quiescent(0));  // this thread is about to write there
        }
        return write(h, {r.view.remote, l.remote_key}, {r.view.window, l.local_key, 4});
    };
    CHECK(q.post(single{}, 1, until, encode));
    CHECK(r.service.quiescent(0));
    CHECK(q.wait(1, until));
}

TEST_CASE("A ring is used anew although others post and poll all the time, as soon as those of before have left") {
    failing_rig r;
    r.words.completed = completions::make(0, 5).raw;  // somebody polls who may have read the old gate
    r.words.rung = bell::left_at(0).raw + 2;  // somebody rings, and one more has asked
    r.fail_over();
    CHECK_FALSE(r.service.quiescent(0));
    r.words.reserve += 1;  // of after the move: does not matter
    CHECK_FALSE(r.service.quiescent(0));
    r.words.completed = completions::make(0, 9).raw;  // somebody else
    CHECK_FALSE(r.service.quiescent(0));
    r.words.rung += bell::one;
    CHECK_FALSE(r.service.quiescent(0));
    r.words.rung = bell::left_at(1).raw + 1;  // somebody else
    CHECK(r.service.quiescent(0));
    CHECK(r.service.quiescent(0));
    CHECK_FALSE(r.service.quiescent(1));  // in use
}

TEST_CASE("A poller that was overtaken by the failover counts nothing of the old lane") {
    failing_rig r;
    const ref tx = r.sender();
    for (std::uint64_t i = 1; i <= 3; ++i) CHECK(tx.put(thread_scope{}, 0, 0, 8));
    r.service.close();
    r.pass();  // completions appear on the closed lane
    CHECK_FALSE(queue_ref<policy>(&r.view).poll());
    CHECK(completions{r.words.completed}.index() == 0);
    CHECK(r.service.scan().done == 3);
}

TEST_CASE_TEMPLATE("Ten thousand failovers and fail-backs, in a ring of four, with indices past 2^16", Space, host_space,
                   copied_rings) {
    failing_rig_in<Space> r(4, 0xfff0);
    const ref tx = r.sender();
    std::uint64_t random = 88172645463325252u, value = 0, sum = 0;
    for (unsigned n = 0; n < 10'000; ++n) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        r.nic[r.lane]->silent = (random >> 8 & 1) != 0;
        r.nic[r.lane]->stop_before = r.nic[r.lane]->executed + (random >> 16) % 4;
        for (unsigned k = 0; k < random % 3; ++k) {
            REQUIRE(tx.signal(thread_scope{}, 0, ++value));
            sum += 1 + (random >> 32) % 9;
            REQUIRE(tx.fetch_add(thread_scope{}, 1, 1 + (random >> 32) % 9));
            r.nic[r.lane]->pass();
            if (k == 0) {
                const unsigned dead = r.lane;
                r.fail_over();
                REQUIRE(r.restore(dead));
            }
        }
        REQUIRE(tx.flush(thread_scope{}));
        REQUIRE(r.word[0] == value);
        REQUIRE(r.word[1] == sum);
    }
    CHECK(r.epoch > 5000);
}
