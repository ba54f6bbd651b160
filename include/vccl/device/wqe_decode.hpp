#pragma once
/// \file
/// A WQE read back as a value, and rewritten for another QP. The NIC that consumes rings decodes what was posted; a failover
/// rewrites what was not retired. Both take whatever bytes there are. Pure functions, any thread, also in kernels.

#include <vccl/device/wqe.hpp>

namespace vccl::inline v0::device {

/// Every field of a WQE as its bytes have it; `judge` (wqe_judge.hpp) says whether they make sense.
struct wqe_fields {
    wqe_head head{};          ///< index, queue pair and flags
    std::uint8_t opcode{};    ///< of `wqe_opcode`, if known
    std::uint8_t opmod{};     ///< of atomics: masks, sizes; else 0
    std::uint8_t segments{};  ///< of 16 bytes, control segment included: the field `ds`
    bool inlined{};           ///< a WRITE that carries its data; then only `local.length` is set
    std::uint32_t immediate{};  ///< of WRITE with immediate; host byte order
    wqe_remote remote{};      ///< of everything that reaches the peer's memory
    wqe_local local{};           ///< the one data segment; its length alone for inlined bytes
    std::uint64_t operand[4]{};  ///< atomics: add or swap, compare or boundary, swap mask, compare mask
    friend constexpr bool operator==(const wqe_fields&, const wqe_fields&) noexcept = default;
};

namespace wqe_detail {

VCCL_HOST_DEVICE constexpr std::uint32_t first_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(big_endian(word) >> 32);
}
VCCL_HOST_DEVICE constexpr std::uint32_t second_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(big_endian(word));
}
VCCL_HOST_DEVICE constexpr bool is(std::uint8_t opcode, wqe_opcode op) noexcept {
    return opcode == static_cast<std::uint8_t>(op);
}
VCCL_HOST_DEVICE constexpr bool is_masked(std::uint8_t opcode) noexcept {
    return is(opcode, wqe_opcode::masked_compare_swap) || is(opcode, wqe_opcode::masked_fetch_add);
}
VCCL_HOST_DEVICE constexpr bool is_atomic(std::uint8_t opcode) noexcept {
    return is(opcode, wqe_opcode::fetch_add) || is(opcode, wqe_opcode::compare_swap) || is_masked(opcode);
}
VCCL_HOST_DEVICE constexpr bool is_transfer(std::uint8_t opcode) noexcept {
    return is(opcode, wqe_opcode::write) || is(opcode, wqe_opcode::write_imm) || is(opcode, wqe_opcode::read);
}
/// The one WQE whose data segment lies in its second slot.
VCCL_HOST_DEVICE constexpr bool data_in_second(std::uint8_t opcode, std::uint8_t opmod) noexcept {
    return is(opcode, wqe_opcode::masked_compare_swap) && opmod == masked_64;
}
VCCL_HOST_DEVICE constexpr wqe_local get_local(const wqe_block& b, unsigned at) noexcept {
    return {big_endian(b.word[at + 1]), second_of(b.word[at]), first_of(b.word[at])};
}
VCCL_HOST_DEVICE constexpr void get_operands(wqe_fields& f, const wqe_block& b) noexcept {
    if (is_masked(f.opcode) && f.opmod == masked_32) {
        f.operand[0] = first_of(b.word[4]);
        f.operand[1] = second_of(b.word[4]);
        if (is(f.opcode, wqe_opcode::masked_compare_swap)) {
            f.operand[2] = first_of(b.word[5]);
            f.operand[3] = second_of(b.word[5]);
        }
        return;
    }
    f.operand[0] = big_endian(b.word[4]);
    if (!is(f.opcode, wqe_opcode::fetch_add)) f.operand[1] = big_endian(b.word[5]);
    if (data_in_second(f.opcode, f.opmod)) {
        f.operand[2] = big_endian(b.word[6]);
        f.operand[3] = big_endian(b.word[7]);
    }
}

}  // namespace wqe_detail

/// How many slots a WQE takes that begins with this one: what its `ds` says, at least 1, for any bytes at most 64.
VCCL_HOST_DEVICE constexpr unsigned slots_of(const wqe_block& first) noexcept {
    const unsigned segments = wqe_detail::second_of(first.word[0]) & 0xff;
    return segments == 0 ? 1 : (segments + 3) / 4;
}

/// The fields of a WQE. `second` is the slot after `first`, which is looked at only if the WQE reaches that far.
VCCL_HOST_DEVICE constexpr wqe_fields decode(const wqe_block& first, const wqe_block& second) noexcept {
    using namespace wqe_detail;
    wqe_fields f;
    const std::uint32_t what = first_of(first.word[0]), whose = second_of(first.word[0]);
    f.opcode = static_cast<std::uint8_t>(what);
    f.opmod = static_cast<std::uint8_t>(what >> 24);
    f.segments = static_cast<std::uint8_t>(whose);
    f.head = {whose >> 8, static_cast<std::uint16_t>(what >> 8), static_cast<std::uint8_t>(first_of(first.word[1]))};
    if (is(f.opcode, wqe_opcode::write_imm)) f.immediate = second_of(first.word[1]);
    if (!is_transfer(f.opcode) && !is_atomic(f.opcode)) return f;
    f.remote = {big_endian(first.word[2]), first_of(first.word[3])};
    if (is_atomic(f.opcode)) {
        get_operands(f, first);
        f.local = data_in_second(f.opcode, f.opmod) ? get_local(second, 0) : get_local(first, 6);
        return f;
    }
    f.inlined = (first_of(first.word[4]) & inline_flag) != 0;
    f.local = f.inlined ? wqe_local{0, 0, first_of(first.word[4]) & ~inline_flag} : get_local(first, 4);
    return f;
}

/// Byte `i` of the data that an inlined WRITE carries.
VCCL_HOST_DEVICE constexpr unsigned char inline_byte(const wqe_block& first, const wqe_block& second, unsigned i) noexcept {
    const unsigned at = 36 + i;
    const std::uint64_t word = at < 64 ? first.word[at / 8] : second.word[at / 8 % 8];
    return static_cast<unsigned char>(word >> (at % 8 * 8));
}

/// Whom a WQE is rewritten for.
struct wqe_target {
    std::uint32_t qpn{};  ///< its number
    std::uint16_t index{};  ///< hardware index of the slot that the WQE moves to
    /// Of the new lane; memory addresses stay.
    /// @{
    std::uint32_t lkey{};
    std::uint32_t rkey{};
    /// @}
};

/// Rewrites a WQE that the encoders of wqe.hpp made for another QP, slot and keys, and nothing else of it. `second` is
/// written only if the WQE has its data segment there.
VCCL_HOST_DEVICE constexpr void reencode(wqe_block& first, wqe_block& second, const wqe_target& to) noexcept {
    using namespace wqe_detail;
    const wqe_fields f = decode(first, second);
    first.word[0] =
        big_endian_pair(std::uint32_t{f.opmod} << 24 | std::uint32_t{to.index} << 8 | f.opcode, to.qpn << 8 | f.segments);
    if (!is_transfer(f.opcode) && !is_atomic(f.opcode)) return;
    first.word[3] = big_endian_pair(to.rkey, 0);
    const std::uint64_t sized = big_endian_pair(f.local.length, to.lkey);
    if (data_in_second(f.opcode, f.opmod))
        second.word[0] = sized;
    else if (is_atomic(f.opcode))
        first.word[6] = sized;
    else if (!f.inlined)
        first.word[4] = sized;
}

}  // namespace vccl::inline v0::device
