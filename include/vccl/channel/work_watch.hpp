#pragma once
/// \file
/// The sender's watch over work that stands still on a lane which nobody called dead. Pure. Owner thread only.

#include <vccl/channel/lanes.hpp>
#include <vccl/policy/replay.hpp>

namespace vccl::inline v0 {

/// Suspicion when nothing is acknowledged; a verdict only if the lane answers and nothing moves nevertheless: a NIC may lose
/// WRs without a completion, and a peer that is stopped is no reason to give a lane up.
class work_watch {
public:
    /// Something was acknowledged, or nothing is waited for.
    void moved(nanoseconds now) noexcept { moved_at_ = now; }
    /// Where the oldest chunk was when last looked at.
    unsigned lane() const noexcept { return lane_; }

    /// `oldest`: posted, not acknowledged, as before. `hung(lane)`: a verdict.
    template <class Hung>
    void look(lane_book& book, const outgoing& oldest, nanoseconds now, Hung&& hung) noexcept {
        lane_ = oldest.lane;
        lane_state& l = book[lane_];
        if (l.health != lane_health::up || l.generation != oldest.generation) return;
        const detection_times& t = book.times();
        if (now - moved_at_ >= t.hung_timeout && l.heard_at - moved_at_ > t.progress_timeout)
            hung(lane_);
        else if (now - moved_at_ >= t.progress_timeout && now - l.heard_at >= t.progress_timeout)
            l.suspected = true;
    }

private:
    unsigned lane_{};
    nanoseconds moved_at_{};
};

}  // namespace vccl::inline v0
