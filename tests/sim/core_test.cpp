/// \file
/// A fixed range of schedules of the two protocol cores; what they must have met; and that a failure can be told and replayed.

#include "core_sim.hpp"
#include "program.hpp"

#include <doctest/doctest.h>

using namespace vccl_sim;

TEST_CASE("Whatever fails in whatever order, the cores keep their invariants; every state that can meets every event that can") {
    const std::uint64_t last = std::getenv("VCCL_QUICK") ? 20'000 : 150'000;
    core_sim sim;
    std::printf("sim_core: seeds 1 to %" PRIu64 "\n", last);
    for (std::uint64_t seed = 1; seed <= last; ++seed) {
        const std::string problem = sim.problem_of(draw(seed));
        if (problem.empty()) continue;
        FAIL("seed ", seed, ": ", problem, "\n", text(shrunk(sim, draw(seed), problem)));
    }
    std::printf("sim_core: %s\n", sim.totals().c_str());
    CHECK(sim.all.failovers > last / 2);
    CHECK(sim.all.failbacks > last / 20);
    CHECK(sim.all.suspended > last / 4);
    if (std::getenv("VCCL_QUICK")) return;
    for (unsigned e = 0; e < 2; ++e)
        for (unsigned s = 0; s < 7; ++s)
            for (unsigned k = 1; k < coverage::events; ++k) {
                CAPTURE(end_names[e]);
                CAPTURE(state_names[s]);
                CAPTURE(told_names[k]);
                const bool met = sim.seen.channel[e][s][k] != 0;
                const bool can = reachable(e, static_cast<channel_state>(s), static_cast<told>(k));
                CHECK(met == can);
            }
}

TEST_CASE("A schedule is a function of its seed, and the same after printing and reading") {
    for (std::uint64_t seed : {1u, 77u, 4711u}) {
        const schedule s = draw(seed);
        std::FILE* f = std::tmpfile();
        REQUIRE(f != nullptr);
        std::fputs(text(s).c_str(), f);
        std::rewind(f);
        schedule again;
        REQUIRE(read(f, again));
        std::fclose(f);
        CHECK(again.steps == s.steps);
        CHECK(text(again) == text(draw(seed)));
        core_pair one(s.with), two(again.with);
        const verdict_of a = one.carry_out(s.steps), b = two.carry_out(again.steps);
        CHECK(a.delivered == b.delivered);
        CHECK(a.failovers == b.failovers);
    }
}

TEST_CASE("What is not a schedule is refused") {
    for (const char* words : {"jump 1 2\n", "run\n", "setting lanes 2\n", "run x y\n"}) {
        std::FILE* f = std::tmpfile();
        REQUIRE(f != nullptr);
        std::fputs(words, f);
        std::rewind(f);
        schedule s;
        CHECK_FALSE(read(f, s));
        std::fclose(f);
    }
}

TEST_CASE("Shrinking leaves the steps that are needed and no others") {
    std::vector<int> steps(100);
    for (int i = 0; i < 100; ++i) steps[static_cast<std::size_t>(i)] = i;
    const auto needs = [](const std::vector<int>& v) {
        return std::count(v.begin(), v.end(), 17) + std::count(v.begin(), v.end(), 64) + std::count(v.begin(), v.end(), 65) == 3;
    };
    CHECK(shrink(steps, needs) == std::vector<int>{17, 64, 65});
}
