#pragma once
// A transfer of 256 chunks that fails over after 100 and goes back after 200, as a timeline.
#include <vccl/telemetry/timeline.hpp>

namespace sample {

inline constexpr vccl::nanoseconds start{5'000'000'000};

inline vccl::timeline failover() {
    using namespace vccl;
    timeline t(start);
    t.name_lane(lane_id{0}, "A.nic0.p0");
    t.name_lane(lane_id{1}, "A.nic0.p1");
    nanoseconds now = start;
    unsigned noise = 1;
    for (std::uint32_t i = 0; i < 256; ++i) {
        if (i == 100) {
            t.add_mark({now, mark_kind::fault, lane_id{0}, "A.nic0.p0 goes down <script>"});
            t.add_mark({now + nanoseconds{2'500'000}, mark_kind::fault, lane_id{0}, "fault on A.nic0.p0"});
            now += nanoseconds{9'000'000};
            t.add_mark({now, mark_kind::failover, lane_id{1}, "failed over to A.nic0.p1"});
        }
        if (i == 190) t.add_mark({now, mark_kind::note, lane_id{0}, "A.nic0.p0 comes back"});
        if (i == 200) t.add_mark({now, mark_kind::failback, lane_id{0}, "back on A.nic0.p0"});
        const lane_id lane{static_cast<std::uint8_t>(i >= 100 && i < 200 ? 1 : 0)};
        noise = noise * 1664525 + 1013904223;
        const nanoseconds took{(lane.value != 0 ? 950'000 : 520'000) + static_cast<std::int64_t>(noise >> 16) % 60'000};
        t.add_chunk({now, now + took, sequence{i}, 1 << 20, lane});
        now += took;
    }
    return t;
}

}  // namespace sample
