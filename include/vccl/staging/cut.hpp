#pragma once
/// \file
/// How a message is cut into slices, by the sender alone, and what a slice brings along. Pure; any thread.

#include <cstdint>

namespace vccl::inline v0 {

/// The last byte of each slice, behind what it carries of the message.
enum class slice_mark : std::uint8_t {
    more,  ///< the message goes on
    last   ///< it ends with this slice
};
static_assert(sizeof(slice_mark) == 1);

/// How many bytes the next slice of a message takes, of which `done` are in slices and `left` are not. A message that fits
/// one slice is one. A longer one begins and ends with small slices, down to `least`: until the first has come through,
/// nobody after the sender has anything to do, and when the last is read, all the others still have it before them. Those in
/// between have `most` bytes, since every copy costs a few microseconds, whatever its size.
/// Requires: most != 0.
constexpr std::uint32_t next_slice(std::uint64_t done, std::uint64_t left, std::uint32_t most, std::uint32_t least) noexcept {
    const bool even = least == 0 || least >= most;
    if (left <= most && (even || done == 0 || left <= std::uint64_t{least} + least / 2)) return static_cast<std::uint32_t>(left);
    if (even) return most;
    constexpr std::uint64_t grain = 4096;  // copies that begin on page boundaries
    const std::uint64_t grown = least + done, half = (left / 2 + grain - 1) / grain * grain;
    std::uint64_t size = most;
    if (size > grown) size = grown;
    if (size > half) size = half > least ? half : least;
    return static_cast<std::uint32_t>(size < left ? size : left);
}

}  // namespace vccl::inline v0
