#pragma once
/// \file
/// How an endpoint reaches its protocol core, which exists from `begin_connect` on. Mixed into sender and receiver.

#include <vccl/channel/core.hpp>

#include <optional>

namespace vccl::inline v0::detail {

template <class Self>
struct core_access {
    channel_state core_state() const noexcept { return core().state(); }
    status core_why() const noexcept { return core().over() ? core().why() : status{}; }
    bool usable(unsigned l) const noexcept { return core().usable(l); }
    bool unsettled() const noexcept { return core().unsettled(); }
    void core_fault(unsigned l, fault_cause cause, wc_status wc) noexcept { core().lane_fault(l, cause, wc, now()); }
    void core_port(unsigned l, bool up) noexcept { core().port_changed(l, up, now()); }
    void core_oob(bool up, bool refused) noexcept { core().oob_changed(up, refused, now()); }
    void core_fenced(unsigned l, bool ok) noexcept { core().fenced(l, ok, now()); }
    void core_tick() noexcept { core().tick(now()); }
    void core_fail(status s) noexcept { core().fail(s); }

private:
    auto& core() noexcept { return static_cast<Self*>(this)->core(); }
    const auto& core() const noexcept { return static_cast<const Self*>(this)->core(); }
    nanoseconds now() const noexcept { return static_cast<const Self*>(this)->now(); }
};

}  // namespace vccl::inline v0::detail
