#pragma once
// What A knows at the end and B must know to judge, as lines "name value"; and the judgement.
#include "files.hpp"

#include <vccl/model/event.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace p2p {

/// Names and values, a line each. Values have no line break; lookups of what is missing are errors.
class fields {
public:
    fields() = default;
    explicit fields(std::string_view text) {
        while (!text.empty()) {
            const std::size_t end = std::min(text.find('\n'), text.size());
            const std::string_view line = text.substr(0, end);
            text.remove_prefix(std::min(end + 1, text.size()));
            const std::size_t space = line.find(' ');
            if (space != std::string_view::npos) values_[std::string(line.substr(0, space))] = line.substr(space + 1);
        }
    }
    void set(const std::string& name, std::string value) { values_[name] = std::move(value); }
    void set(const std::string& name, std::uint64_t value) { values_[name] = std::to_string(value); }
    const std::string& text(const std::string& name) const {
        const auto at = values_.find(name);
        if (at == values_.end()) throw user_error("the other end's message lacks \"" + name + "\"");
        return at->second;
    }
    std::uint64_t number(const std::string& name) const {
        const std::string& s = text(name);
        std::uint64_t n = 0;
        const auto [end, why] = std::from_chars(s.data(), s.data() + s.size(), n);
        if (why != std::errc{} || end != s.data() + s.size())
            throw user_error("the other end's message has a bad \"" + name + "\"");
        return n;
    }
    std::string encode() const {
        std::string out;
        for (const auto& [name, value] : values_) out += name + " " + value + "\n";
        return out;
    }

private:
    std::map<std::string, std::string> values_;
};

/// 64-bit numbers as text and back; so many of them make a message.
inline constexpr std::size_t checks_at_once = 1U << 20;
inline std::string join(std::span<const std::uint64_t> numbers) {
    std::ostringstream out;
    for (std::uint64_t n : numbers) out << std::hex << n << ' ';
    return out.str();
}
inline std::vector<std::uint64_t> split(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::uint64_t> out;
    for (std::uint64_t n; in >> std::hex >> n;) out.push_back(n);
    return out;
}

struct judgement {
    std::uint64_t bytes{}, chunks{}, failovers{}, failbacks{}, replayed{}, already_delivered{}, lost{}, duplicated{}, corrupted{};
    std::uint64_t gap_us{};
    std::string reason;  ///< why it failed, beyond the counts
    bool counted{};      ///< false: it failed before there was anything to count

    /// In the order in which the last line has them.
    struct count {
        const char* name;
        std::uint64_t judgement::*value;
    };
    static const count counts[10];

    bool ok() const noexcept { return counted && reason.empty() && lost == 0 && duplicated == 0 && corrupted == 0; }
    std::string line() const {
        std::string out = ok() ? "RESULT ok" : "RESULT failed";
        if (counted)
            for (const count& c : counts) out += " " + std::string(c.name) + "=" + std::to_string(this->*c.value);
        if (!reason.empty()) {
            std::string quoted = reason;
            std::replace(quoted.begin(), quoted.end(), '"', '\'');
            std::replace(quoted.begin(), quoted.end(), '\n', ' ');
            out += " reason=\"" + quoted + "\"";
        }
        return out;
    }
};

inline constexpr judgement::count judgement::counts[10] = {
    {"bytes", &judgement::bytes},         {"chunks", &judgement::chunks},
    {"failovers", &judgement::failovers}, {"failbacks", &judgement::failbacks},
    {"replayed", &judgement::replayed},   {"already_delivered", &judgement::already_delivered},
    {"lost", &judgement::lost},           {"duplicated", &judgement::duplicated},
    {"corrupted", &judgement::corrupted}, {"gap_us", &judgement::gap_us}};

/// A lane that failed, and when that was first seen.
struct fault {
    std::uint32_t lane{};
    std::int64_t at{};
};
inline std::vector<fault> faults_in(const std::vector<vccl::channel_event>& events) {
    std::vector<fault> out;
    for (const auto& e : events)
        if (e.what == vccl::channel_event::kind::lane_failed) out.push_back({e.lane.value, e.at.count});
    return out;
}

/// Returns: the longest time, in microseconds, from the first sign, at either end, that the lane in use had failed to the
/// first bytes after it. `elsewhere`: what the other end saw, if both ends have one clock.
inline std::uint64_t longest_gap_us(const std::vector<vccl::channel_event>& receiver, const std::vector<fault>& elsewhere) {
    using kind = vccl::channel_event::kind;
    struct use {
        std::uint32_t lane;
        std::int64_t since;
    };
    std::vector<fault> faults = faults_in(receiver);
    faults.insert(faults.end(), elsewhere.begin(), elsewhere.end());
    use now{0, 0}, before{0, 0};
    bool moving = false;
    std::int64_t longest = 0;
    for (const auto& e : receiver) {
        if (e.what == kind::failed_over && !moving) before = now;
        if (e.what == kind::connected) now = {e.lane.value, e.at.count};
        if (e.what == kind::failed_over || e.what == kind::failed_back) now = {e.to.value, e.at.count};
        if (e.what == kind::failed_over) moving = true;
        if (e.what != kind::resumed) continue;
        moving = false;
        std::int64_t sign = (e.at - e.took).count;
        for (const fault& f : faults)
            if (f.lane == before.lane && f.at >= before.since && f.at <= e.at.count) sign = std::min(sign, f.at);
        longest = std::max(longest, e.at.count - sign);
    }
    return static_cast<std::uint64_t>(longest) / 1000;
}

}  // namespace p2p
