#pragma once
/// \file
/// `rate_monitor`: bytes per lane in windows of microseconds, kept by a completion handler, and what they say: does the lane
/// flow, is it congested, does it stand still, has it failed? Congestion is bytes that still come, but slowly; a failure is
/// no byte at all while some are due. It only watches: verdicts are the protocol's (docs/protocol.md).
/// Owner thread only. No allocation; a chunk costs one reading of the clock, or nothing where nobody asks for a monitor.

#include <vccl/base/clock.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/model/wr_id.hpp>
#include <vccl/policy/completion.hpp>

#include <string_view>

namespace vccl::inline v0 {

/// What a lane's bytes say; docs/metrics.md has the table.
enum class lane_flow : std::uint8_t {
    idle,       ///< no byte lately, and none due
    flowing,    ///< at least half of the best rate of late
    congested,  ///< bytes come, but at less than that although more are due
    stalled,    ///< no byte lately although some are due: congestion does not do that for long
    failed,     ///< the protocol has given the lane up
};

/// How finely, and what counts as slow.
struct rate_options {
    unsigned window_log2{17};      ///< a window is 2^this nanoseconds: 10 is a microsecond, 17 (the default) 131 of them
    unsigned look{8};              ///< windows that a rate is taken over, and after which silence is a stall; below 64
    unsigned congested_percent{50};///< of the best rate of late; less than this is congestion
};

/// Named in an on_completion; asked between two calls of progress().
template <clock_source Clock = steady_clock>
class rate_monitor {
public:
    using policy_axis = axis::completion;
    /// Windows kept for each lane.
    static constexpr unsigned windows = 64;

    rate_monitor() = default;
    /// Times before the clock's present are not watched. Options out of range are brought into it.
    explicit rate_monitor(const rate_options& o, Clock clock = {}) : clock_(std::move(clock)), options_(o) {
        if (options_.window_log2 > 40) options_.window_log2 = 40;
        if (options_.look == 0 || options_.look >= windows) options_.look = windows - 1;
    }

    /// How long a window is.
    nanoseconds window() const noexcept { return {std::int64_t{1} << options_.window_log2}; }

    /// Bytes in the window that `at` lies in; 0 for one that is not kept any more.
    std::uint64_t bytes_in(lane_id lane, nanoseconds at) const noexcept {
        const track& t = of_[lane.value & (max_lanes - 1)];
        const std::int64_t w = window_of(at);
        return w <= t.latest && w > t.latest - windows ? t.bytes[w & (windows - 1)] : 0;
    }

    /// Bytes a second over the last `look` whole windows before `now`.
    std::uint64_t rate(lane_id lane, nanoseconds now) const noexcept {
        std::uint64_t sum = 0;
        for (unsigned i = 1; i <= options_.look; ++i) sum += bytes_in(lane, now - window() * i);
        return static_cast<std::uint64_t>(static_cast<double>(sum) * 1e9 / static_cast<double>(window().count * options_.look));
    }
    /// The same as of now: bytes per second over the last `look` whole windows.
    std::uint64_t rate(lane_id lane) const noexcept { return rate(lane, clock_.now()); }

    /// Effects: notes the lane's rate as of now, since "the best of late" loses a sixteenth from one call that is a `look`
    /// later to the next. Returns: what the lane does. `due`: bytes on this lane are outstanding; a sender's owner knows
    /// (`next() != acknowledged()` on the active lane). A receiver's only knows that it has granted: its peer may have
    /// nothing to send.
    lane_flow judge(lane_id lane, bool due) noexcept { return judge(lane, due, clock_.now()); }
    /// The same for a time that the caller has read already.
    lane_flow judge(lane_id lane, bool due, nanoseconds now) noexcept {
        track& t = of_[lane.value & (max_lanes - 1)];
        if (t.failed) return lane_flow::failed;
        if (!due)
            t.due_since = nanoseconds::never();
        else if (t.due_since == nanoseconds::never())
            t.due_since = now;
        const std::uint64_t here = rate(lane, now);
        const nanoseconds span = window() * options_.look;
        if (here > t.best) {
            t.best = here;
            t.aged_at = now;
        } else if (now - t.aged_at >= span) {
            t.best -= t.best / 16;
            t.aged_at = now;
        }
        if (here == 0 && bytes_in(lane, now) == 0) {
            if (!due) return lane_flow::idle;
            // What has only just become due has not had the time to come.
            return now - t.due_since >= span ? lane_flow::stalled : lane_flow::flowing;
        }
        const bool slow = static_cast<double>(here) * 100 < static_cast<double>(t.best) * options_.congested_percent;
        return slow && due && now - t.due_since >= span ? lane_flow::congested : lane_flow::flowing;
    }

    // --- completion handler: at a receiver bytes count as they arrive, at a sender as they are acknowledged ---

    /// At a receiver: the bytes of an arrival, in the window in which it was polled.
    void on_polled(const completion& c) noexcept {
        if (c.op != completion_op::recv_write_imm || c.status != wc_status::success) return;
        arrivals_ = true;
        count(wr_id{c.wr_id}.lane(), c.byte_len);
    }
    /// At a sender: the bytes of an acknowledged chunk.
    void on_done(const chunk_report& r) noexcept {
        if (!arrivals_ && r.outcome) count(r.lane.value, r.bytes);
    }
    /// Learns which lanes have failed and which are back.
    void on_event(const channel_event& e) noexcept {
        using kind = channel_event::kind;
        track& t = of_[e.lane.value & (max_lanes - 1)];
        if (e.what == kind::lane_failed) t.failed = true;
        if (e.what == kind::lane_restored) t = {};
    }

private:
    struct track {
        std::uint64_t bytes[windows]{};
        std::int64_t latest{-1};  ///< window that was counted into last
        std::uint64_t best{};
        nanoseconds aged_at{}, due_since{nanoseconds::never()};
        bool failed{};
    };

    std::int64_t window_of(nanoseconds t) const noexcept { return t.count >> options_.window_log2; }

    void count(unsigned lane, std::uint64_t bytes) noexcept {
        track& t = of_[lane & (max_lanes - 1)];
        const std::int64_t w = window_of(clock_.now());
        if (w != t.latest) advance(t, w);
        t.bytes[w & (windows - 1)] += bytes;
    }
    VCCL_NOINLINE static void advance(track& t, std::int64_t w) noexcept {
        const std::int64_t from = w - t.latest >= windows ? w - windows : t.latest;
        for (std::int64_t skipped = from + 1; skipped <= w; ++skipped) t.bytes[skipped & (windows - 1)] = 0;
        t.latest = w;
    }

    [[no_unique_address]] Clock clock_{};
    rate_options options_{};
    track of_[max_lanes]{};
    bool arrivals_{};
};
static_assert(completion_handler<rate_monitor<>>);

/// The name of the state, for a log.
constexpr std::string_view text(lane_flow f) noexcept {
    switch (f) {
        case lane_flow::idle: return "idle";
        case lane_flow::flowing: return "flowing";
        case lane_flow::congested: return "congested";
        case lane_flow::stalled: return "stalled";
        case lane_flow::failed: return "failed";
    }
    return "unknown";
}

}  // namespace vccl::inline v0
