/// \file
/// Transfers under random fault schedules, a fixed range of seeds. The program `storm` (storm_main.cpp) runs any range.

#include "storm.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace vccl_test;

TEST_CASE("Whatever fails in whatever order, every chunk arrives once, in order and whole") {
    const std::uint64_t from = 1, to = std::getenv("VCCL_QUICK") ? 60 : 400;
    std::printf("storms: seeds %llu to %llu\n", static_cast<unsigned long long>(from), static_cast<unsigned long long>(to));
    std::uint64_t failovers = 0, failbacks = 0, replayed = 0, delivered = 0, suspended = 0;
    for (std::uint64_t seed = from; seed <= to; ++seed) {
        const storm_result r = any_storm(seed, 300);
        failovers += r.failovers;
        failbacks += r.failbacks;
        replayed += r.replayed;
        delivered += r.delivered;
        suspended += r.suspended;
        if (r.finished) continue;
        std::string schedule;
        for (const std::string& line : r.schedule) schedule += "\n  " + line;
        FAIL_CHECK("seed ", seed, ": ", r.problem, schedule);
    }
    std::printf("storms: %llu failovers, %llu failbacks, %llu suspensions, %llu chunks replayed, %llu already delivered\n",
                static_cast<unsigned long long>(failovers), static_cast<unsigned long long>(failbacks),
                static_cast<unsigned long long>(suspended), static_cast<unsigned long long>(replayed),
                static_cast<unsigned long long>(delivered));
    // The weather was bad enough for the result to mean something.
    CHECK(failovers > to);
    CHECK(failbacks > to / 4);
    CHECK(replayed > to);
    CHECK(suspended > 0);
    CHECK(delivered > 0);
}

TEST_CASE("A storm is a function of its seed") {
    const storm_result one = any_storm(17, 200), two = any_storm(17, 200);
    CHECK(one.finished);
    CHECK(one.schedule == two.schedule);
    CHECK(one.failovers == two.failovers);
    CHECK(one.replayed == two.replayed);
}
