#pragma once
/// \file
/// What an endpoint tells its completion handler: a chunk that ended, and an event in the life of its lanes.

#include <vccl/base/ids.hpp>
#include <vccl/base/status.hpp>
#include <vccl/base/time.hpp>

namespace vccl::inline v0 {

/// Why a lane was given up.
enum class fault_cause : std::uint8_t {
    none,
    own_port,     ///< this end's port reported down
    retries,      ///< the NIC gave up retransmitting
    flushed,      ///< only flush errors: the QP went to ERR without a first cause
    local_error,  ///< another error completion that speaks of the lane
    qp_fatal,     ///< the device reported a broken QP, CQ or itself
    hung,         ///< work stood still although the path answered, or no completion ever came
    probe_lost,   ///< the lane did not answer while another way did
    peer_notice,  ///< the other end gave it up
    gid_change,   ///< the port was renumbered
};

/// A chunk that ended: received (receiver), or acknowledged by the receiver (sender).
struct chunk_report {
    vccl::sequence sequence{};  ///< its number in the channel, from 0 without gaps
    std::uint64_t bytes{};  ///< that were delivered; of a chunk that was not: its size
    vccl::lane_id lane{};  ///< that its last part took
    vccl::epoch epoch{};   ///< the channel's when it ended
    status outcome{};      ///< ok, or why these bytes were not delivered
};

/// What happened to a lane, or to the channel as a whole; what does not apply to its kind is 0.
struct channel_event {
    /// What happened; the comments name the fields that go with each.
    enum class kind : std::uint8_t {
        connected,
        lane_failed,    ///< verdict on `lane`, with `cause`
        failed_over,    ///< traffic goes on over `to`; sender: counts below
        resumed,        ///< receiver: the first bytes after a failover have arrived; `took` since the first sign
        lane_restored,  ///< `lane` was rebuilt and answered a probe
        failed_back,    ///< new chunks go over `to` again
        suspended,      ///< no lane is left; waiting
        oob_lost,       ///< the out-of-band channel broke; the lanes carry control alone
        oob_restored,
        failed,         ///< the channel gave up; `why`
        closed,         ///< the peer closed in order
    };
    kind what{};        ///< which of these it is
    lane_id lane{};                         ///< the lane that it is about
    lane_id to{};                           ///< where traffic goes from now on
    std::uint8_t stripe{};                  ///< of a striped channel
    vccl::epoch epoch{};                    ///< the channel's, after the event
    fault_cause cause{fault_cause::none};   ///< of a verdict: what gave the lane away
    wc_status wc{wc_status::success};       ///< of a verdict by an error completion: its status
    nanoseconds at{};                       ///< on the endpoint's clock, as it was last read
    nanoseconds took{};                     ///< since the first sign of the fault
    std::uint64_t replayed{};               ///< chunks that the sender sends again, wholly or in part
    std::uint64_t already_delivered{};      ///< chunks that turned out to have arrived although never acknowledged
    status why{};                           ///< of `failed`: what the endpoint's health() says, too
};

}  // namespace vccl::inline v0
