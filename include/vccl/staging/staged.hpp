#pragma once
/// \file
/// What staged sender and receiver share: the ring of slices in host memory, the queue of messages, and the copies.

#include <vccl/host/context.hpp>
#include <vccl/host/endpoint.hpp>
#include <vccl/staging/copy_engine.hpp>
#include <vccl/staging/cut.hpp>

#include <bit>

namespace vccl::inline v0 {

/// How a staged channel cuts and how far it runs ahead.
struct staging_options {
    std::uint32_t slice_bytes{1u << 20};  ///< the largest slice; both ends' must agree
    unsigned slots{8};                    ///< slices in the ring: a power of two up to copies_in_flight, and not above the
                                          ///< receiver's window and the sender's log
    std::uint32_t edge_bytes{512u << 10}; ///< sender: slices at both ends of a message go down to this size (see next_slice)
};

/// The first slice of a channel. The receiver compares it: another size ends the channel with policy_mismatch, another
/// version with version_mismatch.
struct staging_greeting {
    static constexpr std::uint64_t magic_value = 0x676174536c636376;  ///< "vcclStag": no plain chunk
    static constexpr std::uint32_t current_version = 1;               ///< slices end with a slice_mark
    std::uint64_t magic;        ///< magic_value
    std::uint32_t slice_bytes;  ///< the sender's largest slice
    std::uint32_t version;      ///< current_version
};

namespace detail {

/// A backend's own memory, where it has any.
template <class B>
struct backend_memory {};
template <allocates_memory B>
struct backend_memory<B> {
    typename B::buffer held;
};

}  // namespace detail

/// `Self` has: step(). Messages are numbered from 0 and end in order.
template <class Self, class Endpoint, copy_engine Engine>
class staged {
public:
    using backend = typename Endpoint::backend;  ///< the endpoint's
    using stream = typename Engine::stream;      ///< the engine's

    staged(const staged&) = delete;
    staged& operator=(const staged&) = delete;

    /// Effects: allocates the ring and registers it. Call it once, before the first message. Errors: invalid_argument (slots,
    /// slice), no_memory, or what registering says.
    VCCL_COLD status open() {
        if (options_.slice_bytes < sizeof(staging_greeting) || options_.slots == 0 || options_.slots > copies_in_flight ||
            !std::has_single_bit(options_.slots))
            return errc::invalid_argument;
        auto ring = make_ring(std::size_t{stride()} * options_.slots);
        if (!ring) return ring.error();
        auto registered = context_.register_memory(ring->data(), ring->size());
        if (!registered) return registered.error();
        ring_ = std::move(*ring);
        memory_ = std::move(*registered);
        return {};
    }

    /// Why no more messages end; ok while they do. A copy that failed ends the channel with its status (io_error: the engine's
    /// own number is in `detail`).
    status health() const noexcept { return why_ ? endpoint_.health() : why_; }
    /// As the endpoint below it.
    bool connected() const noexcept { return endpoint_.connected(); }
    /// Effects: ends the channel at both ends and lets go of the streams that wait here; nothing more ends.
    void abort() noexcept { give_up(errc::aborted); }
    /// The next number that will be given, and below which all messages have ended.
    sequence next() const noexcept { return sequence{tail_}; }
    /// Has message `m` ended? Never after the channel has.
    bool ended(sequence m) const noexcept { return ended_ > m.value; }

    /// Is a message under way? Its copies end without anybody calling.
    bool restless() const noexcept { return (why_ && ended_ != tail_) || endpoint_.restless(); }

    /// Effects: one pass of the endpoint and of the ring. Returns true if something moved.
    bool progress() noexcept {
        bool moved = endpoint_.progress();
        if (!why_) return moved;
        moved |= self().step();
        if (const status s = health(); !s) [[unlikely]]
            give_up(s);
        return moved;
    }
    /// Makes progress until message `m` has ended. Errors: timeout; why the channel ended; invalid_argument: no such message
    /// was queued.
    VCCL_COLD status wait(sequence m, nanoseconds timeout) noexcept {
        if (m.value >= tail_) return errc::invalid_argument;
        const nanoseconds deadline = steady_clock{}.now() + timeout;
        while (!ended(m)) {
            if (const status s = health(); !s) return s;
            if (!progress() && steady_clock{}.now() >= deadline) return errc::timeout;
        }
        return {};
    }

protected:
    VCCL_COLD staged(host_context<backend>& context, Endpoint& endpoint, Engine engine, const staging_options& options)
        : context_(context), endpoint_(endpoint), options_(options), engine_(std::move(engine)) {}
    /// The ring goes, so nobody may write there any more: a channel that still runs is aborted.
    VCCL_COLD ~staged() {
        engine_.release(tail_);
        if (endpoint_.health()) endpoint_.abort();
    }

    /// One message, between its call and its end.
    struct message {
        std::byte* at{};
        std::uint64_t bytes{};  ///< of the message, or of the room for it
        std::uint64_t moved{};  ///< bytes whose copies have begun
        std::uint64_t mark{};  ///< if `marked`
        bool marked{}, too_long{};
    };
    /// One slice, between its first step and its last.
    struct slice {
        std::uint64_t message{};
        std::uint64_t copy{};  ///< the engine's number
        std::uint64_t chunk{};  ///< the endpoint's number
        std::uint32_t bytes{};
        bool last{};
    };
    message& at(std::uint64_t m) noexcept { return messages_[m % copies_in_flight]; }
    const message& at(std::uint64_t m) const noexcept { return messages_[m % copies_in_flight]; }
    slice& of(std::uint64_t n) noexcept { return slices_[n % options_.slots]; }
    std::byte* slot(std::uint64_t n) const noexcept { return ring_.data() + n % options_.slots * stride(); }
    memory_view view(std::uint64_t n, std::uint64_t bytes) const noexcept {
        return memory_.view(n % options_.slots * stride(), bytes);
    }
    /// Of the largest slice with its mark.
    std::uint32_t room() const noexcept { return options_.slice_bytes + static_cast<std::uint32_t>(sizeof(slice_mark)); }
    /// From slot to slot.
    std::uint64_t stride() const noexcept {
        constexpr std::uint64_t grain = 4096;
        return (room() + grain - 1) / grain * grain;
    }

    /// In the backend's own memory if it has any to spare, since that is sent with less work; else the engine's.
    VCCL_COLD result<staging_buffer> make_ring(std::size_t bytes) {
        if constexpr (allocates_memory<backend> && pins_memory<Engine>)
            if (auto own = context_.backend().allocate(bytes)) {
                if (auto pinned = engine_.pin(own->data(), bytes)) {
                    own_.held = std::move(*own);
                    return pinned;
                }
            }
        return engine_.allocate(bytes);
    }

    result<sequence> queue(const void* p, std::uint64_t bytes) noexcept {
        if (const status s = health(); !s) return s;
        if (!ring_.data()) return errc::not_connected;
        if (bytes != 0)
            if (const status s = engine_.check(p, bytes); !s) return s;
        if (tail_ - ended_ == copies_in_flight) return status{errc::would_block, subject::room, copies_in_flight};
        at(tail_) = message{};
        at(tail_).at = static_cast<std::byte*>(const_cast<void*>(p));
        at(tail_).bytes = bytes;
        return sequence{tail_++};
    }
    /// The same, in order with what `s` has been given so far, and what it is given later waits for release(). Nothing is
    /// queued unless all of it could be done.
    result<sequence> queue_on(stream s, const void* p, std::uint64_t bytes) noexcept {
        const auto m = queue(p, bytes);
        if (!m) return m;
        const auto mark = engine_.mark(s);
        const status held = mark ? engine_.hold(s, m->value + 1) : mark.error();
        if (!held) {
            --tail_;
            return held;
        }
        at(m->value).mark = *mark;
        at(m->value).marked = true;
        return m;
    }

    /// Begins the copy of a slice with `copy(place in the message)`, after what its message was marked to follow. False: it
    /// could not; the channel has ended.
    template <class Copy>
    bool begin_copy(slice& s, std::uint64_t bytes, Copy&& copy) noexcept {
        message& m = at(s.message);
        const status after = m.marked ? engine_.follow(m.mark) : status{};
        m.marked = false;
        const auto begun = after ? copy(m.at + m.moved) : result<std::uint64_t>(after);
        if (!begun) {
            give_up(begun.error());
            return false;
        }
        s.copy = *begun;
        m.moved += bytes;
        return true;
    }
    /// Has the slice's copy ended? One that failed ends the channel.
    bool copied(const slice& s) noexcept {
        const auto done = engine_.done(s.copy);
        if (!done) give_up(done.error());
        return done && *done;
    }
    /// Takes the number of a chunk that was posted for the slice. False: not yet, or the channel has ended.
    bool posted(slice& s, const result<sequence>& chunk) noexcept {
        if (chunk) {
            s.chunk = chunk->value;
            return true;
        }
        const errc why = chunk.error().code;
        if (why != errc::would_block && why != errc::not_connected) give_up(chunk.error());
        return false;
    }
    /// Effects: ends the channel, once; streams that wait are let go, and health() says why.
    VCCL_COLD void give_up(status s) noexcept {
        if (!why_) return;
        why_ = s;
        endpoint_.abort();
        engine_.release(tail_);
    }

    Self& self() noexcept { return static_cast<Self&>(*this); }

    host_context<backend>& context_;
    Endpoint& endpoint_;
    staging_options options_;
    detail::backend_memory<backend> own_;
    staging_buffer ring_;  // may lie in own_
    memory memory_;
    Engine engine_;  // after the ring: it goes first, and waits for its copies
    message messages_[copies_in_flight]{};
    slice slices_[copies_in_flight]{};
    std::uint64_t tail_{}, ended_{};  ///< messages: ended <= tail
    std::uint64_t cutting_{};  ///< the message that the next slice belongs to
    status why_{};
};

}  // namespace vccl::inline v0
