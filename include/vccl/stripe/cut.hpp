#pragma once
/// \file
/// How a chunk is cut over stripes. Pure. The sender alone cuts: a receive of its whole room is granted on every stripe, so
/// the receiver need not know where the cuts are.

#include <vccl/base/config.hpp>

#include <bit>
#include <cstdint>

namespace vccl::inline v0 {

inline constexpr unsigned max_stripes = 8;                ///< of one channel
inline constexpr std::uint64_t min_share_bytes = 16384;   ///< a smaller share is not worth its message
inline constexpr std::uint64_t share_grain_bytes = 4096;  ///< shares are multiples of it, but for one: no packet is cut

/// What the cut weighs of one stripe.
struct stripe_load {
    std::uint64_t rate{};     ///< in any unit that all stripes share; 0: gets nothing while another has a rate
    std::uint64_t backlog{};  ///< bytes that it still has to carry
};

/// Effects: sets `share[0 .. count)`, which add up to `bytes`, so that all stripes that get anything finish at the same
/// time at their rates, backlog included; where that is impossible, those that finish last anyway get nothing.
/// Requires: 0 < count <= max_stripes.
inline void cut_over_stripes(std::uint64_t bytes, const stripe_load* load, unsigned count, std::uint64_t* share) noexcept {
    std::uint64_t rate[max_stripes]{};
    bool any = false;
    for (unsigned i = 0; i < count; ++i) any |= load[i].rate != 0;
    for (unsigned i = 0; i < count; ++i) rate[i] = any ? load[i].rate : 1;

    for (;;) {
        // The time at which all that are left finish. A share that comes out too small leaves, and the rest is cut anew.
        double to_do = static_cast<double>(bytes), rates = 0;
        unsigned left = 0;
        for (unsigned i = 0; i < count; ++i) {
            if (rate[i] == 0) continue;
            to_do += static_cast<double>(load[i].backlog);
            rates += static_cast<double>(rate[i]);
            ++left;
        }
        unsigned least = count, most = count;
        for (unsigned i = 0; i < count; ++i) {
            share[i] = 0;
            if (rate[i] == 0) continue;
            const double own = to_do / rates * static_cast<double>(rate[i]) - static_cast<double>(load[i].backlog);
            share[i] = own <= 0 ? 0 : static_cast<std::uint64_t>(own);
            if (least == count || share[i] < share[least]) least = i;
            if (most == count || share[i] > share[most]) most = i;
        }
        if (left > 1 && share[least] < min_share_bytes) {
            rate[least] = 0;
            continue;
        }
        std::uint64_t given = 0;
        for (unsigned i = 0; i < count; ++i) {
            if (i != most) share[i] &= ~(share_grain_bytes - 1);
            if (i != most) given += share[i];
        }
        share[most] = bytes - given;
        return;
    }
}

/// The stripe that takes chunk `s` if it is not cut: those named by `homes`, a bit each, in turn. Requires: homes != 0.
constexpr unsigned home_of(std::uint64_t s, std::uint32_t homes) noexcept {
    std::uint64_t nth = s % static_cast<unsigned>(std::popcount(homes));
    for (unsigned i = 0;; ++i)
        if ((homes >> i & 1) != 0 && nth-- == 0) return i;
}
static_assert(home_of(0, 0b1010) == 1 && home_of(3, 0b1010) == 3);

}  // namespace vccl::inline v0
