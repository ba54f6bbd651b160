#pragma once
/// \file
/// What makes QPs whose send queue is a ring: `ring_nic` (a software NIC over any verbs backend) and `mlx5dv_rings` (a
/// ConnectX) model it. Set-up calls, owner thread.

#include <vccl/device/ring.hpp>
#include <vccl/verbs/backend.hpp>

#include <concepts>

namespace vccl::inline v0::device {

/// Sizes of a ring. The maker rounds up to powers of two.
struct ring_limits {
    std::uint32_t depth{128};   ///< slots, 4 to 2^15
    std::uint32_t cq_depth{};   ///< entries; 0: as many as slots, which an always-on credit check never overruns
    std::uint32_t receive_depth{};  ///< receives, 4 to 2^15; 0: none. `unsupported` but by `gpu_nic`
};

/// The ladder of a verbs QP, and its ring. `to_reset` starts everything anew: slot 0, entry 0, records and doorbell 0; QP
/// number and `memory()` may be others afterwards. Nobody may post or poll meanwhile. After `to_error` the QP writes no memory,
/// and every WQE that a doorbell has named gets its CQE.
template <class Q>
concept ring_qp = requires(Q q, const Q c, const qp_peer& peer, const qp_timers& timers, psn first) {
    { c.number() } noexcept -> std::same_as<qpn>;
    { c.memory() } noexcept -> std::same_as<ring>;
    { q.to_reset() } noexcept -> std::same_as<status>;
    { q.to_init() } noexcept -> std::same_as<status>;
    { q.to_ready_to_receive(peer, timers) } noexcept -> std::same_as<status>;
    { q.to_ready_to_send(first, timers) } noexcept -> std::same_as<status>;
    { q.to_error() } noexcept -> std::same_as<status>;
    { q.state() } noexcept -> std::same_as<result<qp_state>>;
    { q.destroy() } noexcept -> std::same_as<status>;
};

/// `create_qp` on an open port. QPs must go before their source, and before the port.
template <class S>
concept ring_source = requires(S s, typename S::port_type& port, const ring_limits& limits) {
    requires ring_qp<typename S::qp>;
    { s.create_qp(port, limits) } noexcept -> std::same_as<result<typename S::qp>>;
};

}  // namespace vccl::inline v0::device
