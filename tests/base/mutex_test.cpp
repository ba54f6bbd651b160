#include <vccl/base/mutex.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

TEST_CASE("a mutex that is held is not taken again, and is free once its guard has gone") {
    vccl::mutex m;
    const auto taken = [&] { return static_cast<bool>(vccl::scoped_try_lock(m)); };
    {
        const vccl::scoped_lock held(m);
        CHECK_FALSE(taken());
    }
    CHECK(taken());
    CHECK(taken());
}

TEST_CASE("a passing mutex goes to who asked first, and to everybody where it is always awaited") {
    vccl::passing_mutex m;
    std::vector<int> order;
    m.lock();
    std::thread first([&] {
        const vccl::scoped_lock lock(m);
        order.push_back(1);
    });
    while (!m.awaited()) std::this_thread::yield();
    CHECK_FALSE(static_cast<bool>(vccl::scoped_try_lock(m)));
    m.unlock();
    m.lock();
    order.push_back(2);
    m.unlock();
    first.join();
    CHECK(order == std::vector<int>{1, 2});

    std::atomic<bool> stop{};
    std::vector<std::thread> callers;  // whoever has it keeps it until another one asks
    for (int i = 0; i < 2; ++i)
        callers.emplace_back([&] {
            while (!stop) {
                const vccl::scoped_lock lock(m);
                while (!m.awaited() && !stop) std::this_thread::yield();
            }
        });
    while (!m.awaited()) std::this_thread::yield();
    for (int turns = 0; turns < 100; ++turns) const vccl::scoped_lock lock(m);
    stop = true;
    for (std::thread& t : callers) t.join();
    CHECK(static_cast<bool>(vccl::scoped_try_lock(m)));
}
