#pragma once
/// \file
/// A schedule of the core simulation: a setting and a list of steps, drawn from a seed, printed as text and read back. A step
/// that does not apply when its turn comes does nothing, so a schedule stays one when steps are taken out of it.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace vccl_sim {

enum class act : std::uint8_t {
    run,           ///< a rounds of ordinary life: everything that may move does
    send,          ///< the user sends a chunk of b parts (0: too long for its receive)
    recv,          ///< the user posts a receive
    pump,          ///< end a polls and posts
    tick,          ///< end a looks at events and timers
    advance,       ///< time: 2^a times 10 us
    move,          ///< lane a, queue and end b: one packet arrives and is acknowledged
    lose_ack,      ///< the same, but the acknowledgement is lost: the QP fails
    fail,          ///< lane a, end b: error completion and flush
    late,          ///< lane a, queue and end b: a packet of a dead QP arrives
    lose_late,     ///< lane a, queue and end b: those packets are lost
    port_down,     ///< lane a, end b
    port_up,
    port_flap,     ///< down and up between two looks
    no_event,      ///< lane a, end b: the port's events get lost from now on
    dark,          ///< lane a: the path is broken
    light,
    hang,          ///< lane a, end b: work stands still without a completion
    fenced,        ///< lane a, end b: the fence is done
    unfenceable,   ///< lane a, end b: the QPs cannot be silenced
    broken_qp,     ///< lane a, end b: device event
    renumbered,    ///< lane a, end b: the GID changed
    oob_take,      ///< to end b: message a of those under way arrives
    oob_lose,
    oob_twice,
    oob_cut,
    oob_mend,
    old_news,      ///< end b gets message a of all that its peer ever sent
    flush_done,    ///< the oldest flush succeeds
    flush_bad,     ///< the oldest flush fails
    no_rebuild,    ///< end b: the next rebuild is refused by the driver
    part,          ///< the sender asks to close
    abort,         ///< end b gives up
    long_wait,     ///< both ends look on for 31 s of time
    count_
};

struct step {
    act what{};
    std::uint8_t a{}, b{};
    friend bool operator==(const step&, const step&) = default;
};

/// The setting of a schedule.
struct setting {
    std::uint8_t lanes{2}, parts{1}, window{4}, first_lane{}, hold{1}, flush{}, no_replay{};
    std::uint8_t down_at_start{};  ///< lanes that do not come up, a bit each: low half sender, high half receiver
};

struct schedule {
    setting with{};
    std::vector<step> steps;
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(act::count_)> act_names{
    "run",      "send",        "recv",      "pump",       "tick",      "advance",  "move",      "lose_ack", "fail",
    "late",     "lose_late",   "port_down", "port_up",    "port_flap", "no_event", "dark",      "light",    "hang",
    "fenced",   "unfenceable", "broken_qp", "renumbered", "oob_take",  "oob_lose", "oob_twice", "oob_cut",  "oob_mend",
    "old_news", "flush_done",  "flush_bad", "no_rebuild", "part",      "abort",    "long_wait"};

inline std::string text(const schedule& s) {
    char line[160];
    const setting& w = s.with;
    std::snprintf(line, sizeof line, "setting lanes %d parts %d window %d first %d hold %d flush %d no_replay %d down %d\n",
                  w.lanes, w.parts, w.window, w.first_lane, w.hold, w.flush, w.no_replay, w.down_at_start);
    std::string all = line;
    for (const step& one : s.steps) {
        std::snprintf(line, sizeof line, "%s %d %d\n", act_names[static_cast<std::size_t>(one.what)].data(), one.a, one.b);
        all += line;
    }
    return all;
}

/// Reads what text() wrote. False: a line is not understood; `all.steps` then holds those before it.
inline bool read(std::FILE* from, schedule& all) {
    char line[200], word[32];
    int n[8];
    while (std::fgets(line, sizeof line, from)) {
        if (line[0] == '#' || line[0] == '\n') continue;
        if (std::sscanf(line, "setting lanes %d parts %d window %d first %d hold %d flush %d no_replay %d down %d", &n[0], &n[1],
                        &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]) == 8) {
            auto u = [&](int i) { return static_cast<std::uint8_t>(n[i]); };
            all.with = {u(0), u(1), u(2), u(3), u(4), u(5), u(6), u(7)};
            continue;
        }
        if (std::sscanf(line, "%31s %d %d", word, &n[0], &n[1]) != 3) return false;
        std::size_t i = 0;
        while (i < act_names.size() && act_names[i] != word) ++i;
        if (i == act_names.size()) return false;
        all.steps.push_back({static_cast<act>(i), static_cast<std::uint8_t>(n[0]), static_cast<std::uint8_t>(n[1])});
    }
    return true;
}

/// The schedule of a seed. Ordinary life is likely, each fault is not, what ends a channel is rare.
inline schedule draw(std::uint64_t seed) {
    struct weight {
        act what;
        unsigned of;
    };
    static constexpr weight weights[] = {
        {act::run, 170},      {act::send, 120},     {act::recv, 120},      {act::pump, 110},    {act::tick, 60},
        {act::advance, 70},   {act::move, 150},     {act::lose_ack, 10},   {act::fail, 14},     {act::late, 30},
        {act::lose_late, 5},  {act::port_down, 12}, {act::port_up, 16},    {act::port_flap, 6}, {act::no_event, 4},
        {act::dark, 6},       {act::light, 9},      {act::hang, 5},        {act::fenced, 20},   {act::broken_qp, 4},
        {act::renumbered, 4}, {act::oob_take, 40},  {act::oob_lose, 12},   {act::oob_twice, 6}, {act::oob_cut, 3},
        {act::oob_mend, 6},   {act::old_news, 12},  {act::flush_done, 15}, {act::flush_bad, 4}, {act::no_rebuild, 3},
    };
    static constexpr weight rare[] = {{act::part, 4}, {act::abort, 2}, {act::unfenceable, 3}, {act::long_wait, 2}};
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + 1);
    auto pick = [&](std::uint64_t n) { return static_cast<std::uint8_t>(random() % n); };
    auto among = [&](const auto& from) {
        unsigned all = 0;
        for (const weight& w : from) all += w.of;
        auto at = static_cast<unsigned>(random() % all);
        for (const weight& w : from) {
            if (at < w.of) return w.what;
            at -= w.of;
        }
        return act::run;
    };
    schedule s;
    s.with.lanes = static_cast<std::uint8_t>(1 + pick(3));
    s.with.parts = static_cast<std::uint8_t>(1 + pick(3));
    s.with.window = static_cast<std::uint8_t>(1u << pick(4));
    s.with.first_lane = pick(3) == 0 ? static_cast<std::uint8_t>(pick(s.with.lanes)) : std::uint8_t{0};
    s.with.hold = pick(3);
    s.with.flush = pick(3) == 0;
    s.with.no_replay = pick(16) == 0;
    if (pick(6) == 0) s.with.down_at_start = static_cast<std::uint8_t>(random());
    // Three moods: life goes on between the faults; every packet by hand; the end is near.
    const bool by_hand = pick(3) == 0, near_the_end = pick(8) == 0;
    const unsigned length = 20 + static_cast<unsigned>(random() % 140);
    // Most begin undisturbed, a few with a hello_ack that is late: a whole chunk goes by before it.
    const unsigned beginning = pick(16);
    if (beginning > 5) s.steps.push_back({act::run, 6, 0});
    if (beginning == 0) {
        const std::uint8_t l = s.with.first_lane;
        s.steps = {{act::tick, 0, 0}, {act::oob_take, 0, 1}, {act::recv, 0, 0}, {act::send, 0, 3},
                   {act::pump, 1, 0}, {act::move, l, 1},     {act::pump, 0, 0}, {act::move, l, 0},
                   {act::pump, 1, 0}, {act::pump, 1, 0},     {act::move, l, 1}, {act::pump, 0, 0}};
    }
    for (unsigned i = 0; i < length; ++i) {
        act what = random() % (near_the_end ? 12 : 600) == 0 ? among(rare) : among(weights);
        if (by_hand && what == act::run) what = pick(2) == 0 ? act::move : pick(2) == 0 ? act::oob_take : act::fenced;
        std::uint8_t a = pick(256), b = pick(256);
        if (what == act::run) a = static_cast<std::uint8_t>(1 + pick(6));
        if (what == act::advance) a = pick(16);
        s.steps.push_back({what, a, b});
    }
    return s;
}

}  // namespace vccl_sim
