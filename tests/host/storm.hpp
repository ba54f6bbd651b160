#pragma once
/// \file
/// A storm: a transfer under a schedule of random faults, all from one seed. Used by the storm test and by the program
/// that runs many seeds.

#include "world.hpp"

#include <cstdio>
#include <random>

namespace vccl_test {

struct storm_result {
    bool finished{};
    std::string problem;
    std::vector<std::string> schedule;
    std::uint64_t failovers{}, failbacks{}, replayed{}, delivered{}, suspended{};
};

template <class World>
storm_result storm(std::uint64_t seed, std::uint64_t chunks, bool talk = false) {
    std::mt19937_64 random(seed);
    auto pick = [&](std::uint64_t n) { return random() % n; };
    storm_result r;

    world_options o;
    o.fabric.seed = seed;
    o.fabric.latency = nanoseconds{500 + static_cast<std::int64_t>(pick(20'000))};
    o.fabric.on_port_down = static_cast<verbs::port_down_behaviour>(pick(4));
    o.chunk = static_cast<std::uint32_t>(pick(3) == 0 ? 256 : pick(2) == 0 ? 8192 : 49'152);
    o.buffers = 1u << (1 + pick(4));
    o.tx.timers.timeout = o.rx.timers.timeout = static_cast<std::uint8_t>(6 + pick(8));
    o.tx.timers.retry_count = o.rx.timers.retry_count = static_cast<std::uint8_t>(pick(7));
    o.rx.flush = pick(3) == 0 ? flush_mode::always : flush_mode::none;
    o.tx.first_lane = o.rx.first_lane = static_cast<unsigned>(pick(2));
    World w(o);
    w.pass_time = nanoseconds{1'000 + static_cast<std::int64_t>(pick(30'000))};
    auto say = [&](const std::string& what) {
        r.schedule.push_back(std::to_string(w.fabric.now().count / 1000) + "us " + what);
        if (talk) std::printf("  %s\n", r.schedule.back().c_str());
    };
    auto show = [&] {
        auto line = [](const char* who, const channel_event& e) {
            std::printf("  %s %lldus event %d lane %d to %d epoch %u cause %d wc %d why %d\n", who,
                        static_cast<long long>(e.at.count / 1000), static_cast<int>(e.what), e.lane.value, e.to.value,
                        e.epoch.value, static_cast<int>(e.cause), static_cast<int>(e.wc), static_cast<int>(e.why.code));
        };
        if (!talk) return;
        for (const auto& e : w.tx->handler().events) line("tx", e);
        for (const auto& e : w.rx->handler().events) line("rx", e);
        auto lanes = [](const char* who, const auto& e) {
            for (unsigned l = 0; l < e.lanes(); ++l) {
                const lane_state& s = e.lane_health(lane_id{static_cast<std::uint8_t>(l)});
                std::printf("  %s state %d lane %u health %d port %d fencing %d generation %u tries %u\n", who,
                            static_cast<int>(e.state()), l, static_cast<int>(s.health), s.port_up, s.fencing, s.generation,
                            s.restore_tries);
            }
        };
        lanes("tx", *w.tx);
        lanes("rx", *w.rx);
    };
    auto problem = [&](const std::string& what) {
        r.problem = what;
        show();
        return r;
    };
    if (!w.connect()) return problem("connect refused");

    const char* const names[] = {"A.nic0.p0", "A.nic0.p1", "B.nic0.p0", "B.nic0.p1", "A.nic1.p0", "B.nic1.p0"};
    const std::uint64_t ports = 2 * w.tx->lanes();
    const char* const breaks[][2] = {{"down %", "up %"},
                                     {"cable-down %", "cable-up %"},
                                     {"switch-down $", "switch-up $"},
                                     {"loss % 30%", "clear %"},
                                     {"loss % 3%", "clear %"},
                                     {"reorder % 10%", "clear %"},
                                     {"dup % 10%", "clear %"},
                                     {"delay % 300us", "clear %"},
                                     {"hang %", "clear %"},
                                     {"drop-acks %", "clear %"},
                                     {"no-event %", "clear %"},
                                     {"fail-flush %", "clear %"},
                                     {"flap % 700us 900us 5x", "clear %"},
                                     {"error %", "clear %"},
                                     {"gid-change %", "clear %"},
                                     {"partial % 3", "clear %"},
                                     {"twice %", "clear %"}};
    auto text = [&](const char* form, std::uint64_t port) {
        std::string s = form;
        if (auto at = s.find('%'); at != std::string::npos && (at + 1 == s.size() || s[at + 1] == ' '))
            s.replace(at, 1, names[port]);
        if (auto at = s.find('$'); at != std::string::npos)
            s.replace(at, 1, port >= 4 ? "rail2" : port % 2 == 0 ? "rail0" : "rail1");
        return s;
    };
    struct heal {
        nanoseconds at;
        std::string text;
    };
    std::vector<heal> heals;
    nanoseconds next_fault = w.fabric.now() + nanoseconds{static_cast<std::int64_t>(pick(3'000'000))};
    unsigned faults = 1 + static_cast<unsigned>(pick(8)), oob_lost = static_cast<unsigned>(pick(4));
    if (ports > 4) faults *= 3;
    if (oob_lost == 1) w.oob->lost_percent = static_cast<unsigned>(pick(60));
    nanoseconds oob_cut_until{};

    auto every = [&] {
        const nanoseconds now = w.fabric.now();
        for (std::size_t i = 0; i < heals.size();) {
            if (heals[i].at > now) {
                ++i;
                continue;
            }
            say(heals[i].text);
            if (!w.command(heals[i].text)) r.problem = "command refused: " + heals[i].text;
            heals.erase(heals.begin() + static_cast<std::ptrdiff_t>(i));
        }
        if (w.oob->cut && now >= oob_cut_until) {
            w.oob->cut = false;
            say("oob mended");
        }
        if (faults != 0 && now >= next_fault) {
            --faults;
            const std::uint64_t port = pick(ports), kind = pick(std::size(breaks));
            const std::int64_t span = pick(3) == 0 ? 50'000 + static_cast<std::int64_t>(pick(2'000'000))
                                                   : 1'000'000 + static_cast<std::int64_t>(pick(400'000'000));
            const std::string s = text(breaks[kind][0], port);
            say(s);
            if (!w.command(s)) r.problem = "command refused: " + s;
            heals.push_back({now + nanoseconds{span}, text(breaks[kind][1], port)});
            if (oob_lost == 2 && pick(3) == 0) {
                w.oob->cut = true;
                oob_cut_until = now + nanoseconds{static_cast<std::int64_t>(pick(300'000'000))};
                say("oob cut");
            }
            next_fault = now + nanoseconds{static_cast<std::int64_t>(pick(4) == 0 ? pick(200'000) : pick(60'000'000))};
        }
    };
    const nanoseconds end = w.fabric.now() + 120_s;
    while (w.checked < chunks || w.tx->acknowledged().value < chunks) {
        if (!w.tx->health() || !w.rx->health())
            return problem("channel ended: tx " + std::to_string(static_cast<int>(w.tx->health().code)) + " rx " +
                           std::to_string(static_cast<int>(w.rx->health().code)));
        if (w.fabric.now() >= end)
            return problem("did not finish: " + std::to_string(w.checked) + " of " + std::to_string(chunks));
        every();
        if (!r.problem.empty()) return r;
        // Sends trickle while faults are still to come, so that every fault meets a transfer.
        const std::uint64_t goal = faults != 0 && w.checked + 2 * o.buffers >= chunks ? w.checked : chunks;
        w.users(goal, [&](std::uint64_t) { return pick(5) == 0 ? static_cast<std::uint32_t>(pick(o.chunk + 1)) : o.chunk; });
        w.pass();
        if (w.wrong != 0) return problem("wrong bytes");
        if (w.late != 0) return problem("a late write into a consumed buffer");
    }
    const auto& tx = w.tx->handler();
    const auto& rx = w.rx->handler();
    if (rx.chunks.size() != chunks || tx.chunks.size() != chunks)
        return problem("chunks were reported " + std::to_string(rx.chunks.size()) + " times");
    for (std::uint64_t i = 0; i < chunks; ++i)
        if (rx.chunks[i].sequence.value != i || !rx.chunks[i].outcome || tx.chunks[i].sequence.value != i)
            return problem("out of order or refused");
    r.finished = true;
    r.failovers = rx.count(channel_event::kind::failed_over);
    r.failbacks = rx.count(channel_event::kind::failed_back);
    r.suspended = rx.count(channel_event::kind::suspended);
    for (const auto& e : tx.events) {
        r.replayed += e.replayed;
        r.delivered += e.already_delivered;
    }
    return r;
}

/// With three lanes.
inline storm_result wide_storm(std::uint64_t seed, std::uint64_t chunks, bool talk = false) {
    return storm<soft_world<2, hold_down<3>, each_of<sibling_port, adjacent_gpu>>>(seed, chunks, talk);
}

inline storm_result any_storm(std::uint64_t seed, std::uint64_t chunks, bool talk = false) {
    switch (seed % 4) {
        case 0: return storm<soft_world<1>>(seed, chunks, talk);
        case 1: return storm<soft_world<4>>(seed, chunks, talk);
        case 2: return storm<soft_world<3, immediate_failback>>(seed, chunks, talk);
        default: return storm<soft_world<2, hold_down<5>>>(seed, chunks, talk);
    }
}

}  // namespace vccl_test
