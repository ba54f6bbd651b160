#pragma once
/// \file
/// `communicator`: the collectives of one rank, over ends that somebody else connected. One operation at a time: a call
/// begins it and returns at once, progress() moves it, done() and wait() end it. Owner thread only.
///
/// All ranks begin the same operations in the same order with the same counts, types, ring_limits and rings. That is the caller's
/// duty: a difference in bytes is noticed (policy_mismatch), but a chunk does not say of which operation and type it is, which every
/// chunk would have to pay for. Sum here and max there, or int32 here and float32 there, give wrong elements and no error.
///
/// Until an operation has ended, its buffers belong to it; after a failure, until the ends are destroyed. A failure is final, and
/// is passed on to all peers: the ends are aborted.

#include <vccl/base/clock.hpp>
#include <vccl/coll/exchange_task.hpp>
#include <vccl/coll/gathered.hpp>
#include <vccl/coll/ring_task.hpp>

#include <sched.h>
#include <vector>

namespace vccl::inline v0 {

namespace detail {
inline bool names_each_once(const std::vector<std::uint32_t>& order, std::uint32_t ranks) {
    std::vector<bool> seen(ranks);
    for (const std::uint32_t r : order) {
        if (r >= ranks || seen[r]) return false;
        seen[r] = true;
    }
    return order.size() == ranks;
}
}  // namespace detail

/// A ring as one rank sees it: the order of the ranks in it, the end towards the next and the end from the previous one.
template <class Tx, class Rx>
struct ring_link {
    std::vector<std::uint32_t> order;  ///< ranks, each once; the same at all of them
    Tx* next{};  ///< null on a ring of one rank
    Rx* previous{};  ///< null on a ring of one rank
};

/// The ends of one rank. `to` and `from`, by rank, are for send, receive and all-to-all; empty if these are not used.
template <class Tx, class Rx>
struct communicator_links {
    std::vector<ring_link<Tx, Rx>> rings;  ///< an operation is cut over all of them
    /// By rank, null at one's own.
    /// @{
    std::vector<Tx*> to;
    std::vector<Rx*> from;
    /// @}
};

/// See the top of this header for what all ranks must do alike.
template <chunk_sender Tx, chunk_receiver Rx, element_compute Compute = cpu_compute, clock_source Clock = steady_clock>
class communicator {
public:
    using links = communicator_links<Tx, Rx>;  ///< what it was made with

    /// `scratch`: registered memory of scratch_bytes(); it and the ends must outlive the communicator.
    communicator(std::uint32_t rank, std::uint32_t ranks, links ends, const memory_view& scratch, const ring_limits& limits = {},
                 Compute compute = {}, Clock clock = {})
        : rank_(rank),
          ranks_(ranks),
          links_(std::move(ends)),
          limits_(limits),
          scratch_(scratch),
          compute_(std::move(compute)),
          clock_(std::move(clock)) {
        why_ = prepare();
    }
    communicator(const communicator&) = delete;
    communicator& operator=(const communicator&) = delete;

    /// Two laps of pieces a ring, and in an all-to-all in place two pieces a peer.
    static constexpr std::uint64_t scratch_bytes(std::size_t rings, std::uint32_t ranks, const ring_limits& limits) noexcept {
        const std::uint64_t for_rings = rings * limits.scratch_bytes(), for_peers = std::uint64_t{2 * 64} * ranks;
        return for_rings > for_peers ? for_rings : for_peers;
    }

    /// As it was made with; ranks count from 0.
    /// @{
    std::uint32_t rank() const noexcept { return rank_; }
    std::uint32_t ranks() const noexcept { return ranks_; }
    /// @}
    /// To ask it for what it knows; not to be called while an operation is under way.
    Compute& compute() noexcept { return compute_; }

    // Each call begins an operation. Errors: busy (one is under way), not_registered, out_of_range, invalid_argument (a view
    // does not fit the count; nothing was begun), unsupported (no such ends), or why the communicator failed. Counts are in
    // elements. In place means: one's own block lies where the result has it.

    /// Rank r's `count` elements to r * count of every `out`. In place: in = out + rank * count.
    status all_gather(const memory_view& in, const memory_view& out, std::uint64_t count, element_type type) noexcept {
        return begin_ring(ring_algorithm::all_gather, in, out, count, type, reduce_op::sum, 0);
    }
    /// `ranks * count` elements of every `in`, combined; block r to rank r's `out`. In place: out = in + rank * count. Other
    /// blocks of `in` are only read.
    status reduce_scatter(const memory_view& in, const memory_view& out, std::uint64_t count, element_type type,
                          reduce_op op) noexcept {
        return begin_ring(ring_algorithm::reduce_scatter, in, out, count, type, op, 0);
    }
    /// `count` elements of every `in`, combined, to every `out`, with the same bits at each. In place: out = in.
    status all_reduce(const memory_view& in, const memory_view& out, std::uint64_t count, element_type type,
                      reduce_op op) noexcept {
        return begin_ring(ring_algorithm::all_reduce, in, out, count, type, op, 0);
    }
    /// `root`'s `count` elements to every `out`; `in` is looked at there only. In place: out = in.
    status broadcast(const memory_view& in, const memory_view& out, std::uint64_t count, element_type type,
                     std::uint32_t root) noexcept {
        if (root >= ranks_) return status{errc::invalid_argument, root};
        return begin_ring(ring_algorithm::broadcast, rank_ == root ? in : out, out, count, type, reduce_op::sum, root);
    }

    /// Grouped sends and receives. The nth transfer to a peer meets its nth from here, and they have the same size (another
    /// size ends the communicator with policy_mismatch). Those of a rank to itself, too. The lists must stay.
    status exchange(std::span<const transfer> sends, std::span<const transfer> receives) noexcept {
        if (status s = ready(); !s) return s;
        if (status s = check(sends); !s) return s;
        if (status s = check(receives); !s) return s;
        if (status s = to_self(sends, receives); !s) return s;
        begin_exchange(sends, receives, {});
        return {};
    }
    /// Block p of `in` to block `rank` of rank p's `out`, for all p. In place: out = in.
    status all_to_all(const memory_view& in, const memory_view& out, std::uint64_t count, element_type type) noexcept {
        if (status s = fits(in, ranks_ * count * size_of(type), out, ranks_ * count * size_of(type)); !s) return s;
        if (status s = ready(); !s) return s;
        const std::uint64_t bytes = count * size_of(type);
        sends_.clear();
        receives_.clear();
        const bool in_place = in.addr() == out.addr();
        for (std::uint32_t p = 0; p < ranks_; ++p) {
            if (p == rank_ && in_place) continue;
            sends_.push_back({p, in.part(p * bytes, bytes)});
            receives_.push_back({p, out.part(p * bytes, bytes)});
        }
        if (!in_place) return exchange(sends_, receives_);
        if (peers_.empty() && ranks_ > 1) return errc::unsupported;
        begin_exchange(sends_, receives_, scratch_);
        return {};
    }
    /// As all_to_all, with counts and places (in elements) of one's own for each peer. Not in place.
    status all_to_all_v(const memory_view& in, std::span<const element_range> to, const memory_view& out,
                        std::span<const element_range> from, element_type type) noexcept {
        if (to.size() != ranks_ || from.size() != ranks_) return errc::invalid_argument;
        if (status s = ready(); !s) return s;
        const std::uint64_t size = size_of(type);
        sends_.clear();
        receives_.clear();
        for (std::uint32_t p = 0; p < ranks_; ++p) {
            sends_.push_back({p, in.part(to[p].begin * size, to[p].count * size)});
            receives_.push_back({p, out.part(from[p].begin * size, from[p].count * size)});
        }
        return exchange(sends_, receives_);
    }

    /// Has the operation that was begun last ended?
    bool done() const noexcept { return active_ == work_kind::none; }
    /// Why it failed; ok while it has not.
    status health() const noexcept { return why_; }

    /// Effects: one pass over the ends and the operation. Call it between operations, too: neighbours may still need this
    /// rank's acknowledgements, or its answer when a port fails. Returns: whether something moved.
    bool progress() noexcept {
        bool moved = false;
        for (const auto& r : links_.rings) {
            if (r.previous) moved |= r.previous->progress();
            if (r.next) moved |= r.next->progress();
        }
        for (Rx* const e : links_.from)
            if (e) moved |= e->progress();
        for (Tx* const e : links_.to)
            if (e) moved |= e->progress();
        const bool quiet = !moved;
        return (!done() && why_ && advance(quiet)) || moved;
    }

    /// Effects: progresses until the operation has ended. Errors: timeout (it goes on; wait again), or why it failed.
    status wait(nanoseconds timeout) noexcept {
        // A hop of a ring waits for another rank, which may want this very processor: few, where ranks outnumber processors.
        constexpr unsigned spins_before_yield = 32;
        const nanoseconds deadline = clock_.now() + timeout;
        for (unsigned idle = 0, passes = 0;; ++passes) {
            if (!why_) return why_;
            if (done()) return {};
            const bool moved = progress();
            if ((!moved || passes % 64 == 0) && clock_.now() >= deadline) return errc::timeout;
            idle = moved ? 0 : idle + 1;
            if (idle > spins_before_yield) ::sched_yield();
        }
    }

    /// Effects: gives up; all peers' communicators fail, too.
    void abort() noexcept { fail(errc::aborted); }

private:
    using ring = ring_task<Tx, Rx, Compute>;
    using peer = exchange_task<Tx, Rx, Compute>;
    enum class work_kind : std::uint8_t { none, ring, exchange };

    /// Makes the tasks. Returns what is wrong with the constructor's arguments.
    status prepare() {
        if (ranks_ == 0 || rank_ >= ranks_ || !limits_.valid()) return errc::invalid_argument;
        sends_.reserve(ranks_);
        receives_.reserve(ranks_);
        if (ranks_ == 1) return {};
        if (scratch_.bytes() < scratch_bytes(links_.rings.size(), ranks_, limits_)) return errc::invalid_argument;
        std::uint64_t offset = 0;
        for (const auto& r : links_.rings) {
            if (!r.next || !r.previous || !detail::names_each_once(r.order, ranks_)) return errc::invalid_argument;
            rings_.emplace_back(*r.next, *r.previous, compute_, limits_, scratch_.part(offset, limits_.scratch_bytes()), ranks_);
            offset += limits_.scratch_bytes();
        }
        if (links_.to.empty() && links_.from.empty()) return {};
        if (links_.to.size() != ranks_ || links_.from.size() != ranks_) return errc::invalid_argument;
        for (std::uint32_t step = 1; step < ranks_; ++step) {  // each begins with another peer
            const std::uint32_t p = (rank_ + step) % ranks_;
            if (!links_.to[p] || !links_.from[p]) return errc::invalid_argument;
            peers_.emplace_back(*links_.to[p], *links_.from[p], compute_, p, limits_.receives_ahead);
        }
        return {};
    }
    status ready() const noexcept { return !why_ ? why_ : !done() ? status{errc::busy} : status{}; }
    static status fits(const memory_view& in, std::uint64_t in_bytes, const memory_view& out, std::uint64_t out_bytes) noexcept {
        if (in_bytes == 0 && out_bytes == 0) return {};
        if (status s = in.check(); !s) return s;
        if (status s = out.check(); !s) return s;
        if (in.bytes() < in_bytes) return status{errc::invalid_argument, 1};
        if (out.bytes() < out_bytes) return status{errc::invalid_argument, 2};
        return {};
    }

    status check(std::span<const transfer> list) const noexcept {
        for (const transfer& t : list) {
            if (t.peer >= ranks_) return status{errc::invalid_argument, t.peer};
            if (t.peer != rank_ && peers_.empty()) return errc::unsupported;
            if (status s = t.bytes.check(); !s && t.bytes.bytes() != 0) return s;
        }
        return {};
    }

    status begin_ring(ring_algorithm a, const memory_view& in, const memory_view& out, std::uint64_t count, element_type type,
                      reduce_op op, std::uint32_t root) noexcept {
        const std::uint64_t one = count * size_of(type), all = one * ranks_;
        if (count > ~std::uint64_t{0} / 16 / ranks_) return errc::invalid_argument;
        if (status s =
                fits(in, a == ring_algorithm::reduce_scatter ? all : one, out, a == ring_algorithm::all_gather ? all : one);
            !s)
            return s;
        if (status s = ready(); !s) return s;
        if (ranks_ == 1) {
            active_ = work_kind::exchange;
            copied_ = in.addr() == out.addr() || one == 0 ? 0 : compute_.copy(out.data(), in.data(), one);
            return {};
        }
        if (rings_.empty()) return errc::unsupported;
        gathered_ = {};
        if constexpr (computes_at_once<Compute>)
            if (a == ring_algorithm::all_reduce && one <= most_gathered_bytes && all <= scratch_.bytes()) {
                gathered_ = {out, count, type, op, true};
                begin_rings(ring_algorithm::all_gather, in, scratch_, count, type, op, root);
                return {};
            }
        begin_rings(a, in, out, count, type, op, root);
        return {};
    }
    void begin_rings(ring_algorithm a, const memory_view& in, const memory_view& out, std::uint64_t count, element_type type,
                     reduce_op op, std::uint32_t root) noexcept {
        for (std::uint32_t i = 0; i < rings_.size(); ++i) {
            const std::vector<std::uint32_t>& order = links_.rings[i].order;
            const ring_steps steps(a, position_of(rank_, order), ranks_, position_of(root, order));
            rings_[i].begin({steps, order, in, out, count, type, op, i, static_cast<std::uint32_t>(rings_.size())});
        }
        active_ = work_kind::ring;
    }
    /// What was gathered becomes the result of the small all-reduce.
    void combine_gathered() noexcept {
        if constexpr (computes_at_once<Compute>)
            for (std::uint32_t i = 0; i < rings_.size(); ++i)
                copied_ = vccl::combine_gathered(compute_, links_.rings[i].order, i, static_cast<std::uint32_t>(rings_.size()),
                                                 static_cast<const std::byte*>(scratch_.data()),
                                                 static_cast<std::byte*>(gathered_.out.data()), gathered_.count, gathered_.type,
                                                 gathered_.op);
        gathered_.pending = false;
    }
    static std::uint32_t position_of(std::uint32_t rank, const std::vector<std::uint32_t>& order) noexcept {
        std::uint32_t p = 0;
        while (order[p] != rank) ++p;
        return p;
    }

    /// A rank's transfers to itself, copied.
    status to_self(std::span<const transfer> sends, std::span<const transfer> receives) noexcept {
        std::size_t r = 0;
        const auto next = [&] {
            while (r < receives.size() && receives[r].peer != rank_) ++r;
            return r < receives.size() ? &receives[r++] : nullptr;
        };
        std::uint64_t ticket = 0;
        for (const transfer& t : sends) {
            if (t.peer != rank_) continue;
            const transfer* const to = next();
            if (!to || to->bytes.bytes() != t.bytes.bytes()) return status{errc::invalid_argument, rank_};
            if (t.bytes.bytes() != 0 && t.bytes.addr() != to->bytes.addr())
                ticket = compute_.copy(to->bytes.data(), t.bytes.data(), t.bytes.bytes());
        }
        if (next()) return status{errc::invalid_argument, rank_};
        copied_ = ticket;
        return {};
    }
    void begin_exchange(std::span<const transfer> sends, std::span<const transfer> receives,
                        const memory_view& staging) noexcept {
        std::uint64_t piece = limits_.piece_bytes, share = 0;
        if (staging.bytes() != 0 && ranks_ > 1) {  // two pieces a peer
            const std::uint64_t most = staging.bytes() / (ranks_ - 1) / 2 / 64 * 64;
            if (most < piece) piece = most;
            share = 2 * piece;
        }
        for (std::size_t i = 0; i < peers_.size(); ++i)
            peers_[i].begin(sends, receives, piece, share == 0 ? memory_view{} : staging.part(i * share, share));
        active_ = work_kind::exchange;
    }

    /// An operation has ended in a pass in which the ends were `quiet`: then what arrived last has been acknowledged.
    VCCL_NOINLINE bool advance(bool quiet) noexcept {
        bool moved = false, over = quiet && compute_.done(copied_);
        const auto each = [&](auto& tasks) {
            for (auto& t : tasks) {
                moved |= t.advance();
                if (!t.why()) return fail(t.why());
                over &= t.done();
            }
        };
        if (active_ == work_kind::ring)
            each(rings_);
        else
            each(peers_);
        if (quiet && !over && why_ && !compute_.health()) return fail(compute_.health()), true;
        if (over && why_ && gathered_.pending) {
            combine_gathered();
            over = compute_.done(copied_);
        }
        if (over && why_) {
            active_ = work_kind::none;
            moved = true;
        }
        return moved;
    }

    VCCL_COLD void fail(status s) noexcept {
        if (!why_) return;
        why_ = s;
        for (auto& r : links_.rings) {
            if (r.next) r.next->abort();
            if (r.previous) r.previous->abort();
        }
        for (Tx* const e : links_.to)
            if (e) e->abort();
        for (Rx* const e : links_.from)
            if (e) e->abort();
    }

    std::uint32_t rank_, ranks_;
    links links_;
    ring_limits limits_;
    memory_view scratch_;
    Compute compute_;
    [[no_unique_address]] Clock clock_;
    std::vector<ring> rings_;
    std::vector<peer> peers_;
    struct {
        memory_view out;
        std::uint64_t count;
        element_type type;
        reduce_op op;
        bool pending;
    } gathered_{};  ///< the all-reduce that is small
    std::vector<transfer> sends_, receives_;  ///< of all-to-all
    work_kind active_{};
    std::uint64_t copied_{};  ///< ticket of the last copy of one's own
    status why_{};
};

}  // namespace vccl::inline v0
