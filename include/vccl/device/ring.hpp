#pragma once
/// \file
/// The memory that a poster and an mlx5 NIC share for one QP. The same shape whether a
/// ConnectX, a software NIC on a CPU thread or one in a kernel consumes it. Who writes what: docs/device.md.

#include <vccl/device/cqe.hpp>
#include <vccl/device/doorbell.hpp>
#include <vccl/device/wqe.hpp>

#include <type_traits>

namespace vccl::inline v0::device {

/// Send queue, ordinary completion queue (one CQE a WQE that asks for one, or that fails), and the words beside them. A plain
/// view: whoever made it owns the memory. All pointers can be used by the poster, a GPU included where one posts.
struct ring {
    wqe_block* wq{};                   ///< written by the poster
    std::uint32_t depth_log{};         ///< 2^depth_log slots, at most 2^15
    std::uint32_t* doorbell_record{};  ///< two words, indexed by `doorbell_record_word`; the second written by the poster
    std::uint64_t* doorbell{};         ///< the register, or a word in memory; written by the poster
    cqe64* cq{};                       ///< written by the NIC
    std::uint32_t cq_depth_log{};      ///< of the number of CQEs
    std::uint32_t* cq_record{};        ///< written by whoever polls
    std::uint32_t qpn{};               ///< of the queue pair that consumes it; 24 bits

    /// Slots, and CQEs.
    /// @{
    VCCL_HOST_DEVICE constexpr std::uint32_t depth() const noexcept { return 1u << depth_log; }
    VCCL_HOST_DEVICE constexpr std::uint32_t cq_depth() const noexcept { return 1u << cq_depth_log; }
    /// @}
    /// By an index that only grows; the ring's length is taken off here.
    /// @{
    VCCL_HOST_DEVICE constexpr wqe_block& slot(std::uint64_t index) const noexcept { return wq[index & (depth() - 1)]; }
    VCCL_HOST_DEVICE constexpr cqe64& entry(std::uint64_t index) const noexcept { return cq[index & (cq_depth() - 1)]; }
    /// @}
};
static_assert(std::is_trivially_copyable_v<ring>);

/// 16-bit indices on the wire can tell a full queue from an empty one only below this.
inline constexpr std::uint32_t max_ring_depth_log = 15;

}  // namespace vccl::inline v0::device
