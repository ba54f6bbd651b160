#pragma once
/// \file
/// Ring algorithms as arithmetic: who sends whose block at which step, and how blocks are cut into pieces. Pure; the same at
/// every rank, so that all of them agree without a word. Any thread.
///
///     reduce-scatter, n - 1 steps: at step k, position p sends block p - k - 1 and combines block p - k - 2 with its own
///     all-gather, n - 1 steps: the same formulas go on at step n - 1, and what arrives is final
///     all-reduce: one after the other; broadcast: one step, in which each position passes on what it gets
///
/// Steps repeat in laps of at most `lap_pieces` pieces a block, so that memory for pieces in between stays small.

#include <vccl/base/config.hpp>

#include <cstdint>

namespace vccl::inline v0 {

/// What a ring's steps amount to.
enum class ring_algorithm : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast };

/// The steps of one position of a ring. Blocks are named by the position that owns them.
class ring_steps {
public:
    constexpr ring_steps() noexcept = default;
    /// `root`: the position that broadcasts.
    constexpr ring_steps(ring_algorithm a, std::uint32_t position, std::uint32_t ranks, std::uint32_t root = 0) noexcept
        : algorithm_(a), position_(position), ranks_(ranks), root_(root) {}

    /// As it was made with.
    /// @{
    constexpr ring_algorithm algorithm() const noexcept { return algorithm_; }
    constexpr std::uint32_t position() const noexcept { return position_; }
    constexpr std::uint32_t ranks() const noexcept { return ranks_; }
    /// @}
    /// One step in which each position passes on what it gets; the others go round n - 1 times or twice that.
    constexpr bool broadcasts() const noexcept { return algorithm_ == ring_algorithm::broadcast; }
    /// Where a broadcast begins.
    constexpr bool is_root() const noexcept { return position_ == root_; }
    /// Steps of this algorithm.
    constexpr std::uint32_t count() const noexcept {
        return broadcasts() ? 1 : (algorithm_ == ring_algorithm::all_reduce ? 2 : 1) * (ranks_ - 1);
    }
    /// Does this position send at all? The last of a broadcast does not.
    constexpr bool sends() const noexcept { return !broadcasts() || (position_ + 1) % ranks_ != root_; }
    /// Does this position receive at all? The root of a broadcast does not.
    constexpr bool receives() const noexcept { return !broadcasts() || !is_root(); }
    /// The block that is sent at `step`, by the position that owns it.
    constexpr std::uint32_t sent(std::uint32_t step) const noexcept {
        return broadcasts() ? root_ : before(virtual_step(step) + 1);
    }
    /// The block that arrives at `step`, by the position that owns it.
    constexpr std::uint32_t received(std::uint32_t step) const noexcept {
        return broadcasts() ? root_ : before(virtual_step(step) + 2);
    }
    /// Is what is received at this step combined with one's own?
    constexpr bool combines(std::uint32_t step) const noexcept { return !broadcasts() && virtual_step(step) + 1 < ranks_; }
    /// Has it then passed every rank?
    constexpr bool completes(std::uint32_t step) const noexcept { return broadcasts() || virtual_step(step) + 2 >= ranks_; }
    /// Is what is sent at this step one's own, untouched?
    constexpr bool starts(std::uint32_t step) const noexcept { return broadcasts() ? is_root() : step == 0; }

private:
    constexpr std::uint32_t virtual_step(std::uint32_t step) const noexcept {
        return algorithm_ == ring_algorithm::all_gather ? step + ranks_ - 1 : step;
    }
    /// `back` positions before this one; back <= 2 * ranks_.
    constexpr std::uint32_t before(std::uint32_t back) const noexcept { return (position_ + 2 * ranks_ - back) % ranks_; }

    ring_algorithm algorithm_{};
    std::uint32_t position_{}, ranks_{1}, root_{};
};

/// Elements [begin, begin + count) of something.
struct element_range {
    /// In elements, not bytes.
    /// @{
    std::uint64_t begin{}, count{};
    /// @}
};

/// Part `i` of `n` of a range, in multiples of `grain` elements (but for the end), as equal as that allows.
constexpr element_range split(element_range r, std::uint64_t n, std::uint64_t i, std::uint64_t grain) noexcept {
    const std::uint64_t grains = (r.count + grain - 1) / grain, each = grains / n, more = grains % n;
    const auto at = [&](std::uint64_t k) {
        const std::uint64_t end = (each * k + (k < more ? k : more)) * grain;
        return end < r.count ? end : r.count;
    };
    return {r.begin + at(i), at(i + 1) - at(i)};
}

/// How every block is cut. Sizes in elements.
struct ring_cut {
    std::uint64_t piece{1};       ///< elements of a piece
    std::uint32_t lap_pieces{1};  ///< pieces of a block in a lap
    std::uint64_t laps{};         ///< so that all pieces of the largest block have had their turn

    /// `largest`: elements of the largest block. Pieces are as small as `least`, if then no lap has more than `most_pieces`, and
    /// never larger than `most`; both multiples of `grain`.
    static constexpr ring_cut make(std::uint64_t largest, std::uint32_t most_pieces, std::uint64_t least, std::uint64_t most,
                                   std::uint64_t grain) noexcept {
        ring_cut c;
        const std::uint64_t even = ((largest + most_pieces - 1) / most_pieces + grain - 1) / grain * grain;
        c.piece = even < least ? least : even > most ? most : even;
        const std::uint64_t pieces = (largest + c.piece - 1) / c.piece;
        c.lap_pieces = static_cast<std::uint32_t>(pieces < most_pieces ? (pieces == 0 ? 1 : pieces) : most_pieces);
        c.laps = (pieces + c.lap_pieces - 1) / c.lap_pieces;
        return c;
    }
    /// Piece `index` of a block, relative to it; empty beyond its end.
    constexpr element_range of(std::uint64_t block, std::uint64_t index) const noexcept {
        const std::uint64_t at = index * piece;
        if (at >= block) return {block, 0};
        return {at, block - at < piece ? block - at : piece};
    }
};

/// Where an operation stands: lap by lap, in each step by step, in each piece by piece. Sends and receives go in this order.
struct ring_cursor {
    /// Pieces so far, and the lap.
    /// @{
    std::uint64_t index{}, lap{};
    /// @}
    /// Within the lap; within the step.
    /// @{
    std::uint32_t step{}, piece{};
    /// @}

    /// To the next piece, and on to the next step and lap when it was the last.
    constexpr void advance(std::uint32_t steps, std::uint32_t lap_pieces) noexcept {
        ++index;
        if (++piece != lap_pieces) return;
        piece = 0;
        if (++step != steps) return;
        step = 0;
        ++lap;
    }
};

}  // namespace vccl::inline v0
