// coll_storm [--seeds FROM TO]: collectives under random fault schedules, as many seeds as you have time for; --talk SEED shows one.
#include "storm.hpp"

#include <cstdlib>
#include <cstring>

int main(int count, char** arguments) {
    std::uint64_t from = 1, to = 1000;
    bool talk = false;
    for (int i = 1; i < count; ++i) {
        if (std::strcmp(arguments[i], "--seeds") == 0 && i + 2 < count) {
            from = std::strtoull(arguments[i + 1], nullptr, 10);
            to = std::strtoull(arguments[i + 2], nullptr, 10);
            i += 2;
        } else if (std::strcmp(arguments[i], "--talk") == 0 && i + 1 < count) {
            from = to = std::strtoull(arguments[++i], nullptr, 10);
            talk = true;
        } else {
            std::fprintf(stderr, "usage: coll_storm [--seeds FROM TO] [--talk SEED]\n");
            return 2;
        }
    }
    std::uint64_t failed = 0, failovers = 0, failbacks = 0, replayed = 0;
    for (std::uint64_t seed = from; seed <= to; ++seed) {
        const coll_test::storm_result r = coll_test::storm(seed, talk);
        if (talk || seed % 100 == 0) std::fflush(stdout);
        failovers += r.failovers;
        failbacks += r.failbacks;
        replayed += r.replayed;
        if (!r.problem.empty()) {
            ++failed;
            std::printf("seed %llu: %s (%s)\n", static_cast<unsigned long long>(seed), r.problem.c_str(), r.what.c_str());
        }
    }
    std::printf("seeds %llu to %llu: %llu failed; %llu failovers, %llu failbacks, %llu chunks replayed\n",
                static_cast<unsigned long long>(from), static_cast<unsigned long long>(to),
                static_cast<unsigned long long>(failed), static_cast<unsigned long long>(failovers),
                static_cast<unsigned long long>(failbacks), static_cast<unsigned long long>(replayed));
    return failed == 0 ? 0 : 1;
}
