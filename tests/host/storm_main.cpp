/// \file
/// storm FROM TO: runs the storms of a range of seeds. storm SEED: runs one and tells all about it.
/// Exit status 0 if every chunk of every storm arrived once, in order and whole.

#include "storm.hpp"

#include <cinttypes>
#include <cstdlib>

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: storm FROM TO | storm SEED\n");
        return 2;
    }
    const std::uint64_t from = std::strtoull(argv[1], nullptr, 10), to = std::strtoull(argv[argc - 1], nullptr, 10);
    std::uint64_t bad = 0, failovers = 0, replayed = 0;
    for (std::uint64_t seed = from; seed <= to; ++seed) {
        for (bool wide : {false, true}) {
            const vccl_test::storm_result r =
                wide ? vccl_test::wide_storm(seed, 300, argc == 2) : vccl_test::any_storm(seed, 300, argc == 2);
            failovers += r.failovers;
            replayed += r.replayed;
            if (r.finished) continue;
            ++bad;
            std::printf("seed %" PRIu64 "%s: %s\n", seed, wide ? ", three lanes" : "", r.problem.c_str());
            for (const std::string& line : r.schedule) std::printf("  %s\n", line.c_str());
            std::fflush(stdout);
        }
    }
    std::printf("seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " failed; %" PRIu64 " failovers, %" PRIu64 " chunks replayed\n",
                from, to, bad, failovers, replayed);
    return bad == 0 ? 0 : 1;
}
