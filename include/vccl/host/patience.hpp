#pragma once
/// \file
/// How long an endpoint waits: for something to be done, and for a peer that says nothing. Owner thread.

#include <vccl/host/oob.hpp>
#include <vccl/policy/timing.hpp>

#include <sched.h>

namespace vccl::inline v0::detail {

/// Calls `endpoint.progress()` until `done()`, or `timeout` has passed; after a while without work, other threads get the
/// processor. Returns: ok, timeout.
template <class Endpoint, class Clock, class Done>
status poll_until(Endpoint& endpoint, const Clock& clock, nanoseconds timeout, Done&& done) noexcept {
    constexpr unsigned spins_before_yield = 256;
    if (done()) return {};
    const nanoseconds deadline = clock.now() + timeout;
    for (unsigned idle = 0, passes = 0; !done(); ++passes) {
        const bool moved = endpoint.progress();
        if ((!moved || passes % 64 == 0) && clock.now() >= deadline) return errc::timeout;
        idle = moved ? 0 : idle + 1;
        if (idle > spins_before_yield) ::sched_yield();
    }
    return {};
}

/// For how long a peer may be silent on every way before it counts as lost, given what became of the out-of-band channel.
/// Where its kernel closed the connection or refuses a new one, its process is most likely gone; the longer of the two
/// times is enough for an idle lane to be probed and to answer.
VCCL_COLD inline nanoseconds grace_of(oob_state s, const detection_times& t, nanoseconds longest) noexcept {
    const nanoseconds grace = s == oob_state::refused  ? t.probe_timeout * 2
                              : s == oob_state::closed ? t.probe_interval + t.probe_timeout * 2
                                                       : longest;
    return grace < longest ? grace : longest;
}

}  // namespace vccl::inline v0::detail
