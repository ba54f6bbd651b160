#pragma once
/// \file
/// Big-endian numbers as NICs want them, also in constant expressions and in kernels. CPU compilers turn the shifts into one
/// instruction; nvcc does not, and is told. Any thread.

#include <vccl/base/config.hpp>

#include <cstdint>

namespace vccl::inline v0 {

/// The value whose bytes in memory are those of `v` in the opposite order; its own inverse.
VCCL_HOST_DEVICE constexpr std::uint16_t big_endian(std::uint16_t v) noexcept {
    return static_cast<std::uint16_t>(v << 8 | v >> 8);
}
VCCL_HOST_DEVICE constexpr std::uint32_t big_endian(std::uint32_t v) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) return __byte_perm(v, 0, 0x0123);
#endif
    return v << 24 | (v & 0xff00) << 8 | (v >> 8 & 0xff00) | v >> 24;
}
VCCL_HOST_DEVICE constexpr std::uint64_t big_endian(std::uint64_t v) noexcept {
    return std::uint64_t{big_endian(static_cast<std::uint32_t>(v))} << 32 | big_endian(static_cast<std::uint32_t>(v >> 32));
}
/// Two 32-bit big-endian fields, `first` at the lower address.
VCCL_HOST_DEVICE constexpr std::uint64_t big_endian_pair(std::uint32_t first, std::uint32_t second) noexcept {
    return big_endian(std::uint64_t{first} << 32 | second);
}

}  // namespace vccl::inline v0
