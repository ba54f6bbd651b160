#pragma once
// What an endpoint's handler keeps: events to be shown, and which chunks were reported how often.
#include <vccl/policy/completion.hpp>
#include <vccl/telemetry/event_text.hpp>
#include <vccl/telemetry/timeline.hpp>

#include <string>
#include <vector>

namespace p2p {

/// The two ends of a lane under one name: "nic0.p0" for A.nic0.p0 and B.nic0.p0, else "mlx5_0:1 - mlx5_2:1", A's first.
inline std::string lane_name(std::string_view at_a, std::string_view at_b) {
    const std::size_t a = at_a.find('.'), b = at_b.find('.');
    if (a != std::string_view::npos && b != std::string_view::npos && at_a.substr(a) == at_b.substr(b))
        return std::string(at_a.substr(a + 1));
    return at_a == at_b ? std::string(at_a) : std::string(at_a) + " - " + std::string(at_b);
}

struct witness {
    using policy_axis = vccl::axis::completion;

    std::vector<vccl::channel_event> events;  ///< reserved by whoever made it; what does not fit is not shown
    std::vector<bool> seen;
    std::uint64_t duplicated{}, distinct{};

    witness() = default;
    explicit witness(std::uint64_t chunks) : seen(chunks) { events.reserve(4096); }

    void on_done(const vccl::chunk_report& r) noexcept {
        if (!r.outcome) return;
        if (r.sequence.value >= seen.size() || seen[r.sequence.value]) {
            ++duplicated;
            return;
        }
        seen[r.sequence.value] = true;
        ++distinct;
    }
    void on_event(const vccl::channel_event& e) noexcept {
        if (events.size() < events.capacity()) events.push_back(e);
    }
};

using handler = vccl::on_completion<witness, vccl::counters, vccl::record_timeline<>>;

}  // namespace p2p
