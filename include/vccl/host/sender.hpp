#pragma once
/// \file
/// The host-proxy sender: chunks in order to one receiver, over whichever lane the receiver's grants name.
/// From send() to the end of a chunk: send (records) -> hot (reads the CTS slot, posts the parts: chunk_walk) -> acknowledged
/// (retires). A fault is the same walk: the core rolls the cursor back and hot() posts again. Owner thread only.
///
/// Buffers: a chunk's bytes must stay unchanged until the chunk is acknowledged (`wait`, or `on_done`), not merely until
/// the NIC completes it. docs/threading.md.

#include <vccl/base/owned.hpp>
#include <vccl/channel/sender_core.hpp>
#include <vccl/host/chunk_walk.hpp>
#include <vccl/host/core_access.hpp>
#include <vccl/host/endpoint.hpp>

namespace vccl::inline v0 {

/// What `host_sender<...>` names.
template <verbs_backend B, class Port, class Group, class Handler, class Log, class Failback, class Detect, class Clock,
          class Oob>
class basic_host_sender
    : public endpoint<basic_host_sender<B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>, B, Port, Group, Handler,
                      Detect, Clock, Oob>,
      public detail::core_access<basic_host_sender<B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>>,
      private detail::chunk_walk<basic_host_sender<B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>, B, Group::count> {
    using base = endpoint<basic_host_sender, B, Port, Group, Handler, Detect, Clock, Oob>;
    using core_type = sender_core<basic_host_sender, Log>;
    friend base;
    friend detail::core_access<basic_host_sender>;
    using walk = detail::chunk_walk<basic_host_sender, B, Group::count>;
    friend walk;
    friend core_type;
    friend channel_core<basic_host_sender>;

public:
    using log_type = Log;  ///< as the policy was named

    /// Sends from a GPU's nearest port (or the one that the port policy names), or from a given port on a machine without
    /// GPUs; with that port's backups.
    VCCL_COLD basic_host_sender(host_context<B>& context, starting_point from, channel_id channel,
                                const endpoint_options& options = {}, Port port = {}, Handler handler = {}, Log log = {},
                                Detect detect = {}, Clock clock = {})
        : base(context, from, channel, options, std::move(port), std::move(handler), std::move(detect), std::move(clock)),
          log_(std::move(log)) {}
    VCCL_COLD ~basic_host_sender() {
        if (core_ && !core_->over()) core_->fail(status{errc::aborted});
    }

    /// Effects: queues a chunk; never blocks; the bytes go out in progress(). Errors: not_connected, would_block (the
    /// rollback FIFO is full), too_large, not_registered, out_of_range, or why the channel ended.
    result<sequence> send(const memory_view& bytes) noexcept {
        if (room_ == 0 || !bytes.good_in(this->context_stamp_) || bytes.bytes() - small_ >= most_) [[unlikely]]
            return send_unusual(bytes);
        return push(bytes, work_flags::none);
    }

    /// Effects: as send(), for a part of a striped chunk. Requires: connected, not over, fewer than the log's capacity are
    /// outstanding, and the caller has checked and holds the memory.
    sequence send_part(const memory_view& bytes, const placement& at) noexcept
        requires core_type::places
    {
        const sequence s = push(bytes, flags_for(bytes));
        core_->place(s.value) = at;
        return s;
    }
    /// How much the receive of chunk `s` takes. Errors: would_block while no grant has come, not_connected.
    result<std::uint32_t> room_for(sequence s) const noexcept { return ring_ ? ring_->room(s.value) : errc::not_connected; }
    /// The note that its recv() was given. Errors: would_block while no grant with one has come, not_connected.
    result<std::uint64_t> note_for(sequence s) const noexcept { return ring_ ? ring_->note(s.value) : errc::not_connected; }

    /// Everything below this has been received by the peer.
    sequence acknowledged() const noexcept { return sequence{core_ ? core_->acked() : 0}; }
    /// The next sequence that send() will return.
    sequence next() const noexcept { return sequence{core_ ? core_->tail() : 0}; }

    /// Effects: progresses until chunk `s` is acknowledged. Errors: message_too_long if the receive was smaller (its bytes
    /// were not sent; the channel goes on), timeout, or why the channel ended.
    VCCL_COLD status wait(sequence s, nanoseconds timeout) noexcept {
        if (!core_) return errc::not_connected;
        if (s.value >= core_->tail()) return errc::invalid_argument;
        if (status w = this->wait_until(timeout, [&] { return core_->acked() > s.value; }); !w) return w;
        return outcome(s);
    }
    /// The outcome of a chunk that ended, without waiting: ok or message_too_long, kept until `Log::capacity` more were sent.
    /// Errors: would_block while it has not ended, or why the channel did; invalid_argument: it was never sent.
    status outcome(sequence s) const noexcept {
        if (!core_ || s.value >= core_->tail()) return errc::invalid_argument;
        if (!ended(s)) return core_->over() ? core_->why() : status{errc::would_block};
        const bool kept = core_->tail() - s.value <= Log::capacity;
        return kept && const_cast<core_type&>(*core_).at(s.value).too_long ? errc::message_too_long : errc::ok;
    }
    /// Has the chunk ended?
    bool ended(sequence s) const noexcept { return core_ && core_->acked() > s.value; }
    /// Polls until everything sent is acknowledged. Errors: timeout, or why the channel ended.
    VCCL_COLD status wait_all(nanoseconds timeout) noexcept {
        return next().value == 0 ? status{} : this->wait_until(timeout, [&] { return !core_->outstanding(); });
    }

    /// Effects: waits for everything to be acknowledged, then closes both ends in order.
    VCCL_COLD status close(nanoseconds timeout) noexcept {
        if (!core_) return errc::not_connected;
        const nanoseconds deadline = this->clock_.now() + timeout;
        if (status s = wait_all(timeout); !s) return s;
        core_->part(this->now_);
        const status s = this->wait_until(deadline - this->clock_.now(), [&] { return core_->state() == channel_state::closed; });
        return s.code == errc::closed ? status{} : s;
    }

    /// The lane that the last grant named.
    lane_id active_lane() const noexcept { return lane_id{static_cast<std::uint8_t>(this->hot_lane_)}; }

private:
    /// What send() passes on: small chunks, which are inlined, and refusals.
    VCCL_NOINLINE result<sequence> send_unusual(const memory_view& bytes) noexcept {
        if (!core_) return errc::not_connected;
        if (core_->over()) return core_->why();
        if (bytes.bytes() > this->options_.max_chunk) return this->too_large(bytes.bytes());
        if (status s = bytes.check_in(this->context_stamp_); !s && !bytes.nothing()) return s;
        room_ = core_->room();
        if (room_ == 0) return status{errc::would_block, subject::room, static_cast<std::uint32_t>(Log::capacity)};
        return push(bytes, flags_for(bytes));
    }
    work_flags flags_for(const memory_view& bytes) const noexcept {
        return bytes.bytes() < small_ && !bytes.region()->device ? work_flags::inlined : work_flags::none;
    }
    VCCL_ALWAYS_INLINE sequence push(const memory_view& bytes, work_flags flags) noexcept {
        outgoing o{};
        o.addr = bytes.addr();
        o.length = static_cast<std::uint32_t>(bytes.bytes());
        o.region = bytes.region();
        o.flags = flags;
        o.region->hold();
        --room_;
        return core_->push(o);
    }

    // --- executor of sender_core ---

    void fence(unsigned l) noexcept {
        base::fence(l);
        this->forget_run();
    }

    /// The receiver offers a new half of a lane that is fenced here: reset, climb, answer with ours.
    VCCL_COLD bool rebuild(unsigned l, const lane_end& peer, std::uint32_t generation, lane_end& own) noexcept {
        lane<B>& lane = this->lanes_[l];
        if (!lane.renew(generation)) return false;
        auto end = lane.end();
        if (!end || !lane.connect(peer)) return false;
        own = *end;
        return true;
    }

    VCCL_COLD lane_shape shape() const noexcept {
        lane_shape s{};
        s.group = Group::count;
        s.send_depth = 256;
        s.inline_bytes = this->options_.inline_bytes;
        s.timers = this->options_.timers;
        return s;
    }

    VCCL_COLD status fill(connection_blob& b) {
        ring_.reset(new (std::nothrow) cts_ring{});
        if (!ring_) return errc::no_memory;
        auto m = this->context_.register_memory(ring_.get(), sizeof(cts_ring));
        if (!m) return m.error();
        ring_memory_ = std::move(*m);
        b.role = endpoint_role::sender;
        b.can_replay = Log::can_replay;
        b.ring_addr = reinterpret_cast<std::uint64_t>(ring_.get());
        b.ring_depth = max_window;
        for (unsigned l = 0; l < this->count_; ++l) b.lane[l].ring_rkey = ring_memory_.region()->remote[this->slots_[l]].value;
        return {};
    }

    status call() noexcept { return this->oob_.connect(this->peer_.oob, this->peer_.secret); }
    VCCL_COLD void accept(std::uint64_t connection, std::uint32_t up) noexcept {
        connection_ = connection;
        core_.emplace(*this, this->core_settings(connection), std::move(log_), Group::count);
        for (unsigned l = 0; l < this->count_; ++l)
            if (!this->port_of(l).up.load()) core_->port_changed(l, false, this->now_);
        core_->connected(up, this->now_);
        small_ = std::uint64_t{this->options_.inline_bytes} + 1;
        for (unsigned l = 0; l < this->count_; ++l)
            if (this->lanes_[l].inline_bytes() < small_) small_ = std::uint64_t{this->lanes_[l].inline_bytes()} + 1;
        most_ = this->options_.max_chunk < small_ ? 0 : this->options_.max_chunk + 1 - small_;
        room_ = core_->room();
    }

    VCCL_ALWAYS_INLINE bool hot() noexcept {
        bool moved = this->poll_hot(this->hot_lane_);
        if (core_->over()) [[unlikely]]
            return moved;
        std::uint64_t acked = std::atomic_ref(ring_->ack.acked).load(std::memory_order_acquire);
        using run_end = typename walk::run_end;
        run_end end = run_end::unusual;
        if constexpr (Group::count == 1 && !core_type::places) {
            do end = this->post_run(acked, moved);
            while (end == run_end::more);
        }
        if (acked > core_->acked()) {
            core_->acknowledge(acked, [this](sequence s, outgoing& o) { retired(s, o); });
            moved = true;
        }
        if (end == run_end::unusual) [[unlikely]]
            moved |= this->post_any();
        if (!moved && core_->outstanding()) moved = scan();
        room_ = core_->room();
        return moved;
    }

    /// Nothing to post, but chunks to be acknowledged: grants that lie ahead carry acknowledgements, too.
    bool scan() noexcept {
        if (scanned_ < core_->tail()) scanned_ = core_->tail();
        bool moved = false;
        for (;; ++scanned_) {
            const cts_words c = ring_->read(scanned_);
            if (c.sequence != scanned_ || c.check != check_of(c)) return moved;
            moved |= acknowledged_to(c.acked);
        }
    }

    VCCL_NOINLINE bool acknowledged_to(std::uint64_t upto) noexcept {
        if (upto <= core_->acked()) return false;
        core_->acknowledge(upto, [this](sequence s, outgoing& o) { retired(s, o); });
        return true;
    }

    VCCL_ALWAYS_INLINE void retired(sequence s, outgoing& o) noexcept {
        o.region->drop();
        if constexpr (detail::hears_chunks<Handler>) {
            chunk_report r{};
            r.sequence = s;
            r.bytes = o.length;
            r.lane = lane_id{o.lane};
            r.epoch = core_->epoch();
            if (o.too_long) [[unlikely]] {
                r.bytes = 0;
                r.outcome = errc::message_too_long;
                this->handler_.on_done(r);
                return;
            }
            this->handler_.on_done(r);
        }
    }

    static const completion* arrivals(unsigned, const completion* c, const completion*) noexcept { return c; }
    void on_arrival(unsigned, std::uint32_t, const completion&) noexcept {}
    void on_flush(unsigned, std::uint64_t, bool) noexcept {}
    /// Was it for a chunk that has been acknowledged? Of those in flight, each has at most one WR on a QP; they are the newest.
    VCCL_COLD bool settled(unsigned l, wr_id id) noexcept {
        lane<B>& lane = this->lanes_[l];
        const auto on_this_qp = [&](std::uint64_t s, const outgoing& o) {
            return detail::has_wr_on(id.qp(), Group::count, s, o);
        };
        return ((lane.account(id.qp()).posted - id.mark()) & wr_id::mark_mask) >=
               core_->in_flight(l, lane.generation(), on_this_qp);
    }
    VCCL_COLD void core_message(const control_message& m) noexcept {
        core_->on_message(m, this->now_, [this](sequence s, outgoing& o) { retired(s, o); });
    }

    VCCL_COLD void end_all() noexcept {
        room_ = 0;
        for (std::uint64_t s = core_->acked(); s != core_->tail(); ++s) core_->at(s).region->drop();
    }

    std::uint64_t connection() const noexcept { return connection_; }

    Log log_;
    owned<cts_ring> ring_;
    memory ring_memory_;
    std::uint64_t room_{};  ///< chunks that the rollback FIFO takes before hot() looks again; 0 while not connected
    std::uint64_t small_{}, most_{};  ///< chunks below the first are inlined; send() takes [small_, small_ + most_) at once
    late<core_type> core_;
    std::uint64_t connection_{}, scanned_{};
};

}  // namespace vccl::inline v0
