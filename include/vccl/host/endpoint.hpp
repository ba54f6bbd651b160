#pragma once
/// \file
/// What sender and receiver share: control messages, port events, fencing, completions. It is the executor of the protocol
/// core over a set of lanes: the core decides, this posts. Owner thread only: the user's, or the proxy's.

#include <vccl/base/clock.hpp>
#include <vccl/channel/core.hpp>
#include <vccl/host/lane_set.hpp>
#include <vccl/host/patience.hpp>
#include <vccl/host/port_watch.hpp>
#include <vccl/policy/completion.hpp>

namespace vccl::inline v0 {

/// `Self` has: core(), hot(), on_arrival(), on_flush(), on_message(), shape(), fill(blob), call(),
/// accept(connection, up), end_all(); settled() if some of its WRs may outlive their purpose.
template <class Self, verbs_backend B, class Port, class Group, class Handler, class Detect, class Clock, class Oob>
class endpoint : public lane_set<B> {
    using set = lane_set<B>;

public:
    using backend = B;          ///< as the policy was named
    using port_policy = Port;   ///< as the policy was named
    static constexpr unsigned group = Group::count;  ///< QPs of a lane
    /// Opens nothing yet: local_info() does.
    VCCL_COLD endpoint(host_context<B>& context, starting_point from, channel_id channel, const endpoint_options& options,
                       Port port, Handler handler, Detect detect, Clock clock)
        : set(context, from, channel, options),
          port_(std::move(port)),
          handler_(std::move(handler)),
          detect_(std::move(detect)),
          clock_(std::move(clock)) {}
    endpoint(const endpoint&) = delete;
    endpoint& operator=(const endpoint&) = delete;
    Handler& handler() noexcept { return handler_; }  ///< the completion handler; between two passes only
    const Handler& handler() const noexcept { return handler_; }  ///< the same, to look at

    /// Effects: opens the lanes on first use. Returns: what the peer's `connect` needs; carry it over any way you have.
    VCCL_COLD result<std::vector<std::byte>> local_info() {
        if (status s = open(); !s) return s;
        return encode_blob(own_);
    }

    /// Effects: takes the peer's blob and begins to connect; `progress()` until `connected()` or `health()` says why not.
    VCCL_COLD status begin_connect(std::span<const std::byte> remote) {
        if (status s = open(); !s) return s;
        if (begun_) return errc::already_connected;
        auto peer = decode_blob(remote, own_);
        if (!peer) return peer.error();
        peer_ = *peer;
        if (status s = self().call(); !s) return s;
        now_ = clock_.now();
        const std::uint32_t up = this->connect_lanes();
        for (unsigned l = 0; l < count_; ++l) (void)seen_[l].look(port_of(l));
        const std::uint64_t connection = (own_.nonce ^ peer_.nonce) * 0x9e3779b97f4a7c15u;
        self().accept(connection, up);
        begun_ = true;
        // Lanes that want memory which the machine lacks do not come back as others do.
        if (up == 0 && refused_.about == subject::shared_memory) self().core_fail(refused_);
        return {};
    }
    bool connected() const noexcept { return begun_ && self().state() == channel_state::running; }  ///< over some lane, now

    /// Effects: exchanges nothing itself: takes the peer's blob and waits until the channel runs. Errors: as decode_blob;
    /// port_down if no lane came up, or what refused the first of them (no_memory for want of /dev/shm at once; that nobody
    /// tells a peer's address is said only if nothing else refused one); peer_lost if the out-of-band channel did not; timeout.
    VCCL_COLD status connect(std::span<const std::byte> remote, nanoseconds timeout) {
        if (status s = begin_connect(remote); !s) return s;
        return wait_connected(timeout);
    }

    /// Why the channel ended; ok while it lives.
    status health() const noexcept { return begun_ ? self().core_why() : status{}; }

    /// Is it at something that takes several passes, such as a failover? Then whoever drives many lets it not rest.
    bool restless() const noexcept { return begun_ && (fencing_ != 0 || (self().core_why() && self().unsettled())); }

    /// Effects: one pass: polls, posts, and now and then looks after the lanes. Returns true if something moved.
    bool progress() noexcept {
        if (!begun_) return false;
        ++pass_;
        const bool moved = self().hot();
        if (moved && (pass_ & 3) != 0) [[likely]]
            return true;
        if ((pass_ & 3) == 0) poll_others();
        if (!moved || (pass_ & 15) == 0) now_ = clock_.now();
        if (now_ >= next_look_ || self().unsettled() || fencing_ != 0) look_after();
        return moved;
    }

protected:
    VCCL_COLD ~endpoint() { oob_.close(); }

    // --- executor of the protocol core --------------------------------------------------------------------------

    VCCL_COLD void fence(unsigned l) noexcept {
        fencing_ |= 1u << l;
        if (!lanes_[l].silence()) unfenceable_ |= 1u << l;
        fence_until_[l] = now_ + drain_time;
        // A look at the socket is as long as a failover over a lane that can talk.
        if (any_usable()) next_oob_ = now_ + oob_interval;
    }
    VCCL_COLD void tell(const control_message& m) noexcept {
        bool told = false;
        // While connecting, the peer's QPs may not be ready to receive yet.
        for (unsigned l = 0; l < count_ && self().state() != channel_state::connecting; ++l)
            if (self().usable(l)) told |= static_cast<bool>(lanes_[l].send_control(m));
        (void)tell_on(lane_book::out_of_band_way, m);
        // What a lane carries is ahead of any socket: its copy there can wait for the next look at it.
        if (!told) (void)oob_.advance(now_);
    }
    /// False: withheld, since the peer takes no messages at present.
    VCCL_COLD bool tell_on(std::uint16_t way, const control_message& m) noexcept {
        if (way == lane_book::out_of_band_way)
            (void)oob_.send(std::as_bytes(std::span(&m, 1)).first(m.size()));
        else if (way < count_)
            return lanes_[way].send_control(m).code != errc::busy;
        return true;
    }
    VCCL_COLD void report(channel_event e) noexcept {
        e.at = now_;
        if constexpr (detail::hears_events<Handler>) handler_.on_event(e);
    }
    /// The control QPs live on: what was said last must get through, though nobody may look at this end again.
    VCCL_COLD void over() noexcept {
        (void)oob_.advance(now_);
        for (unsigned l = 0; l < count_; ++l) (void)lanes_[l].silence_data();
        self().end_all();
    }

    static constexpr nanoseconds drain_time{20'000'000};
    static constexpr nanoseconds query_interval{100'000'000};
    static constexpr nanoseconds oob_interval{200'000};

    static bool settled(unsigned, wr_id) noexcept { return false; }

    Self& self() noexcept { return static_cast<Self&>(*this); }
    const Self& self() const noexcept { return static_cast<const Self&>(*this); }

    /// Polls until `done` or the channel is over or `timeout` has passed.
    template <class Done>
    status wait_until(nanoseconds timeout, Done&& done) noexcept {
        status over{};
        const status s = poll_until(timeout, [&] { return done() || !(over = health()); });
        if (s.code == errc::timeout && begun_ && self().state() == channel_state::suspended)
            return {s.code, subject::suspended, 0};
        return over ? s : over;
    }
    /// The second half of connect().
    VCCL_COLD status wait_connected(nanoseconds timeout) noexcept {
        const status s = wait_until(timeout, [&] { return connected(); });
        if (s.code != errc::timeout) return s;
        if (self().state() == channel_state::suspended || !this->any_port_up() || !refused_)
            return refused_ ? set::on_lane(errc::port_down, 0) : refused_;
        return oob_state_ == oob_state::up ? s : status{errc::peer_lost};
    }
    /// Polls until `done` or `timeout` has passed, whatever becomes of the channel.
    template <class Done>
    status poll_until(nanoseconds timeout, Done&& done) noexcept {
        return detail::poll_until(*this, clock_, timeout, done);
    }

    status too_large(std::uint64_t bytes) const noexcept { return detail::too_large(options_.max_chunk, bytes); }

    core_options core_settings(std::uint64_t connection) const noexcept {
        core_options c;
        c.times = detect_.times();
        c.give_up_after = options_.give_up_after;
        c.peer_grace = options_.peer_grace;
        c.connection = connection;
        c.seed = own_.nonce;
        c.lanes = count_;
        return c;
    }

    /// Effects: polls one lane's CQ. Returns true if it yielded anything.
    VCCL_NOINLINE bool poll_lane(unsigned l) noexcept { return poll_hot(l); }
    VCCL_ALWAYS_INLINE bool poll_hot(unsigned l) noexcept {
        const auto n = lanes_[l].poll(polled_, poll_batch);
        if (!n) {
            self().core_fault(l, fault_cause::qp_fatal, wc_status::success);
            return false;
        }
        const completion* const end = polled_ + *n;
        for (const completion* c = polled_; (c = self().arrivals(l, c, end)) != end; ++c) dispatch(l, *c);
        return *n != 0;
    }

    using set::context_, set::options_, set::lanes_, set::count_, set::own_, set::peer_, set::port_of;
    unsigned hot_lane_{};
    Port port_;
    [[no_unique_address]] Handler handler_;
    [[no_unique_address]] Detect detect_;
    [[no_unique_address]] Clock clock_;
    Oob oob_{};
    oob_state oob_state_{oob_state::opening};
    nanoseconds now_{};
    bool opened_{}, begun_{};

private:
    using set::refused_;
    static constexpr unsigned poll_batch = 32;
    completion polled_[poll_batch]{};

    VCCL_COLD bool any_usable() const noexcept {
        for (unsigned l = 0; l < count_; ++l)
            if (self().usable(l)) return true;
        return false;
    }

    VCCL_COLD status open() {
        if (opened_) return {};
        if (status s = this->open_lanes(port_, self().shape()); !s) return s;
        if (status s = self().fill(own_); !s) return s;
        opened_ = true;
        return {};
    }

    void poll_others() noexcept {
        for (unsigned l = 0; l < count_; ++l)
            if (l != hot_lane_) (void)poll_lane(l);
    }

    /// The unhurried part of a pass: events, control ways, fences, timers.
    VCCL_NOINLINE void look_after() noexcept {
        next_look_ = now_ + detect_.times().poll_interval;
        const bool query = now_ >= next_query_;
        if (query) next_query_ = now_ + query_interval;
        context_.poll_events(query);
        for (unsigned l = 0; l < count_; ++l) look_at_port(l);
        poll_others();
        if (now_ >= next_oob_ || !any_usable()) {
            next_oob_ = now_ + oob_interval;
            look_at_oob();
        }
        for (unsigned l = 0; l < count_ && fencing_ != 0; ++l)
            if (fencing_ >> l & 1) look_at_fence(l);
        self().core_tick();
    }

    VCCL_COLD void look_at_port(unsigned l) noexcept {
        const port_change c = seen_[l].look(port_of(l));
        if (!c.any || !detect_.times().use_events) return;
        if (c.device) self().core_fault(l, fault_cause::qp_fatal, wc_status::success);
        // Down and up again between two looks: the QPs may have given up meanwhile, so it counts as down.
        if (c.went_down) self().core_port(l, false);
        self().core_port(l, c.up);
        if (c.renumbered && c.up) {
            auto end = lanes_[l].end();
            if (end && std::memcmp(end->gid, own_.lane[l].end.gid, sizeof end->gid) != 0) {
                std::memcpy(own_.lane[l].end.gid, end->gid, sizeof end->gid);
                self().core_fault(l, fault_cause::gid_change, wc_status::success);
            }
        }
    }

    VCCL_COLD void look_at_oob() noexcept {
        if (const oob_state s = oob_.advance(now_); s != oob_state_) {
            oob_state_ = s;
            if (s != oob_state::opening)
                self().core_oob(s == oob_state::up, detail::grace_of(s, detect_.times(), options_.peer_grace));
        }
        control_message m;
        for (unsigned n = 0; n < 16; ++n) {
            const std::size_t bytes = oob_.receive(std::as_writable_bytes(std::span(&m, 1)));
            if (bytes == 0) break;
            take_message(m, bytes);
        }
    }

    VCCL_COLD void look_at_fence(unsigned l) noexcept {
        while (poll_lane(l)) {}
        if (!lanes_[l].drained() && now_ < fence_until_[l]) return;
        fencing_ &= ~(1u << l);
        self().core_fenced(l, (unfenceable_ >> l & 1) == 0);
    }

    /// A message of either control way. What is not of this connection is not looked at any further.
    VCCL_COLD void take_message(const control_message& m, std::size_t bytes) noexcept {
        if (!well_formed(m, bytes) || m.connection != self().connection()) return;
        for (unsigned l = 0; l < count_; ++l) lanes_[l].peer_heard();
        self().core_message(m);
    }

    VCCL_ALWAYS_INLINE void dispatch(unsigned l, const completion& c) noexcept {
        const wr_id id{c.wr_id};
        lane<B>& lane = lanes_[l];
        // The line that drops an old generation's completions: their WRs are accounted for already.
        if (id.generation() != (lane.generation() & 0xffff)) return;
        if constexpr (detail::hears_completions<Handler>) handler_.on_polled(c);
        wr_account& account = lane.account(id.qp());
        const wr_kind kind = id.kind();
        if (kind == wr_kind::control_recv)
            --account.receives;
        else if (kind == wr_kind::arrival)
            lane.arrived(id.qp(), 1);
        else
            account.retire(id.mark());
        if (c.status != wc_status::success) [[unlikely]] {
            failed(l, c, kind);
            return;
        }
        if (kind == wr_kind::arrival)
            self().on_arrival(l, id.generation(), c);
        else if (kind == wr_kind::flush)
            self().on_flush(l, id.mark(), true);
        else if (kind == wr_kind::control_recv)
            controlled(l, id.mark(), c.byte_len);
    }

    VCCL_COLD void controlled(unsigned l, std::uint64_t slot, std::size_t bytes) noexcept {
        control_message m{};
        std::memcpy(static_cast<void*>(&m), &lanes_[l].control_buffer(slot), bytes < sizeof m ? bytes : sizeof m);
        (void)lanes_[l].repost_control(slot);
        take_message(m, bytes);
    }

    VCCL_COLD void failed(unsigned l, const completion& c, wr_kind kind) noexcept {
        if (kind == wr_kind::flush) self().on_flush(l, wr_id{c.wr_id}.mark(), false);
        if (fencing_ >> l & 1 || !lanes_[l].connected()) return;
        // A WRITE that the NIC repeats although its chunk was acknowledged may find both ends' memory gone by now.
        const bool settled = kind == wr_kind::data && self().settled(l, wr_id{c.wr_id});
        verdict v = settled ? verdict::fail_over : stock_verdict(c.status);
        if constexpr (detail::judges_errors<Handler>) v = handler_.on_error(c);
        // A flush reads our own memory: whatever it failed with, the chunk is not received and the lane is to blame (G9).
        if (v == verdict::fail_over || kind == wr_kind::flush) {
            self().core_fault(l, detail::cause_of(c.status), c.status);
            return;
        }
        status s{detail::errc_of(c.status), c.qp.value};
        s.wc = c.status;
        s.lane = static_cast<std::uint8_t>(l);
        s.extra = c.vendor;
        self().core_fail(s);
    }

    port_watch seen_[max_lanes]{};
    nanoseconds next_look_{}, next_query_{}, next_oob_{}, fence_until_[max_lanes]{};
    std::uint32_t fencing_{}, unfenceable_{};
    std::uint64_t pass_{};
};

}  // namespace vccl::inline v0
