#pragma once
/// \file
/// The ready-made topology of software fabrics. Set-up only; any thread.

#include <vccl/model/shapes.hpp>

namespace vccl::inline v0::verbs {

/// `make_cluster` with ports of unlimited rate: hosts A, B, C …, NICs "A.nic0", ports "A.nic0.p0", GPUs "A.gpu0"; port j of
/// NIC i is on rail i * ports_per_nic + j.
inline topology soft_topology(unsigned hosts, unsigned nics_per_host, unsigned ports_per_nic, unsigned gpus_per_host) {
    return make_cluster({hosts, nics_per_host, ports_per_nic, gpus_per_host, 0});
}

}  // namespace vccl::inline v0::verbs
