#pragma once
/// \file
/// What collectives count in: element types, what they are combined with, and the two 16-bit floats as values. Any thread.

#include <vccl/base/config.hpp>

#include <cstddef>
#include <cstdint>

namespace vccl::inline v0 {

/// What buffers hold. Signs and sizes as their names say.
enum class element_type : std::uint8_t { float32, float16, bfloat16, int32, int64 };

/// How elements of several ranks become one. Integers wrap. 16-bit floats are combined in 32 bits and rounded to nearest
/// even each time. Of a NaN and a number, max and min give either one, but the same at every rank.
enum class reduce_op : std::uint8_t { sum, max, min };

/// Bytes of an element.
VCCL_HOST_DEVICE constexpr std::size_t size_of(element_type t) noexcept {
    switch (t) {
        case element_type::float16:
        case element_type::bfloat16: return 2;
        case element_type::int64: return 8;
        default: return 4;
    }
}

namespace detail {
/// std::bit_cast, also in kernels.
template <class To, class From>
VCCL_HOST_DEVICE constexpr To bits_as(From from) noexcept {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, from);
}
}  // namespace detail

/// IEEE binary16, as its bits.
struct float16 {
    std::uint16_t bits{};  ///< sign 1, exponent 5, fraction 10, from the top

    /// Exact. Without branches, so that loops over it become vectors.
    VCCL_HOST_DEVICE static constexpr float widen(std::uint16_t h) noexcept {
        constexpr float two_to_112 = detail::bits_as<float>(std::uint32_t{(127 + 112) << 23});
        const std::uint32_t magnitude = static_cast<std::uint32_t>(h & 0x7fff) << 13;
        const float number = detail::bits_as<float>(magnitude) * two_to_112;
        const std::uint32_t beyond = all_ones_if(magnitude >= (31u << 23)) & 0xffu << 23;  // infinities and NaNs stay such
        return detail::bits_as<float>(detail::bits_as<std::uint32_t>(number) | beyond |
                                      static_cast<std::uint32_t>(h & 0x8000) << 16);
    }
    /// To nearest even; beyond 65,504 to infinity.
    VCCL_HOST_DEVICE static constexpr std::uint16_t narrow(float f) noexcept {
        const std::uint32_t all = detail::bits_as<std::uint32_t>(f), magnitude = all & 0x7fffffff;
        // Normal numbers: the exponent's bias changes by 112, and half a unit less the last kept bit rounds to even.
        const std::uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
        // Numbers below 2^-14: adding 0.5 leaves the rounded multiples of 2^-24 in the low bits.
        const std::uint32_t small = detail::bits_as<std::uint32_t>(detail::bits_as<float>(magnitude) + 0.5f) - (126u << 23);
        const std::uint32_t is_small = all_ones_if(magnitude < (113u << 23)), is_large = all_ones_if(magnitude >= (143u << 23)),
                            is_nan = all_ones_if(magnitude > (255u << 23));
        const std::uint32_t number = (small & is_small) | (normal & ~is_small);
        return static_cast<std::uint16_t>((number & ~is_large) | (0x7c00 & is_large) | (0x0200 & is_nan) | (all >> 16 & 0x8000));
    }

private:
    VCCL_HOST_DEVICE static constexpr std::uint32_t all_ones_if(bool b) noexcept { return 0u - std::uint32_t{b}; }
};

/// The upper half of a float, as its bits.
struct bfloat16 {
    std::uint16_t bits{};  ///< sign 1, exponent 8, fraction 7, from the top

    /// Exact: the lower half is 0.
    VCCL_HOST_DEVICE static constexpr float widen(std::uint16_t h) noexcept {
        return detail::bits_as<float>(static_cast<std::uint32_t>(h) << 16);
    }
    /// To nearest even.
    VCCL_HOST_DEVICE static constexpr std::uint16_t narrow(float f) noexcept {
        const std::uint32_t all = detail::bits_as<std::uint32_t>(f);
        const std::uint32_t rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16;
        const std::uint32_t quiet = all >> 16 | 0x40;
        return static_cast<std::uint16_t>((all & 0x7fffffff) > (255u << 23) ? quiet : rounded);
    }
};

static_assert(float16::narrow(float16::widen(0x0001)) == 0x0001 && float16::narrow(65504.0f) == 0x7bff);
static_assert(float16::narrow(65520.0f) == 0x7c00 && float16::narrow(1.0f) == 0x3c00 && float16::widen(0x3555) == 0x1.554p-2f);
static_assert(bfloat16::narrow(1.0f) == 0x3f80 && bfloat16::narrow(0x1.01p0f) == 0x3f80 && bfloat16::narrow(0x1.03p0f) == 0x3f82);

}  // namespace vccl::inline v0
