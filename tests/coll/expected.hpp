#pragma once
/// \file
/// What the collectives should give, computed without the library: elements as numbers, and each result from all inputs.
/// Values are small whole numbers, so that every order of combining gives the same, exactly, in every type.

#include <vccl/coll/element.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace coll_test {

using vccl::element_type;
using vccl::reduce_op;

/// Element `i` of rank `r`: -3 … 4.
inline std::int64_t value_of(std::uint32_t rank, std::uint64_t i) {
    return static_cast<std::int64_t>((i * 7 + rank * 5 + i / 11) % 8) - 3;
}

/// A whole number between -2048 and 2048 as half precision, by the definition of the format.
inline std::uint16_t half_of(std::int64_t v) {
    if (v == 0) return 0;
    const std::uint64_t magnitude = static_cast<std::uint64_t>(v < 0 ? -v : v);
    const int exponent = static_cast<int>(std::floor(std::log2(static_cast<double>(magnitude))));
    const auto fraction = static_cast<std::uint16_t>((static_cast<double>(magnitude) / std::pow(2, exponent) - 1) * 1024);
    return static_cast<std::uint16_t>((v < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | fraction);
}

inline void put(element_type t, std::byte* base, std::uint64_t i, std::int64_t v) {
    std::byte* const at = base + i * vccl::size_of(t);
    switch (t) {
        case element_type::float32: {
            const auto f = static_cast<float>(v);
            std::memcpy(at, &f, 4);
            break;
        }
        case element_type::float16: {
            const std::uint16_t h = half_of(v);
            std::memcpy(at, &h, 2);
            break;
        }
        case element_type::bfloat16: {
            const auto f = static_cast<float>(v);
            std::memcpy(at, reinterpret_cast<const std::byte*>(&f) + 2, 2);  // the upper half; exact for such numbers
            break;
        }
        case element_type::int32: {
            const auto n = static_cast<std::int32_t>(v);
            std::memcpy(at, &n, 4);
            break;
        }
        case element_type::int64: std::memcpy(at, &v, 8); break;
    }
}

inline std::int64_t combined(reduce_op op, std::uint32_t ranks, std::uint64_t i) {
    std::int64_t all = value_of(0, i);
    for (std::uint32_t r = 1; r < ranks; ++r) {
        const std::int64_t v = value_of(r, i);
        all = op == reduce_op::sum ? all + v : op == reduce_op::max ? (v > all ? v : all) : (v < all ? v : all);
    }
    return all;
}

/// Elements [first, first + count) of rank `r` as it would fill its input.
inline void fill(element_type t, std::byte* base, std::uint32_t rank, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) put(t, base, i, value_of(rank, first + i));
}
/// The same of the combination of all ranks.
inline std::vector<std::byte> combination(element_type t, reduce_op op, std::uint32_t ranks, std::uint64_t first,
                                          std::uint64_t count) {
    std::vector<std::byte> all(count * vccl::size_of(t));
    for (std::uint64_t i = 0; i < count; ++i) put(t, all.data(), i, combined(op, ranks, first + i));
    return all;
}
inline std::vector<std::byte> elements(element_type t, std::uint32_t rank, std::uint64_t first, std::uint64_t count) {
    std::vector<std::byte> all(count * vccl::size_of(t));
    fill(t, all.data(), rank, first, count);
    return all;
}

}  // namespace coll_test
