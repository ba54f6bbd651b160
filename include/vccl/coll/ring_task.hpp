#pragma once
/// \file
/// One ring's share of a collective, from begin() to done(): posts receives ahead, combines or keeps what arrives, and sends
/// it on. It never waits; advance() does what can be done now. Owner thread of the collective only.
///
/// Receive i makes send i + lap_pieces possible (in a broadcast: send i). What is to be combined goes into one of two laps of
/// scratch slots, when its last contents have been sent on: that waits for a send of a lower number, and as sends and receives
/// have one order at all ranks, the wait ends.

#include <vccl/base/owned.hpp>
#include <vccl/coll/compute.hpp>
#include <vccl/coll/endpoint.hpp>
#include <vccl/coll/ring.hpp>

#include <span>

namespace vccl::inline v0 {

/// What is to be done. Blocks lie in the order of ranks: all-gather: rank r's `count` elements at r * count of `out`;
/// reduce-scatter: the same of `in`; all-reduce and broadcast: `count` elements in both.
struct ring_job {
    ring_steps steps;
    std::span<const std::uint32_t> order;  ///< the rank of each position
    memory_view in, out;
    std::uint64_t count{};
    element_type type{};
    reduce_op op{};
    std::uint32_t share{}, shares{1};      ///< which part of each block this ring takes, of how many
};

/// Sizes are multiples of 64. All ranks need the same.
struct ring_limits {
    std::uint32_t piece_bytes{256 * 1024};      ///< a chunk is at most so large
    std::uint32_t least_piece_bytes{16 * 1024}; ///< and not smaller, where there is more to send
    std::uint32_t lap_pieces{8};                ///< pieces of a block that are on their way at once
    std::uint32_t receives_ahead{64};           ///< at most the window of the receiving ends
    /// Scratch that a ring needs.
    constexpr std::uint64_t scratch_bytes() const noexcept { return std::uint64_t{2} * lap_pieces * piece_bytes; }
    constexpr bool valid() const noexcept {
        return lap_pieces != 0 && lap_pieces <= 1024 && receives_ahead != 0 && least_piece_bytes != 0 &&
               least_piece_bytes <= piece_bytes && least_piece_bytes % 64 == 0 && piece_bytes % 64 == 0 &&
               piece_bytes <= 1u << 30;
    }
};

template <chunk_sender Tx, chunk_receiver Rx, element_compute Compute>
class ring_task {
public:
    /// `scratch`: registered memory of scratch_bytes(). The ends must outlive the task.
    ring_task(Tx& next, Rx& previous, Compute& compute, const ring_limits& limits, const memory_view& scratch,
              std::uint32_t ranks)
        : tx_(next),
          rx_(previous),
          compute_(compute),
          limits_(limits),
          scratch_(scratch),
          blocks_(new block_place[ranks]),
          slots_(new slot[2 * limits.lap_pieces]) {}

    /// Requires: done(), views and counts that fit, at least two ranks.
    void begin(const ring_job& job) noexcept {
        job_ = job;
        size_ = size_of(job.type);
        lay_out();
        posted_ = arrived_ = combined_ = sent_ = retired_ = {};
        for (unsigned s = 0; s < 2 * limits_.lap_pieces; ++s) slots_[s] = slot{};
        outstanding_ = 0;
        receiving_ = sending_ = false;
        copied_ = 0;
    }

    bool done() const noexcept { return combined_.index == total_ && retired_.index == total_ && compute_.done(copied_); }
    /// Why it cannot go on; ok while it can.
    status why() const noexcept { return why_; }

    /// Effects: what can be done now. Returns: whether that was anything.
    bool advance() noexcept {
        if (!why_ || done()) return false;
        bool moved = take_arrivals();
        moved |= take_combined();
        moved |= post_receives();
        moved |= post_sends();
        moved |= retire_sends();
        if (!moved && why_) why_ = trouble();
        return moved;
    }

private:
    struct block_place {
        std::uint64_t in, out, length;  ///< elements
    };
    /// Scratch for one piece: which receive used it last, and the ticket of its combination.
    struct slot {
        std::uint64_t receive{}, ticket{};
        bool used{}, completed{};  ///< completed: it went into the output; else into a send
    };

    /// Of what is still needed: a neighbour that is done may have closed.
    status trouble() const noexcept {
        if (arrived_.index != total_ && !rx_.health()) return rx_.health();
        if (retired_.index != total_ && !tx_.health()) return tx_.health();
        return compute_.health();
    }

    void lay_out() noexcept {
        const ring_steps& s = job_.steps;
        const std::uint64_t grain = 64 / size_, offset = job_.count;
        std::uint64_t largest = 0;
        for (std::uint32_t p = 0; p < s.ranks(); ++p) {
            const std::uint64_t rank = job_.order[p];
            element_range whole{0, job_.count};
            if (s.algorithm() == ring_algorithm::all_reduce) whole = split(whole, s.ranks(), rank, grain);
            const element_range r = split(whole, job_.shares, job_.share, grain);
            blocks_[p] = {r.begin + (s.algorithm() == ring_algorithm::reduce_scatter ? rank * offset : 0),
                          r.begin + (s.algorithm() == ring_algorithm::all_gather ? rank * offset : 0), r.count};
            if (r.count > largest) largest = r.count;
        }
        cut_ = ring_cut::make(largest, limits_.lap_pieces, limits_.least_piece_bytes / size_, limits_.piece_bytes / size_, grain);
        total_ = cut_.laps * s.count() * cut_.lap_pieces;
    }

    element_range piece(const block_place& b, const ring_cursor& c) const noexcept {
        return cut_.of(b.length, c.lap * cut_.lap_pieces + c.piece);
    }
    memory_view input(const block_place& b, const element_range& r) const noexcept {
        return job_.in.part((b.in + r.begin) * size_, r.count * size_);
    }
    memory_view output(const block_place& b, const element_range& r) const noexcept {
        return job_.out.part((b.out + r.begin) * size_, r.count * size_);
    }
    /// Of the receive of this lap, step and piece: two steps in turn.
    std::uint64_t slot_of(const ring_cursor& c, std::uint32_t step) const noexcept {
        return (c.lap * (job_.steps.ranks() - 1) + step) % 2 * cut_.lap_pieces + c.piece;
    }
    memory_view slot_memory(std::uint64_t s, const element_range& r) const noexcept {
        return scratch_.part(s * limits_.piece_bytes, r.count * size_);
    }
    void step(ring_cursor& c) const noexcept { c.advance(job_.steps.count(), cut_.lap_pieces); }

    /// Has the piece that lay in this slot been sent on? Only pieces to be combined go into slots. What is final may go to its
    /// place at any time, also in place: it has passed every rank, so all that lay there has been sent and combined.
    bool room_for(const ring_cursor& c) const noexcept {
        if (!job_.steps.combines(c.step)) return true;
        const slot& s = slots_[slot_of(c, c.step)];
        return !s.used || (combined_.index > s.receive && (s.completed || retired_.index > s.receive + cut_.lap_pieces));
    }

    bool post_receives() noexcept {
        bool moved = false;
        for (; posted_.index != total_; step(posted_)) {
            const block_place& b = blocks_[job_.steps.received(posted_.step)];
            const element_range r = piece(b, posted_);
            if (!job_.steps.receives() || r.count == 0) continue;
            if (outstanding_ == limits_.receives_ahead || !room_for(posted_)) break;
            const bool combines = job_.steps.combines(posted_.step);
            const std::uint64_t s = slot_of(posted_, posted_.step);
            const auto number = rx_.recv(combines ? slot_memory(s, r) : output(b, r));
            if (!number) {
                if (number.error().code != errc::would_block) why_ = number.error();
                break;
            }
            if (combines) slots_[s] = slot{posted_.index, 0, true, job_.steps.completes(posted_.step)};
            if (!receiving_) next_arrival_ = *number;
            ++outstanding_;
            receiving_ = moved = true;
        }
        return moved;
    }

    bool take_arrivals() noexcept {
        bool moved = false;
        for (; arrived_.index != posted_.index; step(arrived_)) {
            const block_place& b = blocks_[job_.steps.received(arrived_.step)];
            const element_range r = piece(b, arrived_);
            if (!job_.steps.receives() || r.count == 0) continue;
            if (!rx_.ended(next_arrival_)) break;
            const auto bytes = rx_.outcome(next_arrival_);
            if (!bytes || *bytes != r.count * size_) {
                why_ = bytes ? status{errc::policy_mismatch, static_cast<std::uint32_t>(r.count * size_)} : bytes.error();
                if (bytes) why_.extra = static_cast<std::uint32_t>(*bytes);
                break;
            }
            next_arrival_ = next_arrival_ + std::uint64_t{1};
            --outstanding_;
            if (job_.steps.combines(arrived_.step)) {
                const std::uint64_t s = slot_of(arrived_, arrived_.step);
                void* const theirs = slot_memory(s, r).data();
                void* const to = slots_[s].completed ? output(b, r).data() : theirs;
                slots_[s].ticket = compute_.combine({to, theirs, input(b, r).data(), r.count, job_.type, job_.op});
            }
            moved = true;
        }
        return moved;
    }

    /// A slot's ticket stays until its next receive, which is posted only when this one has been combined.
    bool take_combined() noexcept {
        const std::uint64_t before = combined_.index;
        for (; combined_.index != arrived_.index; step(combined_))
            if (job_.steps.combines(combined_.step) && !compute_.done(slots_[slot_of(combined_, combined_.step)].ticket)) break;
        return combined_.index != before;
    }

    bool post_sends() noexcept {
        bool moved = false;
        for (; sent_.index != total_; step(sent_)) {
            const bool starts = job_.steps.starts(sent_.step);
            if (!starts && combined_.index <= sent_.index - (job_.steps.broadcasts() ? 0 : cut_.lap_pieces)) break;
            const block_place& b = blocks_[job_.steps.sent(sent_.step)];
            const element_range r = piece(b, sent_);
            if (r.count == 0) continue;
            if (job_.steps.sends()) {
                const auto number = tx_.send(source(b, r, starts));
                if (!number) {
                    if (number.error().code != errc::would_block) why_ = number.error();
                    break;
                }
                if (!sending_) next_end_ = *number;
                sending_ = moved = true;
            }
            if (starts) keep_own(b, r);
        }
        return moved;
    }
    memory_view source(const block_place& b, const element_range& r, bool starts) const noexcept {
        if (starts) return input(b, r);
        const std::uint32_t before = sent_.step - 1;
        if (job_.steps.broadcasts() || !job_.steps.combines(before) || job_.steps.completes(before)) return output(b, r);
        return slot_memory(slot_of(sent_, before), r);
    }
    /// One's own block belongs into the output of an all-gather and a broadcast.
    void keep_own(const block_place& b, const element_range& r) noexcept {
        const ring_algorithm a = job_.steps.algorithm();
        if (a == ring_algorithm::reduce_scatter || a == ring_algorithm::all_reduce) return;
        const memory_view from = input(b, r), to = output(b, r);
        if (from.addr() != to.addr()) copied_ = compute_.copy(to.data(), from.data(), from.bytes());
    }

    bool retire_sends() noexcept {
        const std::uint64_t before = retired_.index;
        for (; retired_.index != sent_.index; step(retired_)) {
            if (!job_.steps.sends() || piece(blocks_[job_.steps.sent(retired_.step)], retired_).count == 0) continue;
            if (!tx_.ended(next_end_)) break;
            next_end_ = next_end_ + std::uint64_t{1};
        }
        return retired_.index != before;
    }

    Tx& tx_;
    Rx& rx_;
    Compute& compute_;
    ring_limits limits_;
    memory_view scratch_;
    ring_job job_{};
    ring_cut cut_{};
    std::uint64_t size_{1}, total_{};
    owned_array<block_place> blocks_;  ///< by position
    owned_array<slot> slots_;
    ring_cursor posted_, arrived_, combined_, sent_, retired_;  ///< the next of each
    sequence next_arrival_{}, next_end_{};
    std::uint32_t outstanding_{};  ///< receives
    bool receiving_{}, sending_{};  ///< has the first chunk of this job got its number?
    std::uint64_t copied_{};  ///< ticket of the last copy
    status why_{};
};

}  // namespace vccl::inline v0
