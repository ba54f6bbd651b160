#pragma once
/// \file
/// Whether a WQE is one that a NIC carries out: the checks that need nothing but the WQE and its place. Keys and bounds are
/// checked by whoever moves the bytes. Shared by all software NICs. Pure functions, any thread, also in kernels.

#include <vccl/device/cqe.hpp>
#include <vccl/device/wqe_decode.hpp>

namespace vccl::inline v0::device {

/// What is wrong with a WQE: the vendor code of the error CQE. These codes are the software NICs' own; hardware has others.
enum class wqe_fault : std::uint8_t {
    none = 0,
    wrong_index = 1,     ///< not the index of the slot it lies in
    wrong_qpn = 2,
    unknown_opcode = 3,
    wrong_opmod = 4,
    wrong_segments = 5,  ///< `ds` is not what opcode and length ask for
    inline_misused = 6,  ///< inline data where none can be, or too much of it
    wrong_length = 7,
    not_possible = 8,    ///< a masked atomic that this NIC has no operation for
    wrong_doorbell = 9,  ///< a doorbell for more WQEs than the queue holds
    refused = 10,        ///< the backend did not take the work request
    wrong_memory = 11,   ///< a key, bounds or alignment, found by a NIC that moves the bytes itself
};

/// A verdict on one WQE, before anything of it is carried out.
struct judgement {
    syndrome why{syndrome::none};  ///< what the CQE will say; none: it may be carried out
    wqe_fault fault{wqe_fault::none};  ///< the same for people, more finely
    /// May it be carried out?
    VCCL_HOST_DEVICE constexpr bool good() const noexcept { return why == syndrome::none; }
    friend constexpr bool operator==(const judgement&, const judgement&) noexcept = default;
};

namespace wqe_detail {

/// Bytes of an atomic's operand, 0 if its opmod is none.
VCCL_HOST_DEVICE constexpr std::uint32_t operand_bytes(const wqe_fields& f) noexcept {
    if (!is_masked(f.opcode)) return f.opmod == 0 ? 8 : 0;
    return f.opmod == masked_32 ? 4 : f.opmod == masked_64 ? 8 : 0;
}
VCCL_HOST_DEVICE constexpr judgement judge_transfer(const wqe_fields& f) noexcept {
    constexpr syndrome bad = syndrome::local_qp_operation;
    if (f.opmod != 0) return {bad, wqe_fault::wrong_opmod};
    if (!f.inlined) {
        if (f.segments != 3) return {bad, wqe_fault::wrong_segments};
        if (f.local.length > max_message) return {syndrome::local_length, wqe_fault::wrong_length};
        return {};
    }
    if (is(f.opcode, wqe_opcode::read) || f.local.length > max_long_inline_bytes) return {bad, wqe_fault::inline_misused};
    if (f.segments != inline_segments(f.local.length)) return {bad, wqe_fault::wrong_segments};
    return {};
}
VCCL_HOST_DEVICE constexpr judgement judge_atomic(const wqe_fields& f) noexcept {
    constexpr syndrome bad = syndrome::local_qp_operation;
    const std::uint32_t bytes = operand_bytes(f);
    if (bytes == 0) return {bad, wqe_fault::wrong_opmod};
    if (f.segments != (data_in_second(f.opcode, f.opmod) ? 5 : 4)) return {bad, wqe_fault::wrong_segments};
    if (f.local.length != bytes) return {syndrome::local_length, wqe_fault::wrong_length};
    return {};
}

}  // namespace wqe_detail

/// Judges a WQE found in the slot of `index` of the QP `qpn`.
VCCL_HOST_DEVICE constexpr judgement judge(const wqe_fields& f, std::uint64_t index, std::uint32_t qpn) noexcept {
    using namespace wqe_detail;
    constexpr syndrome bad = syndrome::local_qp_operation;
    if (f.head.index != static_cast<std::uint16_t>(index)) return {bad, wqe_fault::wrong_index};
    if (f.head.qpn != qpn) return {bad, wqe_fault::wrong_qpn};
    if (is_transfer(f.opcode)) return judge_transfer(f);
    if (is_atomic(f.opcode)) return judge_atomic(f);
    if (!is(f.opcode, wqe_opcode::nop)) return {bad, wqe_fault::unknown_opcode};
    if (f.segments == 0 || f.segments > 4) return {bad, wqe_fault::wrong_segments};  // NVSHMEM posts NOPs of 1 and of 2
    return {};
}

/// The plain atomic that a masked one amounts to, where there is one: a sum without boundaries in 8 bytes, a
/// compare-and-swap of all bits of 8 bytes. Plain ones stay as they are. False: there is none.
VCCL_HOST_DEVICE constexpr bool make_plain(wqe_fields& f) noexcept {
    using namespace wqe_detail;
    if (!is_masked(f.opcode)) return true;
    if (f.opmod != masked_64) return false;
    if (is(f.opcode, wqe_opcode::masked_fetch_add)) {
        if (f.operand[1] != 0) return false;
        f.opcode = static_cast<std::uint8_t>(wqe_opcode::fetch_add);
    } else {
        if (f.operand[2] != ~std::uint64_t{0} || f.operand[3] != ~std::uint64_t{0}) return false;
        f.opcode = static_cast<std::uint8_t>(wqe_opcode::compare_swap);
    }
    return true;
}

}  // namespace vccl::inline v0::device
