#pragma once
/// \file
/// `channel_metrics`: what one end of a channel did, in counters that another thread may read at any time; `meter` is the
/// completion handler that fills them. openmetrics.hpp turns them into text.
/// Written by the endpoint's owner thread, one end each; read by any. Nothing allocates; a counter costs a load and a store.

#include <vccl/channel/lanes.hpp>
#include <vccl/model/event.hpp>
#include <vccl/model/topology.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/policy/completion.hpp>

#include <atomic>

namespace vccl::inline v0 {

/// A number with one writer. Relaxed: readers want recent numbers, not an order between them.
class metric {
public:
    /// The one writer's.
    void add(std::uint64_t n) noexcept { value_.store(get() + n, std::memory_order_relaxed); }
    /// The one writer's.
    void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
    /// Any thread's.
    std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{};
};

/// What is told of a lane: finer states pass too quickly for a scrape.
enum class lane_condition : std::uint8_t { unknown, up, failed };

/// Must outlive the endpoint that writes it. Labels are set before it runs; numbers only grow, but for the gauges.
struct channel_metrics {
    /// One counter for each cause of a verdict.
    static constexpr unsigned causes = static_cast<unsigned>(fault_cause::gid_change) + 1;
    /// Upper bounds of the gap histogram's buckets, in microseconds; the last bucket has none.
    static constexpr std::uint32_t gap_bounds_us[] = {20,      50,      100,       200,       500,       1'000,
                                                      2'000,   5'000,   10'000,    20'000,    50'000,    100'000,
                                                      200'000, 500'000, 1'000'000, 2'000'000, 10'000'000};
    /// The last one takes every longer gap.
    static constexpr unsigned gap_buckets = sizeof gap_bounds_us / sizeof gap_bounds_us[0] + 1;

    /// What is counted for each lane.
    struct lane {
        fixed_name<48> port{};  ///< local; set before the numbers are first read
        /// Delivered bytes and chunks; verdicts by cause; a `lane_condition`.
        /// @{
        metric bytes{}, chunks{}, failures[causes]{}, condition{};
        /// @}
    };

    // Labels: set them before the endpoint runs.
    channel_id channel{};  ///< the `channel` label
    fixed_name<16> end{};  ///< "sender" or "receiver"
    unsigned lanes{};      ///< lanes that are exported; those beyond are not

    lane of[max_lanes]{};  ///< indexed by lane
    metric active{};   ///< lane that new chunks take
    metric running{};  ///< 1 from the connection to the channel's end, but for the times without a lane
    metric refused{};  ///< chunks that ended without being delivered
    /// The sender's: chunks sent again; chunks found delivered by a failover.
    /// @{
    metric replayed{}, already_delivered{};
    /// @}
    /// Failovers by cause; returns; times without a lane; breaks of the out-of-band way.
    /// @{
    metric failovers[causes]{}, failbacks{}, suspensions{}, control_losses{};
    /// @}
    /// The receiver's: first sign of a fault to the first byte afterwards, in buckets by `gap_bounds_us`, and their sum.
    /// @{
    metric gaps[gap_buckets]{}, gap_sum_ns{};
    /// @}
};

/// Effects: names the lanes after the endpoint's local ports and notes which are up. Call it once, when connected, on the
/// owner thread.
template <class Endpoint>
void describe_lanes(channel_metrics& m, const Endpoint& e) noexcept {
    m.lanes = e.lanes();
    for (std::uint8_t l = 0; l < m.lanes; ++l) {
        m.of[l].port = e.lane_port(lane_id{l}).view();
        const bool up = e.lane_health(lane_id{l}).health == lane_health::up;
        m.of[l].condition.set(static_cast<std::uint64_t>(up ? lane_condition::up : lane_condition::failed));
    }
}

/// Fills the metrics of one endpoint: on_completion<meter>. They must outlive the endpoint. Gaps are counted where they are
/// known: at a receiver, from the first sign of a fault to the first byte afterwards.
struct meter {
    using policy_axis = axis::completion;

    channel_metrics* to{};  ///< null until it is set: then a chunk must not end

    /// Counts a delivered chunk on its lane, or a refused one.
    void on_done(const chunk_report& r) noexcept {
        if (!r.outcome) [[unlikely]] {
            to->refused.add(1);
            return;
        }
        channel_metrics::lane& l = to->of[r.lane.value & (max_lanes - 1)];
        l.chunks.add(1);
        l.bytes.add(r.bytes);
    }

    /// Counts an event, and moves the gauges.
    void on_event(const channel_event& e) noexcept {
        using kind = channel_event::kind;
        switch (e.what) {
            case kind::connected:
                to->running.set(1);
                to->active.set(e.to.value);
                condition(e.to, lane_condition::up);
                break;
            case kind::lane_failed:
                lane(e.lane).failures[cause(e)].add(1);
                condition(e.lane, lane_condition::failed);
                break;
            case kind::failed_over:
                to->failovers[cause(e)].add(1);
                to->replayed.add(e.replayed);
                to->already_delivered.add(e.already_delivered);
                to->active.set(e.to.value);
                break;
            case kind::resumed: gap(e.took); break;
            case kind::lane_restored:
                to->running.set(1);
                condition(e.lane, lane_condition::up);
                break;
            case kind::failed_back:
                to->failbacks.add(1);
                to->active.set(e.to.value);
                break;
            case kind::suspended:
                to->running.set(0);
                to->suspensions.add(1);
                break;
            case kind::oob_lost: to->control_losses.add(1); break;
            case kind::oob_restored: break;
            case kind::failed:
            case kind::closed: to->running.set(0); break;
        }
    }

private:
    static unsigned cause(const channel_event& e) noexcept { return static_cast<unsigned>(e.cause) % channel_metrics::causes; }
    channel_metrics::lane& lane(lane_id l) noexcept { return to->of[l.value & (max_lanes - 1)]; }
    void condition(lane_id l, lane_condition c) noexcept { lane(l).condition.set(static_cast<std::uint64_t>(c)); }
    void gap(nanoseconds took) noexcept {
        unsigned b = 0;
        while (b < channel_metrics::gap_buckets - 1 && took.count > channel_metrics::gap_bounds_us[b] * std::int64_t{1000}) ++b;
        to->gaps[b].add(1);
        to->gap_sum_ns.add(took.count > 0 ? static_cast<std::uint64_t>(took.count) : 0);
    }
};
static_assert((max_lanes & (max_lanes - 1)) == 0);
static_assert(completion_handler<meter>);

}  // namespace vccl::inline v0
