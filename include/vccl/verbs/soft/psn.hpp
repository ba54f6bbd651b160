#pragma once
/// \file
/// Arithmetic on 24-bit packet sequence numbers, and the layout of a QP number. Any thread.
/// Source: InfiniBand Architecture Specification 1.x, 9.7.2 (PSN comparison).

#include <cstdint>

namespace vccl::inline v0::verbs::soft_detail {

inline constexpr std::uint32_t psn_mask = 0xffffff;

constexpr std::uint32_t psn_add(std::uint32_t p, std::uint32_t n) noexcept { return (p + n) & psn_mask; }

/// a - b on the circle: negative when a is before b.
constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::int32_t>((a - b) << 8) >> 8;
}

/// A QP number is slot (6 bits), generation (6 bits), table index (12 bits): the slot routes a packet to its process,
/// the generation makes a number come back only after 64 other uses of its table entry.
inline constexpr std::uint32_t index_bits = 12, generation_bits = 6;
inline constexpr std::uint32_t table_size = 1u << index_bits;

constexpr std::uint32_t make_qpn(std::uint32_t slot, std::uint32_t generation, std::uint32_t index) noexcept {
    return slot << (index_bits + generation_bits) | (generation & ((1u << generation_bits) - 1)) << index_bits | index;
}
constexpr std::uint32_t slot_of(std::uint32_t qpn) noexcept { return (qpn & psn_mask) >> (index_bits + generation_bits); }
constexpr std::uint32_t index_of(std::uint32_t qpn) noexcept { return qpn & (table_size - 1); }

/// Packets of a message of `length` bytes; an empty message takes one.
constexpr std::uint32_t packets_of(std::uint32_t length, std::uint32_t mtu) noexcept {
    return length == 0 ? 1 : (length - 1) / mtu + 1;
}

}  // namespace vccl::inline v0::verbs::soft_detail
