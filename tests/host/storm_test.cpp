/// \file
/// Transfers under random fault schedules, a fixed range of seeds. The program `storm` (storm_main.cpp) runs any range.

#include "storm.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace vccl_test;

namespace {

/// Every seed of a range; the weather must have been bad enough for the result to mean something.
template <class Storm>
void storms(std::uint64_t from, std::uint64_t to, Storm storm) {
    std::printf("storms: seeds %llu to %llu\n", static_cast<unsigned long long>(from), static_cast<unsigned long long>(to));
    std::uint64_t failovers = 0, failbacks = 0, replayed = 0, delivered = 0, suspended = 0;
    for (std::uint64_t seed = from; seed <= to; ++seed) {
        const storm_result r = storm(seed);
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
    CHECK(failovers > (to - from) / 2);
    CHECK(failbacks > 0);
    CHECK(replayed > (to - from) / 2);
    CHECK(suspended + delivered > 0);
}

}  // namespace

TEST_CASE("Whatever fails in whatever order, every chunk arrives once, in order and whole") {
    storms(1, std::getenv("VCCL_QUICK") ? 60 : 400, [](std::uint64_t seed) { return any_storm(seed, 300); });
}

TEST_CASE("Whatever fails of three lanes in whatever order, every chunk arrives once, in order and whole") {
    storms(1, std::getenv("VCCL_QUICK") ? 30 : 150, [](std::uint64_t seed) { return wide_storm(seed, 300); });
}

TEST_CASE("A storm is a function of its seed") {
    const storm_result one = any_storm(17, 200), two = any_storm(17, 200);
    CHECK(one.finished);
    CHECK(one.schedule == two.schedule);
    CHECK(one.failovers == two.failovers);
    CHECK(one.replayed == two.replayed);
}
