/// \file
/// Collectives under random fault schedules, a fixed range of seeds. The program `coll_storm` (storm_main.cpp) runs any range.

#include "storm.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace coll_test;

TEST_CASE("Whatever fails during whichever collective, it ends at every rank with every element right") {
    const std::uint64_t last = std::getenv("VCCL_QUICK") ? 20 : 120;
    std::uint64_t failovers = 0, failbacks = 0, replayed = 0, touched = 0;
    for (std::uint64_t seed = 1; seed <= last; ++seed) {
        const storm_result r = storm(seed);
        failovers += r.failovers;
        failbacks += r.failbacks;
        replayed += r.replayed;
        touched += r.touched;
        if (r.problem.empty()) continue;
        std::string schedule;
        for (const std::string& line : r.schedule) schedule += "\n  " + line;
        FAIL_CHECK("seed ", seed, ": ", r.problem, "\n  ", r.what, schedule);
    }
    std::printf("coll storms: seeds 1 to %llu, %llu with faults, %llu failovers, %llu failbacks, %llu chunks replayed\n",
                static_cast<unsigned long long>(last), static_cast<unsigned long long>(touched),
                static_cast<unsigned long long>(failovers), static_cast<unsigned long long>(failbacks),
                static_cast<unsigned long long>(replayed));
    // The weather must have been bad enough for the result to mean something.
    CHECK(touched == last);
    CHECK(failovers > last / 2);
    CHECK(replayed > last / 2);
    CHECK(failbacks > 0);
}

TEST_CASE("A storm over a collective is a function of its seed") {
    const storm_result one = storm(5), two = storm(5);
    CHECK(one.problem.empty());
    CHECK(one.schedule == two.schedule);
    CHECK(one.failovers == two.failovers);
    CHECK(one.replayed == two.replayed);
}
