#pragma once
/// \file
/// What a device endpoint is made with beyond what a host endpoint is. A plain value.

#include <vccl/device/offer.hpp>
#include <vccl/device/wait.hpp>
#include <vccl/host/options.hpp>

namespace vccl::inline v0 {

/// Runtime settings of a device endpoint; each end its own, but for what `channel` calls alike.
struct device_options {
    endpoint_options channel{};            ///< session, lanes, timers, ...; windows and chunks do not apply
    std::uint32_t signals{16};             ///< receiver: signal words, at most 32
    nanoseconds timeout{10'000'000'000};   ///< of each operation of a view, unless it says `within`
    std::uint64_t first_index{};           ///< sender: where the queues' indices begin; for tests of their wrap
    const device::host_wait* wait{};       ///< host build: how a view waits; null: steady clock and sched_yield
};

}  // namespace vccl::inline v0
