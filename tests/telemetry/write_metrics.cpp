// Prints metrics of two ends with something in every family, for an independent parser to judge.
#include <vccl/telemetry/openmetrics.hpp>

#include <cstdio>

int main() {
    using namespace vccl;
    channel_metrics ends[2]{};
    for (unsigned i = 0; i < 2; ++i) {
        channel_metrics& m = ends[i];
        m.channel = channel_id{3};
        m.end = i == 0 ? "sender" : "receiver";
        m.lanes = 2;
        m.of[0].port = "mlx5_0:1 \"left\"";
        m.of[1].port = "mlx5_1:1";
        meter h{&m};
        channel_event e{};
        using kind = channel_event::kind;
        auto tell = [&](kind what, unsigned lane, unsigned to, fault_cause cause = fault_cause::none) {
            e.what = what;
            e.lane = lane_id{static_cast<std::uint8_t>(lane)};
            e.to = lane_id{static_cast<std::uint8_t>(to)};
            e.cause = cause;
            e.took = nanoseconds{1'234'567};
            e.replayed = 4;
            e.already_delivered = 1;
            h.on_event(e);
        };
        tell(kind::connected, 0, 0);
        for (std::uint64_t s = 0; s < 10; ++s)
            h.on_done({sequence{s}, 1u << 20, lane_id{static_cast<std::uint8_t>(s / 6)}, epoch{1}, {}});
        tell(kind::lane_failed, 0, 0, fault_cause::retries);
        tell(kind::failed_over, 0, 1, fault_cause::retries);
        tell(kind::resumed, 0, 1);
        tell(kind::oob_lost, 0, 0);
    }
    const channel_metrics* both[] = {&ends[0], &ends[1]};
    const metrics_label job[] = {{"job", "train\\1"}};
    std::fputs(openmetrics_text(both, job).c_str(), stdout);
    return 0;
}
