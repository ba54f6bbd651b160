#pragma once
/// \file
/// How a producer tells an mlx5 NIC how far it has posted: the doorbell record in memory, which survives, then the doorbell
/// register, which only wakes. And how a consumer tells how far it has polled. Values only; any thread, also in kernels.
/// Source: rdma-core, providers/mlx5/qp.c (post_send_db) and cq.c.

#include <vccl/base/byte_order.hpp>

#include <cstdint>

namespace vccl::inline v0::device {

/// The two big-endian words of a QP's doorbell record.
enum doorbell_record_word : unsigned { receive_record = 0, send_record = 1 };

/// Either word. `next` is the index of the first free slot, as a 64-bit count; the NIC sees its low 16 bits.
VCCL_HOST_DEVICE constexpr std::uint32_t encode_record(std::uint64_t next) noexcept {
    return big_endian(static_cast<std::uint32_t>(next & 0xffff));
}
/// The low 16 bits of the index of the first free slot.
VCCL_HOST_DEVICE constexpr std::uint16_t decode_record(std::uint32_t record) noexcept {
    return static_cast<std::uint16_t>(big_endian(record));
}

/// The 8 bytes for the doorbell register. Store them in one piece.
VCCL_HOST_DEVICE constexpr std::uint64_t encode_doorbell(std::uint64_t next, std::uint32_t qpn) noexcept {
    return big_endian_pair(static_cast<std::uint32_t>(next & 0xffff) << 8, qpn << 8);
}
/// What a write to the doorbell register says.
struct doorbell_fields {
    std::uint16_t next{};  ///< low 16 bits of the index of the first free slot
    std::uint32_t qpn{};   ///< whose queue; 24 bits
    friend constexpr bool operator==(const doorbell_fields&, const doorbell_fields&) noexcept = default;
};
/// From the 64 bits as they were written.
VCCL_HOST_DEVICE constexpr doorbell_fields decode_doorbell(std::uint64_t value) noexcept {
    const std::uint64_t v = big_endian(value);
    return {static_cast<std::uint16_t>(v >> 40), static_cast<std::uint32_t>(v) >> 8};
}

/// The record of a CQ: how many entries were consumed, its low 24 bits.
VCCL_HOST_DEVICE constexpr std::uint32_t encode_cq_record(std::uint64_t consumed) noexcept {
    return big_endian(static_cast<std::uint32_t>(consumed & 0xffffff));
}
/// How many entries were polled, modulo 2^24.
VCCL_HOST_DEVICE constexpr std::uint32_t decode_cq_record(std::uint32_t record) noexcept { return big_endian(record) & 0xffffff; }

}  // namespace vccl::inline v0::device
