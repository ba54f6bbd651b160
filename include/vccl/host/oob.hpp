#pragma once
/// \file
/// The out-of-band way for control messages: what an endpoint needs of one, beside its lanes' control QPs (G4). It may
/// lose messages and may break and come back; it must keep their boundaries and deliver only what the peer sent.
/// `tcp_oob` (host/tcp_oob.hpp) is the stock one. Owner thread of the endpoint only; no call blocks.

#include <vccl/base/status.hpp>
#include <vccl/base/time.hpp>
#include <vccl/model/topology.hpp>

#include <concepts>
#include <cstddef>
#include <span>

namespace vccl::inline v0 {

/// Where the listening end is found; travels in its blob. Text, such as "192.0.2.1:4711" or "[2001:db8::1]:4711".
using oob_address = fixed_name<64>;

/// What only the two ends know: a caller without it is turned away.
struct oob_secret {
    std::uint8_t bytes[16]{};  ///< from the receiver's blob, random for each connection
};

/// As `advance` finds the way; docs/concepts.md says what each promises.
enum class oob_state : std::uint8_t {
    opening,  ///< not connected yet
    up,
    broken,   ///< was cut; being mended
    closed,   ///< the peer's kernel closed it: its process is gone, or it will call again at once
    refused,  ///< nobody listens at the peer's address any more: its process is gone
};

template <class O>
concept oob_channel =
    on_axis<O, axis::oob> && std::default_initializable<O> &&
    requires(O o, const oob_address& where, const oob_secret& secret, std::span<const std::byte> out, std::span<std::byte> in,
             nanoseconds now) {
        {
            o.listen(where, secret)
        } noexcept -> std::same_as<result<oob_address>>;  // the receiver; `where`: address to bind, port 0 for any
        { o.connect(where, secret) } noexcept -> std::same_as<status>;              // the sender; begins only
        { o.advance(now) } noexcept -> std::same_as<oob_state>;                     // accepts, connects, mends, sends
        { o.send(out) } noexcept -> std::same_as<bool>;                             // may wait for advance(); false: lost
        { o.receive(in) } noexcept -> std::same_as<std::size_t>;                    // bytes of one message; 0: none
        { o.close() } noexcept -> std::same_as<void>;                               // sends what waits, if it can
    };

}  // namespace vccl::inline v0
