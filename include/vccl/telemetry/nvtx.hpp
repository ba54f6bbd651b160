#pragma once
/// \file
/// `nvtx_events`: a channel's events and failovers on the time line of NVIDIA's profilers (Nsight Systems), in a domain called
/// "vccl". A completion handler: on_completion<nvtx_events>. Without a profiler an event costs a load and a branch, a chunk
/// nothing: chunks make no marks, since they come too often to be read; timeline.hpp keeps them.
/// Needs NVTX 3, header-only, of the CUDA Toolkit, and libdl. Owner thread; allocates nothing.

#include <vccl/model/event.hpp>
#include <vccl/policy/completion.hpp>

#include <nvtx3/nvToolsExt.h>

namespace vccl::inline v0 {

/// Each event is a mark, with the lane's number as payload. From the failure of the lane in use to the
/// failover, or to the end of the channel, a range "failover" is open.
struct nvtx_events {
    using policy_axis = axis::completion;

    /// A mark for each event, a range from the first sign of a fault to the first byte afterwards.
    void on_event(const channel_event& e) noexcept {
        using kind = channel_event::kind;
        switch (e.what) {
            case kind::connected:
                active_ = e.to;
                mark("connected", e.to);
                break;
            case kind::lane_failed:
                mark("lane failed", e.lane);
                if (e.lane == active_) begin();
                break;
            case kind::failed_over:
                active_ = e.to;
                mark("failed over", e.to);
                end();
                break;
            case kind::resumed: mark("bytes arrive again", e.to); break;
            case kind::lane_restored: mark("lane restored", e.lane); break;
            case kind::failed_back:
                active_ = e.to;
                mark("failed back", e.to);
                break;
            case kind::suspended:
                mark("no lane left", e.lane);
                begin();
                break;
            case kind::oob_lost: mark("out-of-band connection lost", e.lane); break;
            case kind::oob_restored: mark("out-of-band connection back", e.lane); break;
            case kind::failed:
                mark("channel failed", e.lane);
                end();
                break;
            case kind::closed:
                mark("channel closed", active_);
                end();
                break;
        }
    }

private:
    static nvtxDomainHandle_t domain() noexcept {
        static const nvtxDomainHandle_t one = nvtxDomainCreateA("vccl");
        return one;
    }
    static nvtxEventAttributes_t attributes(const char* message, lane_id lane) noexcept {
        nvtxEventAttributes_t a{};
        a.version = NVTX_VERSION;
        a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
        a.payload.ullValue = lane.value;
        a.messageType = NVTX_MESSAGE_TYPE_ASCII;
        a.message.ascii = message;
        return a;
    }
    static void mark(const char* what, lane_id lane) noexcept {
        const nvtxEventAttributes_t a = attributes(what, lane);
        nvtxDomainMarkEx(domain(), &a);
    }
    void begin() noexcept {
        if (open_) return;
        const nvtxEventAttributes_t a = attributes("failover", active_);
        range_ = nvtxDomainRangeStartEx(domain(), &a);
        open_ = true;
    }
    void end() noexcept {
        if (open_) nvtxDomainRangeEnd(domain(), range_);
        open_ = false;
    }

    nvtxRangeId_t range_{};
    lane_id active_{};
    bool open_{};
};
static_assert(completion_handler<nvtx_events>);

}  // namespace vccl::inline v0
