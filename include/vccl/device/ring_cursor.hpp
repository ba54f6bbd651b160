#pragma once
/// \file
/// Where the posters of a host ring are, and how far there is room, in one word: so one addition claims words and learns whether
/// they may be written. Pure functions on values.
///
/// A claim that finds too little room is void, and so are all that come after it, whatever they ask for, because they begin
/// beyond the limit: nobody else's claim begins within it. The first of them therefore has the cursor to itself. It waits for
/// room and sets the cursor anew, behind its own words; or, if it gives up, to where they would have begun. So a poster that
/// gives up leaves no hole.

#include <vccl/base/config.hpp>

#include <cstdint>

namespace vccl::inline v0::device {

/// Both count words since the ring was made, modulo 2^32: a ring has at most 2^30.
struct ring_cursor {
    std::uint32_t next{};   ///< the first word that nobody has claimed
    std::uint32_t limit{};  ///< the words before it may be written

    /// To and from the word that posters add to.
    /// @{
    VCCL_HOST_DEVICE static constexpr ring_cursor unpack(std::uint64_t w) noexcept {
        return {static_cast<std::uint32_t>(w >> 32), static_cast<std::uint32_t>(w)};
    }
    VCCL_HOST_DEVICE constexpr std::uint64_t pack() const noexcept { return std::uint64_t{next} << 32 | limit; }
    /// @}
    /// What has to be added to a packed one to claim `n` words.
    VCCL_HOST_DEVICE static constexpr std::uint64_t claim(std::uint32_t n) noexcept { return std::uint64_t{n} << 32; }

    /// Words; negative while somebody waits for room, and `next` means nothing then.
    VCCL_HOST_DEVICE constexpr std::int32_t room() const noexcept { return static_cast<std::int32_t>(limit - next); }
    /// The same cursor once the proxy has taken the words before `consumed` of a ring of `size`. An old look brings nothing: the
    /// limit was set by another one, and the proxy has been given no more than one ring since.
    VCCL_HOST_DEVICE constexpr ring_cursor with_taken(std::uint64_t consumed, std::uint32_t size) const noexcept {
        const std::uint32_t more = static_cast<std::uint32_t>(consumed) + size - limit;
        return {next, more <= size ? limit + more : limit};
    }
    /// Nothing was claimed beyond it: next, or, while somebody waits for room, limit. Counted in 64 bits, of which `near` is less
    /// than 2^31 away.
    VCCL_HOST_DEVICE constexpr std::uint64_t end_near(std::uint64_t near) const noexcept {
        const std::uint32_t end = room() < 0 ? limit : next;
        return near + static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(end - static_cast<std::uint32_t>(near))});
    }
    /// So many words were claimed in vain that it is time to forget them, lest their number goes round.
    VCCL_HOST_DEVICE constexpr bool is_far_beyond() const noexcept { return room() < -(1 << 30); }
    /// The same while somebody has it to himself, and nothing was claimed in vain: every claim is void.
    VCCL_HOST_DEVICE constexpr ring_cursor closed() const noexcept { return {limit + 1, limit}; }
};

}  // namespace vccl::inline v0::device
