// Real threads post while a service moves the queue from lane to lane: for ThreadSanitizer, and for orders that no schedule
// under a manual clock has.
#include "rig.hpp"

#include <vccl/device/receiver_ref.hpp>
#include <vccl/device/sender_ref.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

using namespace vccl_test;

namespace {

using policy = queue_policy<>;

/// Moves the queue every `period` passes, restores the dead lane as soon as nobody can still write there.
struct service_thread {
    rig& r;
    unsigned period;
    std::atomic<bool> stop{};
    std::atomic<std::uint32_t> epoch{1};
    unsigned lane{}, dead{rig::lanes};
    std::thread thread;

    service_thread(rig& of, unsigned p) : r(of), period(p), thread([this] { run(); }) {}
    ~service_thread() {
        stop = true;
        thread.join();
    }
    void run() {
        for (unsigned pass = 1; !stop; ++pass) {
            r.nic[lane]->silent = pass % period + 20 > period;  // the last ones take effect, but nobody is told
            bool moved = r.nic[lane]->pass();
            moved |= r.service.adopt();
            if (dead != rig::lanes && r.service.quiescent(dead)) {
                r.rings[dead].clear();
                r.nic[dead] = std::make_unique<copying_nic>(r.rings[dead].view());
                dead = rig::lanes;
            }
            if (pass % period == 0 && dead == rig::lanes) {
                r.service.close();
                dead = lane;
                lane ^= 1;
                (void)r.service.move(lane, ++epoch, r.view.rings[lane].ring.qpn, r.word, rig::signals);
                r.nic[lane]->silent = false;
            }
            if (!moved) std::this_thread::yield();
        }
    }
};

}  // namespace

TEST_CASE("Threads post on one queue through many failovers: every signal and addition exactly once, every put in place") {
    for (const std::uint32_t depth : {8u, 64u}) {
        rig r(depth);
        r.waiting = {};
        constexpr unsigned threads = 3;
        constexpr std::uint64_t rounds = 600;
        for (std::size_t i = 0; i < r.window.size(); ++i) r.window[i] = static_cast<unsigned char>(i * 13 + i / 256);
        std::atomic<unsigned> wrong{};
        {
            service_thread service(r, 61);
            std::vector<std::thread> posters;
            for (unsigned t = 0; t < threads; ++t)
                posters.emplace_back([&r, &wrong, t] {
                    const sender_ref<policy> tx(&r.view, 1, 20'000'000'000);
                    for (std::uint64_t i = 1; i <= rounds; ++i) {
                        const std::uint64_t at = t * 8192 + i % 64 * 128;
                        wrong += !tx.put_signal(thread_scope{}, at, at, 128, t, i);
                        wrong += !tx.fetch_add(thread_scope{}, 7, t + 1);
                        if (i % 16 == 0) wrong += !tx.flush(thread_scope{});
                    }
                    wrong += !tx.flush(thread_scope{});
                    const receiver_ref rx(r.word, rig::signals, &r.host, nullptr, 20'000'000'000);
                    wrong += !rx.wait_signal(thread_scope{}, t, rounds);
                });
            for (std::thread& p : posters) p.join();
            CHECK(service.epoch > 3);
        }
        CHECK(wrong == 0);
        CHECK(r.word[7] == rounds * (1 + 2 + 3));
        for (unsigned t = 0; t < threads; ++t) {
            CHECK(r.word[t] == rounds);
            CHECK(std::memcmp(&r.remote[t * 8192], &r.window[t * 8192], 8192) == 0);
        }
        (void)queue_ref<policy>(&r.view).poll();  // a flush takes no more completions than it must
        CHECK(completions{r.words.completed}.index() == r.words.reserve);
    }
}

TEST_CASE("Whatever is published is rung when all posters have returned, whoever found whom ringing") {
    constexpr unsigned threads = 2, rounds = 100'000;
    const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(5);  // where threads outnumber processors
    rig r(64);
    r.waiting = {};
    std::atomic<unsigned> came{}, wrong{}, unrung{};
    std::atomic<bool> over{}, last{};
    std::thread nic([&] {
        while (!over)
            if (!r.nic[0]->pass()) std::this_thread::yield();
    });
    std::vector<std::thread> posters;
    for (unsigned t = 0; t < threads; ++t)
        posters.emplace_back([&, t] {
            const queue_ref<queue_policy<shared_by_gpu, ring_every<1>>> q(
                &r.view);  // who leaves it to nobody meets others at the bell
            unsigned meetings = 0;
            const auto meet = [&] {
                ++came;
                ++meetings;
                for (unsigned spins = 0; came < threads * meetings; ++spins)  // so that they leave at the same time, mostly
                    if (spins % 4096 == 4095) std::this_thread::yield();
            };
            for (unsigned i = 1; i <= rounds; ++i) {
                deadline until(&r.waiting, 20'000'000'000);
                wrong += !q.post(single{}, 1, until, [](unsigned, const wqe_head& h, const ring_view&) { return nop(h); });
                meet();
                if (t == 0) {
                    unrung += r.service.rung().index() != threads * i;
                    last = i % 64 == 0 && std::chrono::steady_clock::now() >= enough;
                }
                meet();
                if (last) break;
            }
        });
    for (std::thread& p : posters) p.join();
    over = true;
    nic.join();
    CHECK(wrong == 0);
    CHECK(unrung == 0);
}

TEST_CASE("Each sharing policy works where it applies") {
    rig r(16);
    r.waiting = {};
    service_thread service(r, 47);
    const sender_ref<queue_policy<exclusive_queue>> tx(&r.view, 1, 20'000'000'000);
    for (std::uint64_t i = 1; i <= 2000; ++i) REQUIRE(tx.fetch_add(thread_scope{}, 2, i));
    CHECK(tx.flush(thread_scope{}));
    CHECK(load<order::acquire, scope::system>(&r.word[2]) == 2000 * 2001 / 2);
}
