/// \file
/// Transfers of two real endpoints under random incidents, a fixed range of seeds. The program sim_storm runs any range.

#include "program.hpp"
#include "storm_sim.hpp"

#include <doctest/doctest.h>

using namespace vccl_sim;

TEST_CASE("Whatever fails in whatever order, every chunk arrives once, in order and whole, or the end has a reason") {
    const std::uint64_t last = std::getenv("VCCL_QUICK") ? 100 : 600;
    storm_sim sim;
    std::printf("sim_storm: seeds 1 to %" PRIu64 "\n", last);
    for (std::uint64_t seed = 1; seed <= last; ++seed) {
        const std::string problem = sim.problem_of(draw_storm(seed));
        if (problem.empty()) continue;
        FAIL_CHECK("seed ", seed, ": ", problem, "\n", text(shrunk(sim, draw_storm(seed), problem)));
    }
    std::printf("sim_storm: %s\n", sim.totals().c_str());
    // The weather must have been bad enough for the result to mean something.
    CHECK(sim.all.failovers > last / 2);
    CHECK(sim.all.failbacks > last / 8);
    CHECK(sim.all.replayed > last / 2);
    CHECK(sim.all.suspended > last / 16);
    CHECK(sim.all.delivered > last / 16);
    CHECK(sim.ended_early > last / 40);
}

TEST_CASE("A storm is a function of its schedule, and the same after printing and reading") {
    for (std::uint64_t seed : {3u, 17u, 40u}) {
        const storm_schedule s = draw_storm(seed);
        std::FILE* f = std::tmpfile();
        REQUIRE(f != nullptr);
        std::fputs(text(s).c_str(), f);
        std::rewind(f);
        storm_schedule again;
        REQUIRE(read(f, again));
        std::fclose(f);
        CHECK(text(again) == text(s));
        const storm_result one = carry_out(s), two = carry_out(again);
        CHECK(one.problem == two.problem);
        CHECK(one.told == two.told);
        CHECK(one.hash == two.hash);
    }
}
