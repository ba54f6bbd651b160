#pragma once
/// \file
/// How ranks carry bytes to each other before they are connected. The stock ways are in bootstrap/; any other is a struct
/// with this one member. Set-up thread.

#include <vccl/base/status.hpp>
#include <vccl/base/time.hpp>

#include <concepts>
#include <cstddef>
#include <vector>

namespace vccl::inline v0 {

/// Bytes from or to a rank. The tag says what they are about.
struct parcel {
    std::uint32_t peer{};  ///< of a parcel that goes out: the receiver; of one that came: the sender
    std::uint32_t tag{};  ///< the caller's; unique between two ranks within one exchange
    std::vector<std::byte> bytes;  ///< any number, also none
};

/// `x.exchange(parcels, timeout)`: every rank calls it with what it has for others (or with nothing), and gets what the others
/// have for it, with the sender's rank in `peer`. It returns when all ranks have called it.
template <class X>
concept parcel_exchange = requires(X x, std::vector<parcel> out, nanoseconds timeout) {
    { x.exchange(std::move(out), timeout) } -> std::same_as<result<std::vector<parcel>>>;
};

}  // namespace vccl::inline v0
