#pragma once
/// \file
/// `moe_exchange`: dispatch and combine of a mixture of experts over a communicator with ends between all pairs. A token goes
/// once to each rank that has any of its experts; what these make of it comes back and is added up. Host memory; owner thread of
/// the communicator only.
///
///     dispatch -> (counts, then rows) -> the user's experts change rows in place -> combine -> (rows) -> sums

#include <vccl/coll/communicator.hpp>
#include <vccl/coll/moe_shape.hpp>

namespace vccl::inline v0 {

/// A token that came for experts of this rank. `experts`: those of the token that are here, the others no_expert.
struct moe_row {
    std::uint32_t source{};  ///< its rank
    std::uint32_t token{};   ///< its number there
    std::span<const std::uint32_t> experts;  ///< those of its experts that this rank has
    std::span<std::byte> bytes;  ///< the token's; the user's experts change them in place
};

/// One of them may be under way at a time on a communicator.
template <class Communicator>
class moe_exchange {
public:
    /// `scratch`: registered host memory of scratch_bytes(), aligned to 16; it and the communicator must outlive this.
    moe_exchange(Communicator& comm, const moe_shape& shape, const memory_view& scratch)
        : comm_(comm), shape_(shape), scratch_(scratch), to_(comm.ranks()), from_(comm.ranks()), filled_(comm.ranks()) {
        const std::uint32_t n = comm.ranks();
        if (!shape.valid(n) || scratch.bytes() < scratch_bytes(shape, n) || scratch.addr() % 16 != 0) {
            why_ = errc::invalid_argument;
            return;
        }
        counts_out_ = scratch.part(0, counts_bytes(n));
        counts_in_ = scratch.part(counts_bytes(n), counts_bytes(n));
        sent_ = scratch.part(2 * counts_bytes(n), shape.most_sent(n) * shape.row_bytes());
        received_ = scratch.part(2 * counts_bytes(n) + sent_.bytes(), shape.most_received(n) * shape.row_bytes());
    }

    /// For both ways of the largest exchange that the shape allows.
    static constexpr std::uint64_t scratch_bytes(const moe_shape& s, std::uint32_t ranks) noexcept {
        return 2 * counts_bytes(ranks) + (s.most_sent(ranks) + s.most_received(ranks)) * s.row_bytes();
    }

    /// Effects: begins to send `count` tokens, which lie behind each other, to the ranks of their experts: top_k numbers a token,
    /// no_expert for none. The tokens are copied before it returns. Errors: busy, invalid_argument (more tokens than agreed, an
    /// expert that does not exist), or why the communicator failed.
    status dispatch(const void* tokens, std::uint32_t count, std::span<const std::uint32_t> experts) noexcept {
        if (!why_) return why_;
        if (phase_ != phase::idle && phase_ != phase::dispatched) return errc::busy;
        if (count > shape_.tokens || experts.size() != std::uint64_t{count} * shape_.top_k) return errc::invalid_argument;
        for (const std::uint32_t e : experts)
            if (e != moe_shape::no_expert && e >= shape_.experts) return status{errc::invalid_argument, e};
        lay_out_rows(static_cast<const std::byte*>(tokens), count, experts);
        tokens_ = count;
        if (status s = comm_.all_to_all(counts_out_, counts_in_, 1, element_type::int32); !s) return s;
        phase_ = phase::counting;
        return {};
    }

    /// Rows that came, when dispatch is done; valid until the next dispatch. By source, then by token. Their bytes may be changed.
    std::uint32_t rows() const noexcept { return phase_ == phase::dispatched ? rows_ : 0; }
    /// Requires: i < rows(). Linear in the number of ranks.
    moe_row row(std::uint32_t i) const noexcept {
        std::uint32_t source = 0;
        while (i >= from_row(source + 1)) ++source;
        std::byte* const at = static_cast<std::byte*>(received_.data()) + i * shape_.row_bytes();
        return {source,
                word(at, 0),
                {reinterpret_cast<const std::uint32_t*>(at) + 1, shape_.top_k},
                {at + shape_.head_bytes(), shape_.token_bytes}};
    }

    /// Effects: begins to send the rows back; when done, `out` has for each token the sum of what came back for it, in the order of
    /// ranks (zero for a token without experts). Errors: busy (nothing is dispatched), or why the communicator failed.
    status combine(void* out, element_type type) noexcept {
        if (!why_) return why_;
        if (phase_ != phase::dispatched) return errc::busy;
        if (shape_.token_bytes % size_of(type) != 0) return errc::invalid_argument;
        if (status s = comm_.all_to_all_v(received_, from_, sent_, to_, element_type::int32); !s) return s;
        out_ = static_cast<std::byte*>(out);
        type_ = type;
        phase_ = phase::returning;
        return {};
    }

    /// Has what was begun ended, well or not? Never waits.
    bool done() const noexcept { return phase_ == phase::idle || phase_ == phase::dispatched; }
    /// Why it can do no more; ok while it can.
    status health() const noexcept { return why_ ? comm_.health() : why_; }

    /// Effects: moves the communicator and this. Returns: whether something moved.
    bool progress() noexcept {
        bool moved = comm_.progress();
        if (!done() && why_ && comm_.health() && comm_.done()) {
            next();
            moved = true;
        }
        return moved;
    }

private:
    enum class phase : std::uint8_t { idle, counting, sending, dispatched, returning };

    static constexpr std::uint64_t counts_bytes(std::uint32_t ranks) noexcept {
        return (std::uint64_t{ranks} * 4 + 15) / 16 * 16;
    }
    static std::uint32_t word(const std::byte* at, std::size_t i) noexcept {
        std::uint32_t w = 0;
        std::memcpy(&w, at + 4 * i, 4);
        return w;
    }
    std::uint64_t words() const noexcept { return shape_.row_bytes() / 4; }
    /// The first row from a rank; ranges are in words of 4 bytes.
    std::uint64_t from_row(std::uint32_t rank) const noexcept {
        return rank == from_.size() ? rows_ : from_[rank].begin / words();
    }
    /// Does expert number k of a token lie at the same rank as an earlier one?
    bool seen(std::span<const std::uint32_t> experts, std::size_t k) const noexcept {
        for (std::size_t j = 0; j < k; ++j)
            if (experts[j] != moe_shape::no_expert && owner(experts[j]) == owner(experts[k])) return true;
        return false;
    }
    std::uint32_t owner(std::uint32_t expert) const noexcept { return shape_.owner(expert, comm_.ranks()); }

    void lay_out_rows(const std::byte* tokens, std::uint32_t count, std::span<const std::uint32_t> experts) noexcept {
        const std::uint32_t n = comm_.ranks(), k = shape_.top_k;
        for (element_range& r : to_) r = {};
        const auto each_row = [&](auto&& f) {
            for (std::uint32_t t = 0; t < count; ++t) {
                const auto own = experts.subspan(std::uint64_t{t} * k, k);
                for (std::uint32_t j = 0; j < k; ++j)
                    if (own[j] != moe_shape::no_expert && !seen(own, j)) f(t, owner(own[j]), own);
            }
        };
        each_row([&](std::uint32_t, std::uint32_t rank, auto) { to_[rank].count += words(); });
        for (std::uint32_t r = 1; r < n; ++r) to_[r].begin = to_[r - 1].begin + to_[r - 1].count;
        for (std::uint32_t r = 0; r < n; ++r) {
            const auto rows = static_cast<std::uint32_t>(to_[r].count / words());
            std::memcpy(static_cast<std::byte*>(counts_out_.data()) + 4 * r, &rows, 4);
            filled_[r] = to_[r].begin * 4;
        }
        each_row([&](std::uint32_t t, std::uint32_t rank, std::span<const std::uint32_t> own) {
            std::byte* at = static_cast<std::byte*>(sent_.data()) + filled_[rank];
            filled_[rank] += shape_.row_bytes();
            std::memcpy(at, &t, 4);
            for (std::uint32_t j = 0; j < k; ++j) {
                const std::uint32_t e = own[j] != moe_shape::no_expert && owner(own[j]) == rank ? own[j] : moe_shape::no_expert;
                std::memcpy(at + 4 + 4 * j, &e, 4);
            }
            std::memcpy(at + shape_.head_bytes(), tokens + std::uint64_t{t} * shape_.token_bytes, shape_.token_bytes);
        });
    }

    void next() noexcept {
        if (phase_ == phase::counting) {
            std::uint64_t at = 0;
            for (std::uint32_t r = 0; r < comm_.ranks(); ++r) {
                const std::uint32_t rows = word(static_cast<const std::byte*>(counts_in_.data()), r);
                if (rows > shape_.tokens) return fail(status{errc::protocol_violation, r});
                from_[r] = {at, rows * words()};
                at += from_[r].count;
            }
            rows_ = static_cast<std::uint32_t>(at / words());
            if (status s = comm_.all_to_all_v(sent_, to_, received_, from_, element_type::int32); !s) return fail(s);
            phase_ = phase::sending;
        } else if (phase_ == phase::sending) {
            phase_ = phase::dispatched;
            for (std::uint32_t i = 0; i < rows_; ++i) {
                const moe_row r = row(i);
                for (const std::uint32_t e : r.experts)
                    if (e != moe_shape::no_expert && (e >= shape_.experts || owner(e) != comm_.rank()))
                        return fail(status{errc::protocol_violation, r.source});
            }
        } else {
            add_up();
            phase_ = phase::idle;
        }
    }
    /// A row comes back with its head, which is checked like all that comes from a peer.
    void add_up() noexcept {
        if (tokens_ != 0) std::memset(out_, 0, std::uint64_t{tokens_} * shape_.token_bytes);
        for (std::uint64_t i = 0, n = filled_.empty() ? 0 : (to_.back().begin + to_.back().count) / words(); i < n; ++i) {
            const std::byte* const at = static_cast<const std::byte*>(sent_.data()) + i * shape_.row_bytes();
            const std::uint32_t token = word(at, 0);
            if (token >= tokens_) return fail(errc::protocol_violation);
            std::byte* const to = out_ + std::uint64_t{token} * shape_.token_bytes;
            reduce(type_, reduce_op::sum, to, to, at + shape_.head_bytes(), shape_.token_bytes / size_of(type_));
        }
    }
    void fail(status s) noexcept {
        why_ = s;
        comm_.abort();
    }

    Communicator& comm_;
    moe_shape shape_;
    memory_view scratch_, counts_out_, counts_in_, sent_, received_;
    std::vector<element_range> to_, from_;  ///< rows by rank, in words of 4 bytes
    std::vector<std::uint64_t> filled_;
    std::uint32_t tokens_{}, rows_{};
    std::byte* out_{};
    element_type type_{};
    phase phase_{};
    status why_{};
};

}  // namespace vccl::inline v0
