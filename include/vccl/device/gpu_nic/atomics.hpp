#pragma once
/// \file
/// What the atomics of an mlx5 NIC make of the old value, masked ones included. Pure functions, any thread, also in kernels.

#include <vccl/device/wqe_decode.hpp>

namespace vccl::inline v0::device::gpu_nic_detail {

/// Bits of `boundary` end fields: no carry leaves them. 0: one field; all ones: XOR.
VCCL_HOST_DEVICE constexpr std::uint64_t add_in_fields(std::uint64_t a, std::uint64_t b, std::uint64_t boundary) noexcept {
    return ((a & ~boundary) + (b & ~boundary)) ^ ((a ^ b) & boundary);
}

/// The new value, of 4 or of 8 bytes as the WQE says.
VCCL_HOST_DEVICE constexpr std::uint64_t apply(const wqe_fields& f, std::uint64_t old) noexcept {
    const std::uint64_t* const o = f.operand;
    switch (static_cast<wqe_opcode>(f.opcode)) {
        case wqe_opcode::fetch_add: return old + o[0];
        case wqe_opcode::compare_swap: return old == o[1] ? o[0] : old;
        case wqe_opcode::masked_fetch_add: {
            const std::uint64_t sum = add_in_fields(old, o[0], o[1]);
            return f.local.length == 4 ? static_cast<std::uint32_t>(sum) : sum;
        }
        default: return ((old ^ o[1]) & o[3]) == 0 ? (old & ~o[2]) | (o[0] & o[2]) : old;
    }
}

}  // namespace vccl::inline v0::device::gpu_nic_detail
