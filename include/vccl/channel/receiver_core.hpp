#pragma once
/// \file
/// The receiver's protocol: ledger of chunks and parts, grants, and the ownership of epoch, lane and restart point (G3).
/// Pure; see channel/core.hpp for the executor and the thread. Beyond what core.hpp lists, its executor offers:
///   bool prepare(unsigned lane, lane_end& own)          fenced -> INIT with fresh PSNs; fills in how to reach it
///   void mark(unsigned lane)                            post a signaled WRITE behind the grants of that lane
///   bool marked(unsigned lane)                          has it completed?
///   bool join(unsigned lane, const lane_end& peer)      INIT -> RTS towards the peer's half

#include <vccl/channel/barren_faults.hpp>
#include <vccl/channel/core.hpp>
#include <vccl/channel/grant_watch.hpp>
#include <vccl/channel/ledger.hpp>

#include <utility>

namespace vccl::inline v0 {

template <class Io, failback_policy Failback>
class receiver_core : public channel_core<Io>, public ledger {
    using base = channel_core<Io>;
    using typename base::kind;

public:
    struct options : core_options {
        unsigned window{64};      ///< receives outstanding at most
        unsigned first_lane{0};   ///< the preferred one; others follow in list order
    };

    VCCL_COLD receiver_core(Io& io, const options& o, Failback failback) noexcept
        : base(io, o), ledger(o.window), failback_(failback), first_lane_(o.first_lane), active_(o.first_lane) {}

    // --- the hot path -------------------------------------------------------------------------------------------

    std::uint64_t room() const noexcept { return this->over() ? 0 : head_ + window_ - tail_; }  ///< receives that it still takes
    bool resuming() const noexcept { return resuming_; }  ///< the next arrival is the first after a failover
    unsigned active() const noexcept { return active_; }

    bool may_grant() const noexcept { return this->state_ == channel_state::running && this->book_.usable(active_); }
    /// Effects: binds the chunk to the active lane.
    void granted(std::uint64_t s) noexcept {
        incoming& c = at(s);
        c.generation = this->book_[active_].generation;
        c.expected = {0, immediate::whole(this->epoch_, s).raw};
        c.lane = static_cast<std::uint8_t>(active_);
        c.phase = chunk_phase::granted;
        granted_ = s + 1;
        if (fresh_ < granted_) fresh_ = granted_;
    }
    /// What grants on the active lane are bound to now.
    std::uint64_t binding() const noexcept {
        return cts_words::make_binding(this->epoch_, this->book_[active_].generation, active_);
    }
    /// The epoch in which a chunk was granted.
    vccl::epoch epoch_of(const incoming& c) const noexcept {
        return vccl::epoch{this->epoch_ - ((this->epoch_ - immediate{c.expected.immediate}.epoch()) & immediate::epoch_mask)};
    }
    /// The state of a chunk that was just granted for the first time.
    chunk_state mark() const noexcept {
        chunk_state c{};
        c.generation = this->book_[active_].generation;
        c.lane = static_cast<std::uint8_t>(active_);
        c.phase = chunk_phase::granted;
        return c;
    }

    /// An immediate came in; see ledger::take.
    arrival on_immediate(unsigned lane, std::uint32_t generation, immediate imm, std::uint32_t bytes, nanoseconds now,
                         std::uint64_t& s) noexcept {
        const arrival a = take(lane, generation, imm, bytes, s);
        if (resuming_ && !this->over() && (a == arrival::part || a == arrival::complete)) resumed(now);
        return a;
    }

    // --- set-up -------------------------------------------------------------------------------------------------

    /// The lanes are connected as `up` says, a bit each. The channel runs once the sender has said hello.
    VCCL_COLD void connected(std::uint32_t up, nanoseconds now) noexcept {
        this->alive_at_ = last_tick_ = now;
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            if (up >> l & 1) this->book_.raise(l, now);
            this->book_[l].next_try = now;
        }
        choose();
    }

    // --- events -------------------------------------------------------------------------------------------------

    VCCL_COLD void lane_fault(unsigned l, fault_cause cause, wc_status wc, nanoseconds now) noexcept {
        if (this->over() || !this->condemn(l, cause, wc, now)) return;
        if (this->state_ != channel_state::running && this->state_ != channel_state::fencing &&
            this->state_ != channel_state::announcing)
            return;
        if (l != active_ && !outstanding_on(l)) return;
        if (cause != fault_cause::local_error) {
            barren_.over(head_, now);
        } else if (const unsigned times = barren_.again(head_, now); times != 0) {
            if (barren_.lasted(now) >= this->options_.give_up_after) {
                this->fail(this->lane_status(errc::lane_failed));
                return;
            }
            this->book_.postpone(l, now, times - 1);  // slower each time
        }
        turn(now);
    }

    /// The executor's answer to `fence`: the lane's QPs can write no memory now (G2), or cannot be silenced.
    VCCL_COLD void fenced(unsigned l, bool ok, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        s.fencing = false;
        if (this->over()) return;
        if (!ok) {
            this->fail(this->lane_status(errc::fence_failed));
            return;
        }
        if (s.health == lane_health::failed) s.health = lane_health::fenced;
        if (this->state_ == channel_state::fencing || (this->state_ == channel_state::suspended && this->book_.any_up()))
            decide(now);
    }

    VCCL_COLD void port_changed(unsigned l, bool up, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        if (s.port_up == up) return;
        s.port_up = up;
        if (up)
            this->book_.settle(l, now);
        else
            lane_fault(l, fault_cause::own_port, wc_status::success, now);
    }

    VCCL_COLD void on_message(const control_message& m, nanoseconds now) noexcept {
        if (this->over()) return this->answer_when_over(m);
        if (m.lane >= this->book_.count()) {
            this->fail(status{errc::protocol_violation, static_cast<std::uint32_t>(m.kind)});
            return;
        }
        this->alive_at_ = now;
        lane_state& s = this->book_[m.lane];
        switch (m.kind) {
            case control_kind::hello:
                if (this->state_ == channel_state::connecting) begin(now);
                this->io_.tell(this->message(control_kind::hello_ack, m.lane));
                break;
            case control_kind::notify: {
                control_message a = this->message(control_kind::notify_ack, m.lane);
                a.generation = m.generation;
                this->io_.tell(a);
                // A generation that is dead already, or not born here: old news (G11).
                if (m.generation == s.generation) lane_fault(m.lane, fault_cause::peer_notice, static_cast<wc_status>(m.wc), now);
                break;
            }
            case control_kind::sync_ack:
                if (this->state_ == channel_state::announcing && m.epoch == this->epoch_) acknowledged(now);
                break;
            case control_kind::restore_ack:
                if (s.health != lane_health::restoring || m.generation != s.generation) break;
                if (!this->io_.join(m.lane, m.end)) {
                    lane_fault(m.lane, fault_cause::local_error, wc_status::success, now);
                    this->book_.postpone(m.lane, now, s.restore_tries);  // what failed may fail for long
                    break;
                }
                s.health = lane_health::verifying;
                s.next_try = now + this->book_.times().probe_timeout;
                this->send_probe(m.lane, now);
                break;
            case control_kind::restore_nak:
                if (s.health == lane_health::restoring && m.generation == s.generation)
                    this->book_.back_off(m.lane, now, longest_restore_retry);
                break;
            case control_kind::port_back:
                // Once a death: the same hint again and again would put the restore off for ever.
                if (s.health != lane_health::up && !std::exchange(s.told_back, true)) this->book_.settle(m.lane, now);
                break;
            case control_kind::probe: this->answer_probe(m, now); break;
            case control_kind::probe_ack:
                if (this->book_.probe_answer(m, now) && s.health == lane_health::verifying) restored(m.lane, now);
                break;
            case control_kind::goodbye:
                this->io_.tell(this->message(control_kind::goodbye_ack, m.lane));
                this->close(now);
                break;
            case control_kind::abort: this->peer_gave_up(m); break;
            default: break;
        }
    }

    VCCL_COLD void tick(nanoseconds now) noexcept {
        if (this->over()) return this->tick_when_over(now);
        if (now - last_tick_ > this->book_.times().progress_timeout / 2) {
            this->forgive(now);
            grants_.forgive(now);
            for (unsigned l = 0; l < this->book_.count(); ++l)
                if (this->book_[l].health == lane_health::verifying)
                    this->book_[l].next_try = now + this->book_.times().probe_timeout;
        }
        last_tick_ = now;
        if (!this->still_worth_it(now, this->state_ == channel_state::fencing || this->state_ == channel_state::announcing))
            return;
        if (this->state_ == channel_state::connecting) return;
        if (head_ != seen_head_) {
            seen_head_ = head_;
            grants_.moved(now);
            this->book_.heard(active_, now);
            this->alive_at_ = now;
        }
        if (this->state_ == channel_state::announcing && now >= next_sync_ && !this->book_.any_fencing()) announce(now);
        grants_.look(
            this->io_, this->book_, now, [this](unsigned l) { return outstanding_on(l); },
            [&](unsigned l) { lane_fault(l, fault_cause::hung, wc_status::success, now); });
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            tend(l, now);
            if (this->over()) return;
        }
        if (this->state_ == channel_state::running) fail_back(now);
    }

protected:
    /// A lane in use is dead: a new epoch begins with its fencing (G6: from any state that had one under way, too).
    VCCL_COLD void turn(nanoseconds now) noexcept {
        if (this->state_ == channel_state::running) this->fault_at_ = now;
        ++this->epoch_;
        this->state_ = channel_state::fencing;
        decide(now);
    }

private:
    VCCL_COLD bool choose() noexcept {
        const unsigned best = this->book_.best(first_lane_, [](const lane_state&) { return true; });
        if (best == this->book_.count()) return false;
        active_ = best;
        return true;
    }

    VCCL_COLD void begin(nanoseconds now) noexcept {
        this->state_ = channel_state::running;
        channel_event e{};
        e.what = kind::connected;
        e.to = lane_id{static_cast<std::uint8_t>(active_)};
        this->report(e);
        if (!this->book_.usable(active_)) turn(now);
    }

    /// All dead lanes are fenced: the ledger holds the truth. Takes back their grants and chooses the next lane.
    VCCL_COLD void decide(nanoseconds now) noexcept {
        if (this->book_.any_fencing()) return;  // a sync calls generations dead: none leaves while they can still write (G2)
        take_back([this](const incoming& c) { return c.generation <= this->book_[c.lane].dead_generation; });
        if (!choose()) {
            this->suspend(now);
            return;
        }
        this->state_ = channel_state::announcing;
        sync_retry_ = first_retry;
        announce(now);
    }

    VCCL_COLD void announce(nanoseconds now) noexcept {
        control_message m = this->message(control_kind::sync, active_);
        m.cause = static_cast<std::uint8_t>(this->last_cause_);
        m.wc = static_cast<std::uint8_t>(this->last_wc_);
        m.sequence = head_;
        for (unsigned l = 0; l < this->book_.count(); ++l) m.dead_generation[l] = this->book_[l].dead_generation;
        m.count = static_cast<std::uint16_t>(tail_ - head_);
        for (unsigned i = 0; i < m.count; ++i) m.arrived[i] = at(head_ + i).arrived;
        this->io_.tell(m);
        next_sync_ = now + sync_retry_;
        sync_retry_ = sync_retry_ * 2 < longest_retry ? sync_retry_ * 2 : longest_retry;
    }

    VCCL_COLD void acknowledged(nanoseconds now) noexcept {
        this->state_ = channel_state::running;
        channel_event e{};
        e.what = kind::failed_over;
        e.lane = lane_id{this->last_lane_};
        e.to = lane_id{static_cast<std::uint8_t>(active_)};
        e.cause = this->last_cause_;
        e.wc = this->last_wc_;
        e.took = now - this->fault_at_;
        this->report(e);
        resuming_ = true;
    }

    VCCL_COLD void resumed(nanoseconds now) noexcept {
        resuming_ = false;
        channel_event e{};
        e.what = kind::resumed;
        e.to = lane_id{static_cast<std::uint8_t>(active_)};
        e.cause = this->last_cause_;
        e.took = now - this->fault_at_;
        this->report(e);
    }

    /// Is traffic on its way to another lane? It goes first, for a while: a rebuild holds up the whole thread.
    bool moving(nanoseconds now) const noexcept {
        return (resuming_ || this->state_ == channel_state::announcing) && now - this->fault_at_ < first_retry;
    }

    VCCL_COLD void tend(unsigned l, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        switch (s.health) {
            case lane_health::up:
                if (this->book_.probe_lost(l, now))
                    lane_fault(l, fault_cause::probe_lost, wc_status::success, now);
                else if (this->book_.probe_due(l, now) || this->book_.probe_stale(l, now))
                    this->send_probe(l, now);
                break;
            case lane_health::failed: break;
            case lane_health::fenced:
                if (s.port_up && !s.fencing && now >= s.next_try && !moving(now)) restore(l, now);
                break;
            case lane_health::restoring:
                if (now >= s.next_try) {
                    this->book_.back_off(l, now, longest_restore_retry);
                    this->io_.tell(restore_message(l));
                }
                break;
            case lane_health::verifying:
                if (now >= s.next_try) lane_fault(l, fault_cause::probe_lost, wc_status::success, now);
                break;
        }
    }

    VCCL_COLD control_message restore_message(unsigned l) const noexcept {
        control_message m = this->message(control_kind::restore, l);
        m.end = own_end_[l];
        return m;
    }

    /// A new generation of the lane: fresh QPs or fresh PSNs, offered to the sender.
    VCCL_COLD void restore(unsigned l, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        ++s.generation;
        ++s.restore_tries;
        this->book_.back_off(l, now, longest_restore_retry);
        own_end_[l] = lane_end{};
        if (!this->io_.prepare(l, own_end_[l])) {
            s.dead_generation = s.generation;
            return;
        }
        own_end_[l].generation = s.generation;
        s.health = lane_health::restoring;
        this->io_.tell(restore_message(l));
    }

    VCCL_COLD void restored(unsigned l, nanoseconds now) noexcept {
        this->book_.raise(l, now);
        this->book_.hurry(l, now);
        channel_event e{};
        e.what = kind::lane_restored;
        e.lane = lane_id{static_cast<std::uint8_t>(l)};
        this->report(e);
        if (this->state_ == channel_state::suspended) decide(now);
    }

    VCCL_COLD void fail_back(nanoseconds now) noexcept {
        const unsigned best = this->book_.best(
            first_lane_, [&](const lane_state& s) { return now - s.up_since >= failback_.hold(s.times_failed); });
        if (best == this->book_.count() || lane_rank(first_lane_, best) >= lane_rank(first_lane_, active_)) return;
        channel_event e{};
        e.what = kind::failed_back;
        e.lane = lane_id{static_cast<std::uint8_t>(active_)};
        e.to = lane_id{static_cast<std::uint8_t>(best)};
        active_ = best;
        this->report(e);
    }

    Failback failback_;
    unsigned first_lane_, active_;
    std::uint64_t seen_head_{};
    barren_faults barren_;
    bool resuming_{};
    nanoseconds next_sync_{}, sync_retry_{first_retry}, last_tick_{};
    grant_watch grants_;
    lane_end own_end_[max_lanes]{};
};

}  // namespace vccl::inline v0
