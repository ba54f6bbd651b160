#pragma once
/// \file
/// The device receiver: exposes a window of memory and signal words to the sender's kernels, and decides about lanes. `ref()`
/// is what a kernel takes to wait for signals. Nothing of it runs while data arrives. Owner thread: the user's or a proxy's,
/// which calls progress().

#include <vccl/device/options.hpp>
#include <vccl/device/qp_set.hpp>
#include <vccl/device/receiver_core.hpp>
#include <vccl/device/receiver_ref.hpp>
#include <vccl/device/space.hpp>
#include <vccl/host/core_access.hpp>
#include <vccl/host/endpoint.hpp>

namespace vccl::inline v0 {

/// What `device_receiver<...>` names.
template <class P>
class basic_device_receiver : public endpoint<basic_device_receiver<P>, typename P::verbs, typename P::port, typename P::group,
                                              typename P::handler, typename P::detection, typename P::clock, typename P::oob>,
                              public detail::core_access<basic_device_receiver<P>> {
    using backend_type = typename P::verbs;
    using handler_type = typename P::handler;
    using failback_type = typename P::failback;
    using base = endpoint<basic_device_receiver, backend_type, typename P::port, typename P::group, handler_type,
                          typename P::detection, typename P::clock, typename P::oob>;
    using access = detail::core_access<basic_device_receiver>;
    using core_type = device::device_receiver_core<basic_device_receiver, failback_type>;
    using shared = typename P::space::shared;
    using qp_type = typename backend_type::port::qp;
    static constexpr unsigned queue_count = P::group::count;
    friend base;
    friend access;
    friend core_type;
    friend receiver_core<basic_device_receiver, failback_type>;
    friend grant_watch;
    friend channel_core<basic_device_receiver>;

public:
    using policies = P;  ///< as they were named, with defaults for the rest

    /// Exposes `window`, registered memory of this context, for as long as the receiver lives.
    VCCL_COLD basic_device_receiver(host_context<backend_type>& context, starting_point from, channel_id channel,
                                    const memory_view& window, const device_options& options = {}, typename P::port port = {},
                                    handler_type handler = {}, failback_type failback = {}, typename P::detection detect = {},
                                    typename P::clock clock = {})
        : base(context, from, channel, options.channel, std::move(port), std::move(handler), std::move(detect), std::move(clock)),
          device_options_(options),
          window_(window),
          failback_(failback) {}
    VCCL_COLD ~basic_device_receiver() {
        if (core_ && !core_->over()) core_->fail(status{errc::aborted});
        for (auto& set : sets_) (void)set.fence();  // before the words go
        signals_memory_ = memory{};
        if (words_) shared::free(words_);
    }

    /// As endpoint::local_info. Errors also: invalid_argument (signals; more than max_queue_lanes lanes), not_registered.
    VCCL_COLD result<std::vector<std::byte>> local_info() {
        if (device_options_.signals == 0 || device_options_.signals > device::max_signal_words ||
            this->options_.lanes > device::max_queue_lanes)
            return errc::invalid_argument;
        if (status s = window_.check(); !s) return s;
        auto blob = base::local_info();
        if (!blob) return blob;
        device::device_offer o{};
        o.window_addr = window_.addr();
        o.window_bytes = window_.bytes();
        o.signals_addr = reinterpret_cast<std::uint64_t>(words_->signal);
        o.signal_count = device_options_.signals;
        for (unsigned l = 0; l < this->count_; ++l) {
            o.window_rkey[l] = window_.region()->remote[this->slots_[l]].value;
            o.signal_rkey[l] = signals_memory_.region()->remote[this->slots_[l]].value;
        }
        device::append_offer(*blob, o);
        return blob;
    }
    /// As endpoint::begin_connect. Errors also: bad_blob if the peer is no device sender.
    VCCL_COLD status begin_connect(std::span<const std::byte> remote) {
        auto offer = device::take_offer(remote, false);
        return offer ? base::begin_connect(remote) : offer.error();
    }
    /// The same, and waits while it drives. Errors: as a host receiver's; invalid_argument: the peer is no device sender.
    VCCL_COLD status connect(std::span<const std::byte> remote, nanoseconds timeout) {
        if (status s = begin_connect(remote); !s) return s;
        return this->wait_connected(timeout);
    }

    /// What kernels take: trivially copyable, valid until the receiver goes. Requires: local_info() was ok.
    device::receiver_ref ref() const noexcept {
        return {words_->signal, device_options_.signals, &words_->host, device_options_.wait, device_options_.timeout.count};
    }
    /// Effects: every wait of a kernel on this receiver ends with `aborted`, now and later. Any thread. Nothing before local_info().
    void abort_kernels() noexcept {
        if (words_) device::store<device::order::release, device::scope::system>(&words_->host.abort, std::uint64_t{1});
    }

    /// Effects: progresses until the sender has closed (ok), or the channel failed, or `timeout`.
    VCCL_COLD status wait_closed(nanoseconds timeout) noexcept {
        if (!core_) return errc::not_connected;
        const status s = this->wait_until(timeout, [&] { return core_->state() == channel_state::closed; });
        return s.code == errc::closed ? status{} : s;
    }

private:
    // --- executor of receiver_core ---

    VCCL_COLD void fence(unsigned l) noexcept {
        base::fence(l);
        if (!sets_[l].fence()) unfenced_ |= 1u << l;
    }
    VCCL_COLD void core_fenced(unsigned l, bool ok) noexcept { access::core_fenced(l, ok && (unfenced_ >> l & 1) == 0); }
    VCCL_COLD status make(unsigned l) noexcept {
        return sets_[l].init([&] { return this->port_of(l).port.create_qp(*cqs_[l], {.send_depth = 1, .recv_depth = 1}); });
    }
    VCCL_COLD bool prepare(unsigned l, lane_end& own) noexcept {
        lane<backend_type>& lane = this->lanes_[l];
        if (!lane.renew(core_->lanes()[l].generation) || !make(l)) return false;
        auto end = lane.end();
        if (!end) return false;
        own = *end;
        sets_[l].describe(own);
        return true;
    }
    VCCL_COLD bool join(unsigned l, const lane_end& peer) noexcept {
        auto attributes = this->port_of(l).port.query();
        return attributes && this->lanes_[l].connect(peer) && sets_[l].connect(peer, *attributes, this->options_.timers);
    }
    // Nothing is granted.
    void mark(unsigned) noexcept {}
    bool marked(unsigned) noexcept { return true; }

    /// A SYNC carries the signal words: the QPs of the lane that was in use are fenced, so they do not change any more.
    VCCL_COLD void tell(const control_message& m) noexcept {
        if (m.kind != control_kind::sync) return base::tell(m);
        control_message full = m;
        full.count = static_cast<std::uint16_t>(8 * device_options_.signals);
        for (unsigned i = 0; i < device_options_.signals; ++i) {
            const std::uint64_t now = device::load<device::order::acquire, device::scope::system>(&words_->signal[i]);
            std::memcpy(full.arrived + 8 * i, &now, 8);
        }
        if (planned_) full.cause = static_cast<std::uint8_t>(fault_cause::none);
        base::tell(full);
    }
    VCCL_COLD void report(channel_event e) noexcept {
        using kind = channel_event::kind;
        if (e.what == kind::lane_failed && e.cause == fault_cause::none) return;
        if (e.what == kind::lane_failed) planned_ = false;
        if (e.what == kind::failed_over && std::exchange(planned_, false)) return;
        base::report(e);
        if (e.what != kind::failed_back) return;
        planned_ = true;
        core_->leave(e.lane.value, this->now_);
    }

    // --- for endpoint ---

    VCCL_COLD lane_shape shape() const noexcept {
        lane_shape s{};
        s.group = 0;
        s.timers = this->options_.timers;
        return s;
    }
    VCCL_COLD status fill(connection_blob& b) {
        words_ = static_cast<word_page*>(shared::allocate(sizeof(word_page)));
        if (!words_) return errc::no_memory;
        // No more than there are: of others a failover would know nothing.
        auto m = this->context_.register_memory(words_->signal, std::uint64_t{8} * device_options_.signals);
        if (!m) return m.error();
        signals_memory_ = std::move(*m);
        b.role = endpoint_role::receiver;
        b.secret = detail::random_secret();
        auto where = this->oob_.listen(this->options_.oob, b.secret);
        if (!where) return where.error();
        b.oob = *where;
        for (unsigned l = 0; l < this->count_; ++l) {
            auto& port = this->port_of(l).port;
            auto cq = port.create_cq(16);
            if (!cq) return cq.error();
            cqs_[l].emplace(std::move(*cq));
            sets_[l].resize(queue_count);
            if (status s = make(l); !s) return s;
            sets_[l].describe(b.lane[l].end);
        }
        return {};
    }
    status call() noexcept { return {}; }  // the sender does
    VCCL_COLD void accept(std::uint64_t connection, std::uint32_t up) noexcept {
        connection_ = connection;
        for (unsigned l = 0; l < this->count_; ++l) {
            auto attributes = this->port_of(l).port.query();
            if ((up >> l & 1) != 0 &&
                !(attributes && sets_[l].connect(this->peer_.lane[l].end, *attributes, this->options_.timers)))
                up &= ~(1u << l);
        }
        typename core_type::options o;
        static_cast<core_options&>(o) = this->core_settings(connection);
        o.first_lane = this->options_.first_lane;
        core_.emplace(*this, o, failback_);
        for (unsigned l = 0; l < this->count_; ++l)
            if (!this->port_of(l).up.load()) core_->port_changed(l, false, this->now_);
        core_->connected(up, this->now_);
    }
    bool hot() noexcept { return this->poll_hot(this->hot_lane_); }
    static const completion* arrivals(unsigned, const completion* c, const completion*) noexcept { return c; }
    void on_arrival(unsigned, std::uint32_t, const completion&) noexcept {}
    void on_flush(unsigned, std::uint64_t, bool) noexcept {}
    VCCL_COLD void core_message(const control_message& m) noexcept {
        core_->on_message(m, this->now_);
        if (m.kind == control_kind::notify && m.sequence == device::in_use) core_->stranded(m.lane, m.epoch, this->now_);
    }
    VCCL_COLD void end_all() noexcept {
        abort_kernels();
        for (unsigned l = 0; l < this->count_; ++l) (void)sets_[l].fence();
    }
    std::uint64_t connection() const noexcept { return connection_; }

    struct word_page {
        alignas(128) std::uint64_t signal[device::max_signal_words];
        device::host_words host;
    };

    device_options device_options_;
    memory_view window_;
    failback_type failback_;
    word_page* words_{};
    memory signals_memory_;
    late<typename backend_type::port::cq> cqs_[device::max_queue_lanes];
    device::qp_set<qp_type> sets_[device::max_queue_lanes];
    late<core_type> core_;
    std::uint64_t connection_{};
    std::uint32_t unfenced_{};  ///< lanes whose QPs could be neither moved to ERR nor destroyed
    bool planned_{};  ///< a failover to a better lane is under way
};

}  // namespace vccl::inline v0
