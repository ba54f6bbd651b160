#pragma once
/// \file
/// Strong identifiers: a number with a name, so that a key is never taken for a queue pair.

#include <vccl/base/config.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>

namespace vccl::inline v0 {

/// A number that only mixes with its own kind.
template <class Tag, class Rep>
struct strong_id {
    using rep = Rep;  ///< the number's type, as it lies in memory and in blobs
    Rep value{};  ///< the bare number

    constexpr strong_id() noexcept = default;
    /// Explicit, so that no number becomes an id by accident.
    VCCL_HOST_DEVICE constexpr explicit strong_id(Rep v) noexcept : value(v) {}
    friend constexpr auto operator<=>(const strong_id&, const strong_id&) noexcept = default;
};

using qpn = strong_id<struct qpn_tag, std::uint32_t>;          ///< queue pair number, 24 bits
using psn = strong_id<struct psn_tag, std::uint32_t>;          ///< packet sequence number, 24 bits
using lkey = strong_id<struct lkey_tag, std::uint32_t>;        ///< local memory key
using rkey = strong_id<struct rkey_tag, std::uint32_t>;        ///< remote memory key
using channel_id = strong_id<struct channel_tag, std::uint32_t>;  ///< a number of the user's own, the same at both ends
using sequence = strong_id<struct sequence_tag, std::uint64_t>;///< chunk number within a channel, from 0
using epoch = strong_id<struct epoch_tag, std::uint32_t>;      ///< failover generation of a channel, from 1
using lane_id = strong_id<struct lane_tag, std::uint8_t>;      ///< index into a channel's ordered lane list
using host_id = strong_id<struct host_tag, std::uint16_t>;     ///< index into a topology's hosts
using port_id = strong_id<struct port_tag, std::uint16_t>;     ///< index into a topology's ports
using nic_id = strong_id<struct nic_tag, std::uint16_t>;       ///< index into a topology's NICs
using gpu_id = strong_id<struct gpu_tag, std::uint16_t>;       ///< index into a topology's GPUs
using rail_id = strong_id<struct rail_tag, std::uint16_t>;     ///< which switch plane a port is cabled to

/// The id that is `n` further on; ids of other kinds do not mix.
template <class Tag, class Rep>
VCCL_HOST_DEVICE constexpr strong_id<Tag, Rep> operator+(strong_id<Tag, Rep> id, Rep n) noexcept {
    return strong_id<Tag, Rep>{static_cast<Rep>(id.value + n)};
}

}  // namespace vccl::inline v0
