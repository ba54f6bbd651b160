#pragma once
// Elements whose combinations are known: small whole numbers, exact in every type and in any order.
#include <vccl/coll/element.hpp>

#include <bit>
#include <cstring>
#include <string>

namespace coll_example {

using vccl::element_type;
using vccl::reduce_op;

inline element_type type_of(const std::string& name) {
    return name == "float16"    ? element_type::float16
           : name == "bfloat16" ? element_type::bfloat16
           : name == "int32"    ? element_type::int32
           : name == "int64"    ? element_type::int64
                                : element_type::float32;
}
inline reduce_op op_of(const std::string& name) {
    return name == "max" ? reduce_op::max : name == "min" ? reduce_op::min : reduce_op::sum;
}

inline std::int64_t number(std::uint32_t rank, std::uint64_t i) noexcept {
    return static_cast<std::int64_t>((i * 5 + rank * 3 + i / 13) % 4);
}
inline std::int64_t combined_number(reduce_op op, std::uint32_t ranks, std::uint64_t i) noexcept {
    std::int64_t all = number(0, i);
    for (std::uint32_t r = 1; r < ranks; ++r) {
        const std::int64_t v = number(r, i);
        all = op == reduce_op::sum ? all + v : (op == reduce_op::max) == (v > all) ? v : all;
    }
    return all;
}

/// `v` as an element, in the first size_of(t) bytes.
inline std::uint64_t element(element_type t, std::int64_t v) noexcept {
    const auto f = static_cast<float>(v);
    switch (t) {
        case element_type::float32: return std::bit_cast<std::uint32_t>(f);
        case element_type::float16: return vccl::float16::narrow(f);
        case element_type::bfloat16: return vccl::bfloat16::narrow(f);
        case element_type::int32: return static_cast<std::uint32_t>(v);
        default: return static_cast<std::uint64_t>(v);
    }
}
template <class Number>
void fill(element_type t, std::byte* at, std::uint64_t count, Number&& number) {
    const std::size_t size = size_of(t);
    for (std::uint64_t i = 0; i < count; ++i, at += size) {
        const std::uint64_t e = element(t, number(i));
        std::memcpy(at, &e, size);
    }
}
/// How many elements are not what they should be.
template <class Number>
std::uint64_t wrong(element_type t, const std::byte* at, std::uint64_t count, Number&& number) {
    const std::size_t size = size_of(t);
    std::uint64_t n = 0;
    for (std::uint64_t i = 0; i < count; ++i, at += size) {
        const std::uint64_t e = element(t, number(i));
        n += std::memcmp(at, &e, size) != 0;
    }
    return n;
}

}  // namespace coll_example
