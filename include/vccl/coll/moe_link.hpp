#pragma once
/// \file
/// Dispatch and combine of a mixture of experts, by device code: what a kernel holds of it, and the three steps that it takes. Trivially
/// copyable; a scope for each stream. In kernels, and in a host build on any threads. The owner is `device_moe`.
///
/// A *stream* is a queue to one peer: its tokens, and the tails that count them, share one QP, so that a tail that has come tells that
/// the tokens have. `parts` streams a peer: token t goes by part t mod parts. A round is, at every rank,
///
///     dispatch   on every stream: how many rows, then each row and its tail
///     serve      on every stream: each row, as it comes, through the user's experts; the result back, and its tail
///     collect    on every stream: waits for the results; then, when all streams have, add_up for every token

#include <vccl/coll/moe_shape.hpp>
#include <vccl/coll/reduce.hpp>
#include <vccl/device/receiver_ref.hpp>
#include <vccl/device/scope.hpp>

namespace vccl::inline v0 {

namespace detail {

/// Threads of a scope.
template <class Scope>
VCCL_HOST_DEVICE unsigned width_of(Scope) noexcept {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<Scope, warp_scope>) return 32;
    if constexpr (std::is_same_v<Scope, block_scope>) return blockDim.x * blockDim.y * blockDim.z;
#endif
    return 1;
}

/// Moved in one piece where it is aligned.
struct alignas(16) sixteen_bytes {
    std::byte at[16];
};

}  // namespace detail

/// The memory and the queue of one stream. Written by the owner before kernels run.
template <class TxRef>
struct moe_link {
    TxRef tx{};  ///< one queue; not used by a rank's stream to itself
    device::receiver_ref rx{};  ///< the peer's tails
    std::byte* out{};  ///< rows to the peer, then results of its rows
    std::byte* in{};  ///< rows from the peer, then results of this rank's rows; a rank's own are `out`
    std::uint64_t offset{};  ///< of both in their windows
    std::uint32_t* places{};  ///< the row of each token of this stream, or moe_shape::no_expert; behind them how many rows
    std::uint64_t* own{};  ///< signal words of a rank's stream to itself; null for others
    std::uint32_t word{};  ///< the first of this stream's `words` signal words

    static constexpr std::uint32_t words = 3;  ///< rows that will come; rows that came; results that came
};

/// A row at the rank that has its experts.
struct moe_token {
    std::uint32_t source{};  ///< its rank
    std::uint32_t token{};  ///< its number there
    const std::uint32_t* experts{};  ///< top_k of them: those of the token that are here, the others no_expert
    const std::byte* bytes{};  ///< shape.token_bytes
    std::byte* result{};  ///< to be written: result_bytes
};

/// Sizes that all ranks agree on, as far as device code needs them.
struct moe_layout {
    moe_shape shape{};  ///< experts, tokens and their bytes
    std::uint32_t result_bytes{};  ///< of what the experts make of a token; a multiple of 16, like shape.token_bytes
    std::uint32_t ranks{};  ///< each has as many experts
    std::uint32_t parts{1};  ///< streams between two ranks: queues of a sender, at most 10

    /// Do the numbers fit together?
    constexpr bool valid() const noexcept {
        return shape.valid(ranks) && shape.token_bytes % 16 == 0 && result_bytes != 0 && result_bytes % 16 == 0 && parts != 0 &&
               parts <= 10;
    }
    /// Tokens of a stream, at most.
    VCCL_HOST_DEVICE constexpr std::uint64_t rows() const noexcept { return (shape.tokens + parts - 1) / parts; }
    /// Where in a stream's window row i lies, and the result of row i behind all rows.
    /// @{
    VCCL_HOST_DEVICE constexpr std::uint64_t row(std::uint64_t i) const noexcept { return i * shape.row_bytes(); }
    VCCL_HOST_DEVICE constexpr std::uint64_t result(std::uint64_t i) const noexcept { return row(rows()) + i * result_bytes; }
    /// @}
    /// Of a stream, in each direction.
    VCCL_HOST_DEVICE constexpr std::uint64_t stream_bytes() const noexcept { return result(rows()); }
    /// Of all streams between two ranks.
    VCCL_HOST_DEVICE constexpr std::uint64_t window_bytes() const noexcept { return parts * stream_bytes(); }
};

/// All streams of a rank, as a kernel holds them; made by a device_moe.
template <class TxRef>
class moe_streams {
public:
    moe_streams() = default;
    /// Made by the owner. `links`: parts for rank 0, then parts for rank 1, ...
    VCCL_HOST_DEVICE moe_streams(const moe_layout& layout, std::uint32_t rank, const moe_link<TxRef>* links) noexcept
        : layout_(layout), rank_(rank), links_(links) {}

    VCCL_HOST_DEVICE const moe_layout& layout() const noexcept { return layout_; }  ///< what all ranks agree on
    VCCL_HOST_DEVICE std::uint32_t rank() const noexcept { return rank_; }  ///< this one

    /// Effects: sends those of `count` tokens that are this stream's and have an expert at the peer; returns when they have
    /// arrived. `tokens`: aligned to 16, one behind the other; `experts`: top_k a token, no_expert for none. `round`: from 1, the
    /// next at each round. Errors: error with local_qp_operation (more tokens than agreed, an expert that does not exist: nothing
    /// was sent), otherwise as the queue's.
    template <class Scope>
    VCCL_HOST_DEVICE device::device_result dispatch(Scope who, std::uint32_t peer, std::uint32_t part, std::uint32_t round,
                                                    const void* tokens, std::uint32_t count, const std::uint32_t* experts) const {
        const moe_link<TxRef>& l = link(peer, part);
        const moe_shape& s = layout_.shape;
        if (count > s.tokens) return {device::outcome::error, device::syndrome::local_qp_operation};
        std::uint32_t rows = 0;
        for (std::uint32_t t = part; t < count; t += layout_.parts) {
            bool here = false;
            for (std::uint32_t k = 0; k < s.top_k; ++k) {
                const std::uint32_t e = experts[std::uint64_t{t} * s.top_k + k];
                if (e == moe_shape::no_expert) continue;
                if (e >= s.experts) return {device::outcome::error, device::syndrome::local_qp_operation};
                here |= s.owner(e, layout_.ranks) == peer;
            }
            if (who.rank() == 0) l.places[t / layout_.parts] = here ? rows : moe_shape::no_expert;
            rows += here ? 1 : 0;
        }
        if (who.rank() == 0) l.places[layout_.rows()] = rows;
        if (const auto r = tell(who, l, 0, number(round, rows)); !r) return r;
        std::uint32_t i = 0;
        for (std::uint32_t t = part; t < count && i < rows; t += layout_.parts) {
            who.sync();
            if (l.places[t / layout_.parts] == moe_shape::no_expert) continue;
            std::byte* const row = l.out + layout_.row(i);
            if (who.rank() == 0) {
                auto* const head = reinterpret_cast<std::uint32_t*>(row);
                head[0] = t;
                for (std::uint32_t k = 0; k < s.top_k; ++k) {
                    const std::uint32_t e = experts[std::uint64_t{t} * s.top_k + k];
                    head[1 + k] = e != moe_shape::no_expert && s.owner(e, layout_.ranks) == peer ? e : moe_shape::no_expert;
                }
            }
            copy(who, row + s.head_bytes(), static_cast<const std::byte*>(tokens) + std::uint64_t{t} * s.token_bytes,
                 s.token_bytes);
            if (const auto r = push(who, l, layout_.row(i), s.row_bytes(), 1, number(round, i + 1)); !r) return r;
            ++i;
        }
        return l.own ? device::device_result{} : l.tx.flush(who);
    }

    /// Effects: takes the rows of this round off the stream, each as it comes: `experts(who, moe_token)` by all threads of the scope;
    /// and sends the results back. Errors: error with bad_response (what came is no row of such a round), otherwise as the queue's.
    template <class Scope, class Experts>
    VCCL_HOST_DEVICE device::device_result serve(Scope who, std::uint32_t peer, std::uint32_t part, std::uint32_t round,
                                                 Experts&& experts) const {
        const moe_link<TxRef>& l = link(peer, part);
        const moe_shape& s = layout_.shape;
        if (const auto r = l.rx.wait_signal(who, l.word, number(round, 0)); !r) return r;
        // The peer begins no further round before it has all results of this one, so the word stays.
        const std::uint64_t told = who.broadcast(l.rx.peek(l.word)) - number(round, 0);
        if (told > layout_.rows()) return {device::outcome::error, device::syndrome::bad_response};
        for (std::uint32_t i = 0; i < told; ++i) {
            if (const auto r = l.rx.wait_signal(who, l.word + 1, number(round, i + 1)); !r) return r;
            const std::byte* const row = l.in + layout_.row(i);
            const auto* const head = reinterpret_cast<const std::uint32_t*>(row);
            const moe_token token{peer, head[0], head + 1, row + s.head_bytes(), l.out + layout_.result(i)};
            for (std::uint32_t k = 0; k < s.top_k; ++k) {
                const std::uint32_t e = token.experts[k];
                if (e != moe_shape::no_expert && (e >= s.experts || s.owner(e, layout_.ranks) != rank_))
                    return {device::outcome::error, device::syndrome::bad_response};
            }
            experts(who, token);
            if (const auto r = push(who, l, layout_.result(i), layout_.result_bytes, 2, number(round, i + 1)); !r) return r;
        }
        return l.own ? device::device_result{} : l.tx.flush(who);
    }

    /// Effects: waits for the results of what was dispatched on the stream in this round.
    template <class Scope>
    VCCL_HOST_DEVICE device::device_result collect(Scope who, std::uint32_t peer, std::uint32_t part, std::uint32_t round) const {
        const moe_link<TxRef>& l = link(peer, part);
        const std::uint32_t rows = l.places[layout_.rows()];
        return rows == 0 ? device::device_result{} : l.rx.wait_signal(who, l.word + 2, number(round, rows));
    }

    /// Effects: `out` becomes the sum of a token's results, in the order of ranks, rounded at each; zero for a token without experts.
    /// Every stream has been collected. `out`: result_bytes, aligned to 16.
    template <class Scope>
    VCCL_HOST_DEVICE void add_up(Scope who, std::uint32_t token, void* out, element_type type) const noexcept {
        auto* const to = static_cast<detail::sixteen_bytes*>(out);
        switch (type) {
            case element_type::float32: return sum<detail::plain_element<float>>(who, token, to);
            case element_type::float16: return sum<detail::half_element<float16>>(who, token, to);
            case element_type::bfloat16: return sum<detail::half_element<bfloat16>>(who, token, to);
            case element_type::int32: return sum<detail::plain_element<std::uint32_t>>(who, token, to);
            case element_type::int64: return sum<detail::plain_element<std::uint64_t>>(who, token, to);
        }
    }

private:
    /// Grows from row to row and from round to round, as signal words must.
    VCCL_HOST_DEVICE static constexpr std::uint64_t number(std::uint32_t round, std::uint32_t rows) noexcept {
        return (std::uint64_t{round} << 32) + rows;
    }
    VCCL_HOST_DEVICE const moe_link<TxRef>& link(std::uint32_t peer, std::uint32_t part) const noexcept {
        return links_[std::uint64_t{peer} * layout_.parts + part];
    }
    template <class Scope>
    VCCL_HOST_DEVICE static void copy(Scope who, std::byte* to, const std::byte* from, std::uint32_t bytes) noexcept {
        auto* const t = reinterpret_cast<detail::sixteen_bytes*>(to);
        const auto* const f = reinterpret_cast<const detail::sixteen_bytes*>(from);
        for (std::uint32_t i = who.rank(); i < bytes / 16; i += detail::width_of(who)) t[i] = f[i];
    }
    template <class Scope>
    VCCL_HOST_DEVICE static device::device_result push(Scope who, const moe_link<TxRef>& l, std::uint64_t at, std::uint64_t bytes,
                                                       std::uint32_t word, std::uint64_t value) {
        if (!l.own) return l.tx.put_signal(who, l.offset + at, l.offset + at, bytes, l.word + word, value);
        return tell(who, l, word, value);
    }
    template <class Scope>
    VCCL_HOST_DEVICE static device::device_result tell(Scope who, const moe_link<TxRef>& l, std::uint32_t word,
                                                       std::uint64_t value) {
        if (!l.own) return l.tx.signal(who, l.word + word, value);
        who.sync();
        // Pairs with the acquire of wait_signal: a rank's own rows were written by this scope.
        if (who.rank() == 0) device::store<device::order::release, device::scope::system>(&l.own[l.word + word], value);
        return {};
    }
    template <class Element, class Scope>
    VCCL_HOST_DEVICE void sum(Scope who, std::uint32_t token, detail::sixteen_bytes* out) const noexcept {
        constexpr std::size_t each = 16 / sizeof(typename Element::stored);
        const std::uint32_t part = token % layout_.parts, place = token / layout_.parts;
        for (std::uint32_t v = who.rank(); v < layout_.result_bytes / 16; v += detail::width_of(who)) {
            detail::sixteen_bytes all{};
            for (std::uint32_t p = 0; p < layout_.ranks; ++p) {
                const moe_link<TxRef>& l = link(p, part);
                if (l.places[place] == moe_shape::no_expert) continue;
                const auto* const from = reinterpret_cast<const detail::sixteen_bytes*>(l.in + layout_.result(l.places[place]));
                const detail::sixteen_bytes one = from[v];
                detail::reduce_block<Element, reduce_op::sum, each>(all.at, all.at, one.at);
            }
            out[v] = all;
        }
    }

    moe_layout layout_{};
    std::uint32_t rank_{};
    const moe_link<TxRef>* links_{};
};

}  // namespace vccl::inline v0
