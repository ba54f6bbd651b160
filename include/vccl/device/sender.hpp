#pragma once
/// \file
/// The device sender: owns the queues that kernels post on, and looks after them from a host thread. `ref()` is what a kernel
/// takes. From a dead lane to the next: inspect (sees it) or the peer -> fence -> SYNC -> moved (posts again what was not
/// done). Owner thread: the user's or a proxy's, which calls progress(); kernels never wait for it except while a lane is dead.

#include <vccl/channel/sender_core.hpp>
#include <vccl/device/qp_set.hpp>
#include <vccl/device/queues.hpp>
#include <vccl/device/ring_source.hpp>
#include <vccl/device/sender_ref.hpp>
#include <vccl/host/core_access.hpp>
#include <vccl/host/endpoint.hpp>

namespace vccl::inline v0 {

/// `P` names the policies; device/compose.hpp makes it.
template <class P>
class basic_device_sender : public endpoint<basic_device_sender<P>, typename P::verbs, typename P::port, typename P::group,
                                            typename P::handler, typename P::detection, typename P::clock, typename P::oob>,
                            public detail::core_access<basic_device_sender<P>> {
    using backend_type = typename P::verbs;
    using handler_type = typename P::handler;
    using base = endpoint<basic_device_sender, backend_type, typename P::port, typename P::group, handler_type,
                          typename P::detection, typename P::clock, typename P::oob>;
    using access = detail::core_access<basic_device_sender>;
    using core_type = sender_core<basic_device_sender, no_replay<1>>;
    using space = typename P::space;
    using source_type = typename P::source;
    static constexpr unsigned queue_count = P::group::count;
    friend base;
    friend access;
    friend core_type;
    friend channel_core<basic_device_sender>;

public:
    using policies = P;                                          ///< as they were named, with defaults for the rest
    using ref_type = device::sender_ref<typename P::queue>;      ///< what a kernel takes; trivially copyable
    static constexpr std::uint32_t depth = P::replay::capacity;  ///< slots of each queue: as many WQEs may be under way

    /// Sends from `window`, registered memory of this context, over rings that `source` makes (a software NIC, or a device).
    VCCL_COLD basic_device_sender(host_context<backend_type>& context, source_type& source, starting_point from,
                                  channel_id channel, const memory_view& window, const device_options& options = {},
                                  typename P::port port = {}, handler_type handler = {}, typename P::detection detect = {},
                                  typename P::clock clock = {}, space memory = {})
        : base(context, from, channel, options.channel, std::move(port), std::move(handler), std::move(detect), std::move(clock)),
          device_options_(options),
          source_(source),
          window_(window),
          queues_(memory) {}
    VCCL_COLD ~basic_device_sender() {
        if (core_ && !core_->over()) core_->fail(status{errc::aborted});
        queues_.abort();
    }

    /// As endpoint::local_info. Errors also: invalid_argument (more than max_queue_lanes lanes).
    VCCL_COLD result<std::vector<std::byte>> local_info() {
        if (this->options_.lanes > device::max_queue_lanes) return errc::invalid_argument;
        auto blob = base::local_info();
        if (blob) device::append_offer(*blob, {});
        return blob;
    }
    /// As endpoint::begin_connect. Errors also: bad_blob if the peer is no device receiver, not_registered.
    VCCL_COLD status begin_connect(std::span<const std::byte> remote) {
        auto offer = device::take_offer(remote, true);
        if (!offer) return offer.error();
        if (status s = window_.check(); !s) return s;
        offer_ = *offer;
        return base::begin_connect(remote);
    }
    /// The same, and waits while it drives. Errors: as a host sender's; invalid_argument: the peer is no device receiver.
    VCCL_COLD status connect(std::span<const std::byte> remote, nanoseconds timeout) {
        if (status s = begin_connect(remote); !s) return s;
        return this->wait_connected(timeout);
    }

    /// What kernels take: trivially copyable, valid until the sender goes. `ref().channel(c)` for the c-th of its channels.
    /// Requires: it is connected, or was.
    ref_type ref() const noexcept { return {queues_.published(), queue_count, device_options_.timeout.count}; }
    /// The receiver's; 0 before begin_connect.
    std::uint32_t signal_words() const noexcept { return offer_.signal_count; }

    /// Effects: every wait of a kernel on this sender ends with `aborted`, now and later. Any thread. Nothing before it is connected.
    void abort_kernels() noexcept { queues_.abort(); }

    /// Effects: closes both ends in order. Kernels must have flushed. Errors: timeout, or why the channel ended.
    VCCL_COLD status close(nanoseconds timeout) noexcept {
        if (!core_) return errc::not_connected;
        core_->part(this->now_);
        const status s = this->wait_until(timeout, [&] { return core_->state() == channel_state::closed; });
        return s.code == errc::closed ? status{} : s;
    }

private:
    /// The rings of one lane: two sets of QPs, so that a lane can be rebuilt before the posters have left its former life.
    struct lane_rings {
        device::qp_set<typename source_type::qp> set[2];
        unsigned current{};
    };
    static constexpr unsigned ring_of(unsigned lane, unsigned set) noexcept { return 2 * lane + set; }

    // --- executor of sender_core ---

    /// Nobody but the service reads the lane's completions from now on; its QPs write no memory.
    VCCL_COLD void fence(unsigned l) noexcept {
        for (auto& q : queues_.service)
            if (q.active().ring() / 2 == l && core_->state() != channel_state::connecting) q.close();
        base::fence(l);
        if (!rings_[l].set[rings_[l].current].fence()) unfenced_ |= 1u << l;
    }
    VCCL_COLD void core_fenced(unsigned l, bool ok) noexcept { access::core_fenced(l, ok && (unfenced_ >> l & 1) == 0); }
    /// The receiver offers a new half of a lane: it gets the ring that no poster can reach any more, if there is one by now.
    VCCL_COLD bool rebuild(unsigned l, const lane_end& peer, std::uint32_t generation, lane_end& own) noexcept {
        lane_rings& r = rings_[l];
        if (!reusable(l, r.current) && !reusable(l, r.current ^ 1)) return false;
        if (!reusable(l, r.current)) r.current ^= 1;
        lane<backend_type>& lane = this->lanes_[l];
        auto& set = r.set[r.current];
        if (!lane.renew(generation) || !make(l, set)) return false;
        auto attributes = this->port_of(l).port.query();
        auto end = lane.end();
        if (!end || !attributes || !lane.connect(peer) || !set.connect(peer, *attributes, this->options_.timers)) return false;
        own = *end;
        set.describe(own);
        return true;
    }
    /// Effects: QPs in INIT with empty rings. Those that were there keep their memory, which kernels know.
    VCCL_COLD status make(unsigned l, device::qp_set<typename source_type::qp>& set) noexcept {
        return set.init([&] { return source_.create_qp(this->port_of(l).port, {depth, 2 * depth}); });
    }
    bool reusable(unsigned l, unsigned set) noexcept {
        for (auto& q : queues_.service)
            if (!q.quiescent(ring_of(l, set))) return false;
        return true;
    }
    /// A notice says whether the queues are on the dead lane: then the receiver must name another one, whatever it thinks.
    VCCL_COLD void tell(const control_message& m) noexcept {
        control_message full = m;
        if (m.kind == control_kind::notify)
            for (auto& q : queues_.service)
                if (q.active().ring() / 2 == m.lane) full.sequence = device::in_use;
        base::tell(full);
    }
    /// A failover has been agreed upon: the queues move before anybody hears of it.
    VCCL_COLD void report(channel_event e) noexcept {
        using kind = channel_event::kind;
        if (e.what == kind::lane_failed && e.cause == fault_cause::peer_notice && planned_) return;
        if (e.what == kind::failed_over) {
            move_to(e.to.value, e);
            if (planned_) e.what = kind::failed_back;
        }
        base::report(e);
    }
    VCCL_COLD void move_to(unsigned l, channel_event& e) noexcept {
        // Dead for this end: the core says so, and the receiver chooses again. Until then the queues stay where they are.
        if (!core_->usable(l)) return;
        const unsigned ring = ring_of(l, rings_[l].current);
        for (unsigned q = 0; q < queue_count; ++q) {
            const unsigned old = queues_.service[q].active().ring();
            if (old == ring) continue;
            queues_.service[q].close();
            (void)rings_[old / 2].set[old % 2].fence();
            const auto moved = queues_.service[q].move(ring, core_->epoch().value,
                                                       rings_[l].set[rings_[l].current].qp(q).number().value, told_, told_count_);
            e.replayed += moved.replayed;
            e.already_delivered += moved.delivered;
            stalled_[q] = {};
        }
        if (!P::queue::can_replay && e.replayed != 0) core_->fail(status{errc::no_replay_log});
    }

    // --- for endpoint ---

    VCCL_COLD lane_shape shape() const noexcept {
        lane_shape s{};
        s.group = 0;
        s.timers = this->options_.timers;
        return s;
    }

    VCCL_COLD status fill(connection_blob& b) {
        if (status s = queues_.make(depth, device_options_.wait); !s) return s;
        auto m = this->context_.register_memory(queues_.registered(), queues_.registered_bytes);
        if (!m) return m.error();
        scratch_ = std::move(*m);
        b.role = endpoint_role::sender;
        b.can_replay = P::queue::can_replay;
        b.ring_depth = 1;  // no CTS ring
        for (unsigned l = 0; l < this->count_; ++l) {
            for (auto& set : rings_[l].set) {
                set.resize(queue_count);
                if (status s = make(l, set); !s) return s;
            }
            rings_[l].set[0].describe(b.lane[l].end);
        }
        return {};
    }

    status call() noexcept { return this->oob_.connect(this->peer_.oob, this->peer_.secret); }

    VCCL_COLD void accept(std::uint64_t connection, std::uint32_t up) noexcept {
        connection_ = connection;
        for (unsigned l = 0; l < this->count_; ++l) {
            auto attributes = this->port_of(l).port.query();
            if ((up >> l & 1) != 0 &&
                !(attributes && rings_[l].set[0].connect(this->peer_.lane[l].end, *attributes, this->options_.timers)))
                up &= ~(1u << l);
        }
        core_.emplace(*this, this->core_settings(connection), no_replay<1>(), P::group::count);
        for (unsigned l = 0; l < this->count_; ++l)
            if (!this->port_of(l).up.load()) core_->port_changed(l, false, this->now_);
        core_->connected(up, this->now_);
        open_queues(first_lane(up));
    }
    /// Where the receiver begins, too.
    unsigned first_lane(std::uint32_t up) const noexcept {
        unsigned best = this->options_.first_lane;
        bool found = (up >> best & 1) != 0;
        for (unsigned l = 0; l < this->count_; ++l)
            if ((up >> l & 1) != 0 &&
                (!found || lane_rank(this->options_.first_lane, l) < lane_rank(this->options_.first_lane, best))) {
                best = l;
                found = true;
            }
        return best;
    }
    VCCL_COLD void open_queues(unsigned first) noexcept {
        for (unsigned q = 0; q < queue_count; ++q) {
            device::queue_view& v = queues_.view[q];
            v.window = window_.addr();
            v.remote = offer_.window_addr;
            v.signals = offer_.signals_addr;
            v.signal_count = offer_.signal_count;
            for (unsigned l = 0; l < this->count_; ++l) {
                const unsigned slot = this->slots_[l];
                for (unsigned set = 0; set < 2; ++set)
                    v.rings[ring_of(l, set)] = {rings_[l].set[set].qp(q).memory(), window_.region()->local[slot].value,
                                                offer_.window_rkey[l], offer_.signal_rkey[l],
                                                scratch_.region()->local[slot].value};
            }
            queues_.service[q].open(ring_of(first, 0), core_->epoch().value, rings_[first].set[0].qp(q).number().value,
                                    device_options_.first_index);
        }
        queues_.publish();
    }

    VCCL_ALWAYS_INLINE bool hot() noexcept {
        bool moved = this->poll_hot(this->hot_lane_);
        for (auto& q : queues_.service) {
            moved |= q.adopt();
            if (const device::device_result r = q.failure(); r.what == device::outcome::error) [[unlikely]]
                failed(q.active().ring() / 2, r);
        }
        return moved;
    }
    static const completion* arrivals(unsigned, const completion* c, const completion*) noexcept { return c; }
    void on_arrival(unsigned, std::uint32_t, const completion&) noexcept {}
    void on_flush(unsigned, std::uint64_t, bool) noexcept {}

    /// Kernels that wait tell of errors; of those that nobody waits for, and of work that stands still, the service must know
    /// by itself.
    VCCL_COLD void core_tick() noexcept {
        for (unsigned q = 0; q < queue_count && !core_->over(); ++q) {
            auto& service = queues_.service[q];
            const unsigned l = service.active().ring() / 2;
            (void)service.quiescent(service.active().ring() ^ 1);  // goes on finding out
            if (!core_->usable(l)) continue;
            const auto seen = service.scan();
            if (seen.failure.what == device::outcome::error) {
                failed(l, seen.failure);
                continue;
            }
            progress_mark& mark = stalled_[q];
            const bool idle = seen.done == service.rung().index();
            if (idle || seen.done != mark.done || mark.since.count == 0) {
                mark = {seen.done, this->now_};
            } else if (this->now_ - mark.since >= this->detect_.times().hung_timeout) {
                mark = {};
                this->core_fault(l, fault_cause::hung, wc_status::success);
            }
        }
        access::core_tick();
    }
    VCCL_COLD void failed(unsigned l, const device::device_result& r) noexcept {
        if (core_->over() || !core_->usable(l)) return;
        completion c{};
        c.status = device::wc_status_of(r.why);
        c.vendor = r.vendor;
        verdict v = stock_verdict(c.status);
        if constexpr (detail::judges_errors<handler_type>) v = this->handler_.on_error(c);
        if (v == verdict::fail_over && P::queue::can_replay) {
            this->core_fault(l, detail::cause_of(c.status), c.status);
            return;
        }
        status s{v == verdict::fail_over ? errc::no_replay_log : detail::errc_of(c.status)};
        s.wc = c.status;
        s.lane = static_cast<std::uint8_t>(l);
        s.extra = r.vendor;
        this->core_fail(s);
    }

    VCCL_COLD void core_message(const control_message& m) noexcept {
        if (m.kind == control_kind::sync && m.epoch > core_->epoch().value && m.epoch >= told_epoch_) {
            if (m.count != 8 * offer_.signal_count) {
                this->core_fail(status{errc::protocol_violation, m.count});
                return;
            }
            told_epoch_ = m.epoch;
            told_count_ = offer_.signal_count;
            planned_ = m.cause == static_cast<std::uint8_t>(fault_cause::none);
            std::memcpy(told_, m.arrived, m.count);
        }
        core_->on_message(m, this->now_, [](sequence, outgoing&) {});
    }
    VCCL_COLD void end_all() noexcept {
        queues_.abort();
        for (unsigned l = 0; l < this->count_; ++l)
            for (auto& set : rings_[l].set) (void)set.fence();
    }
    std::uint64_t connection() const noexcept { return connection_; }

    struct progress_mark {
        std::uint64_t done{};
        nanoseconds since{};
    };

    device_options device_options_;
    source_type& source_;
    memory_view window_;
    device::device_offer offer_{};
    device::queues<space, queue_count> queues_;
    memory scratch_;
    lane_rings rings_[device::max_queue_lanes];
    late<core_type> core_;
    std::uint64_t connection_{};
    std::uint64_t told_[device::max_signal_words]{};  ///< the peer's signal words, as the last SYNC had them
    std::uint32_t told_count_{}, told_epoch_{};
    std::uint32_t unfenced_{};  ///< lanes whose QPs could be neither moved to ERR nor destroyed
    bool planned_{};  ///< the last SYNC leaves a lane that is well for a better one
    progress_mark stalled_[queue_count]{};
};

}  // namespace vccl::inline v0
