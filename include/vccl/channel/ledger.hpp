#pragma once
/// \file
/// The receiver's ledger: which receives were posted and granted, and which parts of which chunks have arrived. Pure; it
/// knows nothing of lanes beyond what a grant says. Owner thread only.

#include <vccl/base/owned.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/policy/replay.hpp>

namespace vccl::inline v0 {

enum class chunk_phase : std::uint8_t {
    waiting,   ///< posted by the user, not granted (or its grant died with its lane)
    granted,   ///< the sender may write it
    flushing,  ///< all parts arrived; not yet visible to the GPU
    received,
};

/// The completion that would end a granted chunk in one go.
struct whole_arrival {
    std::uint32_t origin{};     ///< low half of the receive's wr_id: kind, lane, QP, generation; 0: no such completion
    std::uint32_t immediate{};  ///< of the grant: epoch, sequence, part 0 of 1
};

/// How far a chunk is; a word, so that a run of chunks is marked with one store each.
struct chunk_state {
    std::uint32_t generation{};    ///< of `lane`, when it was granted
    std::uint8_t lane{};
    chunk_phase phase{chunk_phase::waiting};
    std::uint8_t parts : 7 {};     ///< 0: not known yet
    std::uint8_t too_long : 1 {};
    std::uint8_t arrived{};        ///< a bit a part: this is what keeps a replay from counting twice (G1)
};
static_assert(sizeof(chunk_state) == 8);

struct chunk_extent {
    std::uint32_t length{};
    std::uint32_t bytes{};         ///< that have arrived

    /// The same as cts_words::make_room(length, rkey) while nothing has arrived.
    std::uint64_t fresh_room(std::uint32_t rkey) const noexcept {
        return std::bit_cast<std::uint64_t>(*this) | std::uint64_t{rkey} << 32;
    }
};

/// One posted receive as the ledger remembers it. A line of memory each.
struct alignas(64) incoming : chunk_state, chunk_extent {
    whole_arrival expected{};
    std::uint64_t addr{};
    memory_region* region{};
};

class ledger {
public:
    explicit ledger(std::uint64_t window) noexcept : window_(window), ring_(new incoming[max_window]) {}

    std::uint64_t head() const noexcept { return head_; }   ///< everything below has been received
    std::uint64_t tail() const noexcept { return tail_; }   ///< next sequence to be posted
    bool deliverable() noexcept { return head_ != tail_ && at(head_).phase == chunk_phase::received; }
    bool wants_grant() const noexcept { return granted_ != tail_; }
    incoming& at(std::uint64_t s) noexcept { return ring_[s & (max_window - 1)]; }
    static constexpr std::uint64_t contiguous(std::uint64_t s) noexcept {
        return max_window - (s & (max_window - 1));
    }  ///< chunks from `s` on, side by side
    std::uint64_t window() const noexcept { return window_; }

    /// Effects: writes down the next receive; it counts from `posted` on. (Apart, so that the caller can hold the memory in
    /// between and the tail need not stay in a register.)
    void post(std::uint64_t addr, std::uint64_t length, memory_region* region) noexcept {
        incoming& c = at(tail_);
        static_cast<chunk_state&>(c) = chunk_state{};
        static_cast<chunk_extent&>(c) = std::bit_cast<chunk_extent>(length);
        c.addr = addr;
        c.region = region;
    }
    sequence posted() noexcept { return sequence{tail_++}; }

    /// The next chunk to grant, if there is one; then call `granted`.
    bool next_grant(std::uint64_t& s) noexcept {
        while (wants_grant()) {
            if (at(granted_).phase == chunk_phase::waiting) {
                s = granted_;
                return true;
            }
            ++granted_;
        }
        return false;
    }

    /// The chunks [granted, fresh_end) were never granted; none if others come first.
    std::uint64_t next_fresh() const noexcept { return granted_; }
    std::uint64_t ungranted() const noexcept { return tail_ - granted_; }
    std::uint64_t fresh_end() const noexcept { return granted_ == fresh_ ? tail_ : granted_; }
    /// Every fresh chunk below `upto` has been granted and marked.
    void granted_run(std::uint64_t upto) noexcept { granted_ = fresh_ = upto; }
    /// Every chunk below `upto` has ended, each by its whole arrival.
    void delivered_run(std::uint64_t upto) noexcept { head_ = upto; }

    enum class arrival : std::uint8_t { part, complete, stale, violation };

    /// An immediate came in on `lane`, whose QPs were of `generation`. Sets `s` unless stale or violation.
    arrival take(unsigned lane, std::uint32_t generation, immediate imm, std::uint32_t bytes, std::uint64_t& s) noexcept {
        const std::uint64_t ahead = (imm.sequence() - head_) & immediate::sequence_mask;
        if (ahead >= tail_ - head_) return arrival::stale;
        s = head_ + ahead;
        incoming& c = at(s);
        // The line that drops old news: the chunk is bound to one lane, generation and epoch.
        if (c.phase != chunk_phase::granted || c.lane != lane || (c.generation & 0xffff) != generation ||
            immediate{c.expected.immediate}.epoch() != imm.epoch())
            return arrival::stale;
        const std::uint8_t bit = static_cast<std::uint8_t>(1u << imm.part());
        if (imm.part() >= imm.parts() || (c.parts != 0 && c.parts != imm.parts()) || bytes > c.length - c.bytes)
            return arrival::violation;
        // The line that prevents a duplicate: a part counts once.
        if (c.arrived & bit) return arrival::violation;
        c.expected.origin = 0;
        c.arrived |= bit;
        c.parts = imm.parts() & 15;
        c.bytes += bytes;
        c.too_long = imm.too_long();
        return c.arrived == (1u << c.parts) - 1 ? arrival::complete : arrival::part;
    }

    /// Effects: every chunk at the head that is received leaves; `each(sequence, incoming&)` for each, in order.
    template <class Each>
    void deliver(Each&& each) noexcept {
        while (deliverable()) {
            const std::uint64_t s = head_++;
            if (granted_ < head_) granted_ = head_;
            each(sequence{s}, at(s));
        }
    }

    /// Is anything granted on that lane, or being flushed there?
    VCCL_COLD bool outstanding_on(unsigned lane) noexcept {
        for (std::uint64_t s = head_; s != tail_; ++s) {
            const incoming& c = at(s);
            if ((c.phase == chunk_phase::granted || c.phase == chunk_phase::flushing) && c.lane == lane) return true;
        }
        return false;
    }

    /// Effects: the chunks that were granted on what `is_dead(incoming)` wait for another grant; parts that arrived stay, but
    /// for those that a flush was to make visible.
    template <class IsDead>
    VCCL_COLD void take_back(IsDead&& is_dead) noexcept {
        for (std::uint64_t s = head_; s != tail_; ++s) {
            incoming& c = at(s);
            const bool dead = is_dead(c);
            if (dead) c.expected.origin = 0;
            if (c.phase == chunk_phase::granted && dead) c.phase = chunk_phase::waiting;
            if (c.phase == chunk_phase::flushing && dead) {
                c.phase = chunk_phase::waiting;
                c.arrived = 0;
                c.bytes = 0;
            }
        }
        granted_ = head_;
    }

    /// A flush ended. Failed: the chunk counts as not received (G9); its lane's fault sends it round again.
    void flushed(std::uint64_t s, bool ok) noexcept {
        incoming& c = at(s);
        if (s < head_ || s >= tail_ || c.phase != chunk_phase::flushing) return;
        if (ok) c.phase = chunk_phase::received;
    }

protected:
    std::uint64_t window_;
    owned_array<incoming> ring_;
    std::uint64_t head_{}, granted_{}, fresh_{}, tail_{};
};

}  // namespace vccl::inline v0
