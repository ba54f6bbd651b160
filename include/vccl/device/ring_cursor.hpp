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
    /// The same cursor once the proxy has taken the words before `consumed` of a ring of `size`; never with less room.
    VCCL_HOST_DEVICE constexpr ring_cursor with_taken(std::uint64_t consumed, std::uint32_t size) const noexcept {
        const std::uint32_t found = static_cast<std::uint32_t>(consumed) + size;
        return {next, static_cast<std::int32_t>(found - limit) > 0 ? found : limit};
    }
    /// A cursor on which every claim is void.
    VCCL_HOST_DEVICE constexpr ring_cursor closed() const noexcept { return {limit + 1, limit}; }
};

}  // namespace vccl::inline v0::device
