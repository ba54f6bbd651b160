#pragma once
/// \file
/// One schedule of the core simulation, carried out: two protocol cores, the wires between them, a user at each end, and the
/// invariants after every step. After the steps everything is mended, and the channel must finish and close (G6, G12).

#include "ends.hpp"
#include "step.hpp"

#include <memory>

namespace vccl_sim {

struct verdict_of {
    std::string broken;      ///< empty: every invariant held
    std::size_t at{};        ///< the step after which it did not; as many as there are steps: while mending
    bool ended_early{};      ///< the channel failed or closed by the schedule's own doing
    std::uint64_t delivered{}, failovers{}, failbacks{}, suspended{}, faults{};
};

class core_pair {
public:
    explicit core_pair(const setting& w) : w_(w) {
        c_.lanes = w.lanes;
        c_.parts = w.parts;
        c_.net.messages.reserve(64);
        sim_log::can_replay = w.no_replay == 0;
        core_options o{};
        o.connection = 1;
        o.lanes = w.lanes;
        o.seed = 1;
        receiver_side::core_type::options r{};
        static_cast<core_options&>(r) = o;
        r.window = w.window;
        r.first_lane = w.first_lane;
        const nanoseconds holds[] = {{0}, {3'000'000}, nanoseconds::never()};
        tx_ = std::make_unique<sender_side>(c_, o);
        rx_ = std::make_unique<receiver_side>(c_, r, any_failback{holds[w.hold % 3]}, w.flush != 0);
        std::uint32_t up[2]{};
        for (unsigned l = 0; l < w.lanes; ++l) {
            for (end_of e : {sender_end, receiver_end}) c_.net.at[e][l].token = ++c_.net.tokens;
            for (end_of e : {sender_end, receiver_end}) {
                if (w.down_at_start >> (4 * e + l) & 1) continue;
                c_.net.at[e][l].connect(c_.net.at[other(e)][l].token);
                up[e] |= 1u << l;
            }
        }
        tx_->core().connected(up[0], c_.now);
        rx_->core().connected(up[1], c_.now);
        c_.failed_on_purpose = w.no_replay != 0;
    }

    verdict_of carry_out(const std::vector<step>& steps) {
        verdict_of v;
        for (v.at = 0; v.at < steps.size() && c_.broken.empty(); ++v.at) {
            apply(steps[v.at]);
            check();
        }
        if (c_.broken.empty()) mend();
        v.broken = c_.broken;
        v.ended_early = early_;
        v.delivered = rx_->done();
        using kind = channel_event::kind;
        v.failovers = rx_->count(kind::failed_over);
        v.failbacks = rx_->count(kind::failed_back);
        v.suspended = rx_->count(kind::suspended);
        v.faults = rx_->count(kind::lane_failed) + tx_->count(kind::lane_failed);
        return v;
    }
    const coverage& seen() const { return c_.seen; }

private:
    template <class F>
    void on(unsigned end, F&& f) {
        if (end % 2 == sender_end)
            f(*tx_);
        else
            f(*rx_);
    }
    half& at(unsigned end, unsigned l) { return c_.net.at[end % 2][l]; }

    void arrive(end_of to, unsigned l, unsigned q, const packet& p) {
        if (!c_.net.takes(to, l, q, p)) return;
        half& h = at(to, l);
        if (p.what == packet::kind::control)
            h.cq.push_back({arrived::kind::control, h.generation, p.message, {}, 0});
        else if (to == sender_end)
            tx_->land(p);
        else {
            rx_->land(p, l, false);
            h.cq.push_back({arrived::kind::part, h.generation, 0, p.imm, p.count});
        }
    }
    /// The packet at the front of a QP arrives and is acknowledged, or cannot arrive, and the QP gives up.
    bool move(end_of from, unsigned l, unsigned q, bool acknowledged) {
        half& h = at(from, l);
        if (h.out[q].empty() || h.hung) return false;
        const packet p = h.out[q].front();
        const bool gets_there = c_.net.takes(other(from), l, q, p);
        if (gets_there) {
            if (p.what == packet::kind::data && c_.sent[p.sequence].retired) rx_->land(p, l, true);
            arrive(other(from), l, q, p);
            h.out[q].pop_front();
        }
        if (gets_there && acknowledged) {
            ++h.retired[q];
            return true;
        }
        h.kill(q);
        h.error();
        return true;
    }
    void late(end_of from, unsigned l, unsigned q) {
        half& h = at(from, l);
        if (h.late[q].empty()) return;
        const packet p = h.late[q].front();
        h.late[q].pop_front();
        arrive(other(from), l, q, p);
    }
    void hear_oob(end_of to, std::size_t i) {
        auto& bag = c_.net.oob[to];
        const std::uint32_t n = bag[i];
        bag.erase(bag.begin() + static_cast<std::ptrdiff_t>(i));
        on(to, [&](auto& e) { e.hear(n); });
    }
    void cut_oob(bool cut) {
        if (c_.net.oob_cut == cut) return;
        c_.net.oob_cut = cut;
        cut_at_ = c_.now;
        for (unsigned e = 0; e < 2; ++e)
            on(e, [&](auto& x) {
                x.telling(cut ? told::oob_down : told::oob_up, most_lanes,
                          [&](auto& core) { core.oob_changed(!cut, peer_grace, c_.now); });
            });
    }

    /// Ordinary life: both ends pump, everything that is under way arrives, fences and flushes end, timers are looked at.
    void round() {
        for (unsigned e = 0; e < 2; ++e) on(e, [](auto& x) { x.pump(); });
        for (unsigned l = 0; l < c_.lanes; ++l)
            for (unsigned q = 0; q < queues; ++q)
                for (end_of e : {sender_end, receiver_end})
                    for (unsigned n = 0; n < 8 && c_.net.link(l) && move(e, l, q, true); ++n) {}
        for (end_of e : {sender_end, receiver_end})
            while (!c_.net.oob_cut && !c_.net.oob[e].empty()) hear_oob(e, 0);
        for (unsigned l = 0; l < c_.lanes; ++l)
            for (unsigned e = 0; e < 2; ++e) on(e, [&](auto& x) { x.fence_done(l, true); });
        while (rx_->flushing()) rx_->flushed(true);
        c_.now = c_.now + nanoseconds{200'000};
        for (unsigned e = 0; e < 2; ++e) on(e, [](auto& x) { x.tick(); });
    }

    void apply(const step& s) {
        const unsigned l = s.a % c_.lanes, e = s.b % 2, q = s.b / 2 % queues;
        const auto end = static_cast<end_of>(e);
        half& h = at(e, l);
        switch (s.what) {
            case act::run:
                for (unsigned n = 0; n < s.a; ++n) round();
                break;
            case act::send: (void)tx_->send(s.b % 16 == 0 ? 0 : 1 + s.b % 3); break;
            case act::recv: (void)rx_->recv(); break;
            case act::pump: on(s.a, [](auto& x) { x.pump(); }); break;
            case act::tick: on(s.a, [](auto& x) { x.tick(); }); break;
            case act::advance: c_.now = c_.now + nanoseconds{10'000} * (std::int64_t{1} << s.a % 16); break;
            case act::move: (void)(c_.net.link(l) && move(end, l, q, true)); break;
            case act::lose_ack: (void)(c_.net.link(l) && move(end, l, q, false)); break;
            case act::fail:
                if (h.connected) {
                    h.kill(q);
                    h.error();
                }
                break;
            case act::late: late(end, l, q); break;
            case act::lose_late: h.late[q].clear(); break;
            case act::port_down: h.port_up = false; break;
            case act::port_up: h.port_up = true; break;
            case act::port_flap: h.fell = h.port_up; break;
            case act::no_event: h.silent = true; break;
            case act::dark: c_.net.dark[l] = true; break;
            case act::light: c_.net.dark[l] = false; break;
            case act::hang: h.hung = h.connected; break;
            case act::fenced: on(e, [&](auto& x) { x.fence_done(l, true, s.b < 192); }); break;
            case act::unfenceable: on(e, [&](auto& x) { x.fence_done(l, false); }); break;
            case act::broken_qp: on(e, [&](auto& x) { x.fault(l, fault_cause::qp_fatal); }); break;
            case act::renumbered: on(e, [&](auto& x) { x.fault(l, fault_cause::gid_change); }); break;
            case act::oob_take:
                if (auto& bag = c_.net.oob[e]; !bag.empty() && !c_.net.oob_cut) hear_oob(end, s.a % bag.size());
                break;
            case act::oob_lose:
                if (auto& bag = c_.net.oob[e]; !bag.empty()) bag.erase(bag.begin() + s.a % static_cast<int>(bag.size()));
                break;
            case act::oob_twice:
                if (auto& bag = c_.net.oob[e]; !bag.empty()) bag.push_back(bag[s.a % bag.size()]);
                break;
            case act::oob_cut: cut_oob(true); break;
            case act::oob_mend: cut_oob(false); break;
            case act::old_news: {
                const auto& all = c_.net.messages;
                for (std::size_t n = all.size(), i = s.a; n-- > 0;)
                    if (c_.net.authors[n] != end && i-- == 0) {
                        const auto what = all[n].kind;
                        if (what == control_kind::abort || what == control_kind::goodbye || what == control_kind::goodbye_ack)
                            break;
                        on(e, [&](auto& x) { x.hear(static_cast<std::uint32_t>(n)); });
                        break;
                    }
                break;
            }
            case act::flush_done: rx_->flushed(true); break;
            case act::flush_bad: rx_->flushed(false); break;
            case act::no_rebuild: c_.refuse_rebuild[e] = true; break;
            case act::part:
                if (tx_->core().state() != channel_state::connecting && !tx_->core().outstanding()) {
                    c_.failed_on_purpose = true;
                    tx_->telling(told::wish, most_lanes, [&](auto& core) { core.part(c_.now); });
                }
                break;
            case act::abort:
                c_.failed_on_purpose = true;
                on(e, [&](auto& x) { x.telling(told::wish, most_lanes, [&](auto& core) { core.fail(status{errc::aborted}); }); });
                break;
            case act::long_wait:
                c_.failed_on_purpose = true;
                for (unsigned n = 0; n < 31'000 / 20; ++n) {
                    c_.now = c_.now + nanoseconds{20'000'000};
                    for (unsigned i = 0; i < 2; ++i) on(i, [](auto& x) { x.tick(); });
                }
                break;
            case act::count_: break;
        }
    }

    void check() {
        const auto& t = tx_->core();
        const auto& r = rx_->core();
        if (t.epoch().value > r.epoch().value) c_.broke("G3: the sender is in an epoch that the receiver has not begun");
        if (r.state() == channel_state::running && !t.over() && t.epoch() != r.epoch())
            c_.broke("G3: the receiver runs in an epoch that the sender has not followed");
        if ((r.state() == channel_state::running || r.state() == channel_state::announcing) && !r.usable(r.active()))
            c_.broke("G6: the receiver has chosen a lane that is not up");
        bool any_up = false;
        for (unsigned l = 0; l < c_.lanes; ++l) any_up |= t.usable(l);
        if (t.state() == channel_state::suspended && any_up) c_.broke("G6: the sender waits for a lane, and has one");
        if (t.epoch().value < epochs_[0] || r.epoch().value < epochs_[1]) c_.broke("G3: an epoch went back");
        epochs_[0] = t.epoch().value;
        epochs_[1] = r.epoch().value;
        if (t.acked() > r.head()) c_.broke("G7: a send completed that was not received");
        if (tx_->done() > t.acked() || rx_->done() > r.head()) c_.broke("G1: more was told than happened");
        if (!c_.failed_on_purpose && (t.over() || r.over())) {
            // A cut control channel and silence for peer_grace is a reason of its own.
            const errc why = t.over() && t.why().code != errc::aborted ? t.why().code : r.why().code;
            if (why != errc::peer_lost && why != errc::no_lane_left) c_.broke("the channel ended without a reason");
            if (c_.now - begun_ < (why == errc::peer_lost ? nanoseconds{5'000'000'000} : nanoseconds{30'000'000'000}))
                c_.broke("the channel gave up before its deadline");
        }
        if (t.state() == channel_state::closed && !r.over() && !(c_.net.oob_cut && c_.now - cut_at_ >= peer_grace))
            c_.broke("G4: the sender closed, and the receiver was not told");
        early_ = early_ || (!parting_ && (t.over() || r.over()));
    }

    /// A path that is broken without any error or event is found out by both ends, also when it is idle (G5).
    void find_out() {
        bool any = false;
        for (unsigned l = 0; l < c_.lanes; ++l) any |= c_.net.dark[l];
        for (unsigned n = 0; any && n < 120 && c_.broken.empty() && !tx_->core().over() && !rx_->core().over(); ++n) {
            round();
            c_.now = c_.now + nanoseconds{10'000'000};
            check();
        }
        if (!any || tx_->core().over() || rx_->core().over()) return;
        for (unsigned l = 0; l < c_.lanes; ++l)
            if (c_.net.dark[l] && (tx_->core().usable(l) || rx_->core().usable(l)))
                c_.broke("G5: a path has been broken for a second, and is still used");
    }

    /// Every fault is taken away; whatever is left to do must get done, and the channel closed.
    void mend() {
        cut_oob(false);
        find_out();
        for (unsigned l = 0; l < c_.lanes; ++l) {
            c_.net.dark[l] = false;
            for (unsigned e = 0; e < 2; ++e) {
                half& h = at(e, l);
                h.port_up = true;
                h.fell = h.silent = false;
                if (h.hung) {
                    h.hung = false;
                    h.kill(0);
                    h.error();
                }
                for (unsigned q = 0; q < queues; ++q)
                    while (!h.late[q].empty()) late(static_cast<end_of>(e), l, q);
            }
        }
        c_.refuse_rebuild[0] = c_.refuse_rebuild[1] = false;
        check();
        if (tx_->core().over() || rx_->core().over()) return after_the_end();
        const nanoseconds limit = c_.now + nanoseconds{8'000'000'000};
        while (c_.broken.empty()) {
            round();
            check();
            if (early_ && !parting_) return after_the_end();
            while (rx_->core().tail() < c_.sent.size() && rx_->recv()) {}
            if (!parting_ && tx_->done() == c_.sent.size() && c_.sent.size() >= 3) {
                parting_ = c_.failed_on_purpose = true;
                tx_->telling(told::wish, most_lanes, [&](auto& core) { core.part(c_.now); });
            }
            if (c_.sent.size() < 3) (void)tx_->send(1);
            if (parting_ && tx_->core().over() && rx_->core().over()) break;
            if (c_.now > limit)
                c_.broke(parting_ ? "G12: nothing is wrong, but it does not close"
                                  : "G6: everything is mended, but it does not finish");
        }
        if (!c_.broken.empty()) return;
        if (tx_->core().state() != channel_state::closed || rx_->core().state() != channel_state::closed)
            c_.broke("closing in order failed");
        for (unsigned e = 0; e < 2; ++e)
            on(e, [&](auto& x) {
                if (x.count(channel_event::kind::connected) != 1)
                    c_.broke(e == 0 ? "the sender never said that it is connected"
                                    : "the receiver never said that it is connected");
            });
        if (rx_->done() != tx_->done()) c_.broke("G1: not as many receives as sends");
    }
    /// One end is over: the other gets there, too, and nothing completes any more. An end that still has to tell its peer gets
    /// through, now that everything is mended; otherwise the peer finds the out-of-band channel closed.
    void after_the_end() {
        const std::uint64_t received = rx_->core().over() ? rx_->done() : ~std::uint64_t{0};
        auto both = [&] { return tx_->core().over() && rx_->core().over(); };
        auto telling = [&] { return (tx_->core().over() && !tx_->core().told()) || (rx_->core().over() && !rx_->core().told()); };
        const bool had_to_tell = telling();
        c_.failed_on_purpose = true;
        const nanoseconds told_by = c_.now + peer_grace, limit = c_.now + nanoseconds{40'000'000'000};
        while (c_.broken.empty() && telling() && c_.now < told_by) {
            round();
            check();
        }
        if (had_to_tell && !both()) c_.broke("G4: an end gave up, and its peer was not told");
        cut_oob(true);
        while (c_.broken.empty() && !both()) {
            round();
            c_.now = c_.now + nanoseconds{5'000'000};
            check();
            if (c_.now > limit) c_.broke("G12: one end is over, and the other never notices");
        }
        if (!c_.broken.empty()) return;
        for (int i = 0; i < 20; ++i) round();
        if (received != ~std::uint64_t{0} && rx_->done() != received) c_.broke("G7: received after the end");
        check();
    }

    static constexpr nanoseconds peer_grace{5'000'000'000};

    setting w_;
    common c_;
    std::unique_ptr<sender_side> tx_;
    std::unique_ptr<receiver_side> rx_;
    nanoseconds begun_{1'000'000}, cut_at_{};
    std::uint32_t epochs_[2]{};
    bool early_{}, parting_{};
};

}  // namespace vccl_sim
