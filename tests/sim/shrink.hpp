#pragma once
/// \file
/// Makes a failing schedule small: takes out ever smaller runs of steps as long as it still fails. Any failure counts, so that
/// what remains is the shortest way to trouble that this walk finds.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace vccl_sim {

template <class Step, class Fails>
std::vector<Step> shrink(std::vector<Step> steps, Fails&& fails) {
    for (std::size_t run = std::max<std::size_t>(steps.size() / 2, 1);; run /= 2) {
        for (std::size_t from = 0; from < steps.size();) {
            std::vector<Step> fewer(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(from));
            fewer.insert(fewer.end(), steps.begin() + static_cast<std::ptrdiff_t>(std::min(from + run, steps.size())),
                         steps.end());
            if (fails(fewer))
                steps = std::move(fewer);
            else
                from += run;
        }
        if (run <= 1) return steps;
    }
}

}  // namespace vccl_sim
