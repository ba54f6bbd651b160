#pragma once
/// \file
/// What one rank sends to and gets from one peer in a grouped exchange: its transfers in order, cut into pieces. advance()
/// never waits. Owner thread of the collective only.

#include <vccl/coll/compute.hpp>
#include <vccl/coll/endpoint.hpp>

#include <span>

namespace vccl::inline v0 {

/// A buffer that goes to `peer`, or is filled by it.
struct transfer {
    std::uint32_t peer{};
    memory_view bytes{};
};

namespace detail {

/// Walks the pieces of one peer's transfers.
class piece_walk {
public:
    piece_walk() = default;
    piece_walk(std::span<const transfer> list, std::uint32_t peer, std::uint64_t piece) noexcept
        : list_(list), peer_(peer), piece_(piece) {
        settle();
    }
    bool over() const noexcept { return at_ == list_.size(); }
    memory_view current() const noexcept {
        const std::uint64_t left = list_[at_].bytes.bytes() - offset_;
        return list_[at_].bytes.part(offset_, left < piece_ ? left : piece_);
    }
    std::uint64_t index() const noexcept { return index_; }
    void advance() noexcept {
        offset_ += piece_;
        ++index_;
        settle();
    }

private:
    void settle() noexcept {
        for (; !over() && (list_[at_].peer != peer_ || offset_ >= list_[at_].bytes.bytes()); ++at_) offset_ = 0;
    }

    std::span<const transfer> list_;
    std::uint32_t peer_{};
    std::uint64_t piece_{1}, offset_{}, index_{};
    std::size_t at_{};
};

}  // namespace detail

template <chunk_sender Tx, chunk_receiver Rx, element_compute Compute>
class exchange_task {
public:
    exchange_task(Tx& to, Rx& from, Compute& compute, std::uint32_t peer, std::uint32_t receives_ahead) noexcept
        : tx_(to), rx_(from), compute_(compute), peer_(peer), receives_ahead_(receives_ahead) {}

    /// The lists must stay until done(). `piece`: bytes, the same at both ends. With `staging` (a multiple of `piece`), sends go
    /// out from there, and a receive may lie where the send of the same number lay.
    void begin(std::span<const transfer> sends, std::span<const transfer> receives, std::uint64_t piece,
               const memory_view& staging) noexcept {
        sent_ = retired_ = {sends, peer_, piece};
        posted_ = arrived_ = {receives, peer_, piece};
        piece_ = piece;
        staging_ = staging;
        staged_ = 0;
        pending_ = false;
        receiving_ = sending_ = false;
    }
    bool done() const noexcept { return sent_.over() && retired_.over() && arrived_.over(); }
    status why() const noexcept { return why_; }

    bool advance() noexcept {
        if (!why_ || done()) return false;
        bool moved = take_arrivals();
        moved |= post_receives();
        moved |= post_sends();
        moved |= retire_sends();
        if (!moved && why_) why_ = trouble();
        return moved;
    }

private:
    /// Of what is still needed: a peer that is done may have closed.
    status trouble() const noexcept {
        if (!arrived_.over() && !rx_.health()) return rx_.health();
        if (!retired_.over() && !tx_.health()) return tx_.health();
        return compute_.health();
    }

    bool in_place() const noexcept { return staging_.bytes() != 0; }

    bool post_receives() noexcept {
        bool moved = false;
        for (; !posted_.over() && posted_.index() - arrived_.index() < receives_ahead_; posted_.advance()) {
            if (in_place() && !sent_.over() && posted_.index() >= sent_.index()) break;
            const auto number = rx_.recv(posted_.current());
            if (!number) {
                if (number.error().code != errc::would_block) why_ = number.error();
                break;
            }
            if (!receiving_) next_arrival_ = *number;
            receiving_ = moved = true;
        }
        return moved;
    }

    bool take_arrivals() noexcept {
        bool moved = false;
        for (; arrived_.index() != posted_.index(); arrived_.advance()) {
            if (!rx_.ended(next_arrival_)) break;
            const auto bytes = rx_.outcome(next_arrival_);
            const std::uint64_t expected = arrived_.current().bytes();
            if (!bytes || *bytes != expected) {
                why_ = bytes ? status{errc::policy_mismatch, static_cast<std::uint32_t>(expected)} : bytes.error();
                if (bytes) why_.extra = static_cast<std::uint32_t>(*bytes);
                break;
            }
            next_arrival_ = next_arrival_ + std::uint64_t{1};
            moved = true;
        }
        return moved;
    }

    bool post_sends() noexcept {
        bool moved = false;
        for (; !sent_.over(); sent_.advance()) {
            memory_view bytes = sent_.current();
            if (in_place()) {
                const std::uint64_t slots = staging_.bytes() / piece_;
                if (sent_.index() - retired_.index() >= slots) break;
                bytes = staging_.part(sent_.index() % slots * piece_, bytes.bytes());
                if (!pending_) staged_ = compute_.copy(bytes.data(), sent_.current().data(), bytes.bytes());
                pending_ = true;
                if (!compute_.done(staged_)) break;
            }
            const auto number = tx_.send(bytes);
            if (!number) {
                if (number.error().code != errc::would_block) why_ = number.error();
                break;
            }
            pending_ = false;
            if (!sending_) next_end_ = *number;
            sending_ = moved = true;
        }
        return moved;
    }

    bool retire_sends() noexcept {
        bool moved = false;
        for (; retired_.index() != sent_.index(); retired_.advance()) {
            if (!tx_.ended(next_end_)) break;
            next_end_ = next_end_ + std::uint64_t{1};
            moved = true;
        }
        return moved;
    }

    Tx& tx_;
    Rx& rx_;
    Compute& compute_;
    std::uint32_t peer_, receives_ahead_;
    detail::piece_walk sent_, retired_, posted_, arrived_;  ///< the next of each
    std::uint64_t piece_{1}, staged_{};
    memory_view staging_;
    sequence next_arrival_{}, next_end_{};
    bool pending_{};  ///< the piece to be sent next lies in the staging memory already, or is on its way there
    bool receiving_{}, sending_{};
    status why_{};
};

}  // namespace vccl::inline v0
