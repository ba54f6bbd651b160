#pragma once
/// \file
/// A schedule of the whole-channel simulation: two real endpoints on the software fabric under a manual clock, a setting, and
/// incidents that come at a time or upon an event (say, 40 us after the second failover). Drawn from a seed, printed as
/// text, read back, shrunk. The incidents are every fault that the fabric knows, faults of the out-of-band channel, and users who
/// stand still, send odd sizes, give up or vanish.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace vccl_sim {

/// What begins and what ends an incident. `%`: a port, `$`: the rail of a port. What no fabric knows begins with a dot.
struct incident_kind {
    std::string_view name, begin, end;
};
inline constexpr incident_kind incident_kinds[] = {
    {"down", "down %", "up %"},
    {"cable", "cable-down %", "cable-up %"},
    {"switch", "switch-down $", "switch-up $"},
    {"loss", "loss % 30%", "clear %"},
    {"little-loss", "loss % 3%", "clear %"},
    {"reorder", "reorder % 10%", "clear %"},
    {"dup", "dup % 10%", "clear %"},
    {"delay", "delay % 300us", "clear %"},
    {"slow", "rate % 20MB/s", "rate % 10GB/s"},
    {"hang", "hang %", "clear %"},
    {"lost-acks", "drop-acks %", "clear %"},
    {"no-event", "no-event %", "clear %"},
    {"fail-flush", "fail-flush %", "clear %"},
    {"flap", "flap % 700us 900us 5x", "clear %"},
    {"slow-flap", "flap % 9ms 70ms 3x", "clear %"},
    {"error", "error %", "clear %"},
    {"gid-change", "gid-change %", "clear %"},
    {"partial", "partial % 3", "clear %"},
    {"active-twice", "twice %", "clear %"},
    {"oob-cut", ".cut", ".mend"},
    {"oob-loss", ".lose", ".keep"},
    {"oob-twice", ".twice", ""},
    {"oob-late", ".hold", ".release"},
    {"oob-backwards", ".backwards", ""},
    {"oob-short", ".short", ""},
    {"old-news", ".old", ""},
    {"still-A", ".still A", ".wake A"},
    {"still-B", ".still B", ".wake B"},
    {"no-recv", ".no-recv", ".recv"},
    {"abort-A", ".abort A", ""},
    {"abort-B", ".abort B", ""},
    {"vanish-A", ".vanish A", ""},
    {"vanish-B", ".vanish B", ""},
};
inline constexpr unsigned of_the_fabric = 19,
                          endings = 4;  ///< so many kinds at the front, and at the end those that end the channel
inline constexpr std::array<std::string_view, 6> port_names{"A.nic0.p0", "B.nic0.p0", "A.nic0.p1",
                                                            "B.nic0.p1", "A.nic1.p0", "B.nic1.p0"};
inline constexpr std::array<std::string_view, 3> rail_names{"rail0", "rail1", "rail2"};

/// The command that `form` is for a port, counted as in port_names.
inline std::string command_of(std::string_view form, unsigned port) {
    std::string s(form);
    if (auto at = s.find('%'); at != std::string::npos && (at + 1 == s.size() || s[at + 1] == ' '))
        s.replace(at, 1, port_names[port]);
    if (auto at = s.find('$'); at != std::string::npos) s.replace(at, 1, rail_names[port / 2]);
    return s;
}

/// When an incident begins: so long after the start, or after an event that one of the ends reports for the n-th time.
enum class upon : std::uint8_t { start, lane_failed, failed_over, lane_restored, failed_back, suspended, count_ };
inline constexpr std::array<std::string_view, 6> upon_names{"start",         "lane_failed", "failed_over",
                                                            "lane_restored", "failed_back", "suspended"};

struct incident {
    upon when{};
    std::uint8_t nth{1}, kind{}, port{};
    std::int64_t after{}, lasts{};  ///< nanoseconds
    friend bool operator==(const incident&, const incident&) = default;
};

struct storm_setting {
    int world{}, latency{2'000}, pass{5'000}, on_down{}, chunk{8192}, buffers{4}, timeout{10}, retries{3}, flush{}, first_lane{},
        chunks{200}, odd{5};  ///< odd: one chunk in so many has another size
};

struct storm_schedule {
    storm_setting with{};
    std::uint64_t seed{1};  ///< of the fabric's and the users' own choices
    std::vector<incident> incidents;
};

inline constexpr unsigned worlds = 6;

inline std::string text(const storm_schedule& s) {
    char line[240];
    const storm_setting& w = s.with;
    std::snprintf(line, sizeof line,
                  "storm %llu world %d latency %d pass %d on_down %d chunk %d buffers %d timeout %d retries %d flush %d first %d "
                  "chunks %d odd %d\n",
                  static_cast<unsigned long long>(s.seed), w.world, w.latency, w.pass, w.on_down, w.chunk, w.buffers, w.timeout,
                  w.retries, w.flush, w.first_lane, w.chunks, w.odd);
    std::string all = line;
    for (const incident& i : s.incidents) {
        std::snprintf(line, sizeof line, "%lld ns after %s %d: %s %s for %lld ns\n", static_cast<long long>(i.after),
                      upon_names[static_cast<std::size_t>(i.when)].data(), i.nth, incident_kinds[i.kind].name.data(),
                      port_names[i.port].data(), static_cast<long long>(i.lasts));
        all += line;
    }
    return all;
}

template <class Names>
int place_of(const Names& names, std::string_view word) {
    for (std::size_t i = 0; i < std::size(names); ++i) {
        if constexpr (requires { names[i].name; }) {
            if (names[i].name == word) return static_cast<int>(i);
        } else if (names[i] == word) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

/// Reads what text() wrote. False: a line is not understood.
inline bool read(std::FILE* from, storm_schedule& s) {
    char line[300], when[32], kind[32], port[32];
    long long after = 0, lasts = 0;
    unsigned long long seed = 0;
    int nth = 0;
    storm_setting& w = s.with;
    while (std::fgets(line, sizeof line, from)) {
        if (line[0] == '#' || line[0] == '\n') continue;
        if (std::sscanf(line,
                        "storm %llu world %d latency %d pass %d on_down %d chunk %d buffers %d timeout %d retries %d flush %d "
                        "first %d chunks %d odd %d",
                        &seed, &w.world, &w.latency, &w.pass, &w.on_down, &w.chunk, &w.buffers, &w.timeout, &w.retries, &w.flush,
                        &w.first_lane, &w.chunks, &w.odd) == 13) {
            s.seed = seed;
            continue;
        }
        if (std::sscanf(line, "%lld ns after %31s %d: %31s %31s for %lld ns", &after, when, &nth, kind, port, &lasts) != 6)
            return false;
        const int u = place_of(upon_names, when), k = place_of(incident_kinds, kind), p = place_of(port_names, port);
        if (u < 0 || k < 0 || p < 0) return false;
        s.incidents.push_back({static_cast<upon>(u), static_cast<std::uint8_t>(nth), static_cast<std::uint8_t>(k),
                               static_cast<std::uint8_t>(p), after, lasts});
    }
    return true;
}

inline storm_schedule draw_storm(std::uint64_t seed) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + 2);
    auto pick = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
    storm_schedule s;
    s.seed = seed;
    storm_setting& w = s.with;
    w.world = pick(worlds);
    w.latency = 500 + pick(20'000);
    w.pass = 1'000 + pick(30'000);
    w.on_down = pick(4);
    w.chunk = pick(3) == 0 ? 256 : pick(2) == 0 ? 8192 : 49'152;
    w.buffers = 1 << (1 + pick(4));
    w.timeout = 6 + pick(8);
    w.retries = pick(7);
    w.flush = pick(3) == 0;
    w.first_lane = pick(2);
    w.chunks = 60 + pick(200);
    const bool three_lanes = w.world >= 4, ending = pick(12) == 0;
    const int count = 1 + pick(three_lanes ? 16 : 8);
    std::int64_t at = pick(4) == 0 ? -1 : pick(3'000'000);  // before the ends connect, while they do, or soon after
    for (int n = 0; n < count; ++n) {
        incident i;
        // Most incidents break a path, and most of those the path in use.
        i.kind = static_cast<std::uint8_t>(pick(pick(4) != 0 ? of_the_fabric : std::size(incident_kinds) - endings));
        i.port = static_cast<std::uint8_t>(pick(pick(2) == 0 ? 2 : three_lanes ? 6 : 4));
        i.lasts = pick(3) == 0 ? 50'000 + pick(2'000'000) : 1'000'000 + pick(300'000'000);
        if (pick(3) == 0) {
            i.when = static_cast<upon>(1 + pick(5));
            i.nth = static_cast<std::uint8_t>(1 + pick(3));
            i.after = pick(2) == 0 ? 0 : pick(300'000);
        } else {
            i.after = at;
            at += pick(3) == 0 ? pick(200'000) : pick(60'000'000);
        }
        s.incidents.push_back(i);
    }
    if (ending) {
        incident i;
        i.kind = static_cast<std::uint8_t>(std::size(incident_kinds) - endings + static_cast<unsigned>(pick(endings)));
        i.after = pick(60'000'000);
        s.incidents.push_back(i);
    }
    return s;
}

}  // namespace vccl_sim
