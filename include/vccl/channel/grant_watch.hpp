#pragma once
/// \file
/// The receiver's watch over grants that hang in its own send queues. Pure. Owner thread only.

#include <vccl/channel/lanes.hpp>

namespace vccl::inline v0 {

/// Grants are out and nothing arrives. The sender may simply have nothing to send; but if a WRITE behind the grants does
/// not complete although the lane answers probes, then the grants hang in our own send queue (a NIC may lose WRs
/// without a completion), and the sender waits for them.
class grant_watch {
public:
    void moved(nanoseconds now) noexcept { moved_at_ = now; }
    void forgive(nanoseconds now) noexcept {
        for (nanoseconds& m : marked_at_) m = now;
    }

    /// `io`: mark() and marked(), see receiver_core. `outstanding(lane)`: has it grants that nothing came for? `hung(lane)`: a
    /// verdict.
    template <class Io, class Outstanding, class Hung>
    void look(Io& io, lane_book& book, nanoseconds now, Outstanding&& outstanding, Hung&& hung) noexcept {
        const detection_times& t = book.times();
        for (unsigned l = 0; l < book.count(); ++l) {
            lane_state& s = book[l];
            if (s.health != lane_health::up) {
                marking_[l] = false;
                continue;
            }
            if (marking_[l]) {
                if (io.marked(l))
                    marking_[l] = false;
                else if (now - marked_at_[l] >= t.hung_timeout && s.heard_at > marked_at_[l])
                    hung(l);
                else if (now - marked_at_[l] >= t.progress_timeout)
                    s.suspected = !s.probe_open && s.heard_at <= marked_at_[l];
            } else if (now - moved_at_ >= t.progress_timeout && now - marked_at_[l] >= t.probe_interval && outstanding(l)) {
                marking_[l] = true;
                marked_at_[l] = now;
                io.mark(l);
            }
        }
    }

private:
    bool marking_[max_lanes]{};
    nanoseconds marked_at_[max_lanes]{}, moved_at_{};
};

}  // namespace vccl::inline v0
