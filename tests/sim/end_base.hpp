#pragma once
/// \file
/// What the executors of both cores have in common: what the host endpoints do with verbs, done on `wires`. They also hold the
/// invariants that only an executor can see: at a sync no QP of a dead generation takes packets (G2), nothing happens after
/// the end (G7), only the receiver's epoch leads (G3).

#include "coverage.hpp"
#include "wires.hpp"

#include <string>

namespace vccl_sim {

struct any_failback {
    using policy_axis = axis::failback;
    nanoseconds wait{1'000'000};
    nanoseconds hold(unsigned) const noexcept { return wait; }
};

/// What a chunk that was sent is made of.
struct sent_chunk {
    std::uint32_t bytes{};
    bool retired{};
};

/// Shared by both ends: the clock, the wires, and the first invariant that broke.
struct common {
    wires net;
    nanoseconds now{1'000'000};
    std::string broken;
    coverage seen;
    std::vector<sent_chunk> sent;
    bool failed_on_purpose{};   ///< the schedule did something that may end the channel
    bool refuse_rebuild[2]{};
    unsigned lanes{}, parts{};

    void broke(const char* what) {
        if (broken.empty()) broken = what;
    }
};

inline constexpr std::uint32_t part_bytes = min_part_bytes;
inline constexpr unsigned ring = 16;

template <class Self, end_of End>
class end_base {
public:
    explicit end_base(common& c) : c_(c) {}

    half& at(unsigned l) { return c_.net.at[End][l]; }

    // --- executor ---
    /// Until the fence is done the QPs may still write.
    void fence(unsigned l) {
        at(l).connected = false;
        at(l).fencing = true;
    }
    void tell(const control_message& m) {
        if (m.kind == control_kind::sync) self().announced(m);
        const std::uint32_t n = c_.net.keep(End, m);
        for (unsigned l = 0; l < c_.lanes && self().core().state() != channel_state::connecting; ++l)
            if (self().core().usable(l)) (void)send_on(l, n);
        send_oob(n);
    }
    bool tell_on(std::uint16_t way, const control_message& m) {
        const std::uint32_t n = c_.net.keep(End, m);
        if (way == lane_book::out_of_band_way) {
            send_oob(n);
            return true;
        }
        return way >= c_.lanes || send_on(way, n);
    }
    void report(const channel_event& e) {
        const bool of_oob = e.what == channel_event::kind::oob_lost || e.what == channel_event::kind::oob_restored;
        if (ended_ && !of_oob) c_.broke("G7: an event after the end");
        if (e.what == channel_event::kind::failed_over && e.epoch.value <= last_epoch_)
            c_.broke("G3: a failover without a newer epoch");
        if (e.what == channel_event::kind::failed_over) last_epoch_ = e.epoch.value;
        ++events_[static_cast<unsigned>(e.what)];
    }
    void over() {
        ended_ = true;
        for (unsigned l = 0; l < c_.lanes; ++l) at(l).silence();
    }

    unsigned count(channel_event::kind k) const { return events_[static_cast<unsigned>(k)]; }

    /// Calls the core and writes down what that did to its state and to lane `l`'s.
    template <class Call>
    void telling(told what, unsigned l, Call&& call) {
        auto& core = self().core();
        const channel_state before = core.state();
        lane_health lanes[most_lanes];
        for (unsigned i = 0; i < c_.lanes; ++i) lanes[i] = core.lanes()[i].health;
        ++c_.seen.channel[End][static_cast<unsigned>(before)][static_cast<unsigned>(what)];
        if (l < c_.lanes) ++c_.seen.lane[End][static_cast<unsigned>(lanes[l])][static_cast<unsigned>(what)];
        const epoch epoch_before = core.epoch();
        const std::size_t said = c_.net.messages.size();
        call(core);
        if (core.epoch() != epoch_before) self().turned(said);
        auto& channel_moves = c_.seen.channel_moves[End][static_cast<unsigned>(what)];
        auto& lane_moves = c_.seen.lane_moves[End][static_cast<unsigned>(what)];
        if (core.state() != before) ++channel_moves[static_cast<unsigned>(before)][static_cast<unsigned>(core.state())];
        for (unsigned i = 0; i < c_.lanes; ++i)
            if (const lane_health after = core.lanes()[i].health; after != lanes[i])
                ++lane_moves[static_cast<unsigned>(lanes[i])][static_cast<unsigned>(after)];
        if (core.over() && core.why().code == errc::protocol_violation) c_.broke("an honest peer was accused of a lie");
    }

    void fault(unsigned l, fault_cause cause, wc_status wc = wc_status::success) {
        telling(told::fault, l, [&](auto& core) { core.lane_fault(l, cause, wc, c_.now); });
    }
    void hear(std::uint32_t n) {
        const control_message m = c_.net.messages[n];
        for (unsigned l = 0; l < c_.lanes; ++l) at(l).unheard = 0;
        const auto& core = self().core();
        const lane_state before = core.lanes()[m.lane];
        const std::uint32_t epoch = core.epoch().value;
        const bool wants = wants_answer(m);
        const std::size_t said = c_.net.messages.size();
        telling(static_cast<told>(m.kind), m.lane, [&](auto&) { self().message(m); });
        const lane_state& after = core.lanes()[m.lane];
        if (of_a_generation(m.kind) && m.generation < before.generation &&
            (after.health != before.health || after.generation != before.generation || core.epoch().value != epoch))
            c_.broke("G11: old news changed a lane");
        const auto answer = static_cast<control_kind>(static_cast<unsigned>(m.kind) + 1);
        bool answered = !wants;
        for (std::size_t i = said; i < c_.net.messages.size(); ++i) answered |= c_.net.messages[i].kind == answer;
        if (!answered) c_.broke("G4: a request was not answered");
    }

    /// Port events, as an endpoint looks at them.
    void look() {
        for (unsigned l = 0; l < c_.lanes; ++l) {
            half& h = at(l);
            if (h.fell && !h.silent) port(l, false);
            h.fell = false;
            if (!h.silent || h.port_up) port(l, h.port_up);  // a port that is down is queried now and then
        }
    }
    void port(unsigned l, bool up) {
        if (at(l).port_told == up) return;
        at(l).port_told = up;
        telling(up ? told::port_up : told::port_down, l, [&](auto& core) { core.port_changed(l, up, c_.now); });
    }
    void tick() {
        look();
        auto& core = self().core();
        const nanoseconds stood_still = c_.now - std::exchange(ticked_, c_.now);
        const unsigned up = lanes_up();
        telling(told::tick, most_lanes, [&](auto&) { core.tick(c_.now); });
        if (stood_still > detection_times{}.progress_timeout && !core.over() && lanes_up() != up)
            c_.broke("G5: an end stood still, and blames a lane for what it did not hear meanwhile");
    }
    /// `drained`: what had come in was looked at; otherwise its completions come later.
    void fence_done(unsigned l, bool ok, bool drained = true) {
        if (!at(l).fencing) return;
        if (!ok) c_.failed_on_purpose = true;
        at(l).silence();
        if (drained) poll(l);
        if (!at(l).fencing) return;
        at(l).fencing = false;
        telling(ok ? told::fence_done : told::fence_failed, l, [&](auto& core) { core.fenced(l, ok, c_.now); });
    }
    void poll(unsigned l) {
        half& h = at(l);
        while (!h.cq.empty()) {
            const arrived a = h.cq.front();
            h.cq.pop_front();
            if ((a.generation & 0xffff) != (h.generation & 0xffff)) continue;  // of an earlier life
            if (a.what == arrived::kind::control)
                hear(a.message);
            else if (a.what == arrived::kind::part)
                self().part(l, a);
            else if (!h.fencing && h.connected)
                fault(l, fault_cause::retries, wc_status::retry_exc_err);
        }
    }

    static bool of_a_generation(control_kind k) {
        return k == control_kind::notify || k == control_kind::notify_ack ||
               (k >= control_kind::restore && k <= control_kind::restore_nak) || k == control_kind::probe ||
               k == control_kind::probe_ack;
    }
    /// Must this message be answered at once, in the state that the core is in?
    bool wants_answer(const control_message& m) {
        const auto& core = self().core();
        switch (m.kind) {
            case control_kind::goodbye:
            case control_kind::abort: return true;
            case control_kind::hello:
            case control_kind::notify:
            case control_kind::probe: return !core.over();
            case control_kind::sync: return core.state() == channel_state::running && m.epoch == core.epoch().value;
            case control_kind::restore:
                return !core.over() && m.generation == core.lanes()[m.lane].generation &&
                       core.lanes()[m.lane].health == lane_health::verifying;
            default: return false;
        }
    }

protected:
    Self& self() { return static_cast<Self&>(*this); }
    /// A bit for each lane that is up.
    unsigned lanes_up() {
        unsigned up = 0;
        for (unsigned l = 0; l < c_.lanes; ++l) up |= unsigned{self().core().usable(l)} << l;
        return up;
    }
    bool send_on(unsigned l, std::uint32_t n) {
        half& h = at(l);
        if (!h.connected || !h.room(control_queue)) return true;
        if (h.unheard >= 8) return false;
        ++h.unheard;
        packet p{};
        p.what = packet::kind::control;
        p.message = n;
        h.post(control_queue, p);
        return true;
    }
    void send_oob(std::uint32_t n) {
        auto& bag = c_.net.oob[other(End)];
        if (!c_.net.oob_cut && bag.size() < 64) bag.push_back(n);
    }
    /// A new life of the lane's QPs. False: the driver refuses, as the schedule wants it.
    bool renewed(unsigned l, std::uint32_t generation, lane_end& own) {
        at(l).renew(generation, ++c_.net.tokens);
        if (std::exchange(c_.refuse_rebuild[End], false)) return false;
        own.psn[0] = at(l).token;
        return true;
    }

    common& c_;
    bool ended_{};
    nanoseconds ticked_{1'000'000};
    std::uint32_t last_epoch_{}, events_[16]{};
};

}  // namespace vccl_sim
