#pragma once
/// \file
/// Send-queue entries (WQEs) of an mlx5 RC queue pair as values: encoders for whoever posts, a decoder for whoever consumes
/// or replays. Arguments are in host order, results are the bytes that the NIC reads. Pure functions, any thread, also in
/// kernels and constant expressions.
/// Source of the layout: rdma-core, providers/mlx5/mlx5dv.h (installed as infiniband/mlx5dv.h), against whose helpers
/// tests/device/format compares every byte; masked atomics: NVSHMEM, ibgda_device.cuh.

#include <vccl/base/byte_order.hpp>

#include <cstddef>
#include <cstdint>

namespace vccl::inline v0::device {

/// One slot of a send queue. A WQE starts in slot `index mod depth` and takes one or two of them.
struct alignas(64) wqe_block {
    std::uint64_t word[8];  ///< big-endian, as the NIC reads them
    friend constexpr bool operator==(const wqe_block&, const wqe_block&) noexcept = default;
};
static_assert(sizeof(wqe_block) == 64);

/// A WQE that takes two slots.
struct wqe_pair {
    wqe_block block[2];  ///< in neighbouring slots, the ring's end included
    friend constexpr bool operator==(const wqe_pair&, const wqe_pair&) noexcept = default;
};

/// Numbers of mlx5. What is not listed here a software NIC refuses.
enum class wqe_opcode : std::uint8_t {
    nop = 0x00,
    write = 0x08,
    write_imm = 0x09,
    read = 0x10,
    compare_swap = 0x11,
    fetch_add = 0x12,
    masked_compare_swap = 0x14,
    masked_fetch_add = 0x15,
};

/// Bits of `wqe_head::flags`, rdma-core's values.
namespace wqe_flag {
inline constexpr std::uint8_t solicited = 0x02;    ///< asks for an event at the receiver; sets nothing off here
inline constexpr std::uint8_t completion = 0x08;   ///< make a CQE also on success
/// Waits for earlier READs only where the NIC says so; rdma-core calls it initiator small fence.
inline constexpr std::uint8_t small_fence = 0x20;
inline constexpr std::uint8_t fence = 0x80;        ///< wait for earlier READs and atomics of this QP
}  // namespace wqe_flag

/// What every WQE begins with.
struct wqe_head {
    std::uint32_t qpn{};    ///< 24 bits
    std::uint16_t index{};  ///< the slot index, its low 16 bits
    std::uint8_t flags{};   ///< of `wqe_flag`
    friend constexpr bool operator==(const wqe_head&, const wqe_head&) noexcept = default;
};
/// A piece of the peer's memory.
struct wqe_remote {
    std::uint64_t addr{};  ///< virtual address at the peer
    std::uint32_t rkey{};  ///< as granted by the peer
    friend constexpr bool operator==(const wqe_remote&, const wqe_remote&) noexcept = default;
};
/// A piece of one's own memory.
struct wqe_local {
    std::uint64_t addr{};    ///< virtual address here
    std::uint32_t lkey{};    ///< of the port that the queue pair is on
    std::uint32_t length{};  ///< bytes, below 2^31
    friend constexpr bool operator==(const wqe_local&, const wqe_local&) noexcept = default;
};

inline constexpr unsigned max_inline_bytes = 28;       ///< of a WRITE in one slot
inline constexpr unsigned max_long_inline_bytes = 92;  ///< of a WRITE in two slots
inline constexpr std::uint32_t max_wqe_length = 0x7fffffff;  ///< the highest bit marks inline data
inline constexpr std::uint32_t max_message = 1u << 30;       ///< the largest of an mlx5 port

/// The length of a message of `bytes`, or one that every NIC refuses if they are too many.
VCCL_HOST_DEVICE constexpr std::uint32_t message_length(std::uint64_t bytes) noexcept {
    return static_cast<std::uint32_t>(bytes <= max_message ? bytes : max_message + 1);
}

namespace wqe_detail {

inline constexpr std::uint32_t inline_flag = 0x80000000;
inline constexpr std::uint8_t masked_32 = 0x08, masked_64 = 0x09;  // opmod of masked atomics: the operand's size

VCCL_HOST_DEVICE constexpr wqe_block begin(wqe_opcode op, std::uint8_t opmod, std::uint8_t segments, const wqe_head& h,
                                           std::uint32_t immediate = 0) noexcept {
    wqe_block b{};
    b.word[0] = big_endian_pair(std::uint32_t{opmod} << 24 | std::uint32_t{h.index} << 8 | static_cast<std::uint32_t>(op),
                                h.qpn << 8 | segments);
    b.word[1] = big_endian_pair(h.flags, immediate);
    return b;
}
VCCL_HOST_DEVICE constexpr void put_remote(wqe_block& b, const wqe_remote& r) noexcept {
    b.word[2] = big_endian(r.addr);
    b.word[3] = big_endian_pair(r.rkey, 0);
}
VCCL_HOST_DEVICE constexpr void put_local(wqe_block& b, unsigned at, const wqe_local& l) noexcept {
    b.word[at] = big_endian_pair(l.length, l.lkey);
    b.word[at + 1] = big_endian(l.addr);
}
VCCL_HOST_DEVICE constexpr wqe_block transfer(wqe_opcode op, const wqe_head& h, const wqe_remote& to, const wqe_local& from,
                                              std::uint32_t immediate = 0) noexcept {
    wqe_block b = begin(op, 0, 3, h, immediate);
    put_remote(b, to);
    put_local(b, 4, from);
    return b;
}
VCCL_HOST_DEVICE constexpr wqe_block atomic(wqe_opcode op, std::uint8_t opmod, const wqe_head& h, const wqe_remote& on,
                                            const wqe_local& result, std::uint64_t first, std::uint64_t second) noexcept {
    wqe_block b = begin(op, opmod, 4, h);
    put_remote(b, on);
    b.word[4] = first;
    b.word[5] = second;
    put_local(b, 6, result);
    return b;
}
VCCL_HOST_DEVICE constexpr std::uint8_t inline_segments(unsigned length) noexcept {
    return static_cast<std::uint8_t>(2 + (4 + length + 15) / 16);
}
/// Puts byte `i` of inline data: it begins 36 bytes into the WQE.
VCCL_HOST_DEVICE constexpr void put_inline_byte(wqe_block* blocks, unsigned i, unsigned char byte) noexcept {
    const unsigned at = 36 + i;
    blocks[at / 64].word[at / 8 % 8] |= std::uint64_t{byte} << (at % 8 * 8);
}

}  // namespace wqe_detail

/// Fills a slot, completes if asked to, and moves nothing.
VCCL_HOST_DEVICE constexpr wqe_block nop(const wqe_head& h) noexcept { return wqe_detail::begin(wqe_opcode::nop, 0, 1, h); }

/// RDMA WRITE of `from` to `to`.
VCCL_HOST_DEVICE constexpr wqe_block write(const wqe_head& h, const wqe_remote& to, const wqe_local& from) noexcept {
    return wqe_detail::transfer(wqe_opcode::write, h, to, from);
}
/// The same, and it consumes a receive of the peer, which completes with `immediate`.
VCCL_HOST_DEVICE constexpr wqe_block write_imm(const wqe_head& h, const wqe_remote& to, const wqe_local& from,
                                               std::uint32_t immediate) noexcept {
    return wqe_detail::transfer(wqe_opcode::write_imm, h, to, from, immediate);
}
/// RDMA READ of `from` into `to`.
VCCL_HOST_DEVICE constexpr wqe_block read(const wqe_head& h, const wqe_remote& from, const wqe_local& to) noexcept {
    return wqe_detail::transfer(wqe_opcode::read, h, from, to);
}
/// RDMA WRITE of the value's 8 bytes as they lie in memory.
VCCL_HOST_DEVICE constexpr wqe_block inline_write(const wqe_head& h, const wqe_remote& to, std::uint64_t value) noexcept {
    wqe_block b = wqe_detail::begin(wqe_opcode::write, 0, wqe_detail::inline_segments(8), h);
    wqe_detail::put_remote(b, to);
    b.word[4] = big_endian(std::uint32_t{8} | wqe_detail::inline_flag) | value << 32;
    b.word[5] = value >> 32;
    return b;
}
/// RDMA WRITE of `length` bytes, at most `max_inline_bytes`, which the WQE carries.
VCCL_HOST_DEVICE constexpr wqe_block inline_write(const wqe_head& h, const wqe_remote& to, const unsigned char* bytes,
                                                  unsigned length) noexcept {
    wqe_block b = wqe_detail::begin(wqe_opcode::write, 0, wqe_detail::inline_segments(length), h);
    wqe_detail::put_remote(b, to);
    b.word[4] = big_endian(length | wqe_detail::inline_flag);
    for (unsigned i = 0; i < length; ++i) wqe_detail::put_inline_byte(&b, i, bytes[i]);
    return b;
}
/// The same with more than `max_inline_bytes`, at most `max_long_inline_bytes`.
VCCL_HOST_DEVICE constexpr wqe_pair long_inline_write(const wqe_head& h, const wqe_remote& to, const unsigned char* bytes,
                                                      unsigned length) noexcept {
    wqe_pair p{};
    p.block[0] = wqe_detail::begin(wqe_opcode::write, 0, wqe_detail::inline_segments(length), h);
    wqe_detail::put_remote(p.block[0], to);
    p.block[0].word[4] = big_endian(length | wqe_detail::inline_flag);
    for (unsigned i = 0; i < length; ++i) wqe_detail::put_inline_byte(p.block, i, bytes[i]);
    return p;
}

/// Adds to 8 bytes at `on`; the old value comes into 8 bytes at `result`.
VCCL_HOST_DEVICE constexpr wqe_block fetch_add(const wqe_head& h, const wqe_remote& on, const wqe_local& result,
                                               std::uint64_t add) noexcept {
    return wqe_detail::atomic(wqe_opcode::fetch_add, 0, h, on, result, big_endian(add), 0);
}
/// Replaces 8 bytes at `on` that equal `compare`; the old value comes into 8 bytes at `result`.
VCCL_HOST_DEVICE constexpr wqe_block compare_swap(const wqe_head& h, const wqe_remote& on, const wqe_local& result,
                                                  std::uint64_t swap, std::uint64_t compare) noexcept {
    return wqe_detail::atomic(wqe_opcode::compare_swap, 0, h, on, result, big_endian(swap), big_endian(compare));
}
/// Adds without a carry out of the bits that `boundary` marks: 0 is a plain sum, all ones is XOR. 4 bytes.
VCCL_HOST_DEVICE constexpr wqe_block masked_fetch_add_32(const wqe_head& h, const wqe_remote& on, const wqe_local& result,
                                                         std::uint32_t add, std::uint32_t boundary) noexcept {
    return wqe_detail::atomic(wqe_opcode::masked_fetch_add, wqe_detail::masked_32, h, on, result, big_endian_pair(add, boundary),
                              0);
}
/// The same of 8 bytes.
VCCL_HOST_DEVICE constexpr wqe_block masked_fetch_add_64(const wqe_head& h, const wqe_remote& on, const wqe_local& result,
                                                         std::uint64_t add, std::uint64_t boundary) noexcept {
    return wqe_detail::atomic(wqe_opcode::masked_fetch_add, wqe_detail::masked_64, h, on, result, big_endian(add),
                              big_endian(boundary));
}
/// Values and masks of a masked compare-and-swap: bits of `compare_mask` must match, bits of `swap_mask` are replaced.
template <class Word>
struct masked_swap {
    /// The new value, what must be there, and which bits of each count.
    /// @{
    Word swap{}, compare{}, swap_mask{}, compare_mask{};
    /// @}
    friend constexpr bool operator==(const masked_swap&, const masked_swap&) noexcept = default;
};
/// Of 4 bytes at `on`.
VCCL_HOST_DEVICE constexpr wqe_block masked_compare_swap_32(const wqe_head& h, const wqe_remote& on, const wqe_local& result,
                                                            const masked_swap<std::uint32_t>& m) noexcept {
    return wqe_detail::atomic(wqe_opcode::masked_compare_swap, wqe_detail::masked_32, h, on, result,
                              big_endian_pair(m.swap, m.compare), big_endian_pair(m.swap_mask, m.compare_mask));
}
/// Of 8 bytes at `on`; takes two slots.
VCCL_HOST_DEVICE constexpr wqe_pair masked_compare_swap_64(const wqe_head& h, const wqe_remote& on, const wqe_local& result,
                                                           const masked_swap<std::uint64_t>& m) noexcept {
    wqe_pair p{};
    p.block[0] = wqe_detail::begin(wqe_opcode::masked_compare_swap, wqe_detail::masked_64, 5, h);
    wqe_detail::put_remote(p.block[0], on);
    p.block[0].word[4] = big_endian(m.swap);
    p.block[0].word[5] = big_endian(m.compare);
    p.block[0].word[6] = big_endian(m.swap_mask);
    p.block[0].word[7] = big_endian(m.compare_mask);
    wqe_detail::put_local(p.block[1], 0, result);
    return p;
}

}  // namespace vccl::inline v0::device
