#pragma once
/// \file
/// What can go wrong with a ring's NIC beside the faults of the fabric under it. A plain value; give it to
/// `ring_nic_qp::inject`.

#include <vccl/base/time.hpp>

namespace vccl::inline v0::device {

struct ring_faults {
    unsigned lost_doorbells{};      ///< so many rings from now on are not noticed
    nanoseconds record_after{};     ///< so long after a lost ring the doorbell record is looked at; 0: never
    nanoseconds cqe_delay{};        ///< CQEs are written that much late
    bool cq_overrun{};              ///< the next CQE finds the completion queue full
};

}  // namespace vccl::inline v0::device
