#pragma once
/// \file
/// What a kernel holds of a device sender: puts, gets and signals over the channel's queue. Trivially copyable; any thread of a
/// kernel, or of a host build, as many at once as the sharing policy says. Each operation is called by all threads of its scope
/// with equal arguments.
///
/// Order: operations of one channel take effect at the peer in the order in which they were posted. A signal therefore tells
/// that every put before it has arrived. A signal word is changed by one channel's queue only, either by `signal` and
/// `put_signal`, with values that grow, or by `fetch_add`, with addends between 1 and 2^63 - 1. A word that the receiver does not
/// have is an error as an address outside of its window is: it ends the channel.

#include <vccl/device/queue.hpp>

namespace vccl::inline v0::device {

/// Made by a device sender's ref(); valid until that goes. channel(c) gives one channel's.
template <class Policy>
class sender_ref {
public:
    using policy = Policy;  ///< who shares a queue, at compile time

    sender_ref() = default;
    /// Made by basic_device_sender::ref.
    VCCL_HOST_DEVICE sender_ref(const queue_view* queues, unsigned count, std::int64_t timeout_ns) noexcept
        : queues_(queues), count_(count), timeout_(timeout_ns) {}

    /// The same with another deadline for each operation.
    VCCL_HOST_DEVICE sender_ref within(std::int64_t timeout_ns) const noexcept { return {queues_, count_, timeout_ns}; }
    /// The view for one of the sender's channels: `channel mod channels()` has a queue of its own.
    VCCL_HOST_DEVICE sender_ref channel(std::uint32_t c) const noexcept { return {queues_ + c % count_, 1, timeout_}; }
    /// Queues of the sender; 1 for the view of one channel.
    VCCL_HOST_DEVICE unsigned channels() const noexcept { return count_; }
    /// Index of the first channel's queue below which everything was posted.
    VCCL_HOST_DEVICE std::uint64_t posted() const noexcept { return queue_ref<Policy>(queues_).posted(); }
    /// The same for what is done; looks at the completion queue. Acquire: what was read by operations below it has arrived.
    VCCL_HOST_DEVICE std::uint64_t completed() const noexcept {
        const queue_ref<Policy> q(queues_);
        (void)q.poll();
        return q.completed();
    }
    /// Where everything of the first channel lies: for operations of one's own, with queue_ref.
    VCCL_HOST_DEVICE const queue_view& view() const noexcept { return *queues_; }

    /// Effects: RDMA WRITE of `bytes` from `from` in the local window to `to` in the peer's. The bytes must stay as they are
    /// until they have been flushed. Errors: timeout (no credit; nothing was posted), error, aborted.
    template <class Scope>
    VCCL_HOST_DEVICE device_result put(Scope who, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) const {
        const queue_view& v = *queues_;
        return transfer(who, bytes, [&v, to, from](const wqe_head& h, const ring_view& l, std::uint64_t at, std::uint32_t n) {
            return write(h, {v.remote + to + at, l.remote_key}, {v.window + from + at, l.local_key, n});
        });
    }
    /// Effects: RDMA READ of `bytes` from `from` in the peer's window into `to` in the local one. Flush, then read them.
    template <class Scope>
    VCCL_HOST_DEVICE device_result get(Scope who, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) const {
        const queue_view& v = *queues_;
        return transfer(who, bytes, [&v, to, from](const wqe_head& h, const ring_view& l, std::uint64_t at, std::uint32_t n) {
            return read(h, {v.remote + from + at, l.remote_key}, {v.window + to + at, l.local_key, n});
        });
    }
    /// Effects: the peer's signal word `word` becomes `value`, after everything before it.
    template <class Scope>
    VCCL_HOST_DEVICE device_result signal(Scope who, std::uint32_t word, std::uint64_t value) const {
        const queue_view& v = *queues_;
        return post(who, 1, [&v, word, value](unsigned, const wqe_head& h, const ring_view& l) {
            return inline_write(h, {v.signals + 8ull * word, l.signal_key}, value);
        });
    }
    /// Effects: put, then signal, with one doorbell. At most 2^30 bytes.
    template <class Scope>
    VCCL_HOST_DEVICE device_result put_signal(Scope who, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                                              std::uint32_t word, std::uint64_t value) const {
        const queue_view& v = *queues_;
        return post(who, 2, [&v, to, from, bytes, word, value](unsigned i, const wqe_head& h, const ring_view& l) {
            if (i == 0) return write(h, {v.remote + to, l.remote_key}, {v.window + from, l.local_key, message_length(bytes)});
            return inline_write(h, {v.signals + 8ull * word, l.signal_key}, value);
        });
    }
    /// Effects: adds to the peer's signal word, exactly once whatever fails.
    template <class Scope>
    VCCL_HOST_DEVICE device_result fetch_add(Scope who, std::uint32_t word, std::uint64_t add) const {
        std::uint64_t old;
        return led(who, [&] { return add_to(word, add, old); });
    }
    /// The same; `old` becomes what the word holds before it. That is known when the addition is posted, since nobody else changes
    /// the word: it costs no wait, and no failover changes it.
    template <class Scope>
    VCCL_HOST_DEVICE device_result fetch_add(Scope who, std::uint32_t word, std::uint64_t add, std::uint64_t& old) const {
        std::uint64_t before = 0;
        const device_result r = led(who, [&] { return add_to(word, add, before); });
        old = who.broadcast(before);
        return r;
    }
    /// Effects: waits until everything that was posted on the channel before is done: puts have arrived, gets are here.
    /// Returns: ok, or moved if a lane failed meanwhile and another took over. Errors: timeout, error, aborted.
    template <class Scope>
    VCCL_HOST_DEVICE device_result flush(Scope who) const {
        deadline until(queues_->wait, timeout_);
        return led(who, [&] { return queue_ref<Policy>(queues_).wait_all(until); });
    }

private:
    /// The longest single WQE.
    static constexpr std::uint64_t piece = max_message;

    VCCL_HOST_DEVICE device_result add_to(std::uint32_t word, std::uint64_t add, std::uint64_t& old) const {
        const queue_view& v = *queues_;
        const auto encode = [&v, word, add](unsigned, const wqe_head& h, const ring_view& l) {
            return device::fetch_add(h, {v.signals + 8ull * word, l.signal_key}, {v.scratch, l.scratch_key, 8}, add);
        };
        // What the word holds before and afterwards: known in order, and therefore at one's turn only. A failover compares with it.
        const auto at_turn = [&v, word, add, &old](std::uint64_t index) {
            std::uint64_t* const sum = &v.sums[word & (max_signal_words - 1)];  // a word that is none is the NIC's to refuse
            old = load<order::relaxed, Policy::who>(sum);
            store<order::relaxed, Policy::who>(sum, old + add);
            store<order::relaxed, Policy::who>(&v.notes[index & (v.depth() - 1)], old + add);
        };
        deadline until(v.wait, timeout_);
        return queue_ref<Policy>(&v).post(single{}, 1, until, encode, at_turn);
    }

    template <class Scope, class Act>
    VCCL_HOST_DEVICE static device_result led(Scope who, Act&& act) {
        if constexpr (std::is_same_v<Scope, thread_scope>)
            return act();
        else
            return unpack(who.lead([&act] { return pack(act()); }));
    }

    template <class Scope, class Encode>
    VCCL_HOST_DEVICE device_result post(Scope who, unsigned each, Encode&& encode) const {
        const queue_ref<Policy> q(queues_);
        deadline until(queues_->wait, timeout_);
        if constexpr (std::is_same_v<Scope, thread_scope> && !Policy::alone) {
            for (;;) {
                const coalesced together(queues_, queues_->depth() / each);
                if (together.takes_part()) return q.post(together, each, until, encode);
            }
        } else {
            return led(who, [&] { return q.post(single{}, each, until, encode); });
        }
    }
    /// In pieces of 2^30 bytes; nothing at all is one piece.
    template <class Scope, class Encode>
    VCCL_HOST_DEVICE device_result transfer(Scope who, std::uint64_t bytes, Encode&& encode) const {
        for (std::uint64_t at = 0;;) {
            const std::uint64_t left = bytes - at, now = left < piece ? left : piece;
            const device_result r = post(who, 1, [&encode, at, now](unsigned, const wqe_head& h, const ring_view& l) {
                return encode(h, l, at, static_cast<std::uint32_t>(now));
            });
            at += now;
            if (!r || at == bytes) return r;
        }
    }

    const queue_view* queues_{};
    std::uint32_t count_{1};
    std::int64_t timeout_{};
};
static_assert(std::is_trivially_copyable_v<sender_ref<queue_policy<>>>);

}  // namespace vccl::inline v0::device
