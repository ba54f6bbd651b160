#pragma once
/// \file
/// The host-proxy receiver: posts receives, grants them, keeps the ledger, and owns the channel's epoch and lane.
/// From recv() to the end of a chunk: recv (ledger) -> hot (grants it: grant_walk) -> on_arrival (ledger's bit; flush) -> delivered.
/// Owner thread only. Buffers: a posted receive may be written until its chunk has ended; docs/threading.md.

#include <vccl/base/owned.hpp>
#include <vccl/channel/receiver_core.hpp>
#include <vccl/host/core_access.hpp>
#include <vccl/host/endpoint.hpp>
#include <vccl/host/flush.hpp>
#include <vccl/host/grant_walk.hpp>

namespace vccl::inline v0 {

/// What `host_receiver<...>` names.
template <verbs_backend B, class Port, class Group, class Handler, class Log, class Failback, class Detect, class Clock,
          class Oob>
class basic_host_receiver
    : public endpoint<basic_host_receiver<B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>, B, Port, Group, Handler,
                      Detect, Clock, Oob>,
      public detail::core_access<basic_host_receiver<B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>>,
      private detail::grant_walk<basic_host_receiver<B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>, B> {
    using base = endpoint<basic_host_receiver, B, Port, Group, Handler, Detect, Clock, Oob>;
    using core_type = receiver_core<basic_host_receiver, Failback>;
    friend base;
    friend detail::core_access<basic_host_receiver>;
    friend detail::grant_walk<basic_host_receiver, B>;
    friend core_type;
    friend grant_watch;
    friend channel_core<basic_host_receiver>;

public:
    using failback_type = Failback;  ///< as the policy was named

    /// Receives at a GPU's nearest port (or the one that the port policy names), or at a given port; with that port's backups.
    VCCL_COLD basic_host_receiver(host_context<B>& context, starting_point from, channel_id channel,
                                  const endpoint_options& options = {}, Port port = {}, Handler handler = {},
                                  Failback failback = {}, Detect detect = {}, Clock clock = {})
        : base(context, from, channel, options, std::move(port), std::move(handler), std::move(detect), std::move(clock)),
          failback_(failback) {}
    VCCL_COLD ~basic_host_receiver() {
        if (core_ && !core_->over()) core_->fail(status{errc::aborted});
    }

    /// Effects: posts a receive; never blocks; the grant goes out in progress(). Errors: not_connected, would_block (the
    /// window is full), too_large, not_registered, out_of_range, or why the channel ended.
    result<sequence> recv(const memory_view& room) noexcept {
        if (room_ == 0 || !room.good_in(this->context_stamp_) || room.bytes() > most_) [[unlikely]]
            return recv_unusual(room);
        return push(room);
    }
    /// The same, with a word that travels in the grant, for the sender's note_for().
    result<sequence> recv(const memory_view& room, std::uint64_t note) noexcept {
        const auto s = recv(room);
        if (s) annotate(this->staging_[s->value & (max_window - 1)], s->value, note);
        return s;
    }

    /// Everything below this has been received, flush included.
    sequence received() const noexcept { return sequence{core_ ? core_->head() : 0}; }
    sequence next() const noexcept { return sequence{core_ ? core_->tail() : 0}; }  ///< what recv() will return

    /// The outcome of a chunk that ended: its bytes, or message_too_long. Kept until `window` more receives were posted;
    /// then invalid_argument. would_block while it has not ended.
    VCCL_COLD result<std::uint64_t> outcome(sequence s) const noexcept {
        if (!core_ || s.value >= core_->tail()) return errc::invalid_argument;
        if (s.value >= core_->head()) return core_->over() ? core_->why() : status{errc::would_block};
        if (core_->tail() - s.value > core_->window()) return errc::invalid_argument;
        const incoming& c = const_cast<core_type&>(*core_).at(s.value);
        if (c.too_long) return errc::message_too_long;
        return std::uint64_t{c.bytes};
    }

    /// Effects: progresses until chunk `s` has been received. Returns: its bytes. Errors: as outcome(), timeout.
    VCCL_COLD result<std::uint64_t> wait(sequence s, nanoseconds timeout) noexcept {
        if (!core_) return errc::not_connected;
        if (s.value >= core_->tail()) return errc::invalid_argument;
        if (status w = this->wait_until(timeout, [&] { return core_->head() > s.value; }); !w) return w;
        return outcome(s);
    }

    /// Has the chunk ended?
    bool ended(sequence s) const noexcept { return core_ && core_->head() > s.value; }

    /// Effects: progresses until the sender has closed (ok), or the channel failed, or `timeout`.
    VCCL_COLD status wait_closed(nanoseconds timeout) noexcept {
        if (!core_) return errc::not_connected;
        const status s = this->wait_until(timeout, [&] { return core_->state() == channel_state::closed; });
        return s.code == errc::closed ? status{} : s;
    }
    /// The lane that new grants name.
    lane_id active_lane() const noexcept { return lane_id{static_cast<std::uint8_t>(core_ ? core_->active() : 0)}; }
    /// Immediates that were recognised as old news and dropped.
    std::uint64_t stale_arrivals() const noexcept { return stale_; }

private:
    VCCL_COLD result<sequence> recv_unusual(const memory_view& room) noexcept {
        if (!core_) return errc::not_connected;
        if (core_->over()) return core_->why();
        if (room.bytes() > this->options_.max_chunk) return this->too_large(room.bytes());
        if (status s = room.check_in(this->context_stamp_); !s) return s;
        room_ = core_->room();
        if (room_ == 0) return status{errc::would_block, subject::room, static_cast<std::uint32_t>(core_->window())};
        return push(room);
    }
    VCCL_ALWAYS_INLINE sequence push(const memory_view& room) noexcept {
        memory_region& region = *room.region();
        const std::uint64_t addr = room.addr(), bytes = room.bytes();
        core_->post(addr, bytes, &region);
        region.hold();
        --room_;
        return core_->posted();
    }

    // --- executor of receiver_core ---

    /// What was said of acknowledgements may have died with the lane.
    void fence(unsigned l) noexcept {
        base::fence(l);
        this->acknowledge_anew();
    }

    VCCL_COLD bool prepare(unsigned l, lane_end& own) noexcept {
        lane<B>& lane = this->lanes_[l];
        if (!lane.renew(core_->lanes()[l].generation)) return false;
        auto end = lane.end();
        if (!end) return false;
        own = *end;
        return true;
    }
    bool join(unsigned l, const lane_end& peer) noexcept { return static_cast<bool>(this->lanes_[l].connect(peer)); }

    VCCL_COLD void mark(unsigned l) noexcept {
        if (this->lanes_[l].room(0)) this->write_acknowledgement(l, true);
        marks_[l] = this->lanes_[l].account(0).posted;
    }
    bool marked(unsigned l) noexcept { return this->lanes_[l].account(0).retired >= marks_[l]; }

    VCCL_COLD lane_shape shape() const noexcept {
        lane_shape s{};
        s.group = Group::count;
        s.send_depth = 2 * this->options_.window + 16;
        s.recv_depth = this->options_.window + 2 * lane<B>::rearm_batch;
        s.inline_bytes = 4 * sizeof(cts_slot);
        s.flush = this->options_.flush != flush_mode::none;
        s.timers = this->options_.timers;
        return s;
    }

    VCCL_COLD status fill(connection_blob& b) {
        if (!flushes_.make(this->count_)) return errc::no_memory;
        if (status s = this->make_staging(this->context_); !s) return s;
        b.role = endpoint_role::receiver;
        b.secret = detail::random_secret();
        auto where = this->oob_.listen(this->options_.oob, b.secret);
        if (!where) return where.error();
        b.oob = *where;
        return {};
    }

    status call() noexcept { return {}; }  // the sender does
    VCCL_COLD void accept(std::uint64_t connection, std::uint32_t up) noexcept {
        connection_ = connection;
        typename core_type::options o;
        static_cast<core_options&>(o) = this->core_settings(connection);
        o.window = this->options_.window < this->peer_.ring_depth ? this->options_.window : this->peer_.ring_depth;
        o.first_lane = this->options_.first_lane;
        core_.emplace(*this, o, failback_);
        for (unsigned l = 0; l < this->count_; ++l)
            if (!this->port_of(l).up.load()) core_->port_changed(l, false, this->now_);
        core_->connected(up, this->now_);
        most_ = this->options_.max_chunk;
        room_ = core_->room();
    }

    VCCL_ALWAYS_INLINE bool hot() noexcept {
        bool moved = this->poll_hot(this->hot_lane_);
        if (core_->deliverable()) [[unlikely]]
            deliver();
        room_ = core_->room();
        if (core_->wants_grant() && core_->may_grant() && due()) {
            while (this->grant_run(moved)) {}
            if (core_->wants_grant()) moved |= this->grant_any();
        }
        if (moved)
            quiet_since_ = this->now_;
        else if (!this->all_acknowledged() && this->now_ - quiet_since_ >= this->options_.ack_delay)
            this->acknowledge();
        return moved;
    }

    /// While the sender holds grants for more than three quarters of the posted receives, more can wait for company: a WRITE
    /// carries a whole run of them. Not for longer than an acknowledgement may wait, since it rides on them.
    bool due() const noexcept {
        return 4 * core_->ungranted() >= core_->tail() - core_->head() || this->now_ - quiet_since_ >= this->options_.ack_delay;
    }

    VCCL_NOINLINE void deliver() noexcept {
        if (core_->over()) return;
        core_->deliver([this](sequence s, incoming& c) { ended(s, c, c.bytes, c.too_long); });
    }
    VCCL_ALWAYS_INLINE void ended(sequence s, const incoming& c, std::uint32_t bytes, bool too_long) noexcept {
        c.region->drop();
        if constexpr (detail::hears_chunks<Handler>) {
            chunk_report r{};
            r.sequence = s;
            r.bytes = bytes;
            r.lane = lane_id{c.lane};
            r.epoch = core_->epoch_of(c);
            if (too_long) r.outcome = errc::message_too_long;
            this->handler_.on_done(r);
        }
    }

    /// The common case in one tight loop: chunks in one piece that arrive whole, in order, on the lane and in the epoch of
    /// their grant, with nothing to flush. What is compared is what on_immediate() and dispatch() look at, prepared by
    /// grant_run(). Returns the first completion that is something else.
    VCCL_ALWAYS_INLINE const completion* arrivals(unsigned l, const completion* c, const completion* end) noexcept {
        if constexpr (Group::count == 1) {
            if (core_->resuming()) [[unlikely]]
                return c;
            const completion* const first = c;
            std::uint64_t s = core_->head();
            for (bool plain = true; plain && c != end;) {
                std::uint64_t count = static_cast<std::uint64_t>(end - c);
                const std::uint64_t limits[] = {core_->next_fresh() - s, core_->contiguous(s)};
                for (const std::uint64_t most : limits)
                    if (count > most) count = most;
                if (count == 0) break;
                incoming* in = &core_->at(s);
                const completion* const stop = c + count;
                const incoming* const begin = in;
                for (; c != stop; ++c, ++in) {
                    const std::uint32_t bytes = c->byte_len;
                    plain = in->expected.origin == static_cast<std::uint32_t>(c->wr_id) &&
                            in->expected.immediate == c->immediate && c->status == wc_status::success && bytes <= in->length;
                    if (!plain) break;
                    in->bytes = bytes;
                    if constexpr (detail::hears_completions<Handler>) this->handler_.on_polled(*c);
                    ended(sequence{s + static_cast<std::uint64_t>(in - begin)}, *in, bytes, false);
                }
                s += static_cast<std::uint64_t>(in - begin);
            }
            if (c != first) {
                core_->delivered_run(s);
                this->lanes_[l].arrived(0, static_cast<unsigned>(c - first));
            }
        }
        return c;
    }
    VCCL_ALWAYS_INLINE void on_arrival(unsigned l, std::uint32_t generation, const completion& c) noexcept {
        std::uint64_t s = 0;
        using arrival = typename core_type::arrival;
        switch (core_->on_immediate(l, generation, immediate{c.immediate}, c.byte_len, this->now_, s)) {
            case arrival::complete: complete(l, s); break;
            case arrival::part: break;
            case arrival::stale: ++stale_; break;
            case arrival::violation: this->core_fail(status{errc::protocol_violation, c.immediate}); break;
        }
    }

    void complete(unsigned l, std::uint64_t s) noexcept {
        incoming& c = core_->at(s);
        if (c.bytes == 0 || !must_flush(this->options_.flush, c.region->device)) {
            c.phase = chunk_phase::received;
            return;
        }
        flush(l, s, c);
    }

    VCCL_NOINLINE void flush(unsigned l, std::uint64_t s, incoming& c) noexcept {
        c.phase = chunk_phase::flushing;
        lane<B>& lane = this->lanes_[l];
        if (!lane.connected()) return;  // arrived while the lane was being fenced: it goes round again
        const lkey key = this->staging_memory_.region()->local[this->slots_[l]];
        if (!flushes_.begin(lane, this->slots_[l], s, c, this->staging_[max_window].note, key))
            this->core_fault(l, fault_cause::local_error, wc_status::success);
    }
    void on_flush(unsigned l, std::uint64_t n, bool ok) noexcept { core_->flushed(flushes_.chunk(l, n), ok); }
    VCCL_COLD void core_message(const control_message& m) noexcept { core_->on_message(m, this->now_); }

    VCCL_COLD void end_all() noexcept {
        room_ = 0;
        for (std::uint64_t s = core_->head(); s != core_->tail(); ++s) {
            core_->at(s).expected.origin = 0;
            core_->at(s).region->drop();
        }
    }

    std::uint64_t connection() const noexcept { return connection_; }

    Failback failback_;
    late<core_type> core_;
    std::uint64_t most_{};  ///< bytes of a receive
    std::uint64_t room_{};  ///< receives that the window takes before hot() looks again; 0 while not connected
    std::uint64_t connection_{}, stale_{};
    nanoseconds quiet_since_{};
    std::uint64_t marks_[max_lanes]{};
    detail::flushes flushes_;
};

}  // namespace vccl::inline v0
