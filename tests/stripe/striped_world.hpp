#pragma once
/// \file
/// The world of tests/host with a striped sender and receiver in it.

#include "../host/checks.hpp"

#include <vccl/stripe/compose.hpp>

namespace vccl_test {

template <unsigned Stripes, unsigned Qps = 1, class Share = equal_finish, class Port = no_backup, class Failback = hold_down<1>>
using striped_world = world<
    striped_sender<verbs::soft, stripes<Stripes>, Share, Port, qp_group<Qps>, journal, manual_clock, testing::memory_oob>,
    striped_receiver<verbs::soft, stripes<Stripes>, Port, qp_group<Qps>, journal, manual_clock, testing::memory_oob, Failback>>;

/// Bytes that have come in at a port of host B.
template <class World>
std::uint64_t bytes_in(const World& w, const char* name) {
    return w.port(name).bytes_in;
}

}  // namespace vccl_test
