#pragma once
/// \file
/// The sender's backlog: the rollback FIFO and the cursor that walks it, forward as grants come and back when a lane
/// dies. Pure. Owner thread only.

#include <vccl/model/wire.hpp>
#include <vccl/policy/replay.hpp>

#include <utility>

namespace vccl::inline v0 {

/// What a sync makes of the chunks that were posted on lanes which have died.
struct setback {
    std::uint64_t replayed{};   ///< chunks that are sent again, wholly or in part
    std::uint64_t delivered{};  ///< chunks that had arrived as a whole, though never acknowledged
};

/// acked <= cursor <= posted <= tail: everything below `acked` is gone, everything below `posted` was posted at least once,
/// and the cursor is at the next chunk that wants to be.
template <replay_log Log>
class backlog {
public:
    explicit backlog(Log log) noexcept : log_(std::move(log)) {}

    std::uint64_t acked() const noexcept { return acked_; }  ///< everything below has been received by the peer
    std::uint64_t tail() const noexcept { return tail_; }    ///< next sequence to be sent
    /// How many chunks from `s` on lie behind each other in the log's memory.
    static constexpr std::uint64_t contiguous(std::uint64_t s) noexcept {
        if constexpr (requires { Log::contiguous(s); })
            return Log::contiguous(s);
        else
            return 1;
    }
    bool all_posted() const noexcept { return cursor_ == tail_; }
    bool outstanding() const noexcept { return acked_ != tail_; }
    outgoing& at(std::uint64_t s) noexcept { return log_.at(sequence{s}); }
    placement& place(std::uint64_t s) noexcept
        requires places_chunks<Log>
    {
        return log_.place(sequence{s});
    }

    sequence push(const outgoing& o) noexcept {
        log_.record(sequence{tail_++}, o);
        return sequence{tail_ - 1};
    }

    /// The next chunk that wants to be posted, fresh or rolled back: the same walk.
    bool next_post(std::uint64_t& s) noexcept {
        while (cursor_ != tail_) {
            if (!at(cursor_).posted) {
                s = cursor_;
                return true;
            }
            ++cursor_;
        }
        return false;
    }

    /// The chunks [fresh, tail) were never posted, so nothing of them has arrived; no fresh one if others come first.
    std::uint64_t fresh() const noexcept { return cursor_ == posted_ ? cursor_ : tail_; }
    /// Every fresh chunk below `upto` has been posted and marked.
    void posted_run(std::uint64_t upto) noexcept { cursor_ = posted_ = upto; }

    /// Chunk `s` has been posted.
    void passed(std::uint64_t s) noexcept {
        cursor_ = s + 1;
        if (cursor_ > posted_) posted_ = cursor_;
    }

    /// The receiver has everything below `upto`. Effects: `each(sequence, outgoing&)` for each chunk that leaves, in order.
    /// Returns false, and does nothing, if so much was never posted.
    template <class Each>
    bool retire(std::uint64_t upto, Each&& each) noexcept {
        if (upto <= acked_) return true;
        if (upto > posted_) return false;
        for (sequence s{acked_}; s.value != upto;) {
            const std::uint64_t run = contiguous(s.value), end = upto - s.value < run ? upto : s.value + run;
            for (outgoing* o = &log_.at(s); s.value != end; ++o, ++s.value) {
                each(s, *o);
                log_.retire(s);
            }
        }
        acked_ = upto;
        if (cursor_ < acked_) cursor_ = acked_;
        return true;
    }

    /// The receiver has said which generations are dead, and what has arrived from `sync.sequence` on. Effects: of what was
    /// posted on those, the missing parts want to be posted, and the cursor goes back to the first. `qps`: of a lane.
    VCCL_COLD setback roll_back(const control_message& sync, unsigned qps) noexcept {
        setback back;
        for (std::uint64_t s = acked_; s < posted_; ++s) {
            outgoing& o = at(s);
            if (!o.posted || o.generation > sync.dead_generation[o.lane]) continue;
            const std::uint64_t i = s - sync.sequence;
            o.arrived = i < sync.count ? sync.arrived[i] : 0;
            const unsigned all = (1u << (o.too_long ? 1 : cut_chunk(o.length, qps).parts)) - 1;
            if ((o.arrived & all) == all) {
                ++back.delivered;
                continue;
            }
            o.posted = false;
            ++back.replayed;
            if (s < cursor_) cursor_ = s;
        }
        return back;
    }

    /// How many of the chunks that `wanted(sequence, outgoing)` are on this generation of a lane and not acknowledged.
    template <class Wanted>
    std::uint64_t in_flight(unsigned lane, std::uint32_t generation, Wanted&& wanted) noexcept {
        std::uint64_t n = 0;
        for (std::uint64_t s = acked_; s != posted_; ++s) {
            const outgoing& o = at(s);
            n += o.posted && o.lane == lane && o.generation == generation && wanted(s, o);
        }
        return n;
    }

protected:
    Log log_;
    std::uint64_t acked_{}, cursor_{}, posted_{}, tail_{};
};

}  // namespace vccl::inline v0
