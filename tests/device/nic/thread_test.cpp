// Posters, the NIC's thread, and a thread that fences and revives the QP, all at once: for ThreadSanitizer.

#include "world.hpp"

#include <atomic>
#include <thread>

namespace {

using namespace ring_test;
using threaded_nic = ring_nic<soft>;

world<threaded_nic> make_threaded(const ring_limits& limits) {
    world_options o;
    o.limits = limits;
    o.fabric = {};
    auto fabric = take(soft_fabric::create(verbs::soft_topology(2, 1, 2, 1), o.fabric));
    return world<threaded_nic>(o, std::move(fabric), steady_clock{});
}

/// Polls until `many` CQEs are there, or far too long has passed.
std::vector<seen> wait_for(poster& p, std::size_t many) {
    std::vector<seen> all;
    const nanoseconds give_up = steady_clock{}.now() + 60_s;
    while (all.size() < many && steady_clock{}.now() < give_up) {
        const auto some = p.poll();
        all.insert(all.end(), some.begin(), some.end());
        if (some.empty()) std::this_thread::yield();
    }
    return all;
}

TEST_CASE("A poster on its own thread sees its WQEs done by the NIC's thread, through many laps") {
    auto w = make_threaded({8, 8});
    proxy driver;
    driver.attach(w.nic.passenger());
    std::uint64_t value = 0;
    for (int round = 0; round < 500; ++round) {
        for (int i = 0; i < 8; ++i) w.post.put(inline_write(w.post.head(), w.there(0), ++value));
        w.post.ring_it();
        const auto cqes = wait_for(w.post, 8);
        REQUIRE(cqes.size() == 8);
        for (const auto& c : cqes) REQUIRE(c.why == syndrome::none);
    }
    w.post.put(read(w.post.head(), w.there(0), w.here(0, 8)));
    w.post.ring_it();
    REQUIRE(wait_for(w.post, 1).size() == 1);
    CHECK(w.near_words[0] == value);
    driver.detach(&w.nic);
}

TEST_CASE("Another thread moves the QP to ERR and asks its state while WQEs are posted and consumed") {
    auto w = make_threaded({8, 8});
    proxy driver;
    driver.attach(w.nic.passenger());
    for (int life = 0; life < 20; ++life) {
        std::atomic<bool> posting{true};
        std::thread agent([&] {
            for (int i = 0; i < 50; ++i) (void)w.qp.state();
            (void)w.qp.to_error();
            while (posting.load()) (void)w.qp.overrun();
        });
        bool failed = false;
        while (!failed) {
            for (int i = 0; i < 4; ++i) w.post.put(inline_write(w.post.head(), w.there(0), 1));
            w.post.ring_it();
            const auto cqes = wait_for(w.post, 4);
            if (cqes.size() != 4) break;
            for (const auto& c : cqes) failed |= c.why == syndrome::flushed;
        }
        posting.store(false);
        agent.join();
        REQUIRE(failed);
        REQUIRE(w.qp.to_reset());
        REQUIRE(w.far_qp.to_reset());
        w.post = poster(w.qp.memory());
        w.connect();
    }
    driver.detach(&w.nic);
}

}  // namespace
