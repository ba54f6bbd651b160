#pragma once
/// \file
/// A storm carried out: two real endpoints, their users, the incidents, and the invariants after every pass. Once no incident is
/// left the transfer must finish (unless the schedule ended it), and the channel close.

#include "../host/world.hpp"
#include "storm.hpp"

#include <optional>

namespace vccl_sim {

using namespace vccl_test;

struct storm_result {
    std::string problem;     ///< empty: every invariant held
    std::vector<std::string> told;
    std::uint64_t failovers{}, failbacks{}, replayed{}, delivered{}, suspended{}, hash{};
    bool ended_early{};
};

template <class World>
class storm_run {
public:
    explicit storm_run(const storm_schedule& s) : s_(s), random_(s.seed * 77 + 5), w_(options(s)) {
        w_.pass_time = nanoseconds{s.with.pass};
        for (const incident& i : s.incidents) {
            pending_.push_back({i});
            if (i.when == upon::start) horizon_ = std::max(horizon_, nanoseconds{i.after + 20'000'000});
        }
    }

    storm_result carry_out() {
        run();
        const auto rx_events = [&](channel_event::kind k) { return w_.rx ? w_.rx->handler().count(k) : 0u; };
        r_.failovers = rx_events(channel_event::kind::failed_over);
        r_.failbacks = rx_events(channel_event::kind::failed_back);
        r_.suspended = rx_events(channel_event::kind::suspended);
        if (w_.tx)
            for (const auto& e : w_.tx->handler().events) {
                r_.replayed += e.replayed;
                r_.delivered += e.already_delivered;
            }
        r_.hash = w_.fabric.event_hash();
        return std::move(r_);
    }

private:
    struct pending {
        incident what;
        std::optional<nanoseconds> begins{}, ends{};
        bool done{};
    };

    static world_options options(const storm_schedule& s) {
        const storm_setting& w = s.with;
        world_options o;
        o.fabric.seed = s.seed;
        o.fabric.latency = nanoseconds{w.latency};
        o.fabric.on_port_down = static_cast<verbs::port_down_behaviour>(w.on_down);
        o.chunk = static_cast<std::uint32_t>(w.chunk);
        o.buffers = static_cast<unsigned>(w.buffers);
        o.tx.timers.timeout = o.rx.timers.timeout = static_cast<std::uint8_t>(w.timeout);
        o.tx.timers.retry_count = o.rx.timers.retry_count = static_cast<std::uint8_t>(w.retries);
        o.rx.flush = w.flush != 0 ? flush_mode::always : flush_mode::none;
        o.tx.first_lane = o.rx.first_lane = static_cast<unsigned>(w.first_lane);
        return o;
    }

    void problem(std::string what) {
        if (r_.problem.empty()) r_.problem = std::move(what);
    }
    void say(const std::string& what) { r_.told.push_back(std::to_string(w_.fabric.now().count / 1000) + " us " + what); }

    void run() {
        // A time before 0 is before the ends connect.
        for (pending& p : pending_)
            if (p.what.when == upon::start && p.what.after < 0 && incident_kinds[p.what.kind].begin[0] != '.') {
                begin(p);
                p.ends = nanoseconds{p.what.lasts};
            }
        if (status s = w_.connect(); !s) return problem("connect refused: " + describe(s));
        start_ = w_.fabric.now();
        const auto chunks = static_cast<std::uint64_t>(s_.with.chunks);
        nanoseconds end = start_ + 100_s;
        while (r_.problem.empty() && !ended() && (w_.checked < chunks || w_.tx->acknowledged().value < chunks)) {
            if (w_.fabric.now() >= end)
                return problem("G6: did not finish: " + std::to_string(w_.checked) + " of " + std::to_string(chunks));
            weather();
            if (ended()) break;
            users(goal(chunks));
            step();
        }
        if (!r_.problem.empty()) return;
        if (ended()) return after_the_end();
        close();
        if (r_.problem.empty()) compare(chunks);
    }

    /// The chunks are spread over the time in which incidents begin, so that each meets a transfer.
    std::uint64_t goal(std::uint64_t chunks) const {
        const auto gone = w_.fabric.now() - start_;
        if (gone >= horizon_) return chunks;
        return std::min(chunks, 2 + static_cast<std::uint64_t>(static_cast<double>(chunks) * static_cast<double>(gone.count) /
                                                               static_cast<double>(horizon_.count)));
    }
    void users(std::uint64_t goal) {
        const std::uint32_t most = w_.o.chunk;
        if (no_recv_) goal = std::min(goal, w_.rx->next().value);
        w_.users(goal, [&](std::uint64_t) {
            return random_() % static_cast<unsigned>(s_.with.odd) == 0 ? static_cast<std::uint32_t>(random_() % (most + 1))
                                                                       : most;
        });
    }

    void step() {
        if (held_) hold();
        if (!still_[0] && w_.tx) w_.tx->progress();
        if (!still_[1] && w_.rx) w_.rx->progress();
        w_.fabric.advance(w_.pass_time);
        remember();
        check();
    }

    /// The invariants that can be seen from outside, after every pass.
    void check() {
        if (w_.wrong != 0) problem("G1: wrong bytes");
        if (w_.late != 0) problem("G1: a late write into a consumed buffer");
        if (++passes_ % 1024 == 0 && w_.rx && w_.touched_since() != 0) problem("G1: a late write into a consumed buffer");
        if (!w_.tx || !w_.rx) return;
        const std::uint64_t acked = w_.tx->acknowledged().value, received = w_.rx->received().value;
        if (acked > received) problem("G7: a send completed that was not received");
        if (received > w_.sent) problem("G1: more was received than sent");
        if (acked < acked_ || received < received_) problem("G1: progress went back");
        acked_ = acked;
        received_ = received;
        if (w_.tx->epoch().value > w_.rx->epoch().value) problem("G3: the sender is ahead of the receiver's epoch");
        const status tx = w_.tx->health(), rx = w_.rx->health();
        for (const status& s : {tx, rx})
            if (s.code == errc::protocol_violation || s.code == errc::fence_failed)
                problem("an honest end was accused: " + describe(s));
        if (!ending_ && (!tx || !rx)) problem("the channel ended: " + describe(tx) + " / " + describe(rx));
    }
    bool ended() const { return !w_.tx || !w_.rx || !w_.tx->health() || !w_.rx->health(); }

    /// One end gave up or vanished: the other notices in bounded time, and nothing completes any more.
    void after_the_end() {
        r_.ended_early = true;
        const nanoseconds limit = w_.fabric.now() + 40_s;
        const std::uint64_t acked = w_.tx && !w_.tx->health() ? w_.tx->acknowledged().value : ~std::uint64_t{0};
        const std::uint64_t received = w_.rx && !w_.rx->health() ? w_.rx->received().value : ~std::uint64_t{0};
        still_[0] = still_[1] = false;
        w_.pass_time = nanoseconds{100'000};
        // One that never was connected cannot know whether its peer is still to come: its user says how long it waits.
        const auto must_notice = [](const auto& end) { return end && end->health() && end->connected(); };
        while (r_.problem.empty() && (must_notice(w_.tx) || must_notice(w_.rx))) {
            if (w_.fabric.now() >= limit) return problem("G12: one end is over, and the other never notices");
            weather();
            step();
        }
        for (int i = 0; i < 100; ++i) step();
        if (acked != ~std::uint64_t{0} && w_.tx->acknowledged().value != acked) problem("G7: acknowledged after the end");
        if (received != ~std::uint64_t{0} && w_.rx->received().value != received) problem("G7: received after the end");
        if (w_.rx) {
            if (w_.rx->handler().chunks.size() != w_.rx->received().value) problem("G7: told of more than was received");
        }
        w_.tx.reset();
        w_.rx.reset();
        if (!w_.out_memory.release() || !w_.in_memory.release()) problem("G12: memory is still held after the end");
    }

    void close() {
        const nanoseconds limit = w_.fabric.now() + 60_s;
        ending_ = true;
        while (r_.problem.empty()) {
            weather();
            if (w_.tx->close({0}) && !w_.rx->health()) break;
            step();
            if (w_.fabric.now() >= limit) return problem("G12: it does not close");
        }
        for (auto* e : {&w_.tx->handler(), &w_.tx->handler()})
            if (e->count(channel_event::kind::closed) + e->count(channel_event::kind::failed) != 1)
                problem("not exactly one end");
    }

    void compare(std::uint64_t chunks) {
        const auto& tx = w_.tx->handler();
        const auto& rx = w_.rx->handler();
        if (rx.chunks.size() != chunks || tx.chunks.size() != chunks)
            return problem("G1: chunks were told more or less than once");
        for (std::uint64_t i = 0; i < chunks; ++i)
            if (rx.chunks[i].sequence.value != i || !rx.chunks[i].outcome || tx.chunks[i].sequence.value != i)
                return problem("G1: out of order or refused");
        std::uint32_t last = 0;
        for (const auto& e : rx.events) {
            if (e.what != channel_event::kind::failed_over) continue;
            if (e.epoch.value <= last) problem("G3: a failover without a newer epoch");
            last = e.epoch.value;
        }
    }

    // --- incidents ----------------------------------------------------------------------------------------------

    void weather() {
        const nanoseconds now = w_.fabric.now();
        const std::size_t events = (w_.tx ? w_.tx->handler().events.size() : 0) + (w_.rx ? w_.rx->handler().events.size() : 0);
        const bool news = std::exchange(events_, events) != events || passes_ == 0;
        for (pending& p : pending_) {
            if (p.done) continue;
            if (p.ends) {
                if (now >= *p.ends) finish(p);
                continue;
            }
            if (!p.begins && news) arm(p);
            if (p.begins && now >= *p.begins) {
                begin(p);
                p.ends = now + nanoseconds{p.what.lasts};
            }
        }
    }
    void arm(pending& p) {
        if (p.what.when == upon::start) {
            p.begins = start_ + nanoseconds{p.what.after};
            return;
        }
        static constexpr channel_event::kind kinds[] = {{},
                                                        channel_event::kind::lane_failed,
                                                        channel_event::kind::failed_over,
                                                        channel_event::kind::lane_restored,
                                                        channel_event::kind::failed_back,
                                                        channel_event::kind::suspended};
        const auto k = kinds[static_cast<unsigned>(p.what.when)];
        const unsigned seen = std::max(w_.tx ? w_.tx->handler().count(k) : 0u, w_.rx ? w_.rx->handler().count(k) : 0u);
        if (seen >= p.what.nth) p.begins = w_.fabric.now() + nanoseconds{p.what.after};
    }
    void begin(pending& p) { obey(command_of(incident_kinds[p.what.kind].begin, p.what.port)); }
    void finish(pending& p) {
        p.done = true;
        const std::string_view end = incident_kinds[p.what.kind].end;
        if (!end.empty()) obey(command_of(end, p.what.port));
    }
    void obey(const std::string& what) {
        say(what);
        if (what[0] != '.') {
            if (!w_.command(what)) problem("command refused: " + what);
            return;
        }
        if (!w_.oob) return;
        auto& oob = *w_.oob;
        auto both = [&](auto&& each) {
            each(oob.to_listener);
            each(oob.to_caller);
        };
        if (what == ".cut") oob.cut = true;
        if (what == ".mend") oob.cut = false;
        if (what == ".lose") oob.lost_percent = 60;
        if (what == ".keep") oob.lost_percent = 0;
        if (what == ".hold") held_ = true;
        if (what == ".release") release();
        if (what == ".twice")
            both([](auto& q) {
                const auto copy = q;
                q.insert(q.end(), copy.begin(), copy.end());
            });
        if (what == ".backwards") both([](auto& q) { std::reverse(q.begin(), q.end()); });
        if (what == ".short")
            both([&](auto& q) {
                for (auto& m : q) m.resize(1 + random_() % m.size());
            });
        if (what == ".old") {
            for (const auto& m : heard_[0]) oob.to_listener.push_back(m);
            for (const auto& m : heard_[1]) oob.to_caller.push_back(m);
        }
        if (what == ".no-recv") no_recv_ = true;
        if (what == ".recv") no_recv_ = false;
        for (unsigned e = 0; e < 2; ++e) {
            if (!what.ends_with(e == 0 ? " A" : " B")) continue;
            if (what.starts_with(".still")) still_[e] = true;
            if (what.starts_with(".wake")) still_[e] = false;
            if (what.starts_with(".abort") || what.starts_with(".vanish")) ending_ = true;
            if (what.starts_with(".abort")) e == 0 ? w_.tx->abort() : w_.rx->abort();
            if (what.starts_with(".vanish")) e == 0 ? w_.tx.reset() : w_.rx.reset();
        }
    }
    /// Messages under way are kept back for a while.
    void hold() {
        auto& oob = *w_.oob;
        for (auto& m : oob.to_listener) kept_[0].push_back(std::move(m));
        for (auto& m : oob.to_caller) kept_[1].push_back(std::move(m));
        oob.to_listener.clear();
        oob.to_caller.clear();
    }
    void release() {
        held_ = false;
        auto& oob = *w_.oob;
        oob.to_listener.insert(oob.to_listener.end(), kept_[0].begin(), kept_[0].end());
        oob.to_caller.insert(oob.to_caller.end(), kept_[1].begin(), kept_[1].end());
        kept_[0].clear();
        kept_[1].clear();
    }
    /// A few of the messages under way, to be repeated much later.
    void remember() {
        if (!w_.oob) return;
        auto keep = [&](auto& to, const auto& from) {
            for (const auto& m : from) {
                const auto kind = m.size() > 6 ? static_cast<control_kind>(m[6]) : control_kind{};
                const bool ends =
                    kind == control_kind::abort || kind == control_kind::goodbye || kind == control_kind::goodbye_ack;
                if (!ends && to.size() < 64) to.push_back(m);
            }
        };
        keep(heard_[0], w_.oob->to_listener);
        keep(heard_[1], w_.oob->to_caller);
    }

    storm_schedule s_;
    std::mt19937_64 random_;
    World w_;
    storm_result r_;
    std::vector<pending> pending_;
    nanoseconds start_{}, horizon_{};
    bool still_[2]{}, no_recv_{}, held_{}, ending_{};
    std::vector<std::vector<std::byte>> kept_[2], heard_[2];
    std::uint64_t acked_{}, received_{}, passes_{};
    std::size_t events_{};
};

inline storm_result carry_out(const storm_schedule& s) {
    auto in = [&]<class World>(std::type_identity<World>) { return storm_run<World>(s).carry_out(); };
    using three = each_of<sibling_port, adjacent_gpu>;
    switch (s.with.world) {
        case 0: return in(std::type_identity<soft_world<1>>{});
        case 1: return in(std::type_identity<soft_world<4>>{});
        case 2: return in(std::type_identity<soft_world<3, immediate_failback>>{});
        case 3: return in(std::type_identity<soft_world<2, never_failback>>{});
        case 4: return in(std::type_identity<soft_world<2, hold_down<3>, three>>{});
        default: return in(std::type_identity<soft_world<1, hold_down<5>, three>>{});
    }
}

}  // namespace vccl_sim
