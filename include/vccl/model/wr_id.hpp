#pragma once
/// \file
/// What the library packs into a work request's 64-bit id, so that a completion names its lane, its lane's generation
/// and its purpose, and an old one is recognised (G11). Used by the owner thread of an endpoint.

#include <vccl/base/config.hpp>

#include <cstdint>

namespace vccl::inline v0 {

enum class wr_kind : std::uint8_t {
    data,          ///< part of a chunk (sender)
    grant,         ///< CTS slots or an acknowledgement (receiver)
    arrival,       ///< a posted receive that an immediate consumes (receiver)
    control,       ///< a control message going out
    control_recv,  ///< a control message coming in
    flush,         ///< the loopback READ that makes GPU bytes visible (receiver)
};

/// Bits: kind 0-3, lane 4-7, qp 8-11, generation 12-27, mark 28-63.
struct wr_id {
    static constexpr unsigned mark_shift = 28;
    static constexpr std::uint64_t mark_mask = (std::uint64_t{1} << 36) - 1;

    std::uint64_t raw{};

    static constexpr wr_id make(wr_kind k, unsigned lane, unsigned qp, std::uint32_t generation, std::uint64_t mark) noexcept {
        return {static_cast<std::uint64_t>(k) | std::uint64_t{lane} << 4 | std::uint64_t{qp} << 8 |
                std::uint64_t{generation & 0xffff} << 12 | mark << 28};
    }
    constexpr wr_kind kind() const noexcept { return static_cast<wr_kind>(raw & 15); }
    constexpr unsigned lane() const noexcept { return raw >> 4 & 15; }
    constexpr unsigned qp() const noexcept { return raw >> 8 & 15; }
    constexpr std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(raw >> 12 & 0xffff); }
    /// For data, grant and control: how many WRs the QP had taken with this one, modulo 2^36. For control_recv and
    /// flush: the buffer or chunk.
    constexpr std::uint64_t mark() const noexcept { return raw >> 28; }
};
static_assert(wr_id::make(wr_kind::flush, 7, 8, 0x1ffff, 5).generation() == 0xffff);
static_assert(wr_id::make(wr_kind::control, 7, 8, 3, 0xfffffffff).mark() == 0xfffffffff);

}  // namespace vccl::inline v0
