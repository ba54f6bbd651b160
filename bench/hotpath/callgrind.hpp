#pragma once
/// \file
/// Instructions of a function, counted by callgrind in runs of different length of this very program.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace hotpath {

/// The first line that `command` prints, as a number; negative when there is none.
inline double number_from(const char* command) {
    std::FILE* pipe = ::popen(command, "r");
    if (!pipe) return -1;
    char line[64]{};
    const bool ok = std::fgets(line, sizeof line, pipe) != nullptr;
    return ::pclose(pipe) == 0 && ok ? std::atof(line) : -1;
}

/// What a longer run costs beyond a shorter one, per chunk: what start-up costs falls out. Negative: no valgrind.
template <class Cost>
double per_chunk(Cost&& cost) {
    constexpr std::uint64_t few = 2000, many = 12000;
    const double a = cost(few), b = cost(many);
    return a < 0 || b < 0 ? -1 : (b - a) / static_cast<double>(many - few);
}
/// Of `function` and what it calls, per chunk; `self` is started as `self MODE CHUNKS STEP`. Negative: no valgrind.
inline double instructions(const char* self, const char* mode, unsigned chunks_a_step, const char* function) {
    return per_chunk([&](std::uint64_t chunks) {
        char command[1024];
        std::snprintf(
            command, sizeof command,
            "valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*%s*' %s %s %llu %u 2>&1 | sed -n "
            "'s/.*Collected : //p'",
            function, self, mode, static_cast<unsigned long long>(chunks), chunks_a_step);
        return number_from(command);
    });
}

}  // namespace hotpath
