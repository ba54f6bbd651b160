#pragma once
/// \file
/// A request that a kernel hands to the host's proxy: one to four 8-byte words, each with a flag of its own, because a ring entry
/// is not stored in one piece. Pure functions on values; kernels encode, the proxy decodes.

#include <vccl/base/config.hpp>

#include <cstdint>

namespace vccl::inline v0::device {

enum class request_op : std::uint8_t { put = 1, get, signal, put_signal, fetch_add };

struct request {
    request_op op{};
    std::uint16_t channel{};
    std::uint8_t word{};  ///< signal word
    std::uint32_t length{};  ///< of a put or get, at most 2^30; of an addition, a packed reply_slot
    std::uint64_t remote{}, local{};  ///< offsets into the windows; 2^63 and more are out of every window, and become 2^63 - 1
    std::uint64_t value{};  ///< of a signal or addition
    friend constexpr bool operator==(const request&, const request&) noexcept = default;
};

/// Where the proxy puts the old value of an addition: two words, 63 bits and one, each with the slot's lap in bit 0.
struct reply_slot {
    static constexpr unsigned count = 64;
    std::uint32_t number{};  ///< below `count`
    std::uint32_t lap{};  ///< 0 or 1; another one whenever the slot is used again

    VCCL_HOST_DEVICE constexpr std::uint32_t pack() const noexcept { return (number + 1) << 1 | lap; }
    /// Requires: `packed` is not 0, which asks for no reply.
    VCCL_HOST_DEVICE static constexpr reply_slot unpack(std::uint32_t packed) noexcept { return {(packed >> 1) - 1, packed & 1}; }
};
/// The old value of an addition on its way to who asked; each word is written in one piece.
struct reply_words {
    std::uint64_t low{}, high{};

    VCCL_HOST_DEVICE static constexpr reply_words make(std::uint64_t value, std::uint32_t lap) noexcept {
        return {value << 1 | lap, value >> 63 << 1 | lap};
    }
    VCCL_HOST_DEVICE constexpr bool is_of(std::uint32_t lap) const noexcept { return (low & 1) == lap && (high & 1) == lap; }
    VCCL_HOST_DEVICE constexpr std::uint64_t value() const noexcept { return low >> 1 | high >> 1 << 63; }
};

inline constexpr unsigned max_request_words = 4;

/// How many words a request of this kind takes; 0: there is no such kind.
VCCL_HOST_DEVICE constexpr unsigned words_of(request_op op) noexcept {
    switch (op) {
        case request_op::put:
        case request_op::get: return 3;
        case request_op::signal:
        case request_op::fetch_add: return 2;
        case request_op::put_signal: return 4;
    }
    return 0;
}

/// The flag of a ring's word `index`: it changes with each lap, and memory that was never written has the other one.
VCCL_HOST_DEVICE constexpr std::uint64_t lap_flag(std::uint64_t index, std::uint32_t size_log) noexcept {
    return (index >> size_log & 1) ^ 1;
}

/// Word `i` of a request, without its flag in bit 0. From bit 1 of the first: kind 4, channel 16, signal word 8, the highest bit
/// of the value 1, length 31. Then whichever of remote offset, local offset and value (its low 63 bits) the kind has.
VCCL_HOST_DEVICE constexpr std::uint64_t request_word(const request& r, unsigned i) noexcept {
    if (i == 0)
        return (std::uint64_t{static_cast<std::uint8_t>(r.op)} | std::uint64_t{r.channel} << 4 | std::uint64_t{r.word} << 20 |
                r.value >> 63 << 28 | std::uint64_t{r.length} << 29)
               << 1;
    const bool moves = r.op != request_op::signal && r.op != request_op::fetch_add;
    if (!moves || i == 3) return r.value << 1;
    const std::uint64_t offset = i == 1 ? r.remote : r.local;
    return (offset >> 63 == 0 ? offset : ~std::uint64_t{0}) << 1;
}

/// From the words that words_of asks for, flags and all.
constexpr request decode_request(const std::uint64_t* w) noexcept {
    request r;
    const std::uint64_t head = w[0] >> 1;
    r.op = static_cast<request_op>(head & 15);
    r.channel = static_cast<std::uint16_t>(head >> 4);
    r.word = static_cast<std::uint8_t>(head >> 20);
    r.length = static_cast<std::uint32_t>(head >> 29 & 0x7fffffff);
    const unsigned n = words_of(r.op);
    if (n >= 3) {
        r.remote = w[1] >> 1;
        r.local = w[2] >> 1;
    }
    if (n == 2 || n == 4) r.value = w[n - 1] >> 1 | (head >> 28 & 1) << 63;
    return r;
}

}  // namespace vccl::inline v0::device
