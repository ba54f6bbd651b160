#pragma once
/// \file
/// The storms as the programs and tests use them: a schedule in, what broke out; totals are added up.

#include "storm_run.hpp"

namespace vccl_sim {

struct storm_sim {
    using schedule = storm_schedule;
    storm_result all{};
    std::uint64_t ended_early{};

    static schedule draw(std::uint64_t seed) { return draw_storm(seed); }
    static std::vector<incident>& steps_of(schedule& s) { return s.incidents; }
    std::string problem_of(const schedule& s, bool talk = false) {
        const storm_result r = carry_out(s);
        all.failovers += r.failovers;
        all.failbacks += r.failbacks;
        all.replayed += r.replayed;
        all.delivered += r.delivered;
        all.suspended += r.suspended;
        ended_early += r.ended_early;
        if (talk)
            for (const std::string& line : r.told) std::printf("  %s\n", line.c_str());
        return r.problem;
    }
    std::string totals() const {
        auto n = [](std::uint64_t v, const char* what) { return std::to_string(v) + what; };
        return n(all.failovers, " failovers, ") + n(all.failbacks, " failbacks, ") + n(all.suspended, " suspensions, ") +
               n(all.replayed, " chunks replayed, ") + n(all.delivered, " found delivered, ") + n(ended_early, " ended early");
    }
};

}  // namespace vccl_sim
