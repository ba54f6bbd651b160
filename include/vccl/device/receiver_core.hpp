#pragma once
/// \file
/// The receiver's protocol for a device channel: that of host channels (channel/receiver_core.hpp) without chunks. Its SYNC
/// carries the signal words instead of parts, and failing back is a failover to the better lane, because posters on the GPU
/// obey a gate and not grants. Pure; owner thread.

#include <vccl/channel/receiver_core.hpp>

namespace vccl::inline v0::device {

template <class Io, failback_policy Failback>
class device_receiver_core : public receiver_core<Io, Failback> {
    using base = receiver_core<Io, Failback>;

public:
    using base::base;

    /// Effects: lane `l`, which is well, is left for a better one: fenced, so that what took effect there is known, and
    /// followed by a SYNC. Called when the core has failed back.
    VCCL_COLD void leave(unsigned l, nanoseconds now) noexcept {
        if (this->condemn(l, fault_cause::none, wc_status::success, now)) this->turn(now);
    }
    /// The sender's queues are on lane `l`, which is dead for it. If this end has long been on another one (the lane never came
    /// up here), the queues must hear of it.
    VCCL_COLD void stranded(unsigned l, std::uint32_t epoch, nanoseconds now) noexcept {
        if (this->state_ == channel_state::running && epoch == this->epoch_ && l != this->active()) this->turn(now);
    }
};

}  // namespace vccl::inline v0::device
