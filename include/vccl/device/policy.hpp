#pragma once
/// \file
/// The policies of a device queue, beside those that host endpoints have: who shares it, and how often its doorbell rings.
/// Compile-time only.

#include <vccl/base/time.hpp>
#include <vccl/device/atomic.hpp>

namespace vccl::inline v0 {

namespace axis {
struct sharing {};
struct doorbell {};
}  // namespace axis

/// Who posts on one queue at the same time. The narrower, the cheaper; nobody checks it.
template <device::scope Scope, bool Alone = false>
struct shared_by {
    using policy_axis = axis::sharing;
    static constexpr device::scope scope = Scope;  ///< threads beyond it must not post on the queue
    static constexpr bool alone = Alone;  ///< one thread at a time, ordered by the caller
};
/// One thread, or one after the other with an order of the caller's own: no atomic to reserve a slot.
using exclusive_queue = shared_by<device::scope::block, true>;
using shared_by_block = shared_by<device::scope::block>;  ///< threads of one block
using shared_by_gpu = shared_by<device::scope::gpu>;  ///< any thread of the GPU; the default

/// The doorbell rings for the last of those who have reserved, and at least once every `Wqes` slots. A poster that leaves it
/// to a later one may do so: that one publishes before it returns, whatever happens. So no rung is ever owed.
template <unsigned Wqes = 32>
struct ring_every {
    static_assert(Wqes >= 1 && (Wqes & (Wqes - 1)) == 0, "vccl: ring_every<N> needs a power of two");
    using policy_axis = axis::doorbell;
    static constexpr unsigned batch = Wqes;  ///< slots, at most, between two doorbells
};

namespace device {

/// What a queue's code is compiled for; made by device_sender from its policies.
template <class Sharing = shared_by_gpu, class Doorbell = ring_every<>, bool CanReplay = true>
struct queue_policy {
    /// As the policies say.
    /// @{
    static constexpr scope who = Sharing::scope;
    static constexpr bool alone = Sharing::alone;
    static constexpr unsigned batch = Doorbell::batch;
    /// @}
    static constexpr bool can_replay = CanReplay;  ///< false: the first lost lane is an error, as with `no_replay`
};

}  // namespace device

}  // namespace vccl::inline v0
