#pragma once
/// \file
/// How the software NIC touches user memory. Applications poll words that a peer writes, so short messages, and the last
/// word of long ones, are stored as atomics in ascending order, the last with release: who sees it sees the rest, as
/// with DMA on the NICs that the library knows. Any thread.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace vccl::inline v0::verbs::soft_detail {

/// Up to this many bytes every word is an atomic access. Longer messages that are polled all the same (a run of grants)
/// have checks by which their readers recognise torn ones; the thread sanitizer cannot know that.
#if defined(__SANITIZE_THREAD__)
#define VCCL_SOFT_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VCCL_SOFT_THREAD_SANITIZER 1
#endif
#endif
#ifdef VCCL_SOFT_THREAD_SANITIZER
inline constexpr std::size_t short_message = 256 * 64;
#undef VCCL_SOFT_THREAD_SANITIZER
#else
inline constexpr std::size_t short_message = 256;
#endif

template <class Word>
inline void copy_word(std::byte* to, const std::byte* from) noexcept {
    const Word w = std::atomic_ref<Word>(*reinterpret_cast<Word*>(const_cast<std::byte*>(from))).load(std::memory_order_acquire);
    std::atomic_ref<Word>(*reinterpret_cast<Word*>(to)).store(w, std::memory_order_release);
}

/// Word by word; the wider the better both are aligned.
inline void copy_short(std::byte* to, const std::byte* from, std::size_t n) noexcept {
    const auto skew = (reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from)) & 7;
    while (n != 0) {
        const auto at = reinterpret_cast<std::uintptr_t>(to);
        std::size_t step = 1;
        if (n >= 8 && (at & 7) == 0 && skew == 0) {
            copy_word<std::uint64_t>(to, from);
            step = 8;
        } else if (n >= 4 && (at & 3) == 0 && (skew & 3) == 0) {
            copy_word<std::uint32_t>(to, from);
            step = 4;
        } else {
            copy_word<std::uint8_t>(to, from);
        }
        to += step;
        from += step;
        n -= step;
    }
}

inline void copy_bytes(void* to, const void* from, std::size_t n) noexcept {
    auto* out = static_cast<std::byte*>(to);
    const auto* in = static_cast<const std::byte*>(from);
    if (n <= short_message) {
        copy_short(out, in, n);
        return;
    }
    const std::size_t bulk = (n - 1) & ~std::size_t{7};
    std::memcpy(out, in, bulk);
    copy_short(out + bulk, in + bulk, n - bulk);
}

/// The same for long messages into memory that no processor reads next: stores that do not fetch what they overwrite, nor
/// push out of the caches what others need.
inline void stream_bytes(void* to, const void* from, std::size_t n) noexcept {
#if defined(__SSE2__)
    constexpr std::size_t line = 64;
    if (n >= 4096 && reinterpret_cast<std::uintptr_t>(to) % line == 0) {
        const std::size_t bulk = (n - 1) / line * line;
        auto* out = static_cast<__m128i*>(to);
        const auto* in = static_cast<const __m128i*>(from);
        for (std::size_t i = 0; i < bulk / sizeof(__m128i); i += 4) {
            const __m128i a = _mm_loadu_si128(in + i), b = _mm_loadu_si128(in + i + 1), c = _mm_loadu_si128(in + i + 2),
                          d = _mm_loadu_si128(in + i + 3);
            _mm_stream_si128(out + i, a);
            _mm_stream_si128(out + i + 1, b);
            _mm_stream_si128(out + i + 2, c);
            _mm_stream_si128(out + i + 3, d);
        }
        _mm_sfence();  // before the last word, which says that the rest is there
        copy_bytes(static_cast<std::byte*>(to) + bulk, static_cast<const std::byte*>(from) + bulk, n - bulk);
        return;
    }
#endif
    copy_bytes(to, from, n);
}

}  // namespace vccl::inline v0::verbs::soft_detail
