#pragma once
// The fault script: "at=40% down A.nic0.p0; at=70% up A.nic0.p0".
#include "files.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace p2p {

struct script_step {
    double share{};       ///< of the bytes that have arrived, 0 … 1
    std::string command;  ///< what the fabric is told
};

inline std::string_view trim(std::string_view s) {
    constexpr std::string_view blank = " \t\r\n";
    s.remove_prefix(std::min(s.find_first_not_of(blank), s.size()));
    return s.substr(0, s.find_last_not_of(blank) + 1);
}

/// "400MB/s", "2GB/s", "0"
inline bool parse_rate(std::string_view text, std::uint64_t& bytes_per_second) {
    std::uint64_t n = 0;
    std::size_t digits = 0;
    for (; digits < text.size() && digits < 12 && text[digits] >= '0' && text[digits] <= '9'; ++digits)
        n = n * 10 + static_cast<std::uint64_t>(text[digits] - '0');
    const std::string_view unit = text.substr(digits);
    if (digits == 0) return false;
    const std::uint64_t factor = unit.empty() || unit == "B/s" ? 1
                                 : unit == "kB/s"              ? 1'000
                                 : unit == "MB/s"              ? 1'000'000
                                 : unit == "GB/s"              ? 1'000'000'000
                                                               : 0;
    bytes_per_second = n * factor;
    return factor != 0 && n < 1'000'000'000;
}

/// Returns: the steps, earliest first. Throws user_error with the step that cannot be read.
inline std::vector<script_step> parse_script(std::string_view text) {
    std::vector<script_step> steps;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(';'), text.size());
        const std::string_view step = trim(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (step.empty()) continue;
        const auto refuse = [&](const char* why) {
            return user_error("cannot read the fault script's step \"" + std::string(step) + "\": " + why +
                              "; write for example \"at=40% down A.nic0.p0\"");
        };
        const std::size_t percent = step.find('%');
        if (!step.starts_with("at=") || percent == std::string_view::npos) throw refuse("it does not begin with at=NUMBER%");
        const std::string number(step.substr(3, percent - 3));
        std::size_t used = 0;
        double value = -1;
        try {
            value = std::stod(number, &used);
        } catch (const std::logic_error&) { used = 0; }
        if (number.empty() || used != number.size() || !(value >= 0 && value <= 100))
            throw refuse("the number is not one of 0 … 100");
        const std::string_view command = trim(step.substr(percent + 1));
        if (command.empty()) throw refuse("nothing is to be done there");
        steps.push_back({value / 100, std::string(command)});
    }
    std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.share < b.share; });
    return steps;
}

}  // namespace p2p
