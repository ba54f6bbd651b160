#pragma once
/// \file
/// Channels over several ports: one device sender (or host ring) for each port, and one view that finds a channel's port and
/// queue. With `channel_parity` and channel ids 0, 1, ... the senders begin on different ports of a NIC. Trivially copyable.

#include <vccl/base/config.hpp>

namespace vccl::inline v0::device {

/// Channel c is on port `c mod Ports`, queue `(c / Ports) mod queues of a port`: its data and its signals share one QP, and the
/// mapping never changes; where a port's queues go when it dies is the sender's affair.
template <class Ref, unsigned Ports>
struct port_refs {
    Ref port[Ports];  ///< one view a port, in the order of channel numbers

    /// Channel `c`: of port `c` modulo `Ports`, there its `c / Ports`-th.
    VCCL_HOST_DEVICE constexpr Ref channel(unsigned c) const noexcept { return port[c % Ports].channel(c / Ports); }
    /// Of all ports together.
    VCCL_HOST_DEVICE constexpr unsigned channels() const noexcept {
        unsigned n = 0;
        for (const Ref& p : port) n += p.channels();
        return n;
    }
};

}  // namespace vccl::inline v0::device
