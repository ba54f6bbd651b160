#pragma once
/// \file
/// How an endpoint reaches its protocol core, which exists from `begin_connect` on. Mixed into sender and receiver.

#include <vccl/channel/core.hpp>

namespace vccl::inline v0::detail {

/// What every sender and receiver says of its channel. Owner thread.
template <class Self>
struct core_access {
    /// What the channel is doing, as this end knows it.
    channel_state state() const noexcept { return self().core_ ? core().state() : channel_state::connecting; }
    /// Rises by one with each failover; 0 before begin_connect().
    vccl::epoch epoch() const noexcept { return self().core_ ? core().epoch() : vccl::epoch{}; }
    /// How a lane fares at this end. Requires: begin_connect() was ok.
    const lane_state& lane_health(lane_id l) const noexcept { return core().lanes()[l.value]; }
    /// Effects: ends the channel at both ends; nothing more is delivered. progress() repeats it until the peer has
    /// acknowledged it, for `peer_grace` at most.
    void abort() noexcept {
        if (self().core_) core().fail(status{errc::aborted});
    }
    /// The same, and waits for the acknowledgement. Errors: not_connected; timeout: the peer may have to find out by itself.
    VCCL_COLD status abort(nanoseconds timeout) noexcept {
        abort();
        return self().core_ ? self().poll_until(timeout, [this] { return core().told(); }) : status{errc::not_connected};
    }

    // --- for endpoint ---

    status core_why() const noexcept { return core().over() ? core().why() : status{}; }
    bool usable(unsigned l) const noexcept { return core().usable(l); }
    bool unsettled() const noexcept { return core().unsettled(); }
    void core_fault(unsigned l, fault_cause cause, wc_status wc) noexcept { core().lane_fault(l, cause, wc, now()); }
    void core_port(unsigned l, bool up) noexcept { core().port_changed(l, up, now()); }
    void core_oob(bool up, nanoseconds grace) noexcept { core().oob_changed(up, grace, now()); }
    void core_fenced(unsigned l, bool ok) noexcept { core().fenced(l, ok, now()); }
    void core_tick() noexcept { core().tick(now()); }
    void core_fail(status s) noexcept { core().fail(s); }

private:
    Self& self() noexcept { return static_cast<Self&>(*this); }
    const Self& self() const noexcept { return static_cast<const Self&>(*this); }
    auto& core() noexcept { return *self().core_; }
    const auto& core() const noexcept { return *self().core_; }
    nanoseconds now() const noexcept { return self().now_; }
};

}  // namespace vccl::inline v0::detail
