#pragma once
/// \file
/// What a kernel holds of a host ring: the operations of a sender_ref, carried out by a proxy thread of the host. Trivially
/// copyable; any thread, as many at once as the sharing policy says. A post is a claim of words (ring_cursor) and the words; nobody
/// waits for a turn. The order of one channel is that of claims.

#include <vccl/device/policy.hpp>
#include <vccl/device/request.hpp>
#include <vccl/device/result.hpp>
#include <vccl/device/ring_cursor.hpp>
#include <vccl/device/scope.hpp>
#include <vccl/device/wait.hpp>
#include <vccl/device/words.hpp>
#include <vccl/device/wqe.hpp>

namespace vccl::inline v0::device {

/// In the posters' memory.
struct host_ring_words {
    alignas(128) std::uint64_t cursor{};  ///< a packed ring_cursor. Changed by posters
    alignas(128) std::uint64_t consumed{};  ///< as a poster lately saw it
    alignas(128) std::uint64_t replies_in_use{};  ///< a bit a slot. Changed by posters
    std::uint64_t replies_left{};  ///< of these, a bit for each whose asker has given up. Changed by posters
    std::uint32_t reply_laps[reply_slot::count]{};  ///< how often each slot was asked for. Changed by who has the slot
};
/// In host memory, written by the proxy: one for each channel.
struct alignas(128) channel_words {
    std::uint64_t done{};  ///< every request of the channel below this word of the ring is done
    std::uint64_t failure{};  ///< a packed result, if one failed
    std::uint64_t epoch{};  ///< of the channel's queue
};
/// In host memory.
struct alignas(128) host_ring_head {
    std::uint64_t consumed{};  ///< words that the proxy has taken. Written by the proxy
};

/// Where everything of a host ring lies, as kernels see it.
struct host_ring_view {
    host_ring_words* words{};  ///< the posters' words: claims and room
    std::uint64_t* ring{};  ///< host memory, written by posters
    std::uint32_t size_log{};  ///< of the ring's length in words
    std::uint32_t channels{};  ///< channels of the sender behind it
    const host_ring_head* head{};  ///< how far the proxy has taken; written by it
    const channel_words* channel{};  ///< a channel's words each: how far it is done; written by the proxy
    const reply_words* replies{};  ///< old values, a slot each; written by the proxy
    const host_words* host{};  ///< the abort word; written by the host
    const host_wait* wait{};  ///< how a host build waits
};

/// One channel's operations; channel(c) gives another's.
template <class Policy>
class host_ring_ref {
public:
    using policy = Policy;  ///< who shares the ring, at compile time

    host_ring_ref() = default;
    /// Made by host_ring::ref.
    VCCL_HOST_DEVICE host_ring_ref(const host_ring_view& view, std::uint32_t channel, std::int64_t timeout_ns) noexcept
        : v_(view), channel_(channel), timeout_(timeout_ns) {}

    /// The same channel with another deadline for each operation.
    VCCL_HOST_DEVICE host_ring_ref within(std::int64_t timeout_ns) const noexcept { return {v_, channel_, timeout_ns}; }
    /// The view of channel `c` modulo channels().
    VCCL_HOST_DEVICE host_ring_ref channel(std::uint32_t c) const noexcept { return {v_, c % v_.channels, timeout_}; }
    /// At least 1.
    VCCL_HOST_DEVICE unsigned channels() const noexcept { return v_.channels; }

    /// As sender_ref's: `bytes` from `from`, here, to `to`, at the peer.
    template <class Scope>
    VCCL_HOST_DEVICE device_result put(Scope who, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) const {
        return transfer(who, request_op::put, to, from, bytes);
    }
    /// As sender_ref's: `bytes` from `from`, at the peer, to `to`, here.
    template <class Scope>
    VCCL_HOST_DEVICE device_result get(Scope who, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) const {
        return transfer(who, request_op::get, from, to, bytes);
    }
    /// As sender_ref's: the peer's word becomes `value`; values of a word only grow.
    template <class Scope>
    VCCL_HOST_DEVICE device_result signal(Scope who, std::uint32_t word, std::uint64_t value) const {
        return post(who, make(request_op::signal, word, value));
    }
    /// As sender_ref's: the bytes, at most 2^30, and when they are there the word.
    template <class Scope>
    VCCL_HOST_DEVICE device_result put_signal(Scope who, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                                              std::uint32_t word, std::uint64_t value) const {
        request r = make(request_op::put_signal, word, value);
        r.remote = to;
        r.local = from;
        r.length = message_length(bytes);
        return post(who, r);
    }
    /// As sender_ref's: `add` to the peer's word.
    template <class Scope>
    VCCL_HOST_DEVICE device_result fetch_add(Scope who, std::uint32_t word, std::uint64_t add) const {
        return post(who, make(request_op::fetch_add, word, add));
    }
    /// As sender_ref's. Waits for the proxy, which knows the old value as soon as it has posted. `timeout` and `error`: it may have
    /// been posted all the same.
    template <class Scope>
    VCCL_HOST_DEVICE device_result fetch_add(Scope who, std::uint32_t word, std::uint64_t add, std::uint64_t& old) const {
        std::uint64_t before = 0;
        const device_result r = unpack(who.lead([&] { return pack(ask(word, add, before)); }));
        old = who.broadcast(before);
        return r;
    }
    /// Waits until everything of the channel that was posted before is done.
    template <class Scope>
    VCCL_HOST_DEVICE device_result flush(Scope who) const {
        return unpack(who.lead([this] {
            deadline until(v_.wait, timeout_);
            return pack(wait(until));
        }));
    }

private:
    static constexpr std::uint64_t no_index = ~std::uint64_t{0};
    static constexpr std::uint64_t piece = max_message;
    static constexpr std::uint32_t no_word = 255;  ///< no channel has it, so its NIC refuses it

    VCCL_HOST_DEVICE request make(request_op op, std::uint32_t word, std::uint64_t value) const noexcept {
        request r;
        r.op = op;
        r.channel = static_cast<std::uint16_t>(channel_);
        r.word = static_cast<std::uint8_t>(word < no_word ? word : no_word);
        r.value = value;
        return r;
    }
    template <class Scope>
    VCCL_HOST_DEVICE device_result transfer(Scope who, request_op op, std::uint64_t remote, std::uint64_t local,
                                            std::uint64_t bytes) const {
        request r = make(op, 0, 0);
        for (std::uint64_t at = 0;;) {
            const std::uint64_t left = bytes - at, now = left < piece ? left : piece;
            r.remote = remote + at;
            r.local = local + at;
            r.length = static_cast<std::uint32_t>(now);
            const device_result done = post(who, r);
            at += now;
            if (!done || at == bytes) return done;
        }
    }
    template <class Scope>
    VCCL_HOST_DEVICE device_result post(Scope who, const request& r) const {
        const deadline until(v_.wait, timeout_);
        if constexpr (std::is_same_v<Scope, thread_scope> && !Policy::alone) {
            for (;;) {
                const coalesced together(v_.words, (1u << v_.size_log) / words_of(r.op));
                if (together.takes_part()) return write(together, r, until);
            }
        } else {
            return unpack(who.lead([&] { return pack(write(single{}, r, until)); }));
        }
    }
    /// What a claim came to: the first of the words, or why there is none.
    struct claimed {
        std::uint64_t base{no_index};
        device_result why{};
        bool in_the_way{};  ///< others wait for room
    };
    template <class Group>
    VCCL_HOST_DEVICE device_result write(const Group& who, const request& r, const deadline& until) const {
        const unsigned each = words_of(r.op);
        const std::uint32_t n = who.size() * each;
        claimed mine;
        ring_cursor at{};
        if (who.rank() == 0) at = claim<acquired_later>(n);
        release_to_system();  // what is to be sent, before the words that ask for it; meanwhile the claim is answered
        if (who.rank() == 0) {
            const std::int32_t had = at.room(), needed = static_cast<std::int32_t>(n),
                               quarter = static_cast<std::int32_t>(size() / 4);
            mine.base = at.next;
            if (had < needed) [[unlikely]]
                mine = wait_for_room(at, n, until);
            else if (had >= quarter && had - needed < quarter) [[unlikely]]
                (void)taken();  // before it is wanted: one for all
        }
        const std::uint64_t base = who.broadcast(mine.base);
        if (base == no_index) [[unlikely]]
            return unpack(who.broadcast(pack(mine.why)));
        who.sync();  // that the words may be written, which its first thread has seen, before all write
        for (unsigned i = 0; i < each; ++i) {
            const std::uint64_t index = base + who.rank() * each + i;
            store<released, scope::system>(&v_.ring[index & (size() - 1)], request_word(r, i) | lap_flag(index, v_.size_log));
        }
        if (mine.in_the_way) [[unlikely]]
            pause(until.host());  // or this thread would be the first again to find too little, and they would wait for ever
        return {};
    }
    VCCL_HOST_DEVICE VCCL_NOINLINE device_result ask(std::uint32_t word, std::uint64_t add, std::uint64_t& old) const {
        deadline until(v_.wait, timeout_);
        until.begin();  // for all that follows
        std::uint64_t taken = load<order::relaxed, Policy::who>(&v_.words->replies_in_use), bit = 0;
        for (;;) {
            bit = ~taken & (taken + 1);  // the lowest that is free
            if (bit != 0 && compare_exchange<order::acquire, Policy::who>(&v_.words->replies_in_use, taken, taken | bit)) break;
            if (bit != 0) continue;
            if (!reclaim())
                if (const device_result r = look(until); !r) return r;
            taken = load<order::relaxed, Policy::who>(&v_.words->replies_in_use);
        }
        std::uint32_t number = 0;
        while (bit >> number != 1) ++number;
        const reply_slot slot{number, ++v_.words->reply_laps[number] & 1};
        request r = make(request_op::fetch_add, word, add);
        r.length = slot.pack();
        device_result done = write(single{}, r, until);
        if (!done) --v_.words->reply_laps[number];  // nobody was asked; else the next would take the last answer for his own
        while (done) {
            if (const reply_words w = reply_in(number); w.is_of(slot.lap)) {
                old = w.value();
                break;
            }
            if (done = look(until); !done) {
                // The proxy may still write there. Release: the lap, before who reclaims the slot.
                (void)fetch_or<order::release, Policy::who>(&v_.words->replies_left, bit);
                return done;
            }
        }
        give_back(bit);
        return done;
    }
    VCCL_HOST_DEVICE reply_words reply_in(unsigned number) const noexcept {
        reply_words w;
        w.low = load<acquired_later, scope::system>(&v_.replies[number].low);
        w.high = load<order::acquire, scope::system>(&v_.replies[number].high);
        return w;
    }
    /// Release: the laps, before who has the slots next.
    VCCL_HOST_DEVICE void give_back(std::uint64_t bits) const noexcept {
        (void)device::fetch_add<order::release, Policy::who>(&v_.words->replies_in_use, ~bits + 1);
    }
    /// Effects: gives slots back whose asker has left and whose answer has come since. Returns true if there were any.
    VCCL_HOST_DEVICE VCCL_NOINLINE bool reclaim() const noexcept {
        // Whoever takes a bit has the slot; acquire: its lap.
        const std::uint64_t left = exchange<order::acquire, Policy::who>(&v_.words->replies_left, std::uint64_t{0});
        std::uint64_t answered = 0;
        for (unsigned i = 0; i < reply_slot::count; ++i)
            if ((left >> i & 1) != 0 && reply_in(i).is_of(v_.words->reply_laps[i] & 1)) answered |= std::uint64_t{1} << i;
        if (left != answered) (void)fetch_or<order::release, Policy::who>(&v_.words->replies_left, left & ~answered);
        if (answered != 0) give_back(answered);
        return answered != 0;
    }
    VCCL_HOST_DEVICE std::uint32_t size() const noexcept { return std::uint32_t{1} << v_.size_log; }
    /// Returns: the cursor before. Acquire, or the fence behind it: a word is written again only after the proxy has read it.
    template <order O>
    VCCL_HOST_DEVICE ring_cursor claim(std::uint32_t n) const noexcept {
        return ring_cursor::unpack(device::fetch_add<O, Policy::who>(&v_.words->cursor, ring_cursor::claim(n)));
    }
    /// Returns: the cursor before. Release: what this thread has seen the proxy take, before who claims next.
    VCCL_HOST_DEVICE std::uint64_t open(ring_cursor to) const noexcept {
        return exchange<order::release, Policy::who>(&v_.words->cursor, to.pack());
    }
    /// Requires: a claim of `n` words found the cursor `at`, with less room. Effects: claims them, as soon as there is room. Values
    /// alone go in and out: what had an address would be stored before the fence of every post.
    VCCL_HOST_DEVICE VCCL_NOINLINE claimed wait_for_room(ring_cursor at, std::uint32_t n, deadline until) const {
        while (at.room() < static_cast<std::int32_t>(n)) {
            if (at.room() >= 0) {
                const ring_cursor expected{at.next + n, at.limit};
                const device_result why = make_room(at, n, until);
                const std::uint64_t found = open({why ? at.next + n : at.next, at.limit});
                return {why ? at.next : no_index, why, found != expected.pack()};
            }
            if (at.is_far_beyond()) forget_void_claims();
            do {
                if (const device_result r = look(until); !r) return {no_index, r};
                at = ring_cursor::unpack(load<order::relaxed, Policy::who>(&v_.words->cursor));
            } while (at.room() < 0);
            at = claim<order::acquire>(n);
        }
        return {at.next, {}};
    }
    /// Requires: this thread has the cursor to itself.
    VCCL_HOST_DEVICE device_result make_room(ring_cursor& at, std::uint32_t n, deadline& until) const {
        at = at.with_taken(load<order::acquire, Policy::who>(&v_.words->consumed), size());
        while (at.room() < static_cast<std::int32_t>(n)) {
            at = at.with_taken(taken(), size());
            if (at.room() >= static_cast<std::int32_t>(n)) break;
            if (const device_result r = look(until); !r) return r;
        }
        return {};
    }
    /// Effects: by whoever notices, since who has the cursor to itself may stand still. It stays closed, unless it was opened.
    VCCL_HOST_DEVICE void forget_void_claims() const noexcept {
        std::uint64_t found = load<order::relaxed, Policy::who>(&v_.words->cursor);
        for (ring_cursor c; (c = ring_cursor::unpack(found)).is_far_beyond();)
            if (compare_exchange<order::relaxed, Policy::who>(&v_.words->cursor, found, c.closed().pack())) return;
    }
    /// Returns: the words that the proxy has taken, across the bus. Effects: the next who wants room has it nearer.
    VCCL_HOST_DEVICE std::uint64_t taken() const noexcept {
        const std::uint64_t found = load<order::acquire, scope::system>(&v_.head->consumed);
        store<order::release, Policy::who>(&v_.words->consumed, found);
        return found;
    }
    VCCL_HOST_DEVICE VCCL_NOINLINE device_result wait(deadline& until) const {
        const channel_words& c = v_.channel[channel_];
        std::uint64_t began = 0, index = no_index;
        ring_cursor at{1, 0};  // closed: until it is not, what was posted before ends somewhere below its limit
        for (;;) {
            if (at.room() < 0) {
                at = ring_cursor::unpack(load<order::relaxed, Policy::who>(&v_.words->cursor));
                const std::uint64_t end = at.end_near(load<order::relaxed, Policy::who>(&v_.words->consumed));
                if (end < index) index = end;
            }
            // Under way together: both lie behind a bus.
            const std::uint64_t epoch = load<order::relaxed, scope::system>(&c.epoch);
            const std::uint64_t done = load<order::acquire, scope::system>(&c.done);
            if (began == 0) began = epoch;  // 0: the proxy has told none yet
            if (done >= index) {
                device_result r{};
                r.epoch = static_cast<std::uint16_t>(epoch);
                if (epoch != began) r.what = outcome::moved;
                return r;
            }
            if (const device_result r = look(until); !r) return r;
        }
    }
    /// One round of a wait. Returns: ok to go on, else why not.
    VCCL_HOST_DEVICE VCCL_NOINLINE device_result look(deadline& until) const {
        if (until.now_and_then()) {  // these words lie across the bus
            // Acquire, from host_ring::abort_kernels: the error that has ended the channel was told before.
            const bool aborted = load<order::acquire, scope::system>(&v_.host->abort) != 0;
            const device_result failed = unpack(load<order::relaxed, scope::system>(&v_.channel[channel_].failure));
            if (failed.what == outcome::error) return failed;
            if (aborted) return {outcome::aborted};
        }
        if (until.passed()) return {outcome::timeout};
        pause(until.host());
        return {};
    }

    host_ring_view v_{};
    std::uint32_t channel_{};
    std::int64_t timeout_{};
};
static_assert(std::is_trivially_copyable_v<host_ring_ref<queue_policy<>>>);

}  // namespace vccl::inline v0::device
