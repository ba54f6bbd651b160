/// \file
/// Several threads on one software NIC, in real time: each owns its QPs and CQs, all share the engine. Meant for
/// ThreadSanitizer as well; no timing decides.

#include "support.hpp"

#include <atomic>
#include <thread>

using namespace soft_test;

namespace {

constexpr auto patience = 60_s;

std::vector<completion> collect(end& e, std::size_t n) {
    std::vector<completion> all;
    const auto deadline = steady_clock{}.now() + patience;
    while (all.size() < n && steady_clock{}.now() < deadline) {
        const auto some = drain(e);
        all.insert(all.end(), some.begin(), some.end());
        if (some.empty()) std::this_thread::yield();
    }
    return all;
}

soft_options real(nanoseconds latency) {
    soft_options o;
    o.latency = latency;
    return o;
}

struct couple {
    end a, b;
};
std::vector<couple> couples(soft_fabric& f, int n) {
    std::vector<couple> all;
    const auto ha = take(f.host("A")), hb = take(f.host("B"));
    end_options o;
    o.bytes = 1 << 16;
    o.timers.rnr_retry = 7;  // a receiver may be slow to post
    for (int i = 0; i < n; ++i) {
        all.push_back({make_end(ha, "A.nic0.p0", o), make_end(hb, "B.nic0.p0", o)});
        join(all.back().a, all.back().b, o);
        join(all.back().b, all.back().a, o);
    }
    return all;
}

}  // namespace

TEST_CASE("senders and receivers on threads of their own get every message, in order, with its bytes") {
    for (const auto latency : {0_us, 3_us}) {
        CAPTURE(latency.count);
        auto f = take(soft_fabric::create(soft_topology(2, 1, 1, 1), real(latency)));
        constexpr int n = 3, messages = 400;
        auto all = couples(f, n);
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (auto& c : all) {
            threads.emplace_back([&c, &wrong] {
                for (std::uint64_t i = 0; i < messages; ++i) {
                    c.a.words[0] = i;
                    auto w = with(write(c.a, c.b, 8000, i), work_op::write_imm);
                    w.immediate = static_cast<std::uint32_t>(i);
                    c.a.words[999] = i;
                    if (!c.a.qp.post(w)) ++wrong;
                    const auto got = collect(c.a, 1);
                    if (got.size() != 1 || got[0].status != wc_status::success || got[0].wr_id != i) ++wrong;
                }
            });
            threads.emplace_back([&c, &wrong] {
                const recv_work r[] = {receive(c.b, 0, 0)};
                for (std::uint64_t i = 0; i < messages; ++i) {
                    if (!c.b.qp.post_recv(r)) ++wrong;
                    const auto got = collect(c.b, 1);
                    if (got.size() != 1 || got[0].status != wc_status::success || got[0].immediate != i) ++wrong;
                }
            });
        }
        for (auto& t : threads) t.join();
        CHECK(wrong == 0);
        for (auto& c : all) {
            CHECK(c.b.words[0] == messages - 1);
            CHECK(c.b.words[999] == messages - 1);
        }
    }
}

TEST_CASE("a word that a peer writes can be polled, and what it announces is there") {
    auto f = take(soft_fabric::create(soft_topology(2, 1, 1, 1), real(0_us)));
    auto all = couples(f, 1);
    auto& c = all[0];
    constexpr std::uint64_t rounds = 500;
    std::atomic<int> wrong{0};
    std::thread receiver([&] {
        for (std::uint64_t i = 1; i <= rounds; ++i) {
            std::atomic_ref<std::uint64_t> flag(c.b.words[1023]);  // the last word of the message
            while (flag.load(std::memory_order_acquire) != i) std::this_thread::yield();
            if (c.b.words[0] != i * 3) ++wrong;
            std::uint64_t answer = i;
            auto w = write(c.b, c.a, 8);
            w.local_addr = reinterpret_cast<std::uintptr_t>(&answer);
            w.remote_addr = c.a.address(8192);
            w.flags = w.flags | work_flags::inlined;
            if (!c.b.qp.post(w)) ++wrong;
            collect(c.b, 1);
        }
    });
    for (std::uint64_t i = 1; i <= rounds; ++i) {
        c.a.words[0] = i * 3;
        c.a.words[1023] = i;
        REQUIRE(c.a.qp.post(write(c.a, c.b, 8192)));
        collect(c.a, 1);
        std::atomic_ref<std::uint64_t> answer(c.a.words[1024]);
        while (answer.load(std::memory_order_acquire) != i) std::this_thread::yield();
    }
    receiver.join();
    CHECK(wrong == 0);
}

TEST_CASE("fences and rebuilds on one thread do not disturb the others, while ports flap") {
    auto f = take(soft_fabric::create(soft_topology(2, 1, 1, 1), real(2_us)));
    auto all = couples(f, 3);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (auto& c : all)
        threads.emplace_back([&c, &stop, &wrong] {
            for (std::uint32_t round = 1; round < 60; ++round) {
                for (std::uint64_t i = 0; i < 8; ++i)
                    if (!c.a.qp.post(write(c.a, c.b, 5000, i))) ++wrong;
                if (round % 3 != 0) drain(c.a);
                for (end* e : {&c.a, &c.b})
                    if (!e->qp.to_error() || !e->qp.to_reset()) ++wrong;
                drain(c.a);
                drain(c.b);
                end_options o;
                o.first = psn{round * 1000};
                const auto ladder = [&o](end& x, end& y) {
                    return x.qp.to_init() &&
                           x.qp.to_ready_to_receive({y.qp.number(), o.first, y.port.query()->address, 0, 4096}, o.timers) &&
                           x.qp.to_ready_to_send(o.first, o.timers);
                };
                if (!ladder(c.a, c.b) || !ladder(c.b, c.a)) ++wrong;
                while (c.a.port.next_event()->what != async_event::kind::none) {}
            }
            stop = true;
        });
    while (!stop)
        for (const char* command : {"down A.nic0.p0", "up A.nic0.p0", "loss B.nic0.p0 3%", "clear all"}) {
            CHECK(f.command(command));
            std::this_thread::yield();
        }
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
    REQUIRE(f.command("clear all"));
    for (auto& c : all) {
        REQUIRE(c.a.qp.post(write(c.a, c.b, 8)));
        const auto got = collect(c.a, 1);
        CHECK(got.at(0).status == wc_status::success);
    }
}

TEST_CASE("objects come and go on many threads") {
    auto f = take(soft_fabric::create(soft_topology(2, 1, 1, 1), real(1_us)));
    const auto ha = take(f.host("A")), hb = take(f.host("B"));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 30; ++i) {
                std::vector<std::uint64_t> there(512), here(512, 7);
                auto pa = ha.open("A.nic0.p0"), pb = hb.open("B.nic0.p0");
                auto ca = pa->create_cq(8), cb = pb->create_cq(8);
                auto ma = pa->register_memory(here.data(), 4096), mb = pb->register_memory(there.data(), 4096);
                auto qa = pa->create_qp(*ca, {}), qb = pb->create_qp(*cb, {});
                const qp_peer to_b{qb->number(), psn{1}, pb->query()->address, 0, 4096},
                    to_a{qa->number(), psn{1}, pa->query()->address, 0, 4096};
                if (!qa->to_init() || !qb->to_init() || !qa->to_ready_to_receive(to_b, {}) ||
                    !qb->to_ready_to_receive(to_a, {}) || !qa->to_ready_to_send(psn{1}, {}) || !qb->to_ready_to_send(psn{1}, {}))
                    ++wrong;
                work w;
                w.flags = work_flags::signaled;
                w.local_addr = reinterpret_cast<std::uintptr_t>(here.data());
                w.remote_addr = reinterpret_cast<std::uintptr_t>(there.data());
                w.length = 4096;
                w.lkey = ma->local_key();
                w.rkey = mb->remote_key();
                if (!qa->post(w)) ++wrong;
                completion done;
                const auto deadline = steady_clock{}.now() + patience;
                while (*ca->poll(&done, 1) == 0 && steady_clock{}.now() < deadline) std::this_thread::yield();
                if (done.status != wc_status::success || there != here) ++wrong;
            }
        });
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
}
