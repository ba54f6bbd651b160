#pragma once
/// \file
/// The receiver's protocol: ledger of chunks and parts, grants, and the ownership of epoch, lane and restart point (G3).
/// Pure; see channel/core.hpp for the executor and the thread. Beyond what core.hpp lists, its executor offers:
///   bool prepare(unsigned lane, lane_end& own)          fenced -> INIT with fresh PSNs; fills in how to reach it
///   void mark(unsigned lane)                            post a signaled WRITE behind the grants of that lane
///   bool marked(unsigned lane)                          has it completed?
///   bool join(unsigned lane, const lane_end& peer)      INIT -> RTS towards the peer's half

#include <vccl/channel/core.hpp>
#include <vccl/policy/replay.hpp>

#include <memory>

namespace vccl::inline v0 {

enum class chunk_phase : std::uint8_t {
    waiting,   ///< posted by the user, not granted (or its grant died with its lane)
    granted,   ///< the sender may write it
    flushing,  ///< all parts arrived; not yet visible to the GPU
    received,
};

/// The completion that would end a granted chunk in one go.
struct whole_arrival {
    std::uint32_t origin{};     ///< low half of the receive's wr_id: kind, lane, QP, generation; 0: no such completion
    std::uint32_t immediate{};  ///< of the grant: epoch, sequence, part 0 of 1
};

/// How far a chunk is; a word, so that a run of chunks is marked with one store each.
struct chunk_state {
    std::uint32_t generation{};    ///< of `lane`, when it was granted
    std::uint8_t lane{};
    chunk_phase phase{chunk_phase::waiting};
    std::uint8_t parts : 7 {};     ///< 0: not known yet
    std::uint8_t too_long : 1 {};
    std::uint8_t arrived{};        ///< a bit a part: this is what keeps a replay from counting twice (G1)
};
static_assert(sizeof(chunk_state) == 8);

struct chunk_extent {
    std::uint32_t length{};
    std::uint32_t bytes{};         ///< that have arrived

    /// The same as cts_words::make_room(length, rkey) while nothing has arrived.
    std::uint64_t fresh_room(std::uint32_t rkey) const noexcept { return std::bit_cast<std::uint64_t>(*this) | std::uint64_t{rkey} << 32; }
};

/// One posted receive as the ledger remembers it. A line of memory each.
struct alignas(64) incoming : chunk_state, chunk_extent {
    whole_arrival expected{};
    std::uint64_t addr{};
    memory_region* region{};
};

template <class Io, failback_policy Failback>
class receiver_core : public channel_core<Io> {
    using base = channel_core<Io>;
    using typename base::kind;

public:
    struct options : core_options {
        unsigned window{64};      ///< receives outstanding at most
        unsigned first_lane{0};   ///< the preferred one; others follow in list order
    };

    receiver_core(Io& io, const options& o, Failback failback) noexcept
        : base(io, o), failback_(failback), window_(o.window), first_lane_(o.first_lane), active_(o.first_lane), ring_(new incoming[max_window]) {}

    // --- the hot path -------------------------------------------------------------------------------------------

    std::uint64_t head() const noexcept { return head_; }   ///< everything below has been received
    std::uint64_t tail() const noexcept { return tail_; }   ///< next sequence to be posted
    std::uint64_t room() const noexcept { return this->over() ? 0 : head_ + window_ - tail_; }  ///< receives that it still takes
    bool deliverable() noexcept { return head_ != tail_ && at(head_).phase == chunk_phase::received; }
    bool wants_grant() const noexcept { return granted_ != tail_; }
    bool resuming() const noexcept { return resuming_; }    ///< the next arrival is the first after a failover
    incoming& at(std::uint64_t s) noexcept { return ring_[s & (max_window - 1)]; }
    static constexpr std::uint64_t contiguous(std::uint64_t s) noexcept { return max_window - (s & (max_window - 1)); }  ///< chunks from `s` on, side by side
    std::uint64_t window() const noexcept { return window_; }
    unsigned active() const noexcept { return active_; }

    sequence post(std::uint64_t addr, std::uint64_t length, memory_region* region) noexcept {
        incoming& c = at(tail_);
        static_cast<chunk_state&>(c) = chunk_state{};
        static_cast<chunk_extent&>(c) = std::bit_cast<chunk_extent>(length);
        c.addr = addr;
        c.region = region;
        return sequence{tail_++};
    }

    /// The next chunk to grant, if there is one; then call `granted`.
    bool next_grant(std::uint64_t& s) noexcept {
        while (wants_grant()) {
            if (at(granted_).phase == chunk_phase::waiting) { s = granted_; return true; }
            ++granted_;
        }
        return false;
    }
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
    std::uint64_t binding() const noexcept { return cts_words::make_binding(this->epoch_, this->book_[active_].generation, active_); }
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

    /// The chunks [granted, fresh_end) were never granted; none if others come first.
    std::uint64_t next_fresh() const noexcept { return granted_; }
    std::uint64_t ungranted() const noexcept { return tail_ - granted_; }
    std::uint64_t fresh_end() const noexcept { return granted_ == fresh_ ? tail_ : granted_; }
    /// Every fresh chunk below `upto` has been granted and marked.
    void granted_run(std::uint64_t upto) noexcept { granted_ = fresh_ = upto; }
    /// Every chunk below `upto` has ended, each by its whole arrival.
    void delivered_run(std::uint64_t upto) noexcept { head_ = upto; }

    enum class arrival : std::uint8_t { part, complete, stale, violation };

    /// An immediate came in on `lane`, whose QPs were of `generation`. Sets `s` unless stale or violation.
    arrival on_immediate(unsigned lane, std::uint32_t generation, immediate imm, std::uint32_t bytes, nanoseconds now, std::uint64_t& s) noexcept {
        const std::uint64_t ahead = (imm.sequence() - head_) & immediate::sequence_mask;
        if (ahead >= tail_ - head_) return arrival::stale;
        s = head_ + ahead;
        incoming& c = at(s);
        // The line that drops old news: the chunk is bound to one lane, generation and epoch.
        if (c.phase != chunk_phase::granted || c.lane != lane || (c.generation & 0xffff) != generation ||
            immediate{c.expected.immediate}.epoch() != imm.epoch())
            return arrival::stale;
        const std::uint8_t bit = static_cast<std::uint8_t>(1u << imm.part());
        if (imm.part() >= imm.parts() || (c.parts != 0 && c.parts != imm.parts()) || bytes > c.length - c.bytes) return arrival::violation;
        // The line that prevents a duplicate: a part counts once.
        if (c.arrived & bit) return arrival::violation;
        c.expected.origin = 0;
        c.arrived |= bit;
        c.parts = imm.parts() & 15;
        c.bytes += bytes;
        c.too_long = imm.too_long();
        if (resuming_) resumed(now);
        return c.arrived == (1u << c.parts) - 1 ? arrival::complete : arrival::part;
    }

    /// Effects: every chunk at the head that is received leaves; `each(sequence, incoming&)` for each, in order.
    template <class Each>
    void deliver(Each&& each) noexcept {
        while (deliverable()) {
            const std::uint64_t s = head_++;
            if (granted_ < head_) granted_ = head_;
            each(sequence{s}, at(s));
        }
    }

    /// A flush ended. Failed: the chunk counts as not received (G9); its lane's fault sends it round again.
    void flushed(std::uint64_t s, bool ok) noexcept {
        incoming& c = at(s);
        if (s < head_ || s >= tail_ || c.phase != chunk_phase::flushing) return;
        if (ok) c.phase = chunk_phase::received;
    }

    // --- set-up -------------------------------------------------------------------------------------------------

    /// The lanes are connected as `up` says, a bit each. The channel runs once the sender has said hello.
    void connected(std::uint32_t up, nanoseconds now) noexcept {
        this->alive_at_ = last_tick_ = now;
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            if (up >> l & 1) this->book_.raise(l, now);
            this->book_[l].next_try = now;
        }
        choose();
    }

    // --- events -------------------------------------------------------------------------------------------------

    void lane_fault(unsigned l, fault_cause cause, wc_status wc, nanoseconds now) noexcept {
        if (this->over() || !this->condemn(l, cause, wc, now)) return;
        if (this->state_ != channel_state::running && this->state_ != channel_state::fencing && this->state_ != channel_state::announcing) return;
        if (l != active_ && !outstanding_on(l)) return;
        if (cause == fault_cause::local_error && head_ == barren_head_) {
            // The same again and nothing received in between: slower each time, and not for ever.
            if (now - barren_since_ >= this->options_.give_up_after) { this->fail(this->lane_status(errc::lane_failed)); return; }
            this->book_.postpone(l, now, barren_++);
        } else {
            barren_ = 0;
            barren_head_ = head_;
            barren_since_ = now;
        }
        turn(now);
    }

    /// The executor's answer to `fence`: the lane's QPs can write no memory now (G2), or cannot be silenced.
    void fenced(unsigned l, bool ok, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        s.fencing = false;
        if (this->over()) return;
        if (!ok) { this->fail(this->lane_status(errc::fence_failed)); return; }
        if (s.health == lane_health::failed) s.health = lane_health::fenced;
        if (this->state_ == channel_state::fencing && !this->book_.any_fencing()) decide(now);
    }

    void port_changed(unsigned l, bool up, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        if (s.port_up == up) return;
        s.port_up = up;
        if (up) this->book_.settle(l, now);
        else lane_fault(l, fault_cause::own_port, wc_status::success, now);
    }

    void on_message(const control_message& m, nanoseconds now) noexcept {
        if (this->over()) {
            if (m.kind == control_kind::goodbye) this->io_.tell(this->message(control_kind::goodbye_ack, 0));
            return;
        }
        if (m.lane >= this->book_.count()) { this->fail(status{errc::protocol_violation, static_cast<std::uint32_t>(m.kind)}); return; }
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
                if (!this->io_.join(m.lane, m.end)) { lane_fault(m.lane, fault_cause::local_error, wc_status::success, now); break; }
                s.health = lane_health::verifying;
                s.next_try = now + this->book_.times().probe_timeout;
                this->send_probe(m.lane, now);
                break;
            case control_kind::restore_nak:
                if (s.health == lane_health::restoring && m.generation == s.generation) this->book_.back_off(m.lane, now, longest_restore_retry);
                break;
            case control_kind::port_back:
                if (s.health != lane_health::up) this->book_.settle(m.lane, now);
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

    void tick(nanoseconds now) noexcept {
        if (this->over()) return;
        if (now - last_tick_ > this->book_.times().progress_timeout / 2) {
            this->forgive(now);
            for (nanoseconds& m : marked_at_) m = now;
            for (unsigned l = 0; l < this->book_.count(); ++l)
                if (this->book_[l].health == lane_health::verifying) this->book_[l].next_try = now + this->book_.times().probe_timeout;
        }
        last_tick_ = now;
        if (!this->still_worth_it(now, this->state_ == channel_state::fencing || this->state_ == channel_state::announcing)) return;
        if (this->state_ == channel_state::connecting) return;
        if (head_ != seen_head_) {
            seen_head_ = head_;
            moved_at_ = now;
            this->book_.heard(active_, now);
            this->alive_at_ = now;
        }
        if (this->state_ == channel_state::announcing && now >= next_sync_) announce(now);
        watch_grants(now);
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            tend(l, now);
            if (this->over()) return;
        }
        if (this->state_ == channel_state::running) fail_back(now);
    }

private:
    unsigned rank(unsigned l) const noexcept { return l == first_lane_ ? 0 : l < first_lane_ ? l + 1 : l; }

    bool choose() noexcept {
        bool found = false;
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            if (this->book_.usable(l) && (!found || rank(l) < rank(active_))) { active_ = l; found = true; }
        }
        return found;
    }

    bool outstanding_on(unsigned l) noexcept {
        for (std::uint64_t s = head_; s != tail_; ++s) {
            const incoming& c = at(s);
            if ((c.phase == chunk_phase::granted || c.phase == chunk_phase::flushing) && c.lane == l) return true;
        }
        return false;
    }

    void begin(nanoseconds now) noexcept {
        this->state_ = channel_state::running;
        channel_event e{};
        e.what = kind::connected;
        e.to = lane_id{static_cast<std::uint8_t>(active_)};
        this->report(e);
        if (!this->book_.usable(active_)) turn(now);
    }

    /// A lane in use is dead: a new epoch begins with its fencing (G6: from any state that had one under way, too).
    void turn(nanoseconds now) noexcept {
        if (this->state_ == channel_state::running) this->fault_at_ = now;
        ++this->epoch_;
        this->state_ = channel_state::fencing;
        if (!this->book_.any_fencing()) decide(now);
    }

    /// All dead lanes are fenced: the ledger holds the truth. Takes back their grants and chooses the next lane.
    void decide(nanoseconds now) noexcept {
        for (std::uint64_t s = head_; s != tail_; ++s) {
            incoming& c = at(s);
            const bool dead = c.generation <= this->book_[c.lane].dead_generation;
            if (dead) c.expected.origin = 0;
            if (c.phase == chunk_phase::granted && dead) c.phase = chunk_phase::waiting;
            if (c.phase == chunk_phase::flushing && dead) {
                c.phase = chunk_phase::waiting;
                c.arrived = 0;
                c.bytes = 0;
            }
        }
        granted_ = head_;
        if (!choose()) { this->suspend(now); return; }
        this->state_ = channel_state::announcing;
        sync_retry_ = first_retry;
        announce(now);
    }

    void announce(nanoseconds now) noexcept {
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

    void acknowledged(nanoseconds now) noexcept {
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

    void tend(unsigned l, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        switch (s.health) {
            case lane_health::up:
                if (this->book_.probe_lost(l, now)) lane_fault(l, fault_cause::probe_lost, wc_status::success, now);
                else if (this->book_.probe_due(l, now) || this->book_.probe_stale(l, now)) this->send_probe(l, now);
                break;
            case lane_health::failed: break;
            case lane_health::fenced:
                if (s.port_up && !s.fencing && now >= s.next_try) restore(l, now);
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

    /// Grants are out and nothing arrives. The sender may simply have nothing to send; but if a WRITE behind the grants does
    /// not complete although the lane answers probes, then the grants hang in our own send queue (a NIC may lose WRs
    /// without a completion), and the sender waits for them.
    void watch_grants(nanoseconds now) noexcept {
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            lane_state& s = this->book_[l];
            if (s.health != lane_health::up) { marking_[l] = false; continue; }
            if (marking_[l]) {
                if (this->io_.marked(l)) marking_[l] = false;
                else if (now - marked_at_[l] >= this->book_.times().hung_timeout && s.heard_at > marked_at_[l]) lane_fault(l, fault_cause::hung, wc_status::success, now);
                else if (now - marked_at_[l] >= this->book_.times().progress_timeout) s.suspected = !s.probe_open && s.heard_at <= marked_at_[l];
            } else if (now - moved_at_ >= this->book_.times().progress_timeout && now - marked_at_[l] >= this->book_.times().probe_interval && outstanding_on(l)) {
                marking_[l] = true;
                marked_at_[l] = now;
                this->io_.mark(l);
            }
        }
    }

    control_message restore_message(unsigned l) const noexcept {
        control_message m = this->message(control_kind::restore, l);
        m.end = own_end_[l];
        return m;
    }

    /// A new generation of the lane: fresh QPs or fresh PSNs, offered to the sender.
    void restore(unsigned l, nanoseconds now) noexcept {
        lane_state& s = this->book_[l];
        ++s.generation;
        ++s.restore_tries;
        this->book_.back_off(l, now, longest_restore_retry);
        own_end_[l] = lane_end{};
        if (!this->io_.prepare(l, own_end_[l])) { s.dead_generation = s.generation; return; }
        own_end_[l].generation = s.generation;
        s.health = lane_health::restoring;
        this->io_.tell(restore_message(l));
    }

    void restored(unsigned l, nanoseconds now) noexcept {
        this->book_.raise(l, now);
        this->book_.hurry(l, now);
        channel_event e{};
        e.what = kind::lane_restored;
        e.lane = lane_id{static_cast<std::uint8_t>(l)};
        this->report(e);
        if (this->state_ == channel_state::suspended) decide(now);
    }

    void fail_back(nanoseconds now) noexcept {
        unsigned best = active_;
        for (unsigned l = 0; l < this->book_.count(); ++l) {
            const lane_state& s = this->book_[l];
            if (s.health == lane_health::up && rank(l) < rank(best) && now - s.up_since >= failback_.hold(s.times_failed)) best = l;
        }
        if (best == active_) return;
        channel_event e{};
        e.what = kind::failed_back;
        e.lane = lane_id{static_cast<std::uint8_t>(active_)};
        e.to = lane_id{static_cast<std::uint8_t>(best)};
        active_ = best;
        this->report(e);
    }

    Failback failback_;
    std::uint64_t window_;
    unsigned first_lane_, active_;
    std::unique_ptr<incoming[]> ring_;
    std::uint64_t head_{}, granted_{}, fresh_{}, tail_{}, seen_head_{}, barren_head_{~std::uint64_t{0}};
    unsigned barren_{};
    bool resuming_{};
    nanoseconds next_sync_{}, sync_retry_{first_retry}, last_tick_{}, moved_at_{}, barren_since_{};
    bool marking_[max_lanes]{};
    nanoseconds marked_at_[max_lanes]{};
    lane_end own_end_[max_lanes]{};
};

}  // namespace vccl::inline v0
