#pragma once
/// \file
/// What dispatch and combine of a mixture of experts are about: how many tokens of how many bytes go to which rank's experts, and
/// what a row on its way looks like. The same for host ends (moe.hpp) and for kernels (moe_link.hpp). Any thread.

#include <vccl/base/config.hpp>

#include <cstdint>

namespace vccl::inline v0 {

/// The same at all ranks. Rank r has experts [r * experts / ranks, (r + 1) * experts / ranks).
struct moe_shape {
    std::uint32_t experts{};  ///< in all; a multiple of the number of ranks
    std::uint32_t top_k{};  ///< experts of a token
    std::uint32_t tokens{};  ///< of a rank, at most
    std::uint32_t token_bytes{};  ///< a multiple of 4

    static constexpr std::uint32_t no_expert = ~std::uint32_t{0};  ///< in a token's list of experts: this place is empty

    /// Do the numbers fit together? What is made with others says invalid_argument.
    VCCL_HOST_DEVICE constexpr bool valid(std::uint32_t ranks) const noexcept {
        return experts != 0 && ranks != 0 && experts % ranks == 0 && top_k != 0 && top_k <= experts && tokens != 0 &&
               token_bytes != 0 && token_bytes % 4 == 0;
    }
    /// The rank that has the expert.
    VCCL_HOST_DEVICE constexpr std::uint32_t owner(std::uint32_t expert, std::uint32_t ranks) const noexcept {
        return expert / (experts / ranks);
    }
    /// A row on its way: the token's number at its rank, its experts, padding to 16 bytes; then its bytes, padded, too.
    VCCL_HOST_DEVICE constexpr std::uint64_t head_bytes() const noexcept {
        return (std::uint64_t{4} + 4 * std::uint64_t{top_k} + 15) / 16 * 16;
    }
    /// The row's bytes on the way, head included.
    VCCL_HOST_DEVICE constexpr std::uint64_t row_bytes() const noexcept {
        return head_bytes() + (std::uint64_t{token_bytes} + 15) / 16 * 16;
    }
    /// Rows that a rank sends at most: one to each rank that has an expert of the token.
    VCCL_HOST_DEVICE constexpr std::uint64_t most_sent(std::uint32_t ranks) const noexcept {
        return std::uint64_t{tokens} * (top_k < ranks ? top_k : ranks);
    }
    /// Rows that a rank gets at most: every token of every rank.
    VCCL_HOST_DEVICE constexpr std::uint64_t most_received(std::uint32_t ranks) const noexcept {
        return std::uint64_t{tokens} * ranks;
    }
};

}  // namespace vccl::inline v0
