#pragma once
/// \file
/// Combining elements on the CPU: `reduce` writes a[i] (op) b[i]. It works through blocks of 16 bytes whose number of
/// elements the compiler knows, and which it keeps in vector registers, also at -O2. A kernel (cuda_compute.cuh) does the same
/// to the same blocks, so that both give the same bits. Any thread.

#include <vccl/coll/element.hpp>

#include <cstring>

namespace vccl::inline v0 {

namespace detail {

template <reduce_op Op, class T>
VCCL_HOST_DEVICE constexpr T combined(T a, T b) noexcept {
    if constexpr (Op == reduce_op::sum)
        return static_cast<T>(a + b);
    else if constexpr (Op == reduce_op::max)
        return a > b ? a : b;
    else
        return a < b ? a : b;
}

/// How an element lies in memory, and as what it is combined.
template <class Stored, class Value = Stored>
struct plain_element {
    using stored = Stored;
    VCCL_HOST_DEVICE static constexpr Value read(Stored s) noexcept { return static_cast<Value>(s); }
    VCCL_HOST_DEVICE static constexpr Stored write(Value v) noexcept { return static_cast<Stored>(v); }
};
template <class Half>
struct half_element {
    using stored = std::uint16_t;
    VCCL_HOST_DEVICE static constexpr float read(std::uint16_t s) noexcept { return Half::widen(s); }
    VCCL_HOST_DEVICE static constexpr std::uint16_t write(float v) noexcept { return Half::narrow(v); }
};

/// `count` elements, from copies: so it does not matter if `to` is `a` or `b`.
template <class Element, reduce_op Op, std::size_t Count>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void reduce_block(std::byte* to, const std::byte* a, const std::byte* b) noexcept {
    using stored = typename Element::stored;
    stored x[Count], y[Count];
    std::memcpy(x, a, sizeof x);
    std::memcpy(y, b, sizeof y);
    for (std::size_t i = 0; i < Count; ++i) x[i] = Element::write(combined<Op>(Element::read(x[i]), Element::read(y[i])));
    std::memcpy(to, x, sizeof x);
}

template <class Element, reduce_op Op>
void reduce_all(std::byte* to, const std::byte* a, const std::byte* b, std::size_t count) noexcept {
    constexpr std::size_t size = sizeof(typename Element::stored), block = 16 / size;
    for (; count >= block; count -= block, to += 16, a += 16, b += 16) reduce_block<Element, Op, block>(to, a, b);
    for (; count != 0; --count, to += size, a += size, b += size) reduce_block<Element, Op, 1>(to, a, b);
}

template <class Element>
void reduce_elements(reduce_op op, std::byte* to, const std::byte* a, const std::byte* b, std::size_t count) noexcept {
    switch (op) {
        case reduce_op::sum: return reduce_all<Element, reduce_op::sum>(to, a, b, count);
        case reduce_op::max: return reduce_all<Element, reduce_op::max>(to, a, b, count);
        case reduce_op::min: return reduce_all<Element, reduce_op::min>(to, a, b, count);
    }
}

/// Integers are added as unsigned, which wraps, and compared as signed.
template <class Signed, class Unsigned>
void reduce_integers(reduce_op op, std::byte* to, const std::byte* a, const std::byte* b, std::size_t count) noexcept {
    if (op == reduce_op::sum) return reduce_all<plain_element<Unsigned>, reduce_op::sum>(to, a, b, count);
    reduce_elements<plain_element<Signed>>(op, to, a, b, count);
}

}  // namespace detail

/// Effects: to[i] = a[i] (op) b[i] for `count` elements. `to` may be `a` or `b`; otherwise the three do not overlap.
inline void reduce(element_type type, reduce_op op, void* to, const void* a, const void* b, std::size_t count) noexcept {
    auto* const out = static_cast<std::byte*>(to);
    const auto *const x = static_cast<const std::byte*>(a), *const y = static_cast<const std::byte*>(b);
    switch (type) {
        case element_type::float32: return detail::reduce_elements<detail::plain_element<float>>(op, out, x, y, count);
        case element_type::float16: return detail::reduce_elements<detail::half_element<float16>>(op, out, x, y, count);
        case element_type::bfloat16: return detail::reduce_elements<detail::half_element<bfloat16>>(op, out, x, y, count);
        case element_type::int32: return detail::reduce_integers<std::int32_t, std::uint32_t>(op, out, x, y, count);
        case element_type::int64: return detail::reduce_integers<std::int64_t, std::uint64_t>(op, out, x, y, count);
    }
}

}  // namespace vccl::inline v0
