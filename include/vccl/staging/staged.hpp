#pragma once
/// \file
/// What staged sender and receiver share: the ring of slices in host memory, the queue of messages, and how a message is cut.
/// A message is cut into slices of one size and a last, smaller one, which may be empty: its length is its end.

#include <vccl/host/context.hpp>
#include <vccl/host/endpoint.hpp>
#include <vccl/staging/copy_engine.hpp>

#include <bit>

namespace vccl::inline v0 {

struct staging_options {
    std::uint32_t slice_bytes{1u << 20};  ///< both ends' must agree
    unsigned slots{8};                    ///< slices in the ring: a power of two up to copies_in_flight, and not above the
                                          ///< receiver's window and the sender's log
};

/// The first slice of a channel: both ends must cut alike.
struct staging_greeting {
    static constexpr std::uint64_t magic_value = 0x676174536c636376;  // "vcclStag"
    std::uint64_t magic;
    std::uint32_t slice_bytes;
    std::uint32_t reserved;
};

/// `Self` has: step(). Messages are numbered from 0 and end in order.
template <class Self, class Endpoint, copy_engine Engine>
class staged {
public:
    using backend = typename Endpoint::backend;
    using stream = typename Engine::stream;

    staged(const staged&) = delete;
    staged& operator=(const staged&) = delete;

    /// Effects: allocates the ring and registers it. Call it once, before the first message. Errors: invalid_argument (slots,
    /// slice), no_memory, or what registering says.
    VCCL_COLD status open() {
        if (options_.slice_bytes < sizeof(staging_greeting) || options_.slots == 0 || options_.slots > copies_in_flight ||
            !std::has_single_bit(options_.slots))
            return errc::invalid_argument;
        auto ring = engine_.allocate(std::size_t{options_.slice_bytes} * options_.slots);
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
    bool connected() const noexcept { return endpoint_.connected(); }
    /// Effects: ends the channel at both ends and lets go of the streams that wait here; nothing more ends.
    void abort() noexcept { give_up(errc::aborted); }
    /// The next number that will be given, and below which all messages have ended.
    sequence next() const noexcept { return sequence{tail_}; }
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
        std::uint64_t moved{};  ///< sender: bytes that have a slice
        std::uint64_t mark{};  ///< if `marked`
        std::uint64_t outcome{};  ///< receiver: bytes received
        bool marked{}, too_long{};
    };
    message& at(std::uint64_t m) noexcept { return messages_[m % copies_in_flight]; }
    const message& at(std::uint64_t m) const noexcept { return messages_[m % copies_in_flight]; }

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
    /// Copies of message `m` begin now: after what it was marked to follow.
    status begin_after_mark(message& m) noexcept {
        if (!m.marked) return {};
        m.marked = false;
        return engine_.follow(m.mark);
    }
    std::byte* slot(std::uint64_t slice) const noexcept { return ring_.data() + slice % options_.slots * options_.slice_bytes; }
    memory_view view(std::uint64_t slice, std::uint64_t bytes) const noexcept {
        return memory_.view(slice % options_.slots * options_.slice_bytes, bytes);
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
    staging_buffer ring_;
    memory memory_;
    Engine engine_;  // after the ring: it goes first, and waits for its copies
    message messages_[copies_in_flight]{};
    std::uint64_t tail_{}, ended_{};
    status why_{};
};

}  // namespace vccl::inline v0
