#pragma once
/// \file
/// The core simulation as the programs and tests use it: a schedule in, what broke out; coverage and totals are added up.

#include "core_pair.hpp"

namespace vccl_sim {

struct core_sim {
    using schedule = vccl_sim::schedule;
    coverage seen{};
    verdict_of all{};
    std::uint64_t ended_early{};

    static schedule draw(std::uint64_t seed) { return vccl_sim::draw(seed); }
    static std::vector<step>& steps_of(schedule& s) { return s.steps; }
    std::string problem_of(const schedule& s, bool = false) {
        core_pair pair(s.with);
        const verdict_of v = pair.carry_out(s.steps);
        seen.add(pair.seen());
        all.delivered += v.delivered;
        all.failovers += v.failovers;
        all.failbacks += v.failbacks;
        all.suspended += v.suspended;
        all.faults += v.faults;
        ended_early += v.ended_early;
        return v.broken.empty() ? "" : v.broken + ", after step " + std::to_string(v.at);
    }
    std::string totals() const {
        auto n = [](std::uint64_t v, const char* what) { return std::to_string(v) + what; };
        return n(all.faults, " lanes failed, ") + n(all.failovers, " failovers, ") + n(all.failbacks, " failbacks, ") +
               n(all.suspended, " suspensions, ") + n(ended_early, " ended early, ") + n(all.delivered, " chunks delivered");
    }
};

}  // namespace vccl_sim
