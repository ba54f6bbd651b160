#pragma once
/// \file
/// What the striped sender and receiver share: one endpoint a stripe, each an ordered channel with lanes of its own, driven
/// together. A stripe's failover is its endpoint's; nothing here knows of it. Owner thread only.

#include <vccl/host/endpoint.hpp>
#include <vccl/policy/port_nearest.hpp>
#include <vccl/stripe/blob.hpp>
#include <vccl/stripe/ear.hpp>
#include <vccl/stripe/ports.hpp>
#include <vccl/stripe/share.hpp>

namespace vccl::inline v0 {

/// `Self` has: make(stripe, options, port policy), homes(), begun(peer's head), gather(), end_all().
template <class Self, class Endpoint, unsigned Count, verbs_backend B, class Port, class Handler, class Clock>
class striped_endpoint {
public:
    /// As the policies were named.
    /// @{
    using backend = B;
    using port_policy = Port;
    /// @}
    static constexpr unsigned stripe_count = Count;  ///< endpoints that it is made of

    striped_endpoint(const striped_endpoint&) = delete;
    striped_endpoint& operator=(const striped_endpoint&) = delete;

    /// One for all stripes; events say which stripe they are about.
    /// @{
    Handler& handler() noexcept { return handler_; }
    const Handler& handler() const noexcept { return handler_; }
    /// @}
    /// One stripe, for what has no call of its own here: its lanes, their health, its epoch. Requires: local_info() was ok.
    Endpoint& stripe(unsigned i) noexcept { return *stripes_[i]; }
    /// The same, to look at.
    const Endpoint& stripe(unsigned i) const noexcept { return *stripes_[i]; }

    /// Effects: opens the stripes on first use. Returns: what the peer's `connect` needs. Errors: as an endpoint's; no_port,
    /// with the number of ports in `detail`, if the host has fewer ports than the channel stripes.
    VCCL_COLD result<std::vector<std::byte>> local_info() {
        if (status s = open(); !s) return s;
        std::vector<std::byte> blobs[Count];
        for (unsigned i = 0; i < Count; ++i) {
            auto blob = stripes_[i]->local_info();
            if (!blob) return blob.error();
            blobs[i] = std::move(*blob);
        }
        stripe_blob_head head{};
        head.stripes = Count;
        head.homes = self().homes();
        head.split_from = options_.split_from;
        return encode_stripes(head, own_, blobs);
    }

    /// Effects: takes the peer's blob and begins to connect every stripe; `progress()` until `connected()`.
    VCCL_COLD status begin_connect(std::span<const std::byte> remote) {
        if (status s = open(); !s) return s;
        const auto peer = decode_stripes(remote, Count);
        if (!peer) return peer.error();
        for (unsigned i = 0; i < Count; ++i) {
            if (status s = stripes_[i]->begin_connect(peer->blob[i]); !s) return s;
            peer_[i] = peer->part[i];
        }
        if (status s = self().begun(peer->head); !s) return s;
        begun_ = true;
        return {};
    }
    /// Are all stripes connected?
    bool connected() const noexcept {
        return begun_ && every([](const Endpoint& e) { return e.connected(); });
    }
    /// As an endpoint's. Errors: those of the first stripe that could not be connected.
    VCCL_COLD status connect(std::span<const std::byte> remote, nanoseconds timeout) {
        if (status s = begin_connect(remote); !s) return s;
        return wait_until(timeout, [&] { return connected(); });
    }

    /// Why the channel ended: why its first stripe did; ok while all live.
    status health() const noexcept {
        bool all_closed = begun_;
        status closed;
        for (unsigned i = 0; begun_ && i < Count; ++i) {
            const status s = stripes_[i]->health();
            if (!s && s.code != errc::closed) return s;
            all_closed = all_closed && !s;
            if (!s) closed = s;
        }
        return all_closed ? closed : status{};
    }
    /// Effects: ends the channel at both ends; nothing more is delivered.
    void abort() noexcept {
        for (auto& s : stripes_)
            if (s) s->abort();
    }

    /// Is any stripe at something that takes several passes?
    bool restless() const noexcept {
        bool any = false;
        for (const auto& s : stripes_) any = any || (s && s->restless());
        return any;
    }

    /// Effects: one pass over all stripes. Returns true if something moved.
    bool progress() noexcept {
        if (!begun_) return false;
        bool moved = false;
        for (auto& s : stripes_) moved |= s->progress();
        if (over_) [[unlikely]]
            return moved;
        const status s = health();
        if (s || s.code == errc::closed) moved |= self().gather();
        if (!s) [[unlikely]] {
            over_ = true;
            if (s.code != errc::closed) abort();
            self().end_all();
        }
        return moved;
    }

protected:
    VCCL_COLD striped_endpoint(host_context<B>& context, starting_point from, channel_id channel, const endpoint_options& options,
                               Port port, Handler handler, Clock clock)
        : context_(context),
          from_(from),
          channel_(channel),
          options_(options),
          port_(std::move(port)),
          handler_(std::move(handler)),
          clock_(std::move(clock)) {}

    Self& self() noexcept { return static_cast<Self&>(*this); }
    template <class F>
    bool every(F&& f) const noexcept {
        for (const auto& s : stripes_)
            if (!s || !f(*s)) return false;
        return true;
    }

    template <class Done>
    status wait_until(nanoseconds timeout, Done&& done) noexcept {
        const nanoseconds deadline = clock_.now() + timeout;
        for (unsigned idle = 0;;) {
            if (done()) return {};
            if (status s = health(); !s) return s;
            idle = progress() ? 0 : idle + 1;
            if (clock_.now() >= deadline) return errc::timeout;
            if (idle > 256) ::sched_yield();
        }
    }
    /// Has this end been told what it must be told before it can take chunks?
    status ready() const noexcept { return begun_ ? health() : status{errc::not_connected}; }

    host_context<B>& context_;
    starting_point from_;
    channel_id channel_;
    endpoint_options options_;
    Port port_;
    Handler handler_;
    Clock clock_;
    late<Endpoint> stripes_[Count];
    lane_list lanes_[Count];
    stripe_blob_part own_[Count]{}, peer_[Count]{};
    bool begun_{}, over_{};

private:
    VCCL_COLD status open() {
        if (stripes_[Count - 1]) return {};
        const topology& t = context_.shape();
        const auto first =
            from_.is_port ? lanes_for(t, from_.port, channel_, port_, 1) : lanes_for(t, from_.gpu, channel_, port_, 1);
        if (!first) return first.error();
        const gpu_id* gpu = from_.is_port ? nullptr : &from_.gpu;
        const auto ports = stripe_ports(t, gpu, (*first)[0], Count, port_);
        if (!ports) return ports.error();
        const stripe_port<Port> policy{port_, *ports};
        for (unsigned i = 0; i < Count; ++i) {
            const auto lanes = lanes_for(t, (*ports)[i], channel_, policy, options_.lanes);
            if (!lanes) return lanes.error();
            lanes_[i] = *lanes;
            for (unsigned l = 0; l < lanes->size(); ++l) {
                const auto slot = context_.open((*lanes)[l]);
                if (!slot) return slot.error();
                const std::uint64_t said = context_.port(*slot).bytes_per_second.load(std::memory_order_relaxed);
                own_[i].rate[l] = said != 0 ? said : assumed_rate;
                own_[i].far[l] = gpu ? detail::distance_to(t, *gpu, t.ports[(*lanes)[l].value].nic) : 0;
            }
        }
        for (unsigned i = 0; i < Count; ++i) {
            endpoint_options o = options_;
            o.session ^= 0x9e3779b97f4a7c15u * i;  // a stripe's blob is refused by another stripe
            if (o.seed != 0) o.seed += i;
            self().make(i, o, policy);
        }
        return {};
    }
};

}  // namespace vccl::inline v0
