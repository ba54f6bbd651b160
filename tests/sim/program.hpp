#pragma once
/// \file
/// What the two simulation programs have in common: seeds FROM to TO, or until the time is up; at the first failure of a kind the
/// seed, what broke, and a shrunk schedule that --replay takes.
///
///     PROGRAM FROM TO [--seconds S | --first]      PROGRAM --replay FILE      PROGRAM --show SEED
///
/// --first: stops at the first failure.
///
/// Exit status 0: no failure. `Sim` has: schedule, draw(seed), problem_of(schedule), steps_of(schedule), totals().

#include "shrink.hpp"

#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace vccl_sim {

/// Steps are taken out as long as the same thing breaks.
template <class Sim>
typename Sim::schedule shrunk(Sim& sim, typename Sim::schedule s, const std::string& problem) {
    auto& steps = Sim::steps_of(s);
    steps = shrink(steps, [&](const auto& fewer) {
        auto t = s;
        Sim::steps_of(t) = fewer;
        return sim.problem_of(t).substr(0, 24) == problem.substr(0, 24);
    });
    return s;
}

template <class Sim>
int simulate(Sim& sim, const char* name, int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--show") == 0) {
        std::fputs(text(Sim::draw(std::strtoull(argv[2], nullptr, 10))).c_str(), stdout);
        return 0;
    }
    if (argc == 3 && std::strcmp(argv[1], "--replay") == 0) {
        std::FILE* f = std::fopen(argv[2], "r");
        typename Sim::schedule s;
        if (f == nullptr || !read(f, s)) {
            std::fprintf(stderr, "%s: %s is not a schedule\n", name, argv[2]);
            return 2;
        }
        std::fclose(f);
        const std::string problem = sim.problem_of(s, true);
        std::printf("%s\n", problem.empty() ? "every invariant held" : problem.c_str());
        return problem.empty() ? 0 : 1;
    }
    const bool first = argc == 4 && std::strcmp(argv[3], "--first") == 0;
    if (argc != 3 && !first && !(argc == 5 && std::strcmp(argv[3], "--seconds") == 0)) {
        std::fprintf(stderr, "usage: %s FROM TO [--seconds S | --first] | --replay FILE | --show SEED\n", name);
        return 2;
    }
    const std::uint64_t from = std::strtoull(argv[1], nullptr, 10), to = std::strtoull(argv[2], nullptr, 10);
    const double seconds = argc == 5 ? std::atof(argv[4]) : 1e9;
    const auto begin = std::chrono::steady_clock::now();
    auto gone = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    std::map<std::string, std::uint64_t> kinds;
    std::uint64_t seed = from, bad = 0;
    for (; seed <= to && (seed % 16 != 0 || gone() < seconds); ++seed) {
        const auto s = Sim::draw(seed);
        const std::string problem = sim.problem_of(s);
        if (problem.empty()) continue;
        ++bad;
        if (++kinds[problem.substr(0, 24)] != 1) continue;
        std::printf("seed %" PRIu64 ": %s\n%s", seed, problem.c_str(), text(shrunk(sim, s, problem)).c_str());
        std::fflush(stdout);
        if (first) return 1;
    }
    for (const auto& [kind, times] : kinds) std::printf("%" PRIu64 " x %s\n", times, kind.c_str());
    std::printf("%s: seeds %" PRIu64 " to %" PRIu64 " in %.1f s, %" PRIu64 " failed; %s\n", name, from, seed - 1, gone(), bad,
                sim.totals().c_str());
    return bad == 0 ? 0 : 1;
}

}  // namespace vccl_sim
