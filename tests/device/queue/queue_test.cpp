#include "rig.hpp"

#include <vccl/device/receiver_ref.hpp>
#include <vccl/device/sender_ref.hpp>

#include <doctest/doctest.h>

using namespace vccl_test;

namespace {

using policy = queue_policy<>;
using ref = sender_ref<policy>;

ref sender(rig& r, std::int64_t timeout = 1'000'000) { return {&r.view, 1, timeout}; }

void fill(std::vector<unsigned char>& v, unsigned seed) {
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
}

}  // namespace

TEST_CASE("A put arrives, and its flush says so") {
    rig r;
    fill(r.window, 1);
    CHECK(sender(r).put(thread_scope{}, 100, 200, 3000));
    CHECK(sender(r).flush(thread_scope{}).what == outcome::ok);
    CHECK(std::memcmp(&r.remote[100], &r.window[200], 3000) == 0);
    CHECK(r.nic[0]->seen.at(0).local.lkey == 10);
    CHECK(r.nic[0]->seen.at(0).remote.rkey == 20);
}

TEST_CASE("Each operation posts what it says, in order, on one queue") {
    rig r;
    fill(r.window, 2);
    const ref tx = sender(r);
    CHECK(tx.put_signal(warp_scope{}, 0, 0, 64, 3, 7));
    CHECK(tx.signal(block_scope{}, 3, 8));
    CHECK(tx.fetch_add(thread_scope{}, 4, 5));
    std::uint64_t old = 0;
    CHECK(tx.fetch_add(block_scope{}, 4, 6, old));
    CHECK(old == 5);
    fill(r.remote, 9);
    CHECK(tx.get(warp_scope{}, 4096, 128, 256));
    CHECK(tx.flush(block_scope{}));
    CHECK(r.word[3] == 8);
    CHECK(r.word[4] == 11);
    CHECK(r.sums[4] == 11);
    CHECK(std::memcmp(&r.window[4096], &r.remote[128], 256) == 0);
    REQUIRE(r.nic[0]->seen.size() == 6);
    CHECK(r.nic[0]->seen[1].remote.rkey == 30);
    CHECK(r.nic[0]->seen[3].local.lkey == 40);
    for (unsigned i = 0; i < 6; ++i) CHECK(r.nic[0]->seen[i].head.index == i);
}

TEST_CASE("A full ring waits for completions before it reserves, and says timeout if none come") {
    rig r(4);
    const ref tx = sender(r, 50'000);
    r.nic[0]->stop_before = 0;
    for (int i = 0; i < 4; ++i) CHECK(tx.signal(thread_scope{}, 0, 1 + i));
    CHECK(tx.signal(thread_scope{}, 0, 5).what == outcome::timeout);
    CHECK(r.words.reserve == 4);  // nothing was reserved
    r.nic[0]->stop_before = ~0ull;
    CHECK(tx.signal(thread_scope{}, 0, 5));
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.word[0] == 5);
}

TEST_CASE("Software and hardware indices survive 2^16 and 2^32 in a ring of four") {
    for (const std::uint64_t start : {0xfff0ull, 0xfffffff0ull, 0xffffffffffull - 20}) {
        for (const std::uint16_t hardware : {std::uint16_t{0}, std::uint16_t{0xfff8}}) {
            rig r(4, start, hardware);
            const ref tx = sender(r);
            for (std::uint64_t i = 1; i <= 40; ++i) {
                CHECK(tx.put_signal(thread_scope{}, 8 * i, 0, 8, 1, i));
                CHECK(r.word[1] <= i);
            }
            CHECK(tx.flush(thread_scope{}));
            CHECK(r.word[1] == 40);
            CHECK(completions{r.words.completed}.index() == start + 80);
            CHECK(r.nic[0]->seen.size() == 80);
        }
    }
}

TEST_CASE("70000 WQEs through a ring of four: every one completes, in order") {
    rig r(4);
    const ref tx = sender(r);
    for (std::uint64_t i = 1; i <= 70000; ++i) REQUIRE(tx.signal(thread_scope{}, 2, i));
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.word[2] == 70000);
    CHECK(completions{r.words.completed}.index() == 70000);
}

TEST_CASE("An error CQE is never a success: its syndrome, vendor and WQE come back at once") {
    for (const syndrome why : {syndrome::remote_access, syndrome::local_protection, syndrome::remote_invalid_request}) {
        rig r;
        r.nic[0]->fail_at = 1;
        r.nic[0]->failure = why;
        const ref tx = sender(r);
        CHECK(tx.put(thread_scope{}, 0, 0, 8));
        CHECK(tx.put(thread_scope{}, 0, 0, 8));
        CHECK(tx.put(thread_scope{}, 0, 0, 8));
        const device_result got = tx.flush(thread_scope{});
        CHECK(got.what == outcome::error);
        CHECK(got.why == why);
        CHECK(got.wqe == 1);
        CHECK(r.time < 100'000);  // before any deadline
        CHECK(tx.flush(thread_scope{}).what == outcome::error);  // and again
        CHECK(completions{r.words.completed}.index() == 1);
    }
}

TEST_CASE("A lane's death is waited out until the deadline, which then names the syndrome") {
    rig r;
    r.nic[0]->fail_at = 0;
    const ref tx = sender(r, 300'000);
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    const device_result got = tx.flush(thread_scope{});
    CHECK(got.what == outcome::timeout);
    CHECK(got.why == syndrome::transport_retry);
    CHECK(r.time >= 300'000);
    CHECK(r.time < 320'000);
    SUBCASE("without replay it is an error at once") {
        const std::int64_t before = r.time;
        CHECK(sender_ref<queue_policy<shared_by_gpu, ring_every<>, false>>(&r.view, 1, 300'000).flush(thread_scope{}).what ==
              outcome::error);
        CHECK(r.time - before < 10'000);
    }
}

TEST_CASE("The host's abort word ends every wait") {
    rig r;
    r.nic[0]->stop_before = 0;
    const ref tx = sender(r, 1'000'000'000);
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    r.on_pass = [&] { r.host.abort = 1; };
    CHECK(tx.flush(thread_scope{}).what == outcome::aborted);
    const receiver_ref rx(r.word, rig::signals, &r.host, &r.waiting, 1'000'000'000);
    CHECK(rx.wait_signal(thread_scope{}, 0, 1).what == outcome::aborted);
    r.host.abort = 0;
    r.on_pass = {};
    CHECK(rx.within(5000).wait_signal(thread_scope{}, 0, 1).what == outcome::timeout);
}

TEST_CASE("A completion that comes late is a completion; one that never comes is a timeout") {
    rig r;
    r.nic[0]->silent = true;
    const ref tx = sender(r, 100'000);
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    CHECK(tx.flush(thread_scope{}).what == outcome::timeout);
    r.nic[0]->at.complete({r.rings[0].view().qpn, 8, 0, syndrome::none, 0}, 0);
    CHECK(tx.flush(thread_scope{}));
}

TEST_CASE("The doorbell rings once for a batch whose later posters have reserved already") {
    rig r(64);
    r.nic[0]->stop_before = 0;
    queue_ref<policy> q(&r.view);
    deadline until = r.within(1'000'000);
    // While the first is writing, a second reserves: the first leaves the doorbell to it.
    std::uint64_t seen_by_first = ~0ull;
    bool inner = false;
    const auto encode = [&](unsigned, const wqe_head& h, const ring_view&) {
        if (!inner) {
            inner = true;
            r.words.reserve += 1;  // another poster, on its way
        }
        return nop(h);
    };
    CHECK(q.post(single{}, 1, until, encode));
    seen_by_first = *r.rings[0].view().doorbell;
    CHECK(seen_by_first == 0);
    CHECK(stamp{r.words.ready}.index() == 1);
    CHECK(stamp{r.told.rung}.index() == 0);
    r.words.reserve -= 1;
    CHECK(q.post(single{}, 1, until, encode));
    CHECK(decode_doorbell(*r.rings[0].view().doorbell).next == 2);
}

TEST_CASE("Who finds somebody ringing leaves the bell to that one, and is counted") {
    rig r(64);
    r.words.rung += bell::one;  // somebody is at it
    queue_ref<policy> q(&r.view);
    deadline until = r.within(1'000'000);
    const auto encode = [](unsigned, const wqe_head& h, const ring_view&) { return nop(h); };
    CHECK(q.post(single{}, 1, until, encode));
    CHECK(*r.rings[0].view().doorbell == 0);
    CHECK(bell{r.words.rung}.asks() == 2);
    CHECK(stamp{r.words.ready}.index() == 1);
    // That one has left now without having looked: the next poster rings for both.
    r.words.rung = bell::left_at(0).raw;
    CHECK(q.post(single{}, 1, until, encode));
    CHECK(decode_doorbell(*r.rings[0].view().doorbell).next == 2);
    CHECK(bell{r.words.rung}.raw == bell::left_at(2).raw);
}

TEST_CASE("A bell's index wraps at 2^40, a lock's ticket at 2^16") {
    constexpr std::uint64_t end = std::uint64_t{1} << 40;
    CHECK_FALSE(bell::left_at(end - 1).has_rung_for(end));
    CHECK(bell::left_at(end).has_rung_for(end));
    CHECK(bell::left_at(end + 5).has_rung_for(end - 3));
    CHECK_FALSE(bell::left_at(end - 3).has_rung_for(end + 5));
    const completions last = completions::make(7, 0xfffe);
    CHECK(last.left(9).index() == 9);
    CHECK(last.left(9).ticket() == 0);
}

TEST_CASE("A flush takes completions only when a quarter of the queue has come together") {
    rig r(64);
    const ref tx = sender(r);
    for (int i = 0; i < 4; ++i) CHECK(tx.put(thread_scope{}, 0, 0, 8));
    CHECK(tx.flush(thread_scope{}));
    CHECK(completions{r.words.completed}.index() == 0);
    CHECK(r.words.credits == 60);
    for (int i = 0; i < 12; ++i) CHECK(tx.put(thread_scope{}, 0, 0, 8));
    CHECK(tx.flush(thread_scope{}));
    CHECK(completions{r.words.completed}.index() == 16);
    CHECK(r.words.credits == 64);
}

TEST_CASE("Who waits looks at the CQ when no other has begun to since, and believes what another found") {
    rig r;
    const ref tx = sender(r);
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    r.on_pass = [&r] {
        if (r.passes <= 20) ++r.words.looks;  // another one looks all the time, and is lost then
    };
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.passes > 20);
    CHECK(r.passes < 24);

    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    r.nic[0]->silent = true;
    const std::uint64_t begun = r.passes;
    r.on_pass = [&r, begun] {
        if (r.passes == begun + 7) r.words.reached = r.words.reserve;
    };
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.passes == begun + 7);
}

TEST_CASE("Who waits finds what is done although others never stop looking, also at its deadline") {
    rig r;
    const ref tx = sender(r);
    r.on_pass = [&r] { ++r.words.looks; };  // for something else, again and again: they say nothing of what is done here
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    deadline soon = r.within(20'000);
    CHECK(queue_ref<policy>(&r.view).wait_all(soon));

    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    deadline late = r.within(3'600'000'000'000);
    const std::uint64_t begun = r.passes;
    CHECK(queue_ref<policy>(&r.view).wait_all(late));
    CHECK(r.passes - begun < 2000);

    r.nic[0]->silent = true;
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    deadline never = r.within(20'000);
    CHECK(queue_ref<policy>(&r.view).wait_all(never).what == outcome::timeout);
}

TEST_CASE("Who has waited together with others says what it found") {
    rig r;
    const ref tx = sender(r);
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.words.reached == 0);  // nobody would have read it
    CHECK(tx.put(thread_scope{}, 0, 0, 8));
    r.on_pass = [&r] { r.words.looks += r.passes < 4; };
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.words.reached == 2);
}

TEST_CASE("Posts of one, two and many WQEs are flushed alike, in any mixture") {
    rig r(256);
    const ref tx = sender(r);
    std::uint64_t random = 88172645463325252u, value = 0;
    for (int n = 0; n < 3000; ++n) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for (unsigned k = 0; k < random % 40; ++k) {
            if ((random >> (k % 60) & 1) != 0)
                REQUIRE(tx.put(thread_scope{}, 0, 0, 8));
            else
                REQUIRE(tx.put_signal(thread_scope{}, 0, 0, 8, 1, ++value));
        }
        REQUIRE(tx.flush(thread_scope{}));
        REQUIRE(r.word[1] == value);
    }
}

TEST_CASE("Zero bytes are a put; more than 2^30 are several WQEs") {
    rig r;
    r.nic[0]->stop_before = 0;
    const ref tx = sender(r);
    CHECK(tx.put(thread_scope{}, 0, 0, 0));
    CHECK(tx.put(thread_scope{}, 0, 0, (1ull << 31) + 5));
    CHECK(r.words.reserve == 4);
    const ring& ring = r.rings[0].view();
    CHECK(decode(ring.wq[0], ring.wq[0]).local.length == 0);
    CHECK(decode(ring.wq[1], ring.wq[1]).local.length == 1u << 30);
    CHECK(decode(ring.wq[3], ring.wq[3]).local.length == 5);
    CHECK(decode(ring.wq[3], ring.wq[3]).remote.addr == r.view.remote + (1ull << 31));
}
