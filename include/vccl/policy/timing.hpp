#pragma once
/// \file
/// When to suspect a lane, when to believe it, and when to go back: the detection and fail-back policies.
/// Read by the endpoint's owner thread.

#include <vccl/base/time.hpp>
#include <vccl/model/event.hpp>

#include <concepts>

namespace vccl::inline v0 {

/// The library's own timers; none depends on the NIC's (which have a floor of seconds on many).
/// Worst case to a verdict: with an event, one `poll_interval`; a silent loss under traffic, `progress_timeout` +
/// `probe_timeout`; on an idle lane, `probe_interval` + `probe_timeout`.
struct detection_times {
    nanoseconds poll_interval{1'000'000};         ///< how often port events and timers are looked at
    nanoseconds progress_timeout{100'000'000};    ///< posted chunks, but none acknowledged for so long: suspicion
    nanoseconds probe_interval{500'000'000};      ///< an idle lane is probed so often
    nanoseconds probe_timeout{100'000'000};       ///< a probe unanswered on its lane, though answered another way: verdict
    nanoseconds hung_timeout{1'000'000'000};      ///< no chunk moved for so long although the lane answers probes: verdict
    nanoseconds settle_time{50'000'000};  ///< a port that came back is left alone for so long before its lanes are rebuilt
    bool use_events{true};  ///< believe port and device events

    /// The longest that a fault without any event can stay unseen.
    constexpr nanoseconds worst_case() const noexcept {
        const nanoseconds busy = progress_timeout + probe_timeout, idle = probe_interval + probe_timeout;
        return (busy > idle ? busy : idle) + poll_interval;
    }
};

template <class D>
concept detection_policy = on_axis<D, axis::detect> && requires(const D d) {
    { d.times() } noexcept -> std::same_as<detection_times>;
};

/// Events, progress timer and probes, with the times above.
struct detect {
    using policy_axis = axis::detect;
    detection_times values{};  ///< change what does not suit the fabric; docs/protocol.md says what each is
    /// The same at each call.
    constexpr detection_times times() const noexcept { return values; }
};
/// Error completions and timers only: for fabrics whose port events lie.
struct detect_without_events {
    using policy_axis = axis::detect;
    /// The same times, port events not looked at.
    constexpr detection_times times() const noexcept {
        detection_times t{};
        t.use_events = false;
        return t;
    }
};

/// Says for how long a restored lane must stay well before new chunks return to it; `never()` keeps them away.
template <class F>
concept failback_policy = on_axis<F, axis::failback> && requires(const F f, unsigned times_failed) {
    { f.hold(times_failed) } noexcept -> std::same_as<nanoseconds>;
};

/// As soon as the probe of the rebuilt lane is answered.
struct immediate_failback {
    using policy_axis = axis::failback;
    /// Zero, however often the lane has failed.
    constexpr nanoseconds hold(unsigned) const noexcept { return {0}; }
};
/// After `Milliseconds` of good health, doubled for each earlier failure of the lane, up to four times.
template <unsigned Milliseconds = 100>
struct hold_down {
    using policy_axis = axis::failback;
    /// `Milliseconds`, twice or four times that from the second and third failure on.
    constexpr nanoseconds hold(unsigned times_failed) const noexcept {
        const unsigned doublings = times_failed < 2 ? 0 : times_failed == 2 ? 1 : 2;
        return nanoseconds{std::int64_t{Milliseconds} * 1'000'000} * (std::int64_t{1} << doublings);
    }
};
/// A lane that failed once is used again only when all others have failed.
struct never_failback {
    using policy_axis = axis::failback;
    /// For ever.
    constexpr nanoseconds hold(unsigned) const noexcept { return nanoseconds::never(); }
};

static_assert(detection_policy<detect> && detection_policy<detect_without_events>);
static_assert(failback_policy<immediate_failback> && failback_policy<hold_down<>> && failback_policy<never_failback>);

/// How many QPs share the chunks of a lane.
template <unsigned Count = 1>
struct qp_group {
    static_assert(Count >= 1 && Count <= 8, "vccl: a qp_group has 1 to 8 QPs");
    using policy_axis = axis::group;
    static constexpr unsigned count = Count;  ///< as an endpoint is compiled for
};

}  // namespace vccl::inline v0
