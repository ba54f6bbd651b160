#pragma once
/// \file
/// The share axis: how much of a chunk each stripe carries. Asked by the sender, on its owner thread, when it cuts a chunk.
/// Users write their own; the sentence below says what one lacks.

#include <vccl/base/time.hpp>
#include <vccl/model/path_distance.hpp>
#include <vccl/stripe/cut.hpp>

#include <concepts>

namespace vccl::inline v0 {

namespace axis {
struct share {};
struct stripes {};
}  // namespace axis

/// How many stripes a channel has.
template <unsigned Count>
struct stripes {
    static_assert(Count >= 1 && Count <= max_stripes, "vccl: a channel has between 1 and 8 stripes");
    using policy_axis = axis::stripes;
    static constexpr unsigned count = Count;  ///< how many ports a chunk is cut over
};

/// What a port is taken to carry that does not say so: 100 Gb/s.
inline constexpr std::uint64_t assumed_rate = 12'500'000'000;

/// A stripe as it is now.
struct stripe_view {
    std::uint64_t rate{};        ///< bytes per second of the lane in use: the slower of its two ports
    std::uint64_t first_rate{};  ///< of its first lane
    std::uint64_t measured{};    ///< what it has carried lately while it had something to carry; 0: not known
    distance far{};              ///< from the GPU to the NIC of the lane in use: the farther of both ends; 0 without a GPU
    unsigned sharing{1};         ///< stripes whose lane in use has the same port, this one included
};

/// `rate(view)`: what the stripe is to be taken to carry, in bytes per second. `levels`: are bytes under way counted, so that
/// a stripe that lags behind gets less?
template <class P>
concept share_policy = on_axis<P, axis::share> && requires(const P p, const stripe_view& v) {
    { P::levels } -> std::convertible_to<bool>;
    { p.rate(v) } noexcept -> std::same_as<std::uint64_t>;
};

/// All stripes finish at the same time. A stripe on another's port shares its rate; one that carries less than its ports
/// promise is taken at what it carries. So shares follow loss and return by themselves.
struct equal_finish {
    using policy_axis = axis::share;
    static constexpr bool levels = true;  ///< a stripe with much under way is given less
    /// What its ports promise, shared with stripes on the same port, or what it carries if that is less.
    constexpr std::uint64_t rate(const stripe_view& v) const noexcept {
        const std::uint64_t promised = v.rate / v.sharing;
        return v.measured != 0 && v.measured < promised ? v.measured : promised;
    }
};

/// Each stripe keeps its share whatever happens: it goes with the stripe to its backup lane.
struct own_share {
    using policy_axis = axis::share;
    static constexpr bool levels = false;  ///< what is under way does not count
    /// The rate that the stripe's first lane began with.
    constexpr std::uint64_t rate(const stripe_view& v) const noexcept { return v.first_rate; }
};

/// As equal_finish, but a stripe whose NIC is farther than `Most` gets at most `Percent` of its rate: 0 leaves far NICs to
/// those to whom they are near, for as long as any stripe has a near one.
template <unsigned Percent = 0, distance Most = path::same_numa>
struct far_at_most {
    static_assert(Percent <= 100, "vccl: far_at_most takes a percentage");
    using policy_axis = axis::share;
    static constexpr bool levels = true;  ///< a stripe with much under way is given less
    /// As equal_finish, but `Percent` of it while the stripe goes a long way round.
    constexpr std::uint64_t rate(const stripe_view& v) const noexcept {
        const std::uint64_t all = equal_finish{}.rate(v);
        return v.far > Most ? all / 100 * Percent : all;
    }
};

static_assert(share_policy<equal_finish> && share_policy<own_share> && share_policy<far_at_most<>>);

}  // namespace vccl::inline v0
