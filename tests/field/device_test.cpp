/// \file
/// What users of device-initiated transports reported, as a scenario each on a device queue. The thread that it comes from stands in the
/// name. The NIC executes by copying; device code runs on the CPU. What needs a GPU or an RNIC is listed in docs/proof.md.

#include "../device/queue/rig.hpp"

#include <vccl/device/receiver_ref.hpp>
#include <vccl/device/sender_ref.hpp>

#include <doctest/doctest.h>

using namespace vccl_test;

namespace {

using ref = sender_ref<queue_policy<>>;

/// What a channel does about a dead lane 0: its CQ is closed, its QP fenced, the peer's words read, and lane 1 takes over.
void fail_over(rig& r) {
    r.service.close();
    r.nic[0]->stop_before = 0;
    (void)r.service.move(1, 2, r.view.rings[1].ring.qpn, r.word, rig::signals);
}

}  // namespace

TEST_CASE(
    "NVIDIA/nccl#2383: an addition behind acknowledged WRITEs ends in 0x15: who waits is told, and a failover adds it once") {
    rig r;
    r.nic[0]->fail_at = 2;
    const ref tx{&r.view, 1, 300'000};
    CHECK(tx.put(thread_scope{}, 0, 0, 64));
    CHECK(tx.put(thread_scope{}, 64, 0, 64));
    CHECK(tx.fetch_add(thread_scope{}, 5, 7));
    const device_result got = tx.flush(thread_scope{});
    CHECK(got.what == outcome::timeout);  // no spin without an end
    CHECK(got.why == syndrome::transport_retry);
    CHECK(static_cast<unsigned>(got.why) == 0x15);
    CHECK(r.time < 400'000);
    fail_over(r);
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.word[5] == 7);
}

TEST_CASE("NVIDIA/nvshmem#117, deepseek-ai/DeepEP#558, #294, #411: an error CQE among successes reaches the code that waits") {
    for (unsigned bad = 0; bad < 6; ++bad) {
        rig r;
        r.nic[0]->fail_at = bad;
        r.nic[0]->failure = syndrome::remote_access;
        const ref tx{&r.view, 1, 1'000'000'000};
        for (int i = 0; i < 6; ++i) CHECK(tx.put(thread_scope{}, 0, 0, 64));
        const device_result got = tx.flush(thread_scope{});
        CHECK(got.what == outcome::error);
        CHECK(got.why == syndrome::remote_access);
        CHECK(got.wqe == bad);
        CHECK(r.time < 1'000'000);  // long before the deadline
    }
}

TEST_CASE("deepseek-ai/DeepEP#301, #180: ten times as many WQEs as slots: no slot is written before its WQE is done") {
    rig r(8);
    for (std::size_t i = 0; i < r.window.size(); ++i) r.window[i] = static_cast<unsigned char>(i * 7 + i / 251);
    const ref tx{&r.view, 1, 1'000'000'000};
    unsigned turn = 0;
    r.on_pass = [&] { r.nic[0]->stop_before = ++turn / 3; };  // the NIC is slow: one WQE in three passes
    for (std::uint64_t i = 0; i < 80; ++i) CHECK(tx.put(thread_scope{}, 512 * i, 512 * i, 512));
    CHECK(tx.flush(thread_scope{}));
    REQUIRE(r.nic[0]->seen.size() == 80);
    for (std::uint64_t i = 0; i < 80; ++i) CHECK(r.nic[0]->seen[i].remote.addr == r.view.remote + 512 * i);
    CHECK(std::memcmp(r.remote.data(), r.window.data(), 80 * 512) == 0);
}

TEST_CASE("ROCm/mori#404: a flush returns only when everything posted before it has completed, also across a failover") {
    rig r;
    const ref tx{&r.view, 1, 100'000};
    for (unsigned done = 0; done < 5; ++done) {
        r.nic[0]->stop_before = done;
        if (done == 0)
            for (int i = 0; i < 5; ++i) CHECK(tx.put(thread_scope{}, 0, 0, 64));
        CHECK(tx.flush(thread_scope{}).what == outcome::timeout);
        CHECK(r.nic[0]->executed == done);
    }
    fail_over(r);
    r.nic[1]->stop_before = 0;
    CHECK(tx.flush(thread_scope{}).what == outcome::timeout);
    r.nic[1]->stop_before = ~0ull;
    CHECK(tx.flush(thread_scope{}));
    CHECK(r.nic[1]->executed == 1);  // the one that had not been done
}

TEST_CASE(
    "meta-pytorch/torchcomms#3157: a word counts what has arrived, whichever lane it took, and never runs ahead of the data") {
    for (unsigned on_first = 0; on_first <= 16; ++on_first) {
        CAPTURE(on_first);
        rig r(32);
        std::fill(r.window.begin(), r.window.end(), static_cast<unsigned char>(1));
        const ref tx{&r.view, 1, 10'000'000};
        const auto in_step = [&] {
            for (std::uint64_t i = 0; i < r.word[3]; ++i) CHECK(r.remote[64 * i] == 1);
        };
        r.nic[0]->silent = true;  // takes effect, but nobody is told: the most that can be counted twice
        r.nic[0]->stop_before = on_first;
        for (std::uint64_t i = 0; i < 8; ++i) {
            CHECK(tx.put(thread_scope{}, 64 * i, 0, 64));
            CHECK(tx.fetch_add(thread_scope{}, 3, 1));
        }
        r.pass();
        in_step();
        fail_over(r);
        r.on_pass = in_step;
        CHECK(tx.flush(thread_scope{}));
        CHECK(r.word[3] == 8);
    }
}

TEST_CASE("NVIDIA/nccl#2203: nothing waits without an end: posts, flushes and waits for a peer that does nothing time out") {
    rig r(4);
    r.nic[0]->stop_before = 0;
    const ref tx{&r.view, 1, 50'000};
    device_result got{};
    for (int i = 0; i < 5; ++i) got = tx.put(thread_scope{}, 0, 0, 64);
    CHECK(got.what == outcome::timeout);  // the ring is full
    CHECK(tx.flush(thread_scope{}).what == outcome::timeout);
    const receiver_ref rx(r.word, rig::signals, &r.host, &r.waiting, 50'000);
    CHECK(rx.wait_signal(thread_scope{}, 0, 1).what == outcome::timeout);
    CHECK(r.time < 200'000);
}
