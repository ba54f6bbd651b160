#pragma once
/// \file
/// The sender's protocol: the grants it may use for its backlog, and obedience to the receiver's epochs.
/// Pure; see channel/core.hpp for the executor and the thread. Beyond what core.hpp lists, its executor offers:
///   bool rebuild(unsigned lane, const lane_end& peer, lane_end& own)   fenced -> RTS towards the peer's new half

#include <vccl/channel/backlog.hpp>
#include <vccl/channel/core.hpp>
#include <vccl/channel/work_watch.hpp>

namespace vccl::inline v0 {

template <class Io, replay_log Log>
class sender_core : public channel_core<Io>, public backlog<Log> {
    using base = channel_core<Io>;
    using typename base::kind;

    using backlog<Log>::acked_, backlog<Log>::cursor_, backlog<Log>::posted_, backlog<Log>::tail_;

public:
    using backlog<Log>::at;
    using backlog<Log>::outstanding;
    static constexpr bool places = places_chunks<Log>;  ///< chunks are parts of striped ones

    VCCL_COLD sender_core(Io& io, const core_options& o, Log log, unsigned group) noexcept
        : base(io, o), backlog<Log>(std::move(log)), group_(group) {}

    bool unsettled() const noexcept { return base::unsettled() || noticing_ != 0 || parting_; }

    // --- the hot path -------------------------------------------------------------------------------------------

    std::uint64_t room() const noexcept {
        return this->over() ? 0 : acked_ + Log::capacity - tail_;
    }  ///< chunks that it still takes
    enum class grant : std::uint8_t { ready, absent, violation };

    /// Judges what lies in the slot of `s`. A slot of another lap, of a dead or not yet born lane generation, or of an
    /// epoch that no sync has announced is absent: the line that drops a stale CTS.
    grant judge(const cts_words& c, std::uint64_t s) const noexcept {
        if (c.sequence != s || c.check != check_of(c)) return grant::absent;
        if (c.lane() >= this->book_.count()) return grant::violation;
        return alive(c.binding) ? grant::ready : grant::absent;
    }
    /// Does it name a lane that may be written on, in its present generation, and an epoch that has begun here?
    bool alive(std::uint64_t binding) const noexcept {
        const unsigned lane = cts_words::lane_of(binding);
        if (lane >= this->book_.count()) return false;
        const lane_state& l = this->book_[lane];
        return l.health == lane_health::up && static_cast<std::uint16_t>(l.generation) == cts_words::generation_of(binding) &&
               cts_words::epoch_of(binding) <= this->epoch_;
    }

    posting mark(unsigned lane) const noexcept {
        posting p{};
        p.generation = this->book_[lane].generation;
        p.lane = static_cast<std::uint8_t>(lane);
        p.posted = true;
        return p;
    }
    void posted(std::uint64_t s, unsigned lane) noexcept {
        outgoing& o = at(s);
        o.posted = true;
        o.lane = static_cast<std::uint8_t>(lane);
        o.generation = this->book_[lane].generation;
        this->passed(s);
    }

    /// The receiver has everything below `upto`; see backlog::retire. An absurd number ends the channel.
    template <class Each>
    void acknowledge(std::uint64_t upto, Each&& each) noexcept {
        if (!this->retire(upto, each)) this->fail(status{errc::protocol_violation});
    }

    // --- set-up -------------------------------------------------------------------------------------------------

    VCCL_COLD void connected(std::uint32_t up, nanoseconds now) noexcept {
        this->alive_at_ = last_tick_ = now;
        work_.moved(now);
        for (unsigned l = 0; l < this->book_.count(); ++l)
            if (up >> l & 1) this->book_.raise(l, now);
        next_hello_ = now;
    }

    // --- events -------------------------------------------------------------------------------------------------

    VCCL_COLD void lane_fault(unsigned l, fault_cause cause, wc_status wc, nanoseconds now) noexcept {
        if (this->over() || !this->condemn(l, cause, wc, now)) return;
        causes_[l] = cause;
        wcs_[l] = wc;
        if (!Log::can_replay && outstanding()) {
            this->fail(this->lane_status(errc::no_replay_log));
            return;
        }
        if (this->state_ == channel_state::running) this->fault_at_ = now;
        noticing_ |= 1u << l;
        if (this->state_ != channel_state::connecting && !this->book_.any_up()) this->suspend(now);
        notify(l, now);
    }

    VCCL_COLD void fenced(unsigned l, bool ok, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        s.fencing = false;
        if (this->over()) return;
        if (!ok) {
            this->fail(this->lane_status(errc::fence_failed));
            return;
        }
        if (s.health == lane_health::failed) s.health = lane_health::fenced;
        if (sync_pending_ && !this->book_.any_fencing()) follow(now);
    }

    VCCL_COLD void port_changed(unsigned l, bool up, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        if (s.port_up == up) return;
        s.port_up = up;
        if (!up) {
            lane_fault(l, fault_cause::own_port, wc_status::success, now);
            return;
        }
        if (s.health != lane_health::up) this->io_.tell(this->message(control_kind::port_back, l));
    }

    /// `each` as in acknowledge(): a sync tells of chunks that arrived although no acknowledgement came back.
    template <class Each>
    VCCL_COLD void on_message(const control_message& m, nanoseconds now, Each&& each) noexcept {
        if (this->over()) return this->answer_when_over(m);
        if (m.lane >= this->book_.count()) {
            this->fail(status{errc::protocol_violation, static_cast<std::uint32_t>(m.kind)});
            return;
        }
        this->alive_at_ = now;
        switch (m.kind) {
            case control_kind::hello_ack:
                if (this->state_ == channel_state::connecting) begin(now);
                break;
            case control_kind::notify_ack:
                if (m.generation == this->book_[m.lane].generation) noticing_ &= ~(1u << m.lane);
                break;
            case control_kind::sync: on_sync(m, now, each); break;
            case control_kind::restore: on_restore(m, now); break;
            case control_kind::probe: {
                const lane_state& l = this->book_[m.lane];
                if (m.count == m.lane && m.generation == l.generation && l.health == lane_health::verifying)
                    verified(m.lane, now);
                this->answer_probe(m, now);
                break;
            }
            case control_kind::probe_ack: this->book_.probe_answer(m, now); break;
            case control_kind::goodbye:
                this->io_.tell(this->message(control_kind::goodbye_ack, m.lane));
                this->close(now);
                break;
            case control_kind::goodbye_ack: this->close(now); break;
            case control_kind::abort: this->peer_gave_up(m); break;
            default: break;
        }
    }

    /// Effects: asks the receiver to close; over() once it agrees. Repeated by tick().
    VCCL_COLD void part(nanoseconds now) noexcept {
        parting_ = true;
        next_hello_ = now;
    }

    VCCL_COLD void tick(nanoseconds now) noexcept {
        if (this->over()) return this->tick_when_over(now);
        if (now - last_tick_ > this->book_.times().progress_timeout / 2) {
            this->forgive(now);
            work_.moved(now);
        }
        last_tick_ = now;
        // Everything is acknowledged and the peer has gone home: that is an orderly end, too.
        if (parting_ && !outstanding() && !this->oob_up_ && now - this->oob_lost_at_ >= this->oob_grace_) {
            this->close(now);
            return;
        }
        if (!this->still_worth_it(now, noticing_ != 0 && outstanding())) return;
        if ((this->state_ == channel_state::connecting || parting_) && now >= next_hello_) {
            this->io_.tell(this->message(parting_ ? control_kind::goodbye : control_kind::hello, first_usable()));
            next_hello_ = now + first_retry * 4;
        }
        if (this->state_ == channel_state::connecting) return;
        if (this->state_ == channel_state::running && !this->book_.any_up()) this->suspend(now);
        watch_progress(now);
        for (unsigned l = 0; l < this->book_.count() && !this->over(); ++l) {
            lane_state& s = this->book_[l];
            if ((noticing_ >> l & 1) && now >= s.next_try) notify(l, now);
            if (s.health != lane_health::up) continue;
            if (this->book_.probe_lost(l, now))
                lane_fault(l, fault_cause::probe_lost, wc_status::success, now);
            else if (this->book_.probe_due(l, now) || this->book_.probe_stale(l, now))
                this->send_probe(l, now);
        }
    }

private:
    VCCL_COLD unsigned first_usable() const noexcept {
        for (unsigned l = 0; l < this->book_.count(); ++l)
            if (this->book_.usable(l)) return l;
        return 0;
    }

    VCCL_COLD void begin(nanoseconds now) noexcept {
        this->state_ = channel_state::running;
        channel_event e{};
        e.what = kind::connected;
        e.to = lane_id{static_cast<std::uint8_t>(first_usable())};
        this->report(e);
        // Lanes that did not come up here may have come up there.
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            if (this->book_.usable(l)) continue;
            noticing_ |= 1u << l;
            notify(l, now);
        }
        if (!this->book_.any_up()) this->suspend(now);
    }

    VCCL_COLD void notify(unsigned l, nanoseconds now) noexcept {
        control_message m = this->message(control_kind::notify, l);
        m.cause = static_cast<std::uint8_t>(causes_[l]);
        m.wc = static_cast<std::uint8_t>(wcs_[l]);
        this->io_.tell(m);
        this->book_.back_off(l, now, longest_retry);
    }

    template <class Each>
    VCCL_COLD void on_sync(const control_message& m, nanoseconds now, Each&& each) noexcept {
        if (this->state_ == channel_state::connecting) begin(now);  // the sync has overtaken the hello_ack
        if (m.epoch < this->epoch_) return;
        if (m.epoch == this->epoch_ && (followed_ == m.epoch || m.epoch == 1)) {
            this->io_.tell(this->message(control_kind::sync_ack, m.lane));
            return;
        }
        if (m.sequence > posted_) {
            this->fail(status{errc::protocol_violation});
            return;
        }
        if (sync_pending_ && m.epoch <= sync_.epoch) return;
        if (this->state_ == channel_state::running) this->fault_at_ = now;
        sync_ = m;
        sync_pending_ = true;
        const std::uint64_t before = acked_;
        acknowledge(m.sequence, each);
        delivered_unknown_ += acked_ - before;
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            if (this->book_[l].generation <= m.dead_generation[l] && this->book_[l].health != lane_health::fenced) {
                causes_[l] = fault_cause::peer_notice;
                this->condemn(l, fault_cause::peer_notice, static_cast<wc_status>(m.wc), now);
            }
            if (m.dead_generation[l] >= this->book_[l].generation) noticing_ &= ~(1u << l);
        }
        if (this->over()) return;
        if (!Log::can_replay && outstanding()) {
            this->fail(this->lane_status(errc::no_replay_log));
            return;
        }
        this->state_ = channel_state::fencing;
        if (!this->book_.any_fencing()) follow(now);
    }

    /// This end's dead lanes are silent, too: adopt the receiver's decision and roll the cursor back (step 3 of the protocol).
    VCCL_COLD void follow(nanoseconds now) noexcept {
        sync_pending_ = false;
        const control_message& m = sync_;
        const setback back = this->roll_back(m, group_);
        this->epoch_ = m.epoch;
        followed_ = m.epoch;
        this->io_.tell(this->message(control_kind::sync_ack, m.lane));
        channel_event e{};
        e.what = kind::failed_over;
        e.lane = lane_id{this->last_lane_};
        e.to = lane_id{m.lane};
        e.cause = this->last_cause_ == fault_cause::peer_notice ? static_cast<fault_cause>(m.cause) : this->last_cause_;
        e.wc = static_cast<wc_status>(m.wc);
        e.took = now - this->fault_at_;
        e.replayed = back.replayed;
        e.already_delivered = back.delivered + std::exchange(delivered_unknown_, 0);
        this->state_ = this->book_.any_up() ? channel_state::running : channel_state::suspended;
        if (this->state_ == channel_state::suspended) this->suspended_at_ = now;
        work_.moved(now);
        this->report(e);
        // The receiver may have chosen a lane that is dead here: say so, it walks on.
        if (!this->book_.usable(m.lane)) {
            noticing_ |= 1u << m.lane;
            notify(m.lane, now);
        }
    }

    VCCL_COLD void on_restore(const control_message& m, nanoseconds now) noexcept {
        lane_state& s = this->book_[m.lane];
        if (m.generation < s.generation || m.generation != m.end.generation) return;  // a stale handshake revives nothing (G11)
        if (m.generation == s.generation) {
            if (s.health == lane_health::verifying) this->io_.tell(restore_answer(m.lane));
            return;
        }
        if (s.health == lane_health::up || s.health == lane_health::verifying) {
            causes_[m.lane] = fault_cause::peer_notice;
            if (!Log::can_replay && outstanding()) {
                this->fail(this->lane_status(errc::no_replay_log));
                return;
            }
            const bool was_up = s.health == lane_health::up;
            this->condemn(m.lane, fault_cause::peer_notice, wc_status::success, now);
            // It never came up at the receiver, perhaps, which does not know that it was in use here.
            if (was_up) {
                noticing_ |= 1u << m.lane;
                notify(m.lane, now);
            }
        }
        if (s.health != lane_health::fenced) return;  // the receiver asks again, and by then the fence is done
        control_message nak = this->message(control_kind::restore_nak, m.lane);
        nak.generation = m.generation;
        if (!s.port_up) {
            this->io_.tell(nak);
            return;
        }
        own_end_[m.lane] = lane_end{};
        if (!this->io_.rebuild(m.lane, m.end, m.generation, own_end_[m.lane])) {
            this->io_.tell(nak);
            return;
        }
        s.generation = m.generation;
        own_end_[m.lane].generation = m.generation;
        // Nothing goes out on it before the receiver has climbed its half, too: its probe on this lane says so.
        s.health = lane_health::verifying;
        noticing_ &= ~(1u << m.lane);
        this->io_.tell(restore_answer(m.lane));
    }

    /// The receiver's probe came in on a rebuilt lane: it is up.
    VCCL_COLD void verified(unsigned l, nanoseconds now) noexcept {
        this->book_.raise(l, now);
        this->book_.hurry(l, now);
        if (this->state_ == channel_state::suspended) this->state_ = channel_state::running;
        work_.moved(now);
        channel_event e{};
        e.what = kind::lane_restored;
        e.lane = lane_id{static_cast<std::uint8_t>(l)};
        this->report(e);
    }

    VCCL_COLD control_message restore_answer(unsigned l) const noexcept {
        control_message a = this->message(control_kind::restore_ack, l);
        a.end = own_end_[l];
        return a;
    }

    VCCL_COLD void watch_progress(nanoseconds now) noexcept {
        if (acked_ != seen_acked_) {
            seen_acked_ = acked_;
            this->alive_at_ = now;
            this->book_.heard(work_.lane(), now);
            work_.moved(now);
        } else if (this->state_ == channel_state::running && acked_ != posted_ && at(acked_).posted) {
            work_.look(this->book_, at(acked_), now,
                       [&](unsigned l) { lane_fault(l, fault_cause::hung, wc_status::success, now); });
        } else {
            work_.moved(now);
        }
    }

    unsigned group_;
    std::uint64_t seen_acked_{};
    std::uint64_t delivered_unknown_{};
    work_watch work_;
    std::uint32_t noticing_{};  ///< lanes whose death the receiver has not acknowledged, a bit each
    std::uint32_t followed_{};  ///< the last epoch adopted through a sync
    bool sync_pending_{}, parting_{};
    control_message sync_{};
    fault_cause causes_[max_lanes]{};
    wc_status wcs_[max_lanes]{};
    nanoseconds next_hello_{}, last_tick_{};
    lane_end own_end_[max_lanes]{};
};

}  // namespace vccl::inline v0
