#pragma once
/// \file
/// The rollback FIFO: what the sender posted and the receiver has not acknowledged, so that any of it can be sent again.
/// Owner thread only. A local completion is not an acknowledgement: entries leave when the receiver says so.

#include <vccl/base/ids.hpp>
#include <vccl/base/owned.hpp>
#include <vccl/base/status.hpp>
#include <vccl/base/time.hpp>
#include <vccl/model/work.hpp>

#include <bit>
#include <concepts>

namespace vccl::inline v0 {

struct memory_region;

/// How a chunk went out; a word, so that a run of chunks is marked with one store each.
struct posting {
    std::uint32_t generation{};   ///< of `lane`, when it was posted
    std::uint8_t lane{};          ///< that it went out on
    std::uint8_t arrived{};       ///< parts that the receiver already has, a bit each
    bool posted{};                ///< false: queued, waiting for its grant
    bool too_long{};              ///< larger than the receive that met it: ended without its bytes
};
static_assert(sizeof(posting) == 8);

/// One chunk as its sender remembers it.
struct outgoing : posting {
    std::uint64_t addr{};  ///< of the chunk's bytes, which the user keeps until it has ended
    memory_region* region{};      ///< their registration; null for an empty chunk
    std::uint32_t length{};       ///< bytes
    work_flags flags{};           ///< inlined or none
};

template <class L>
concept replay_log = on_axis<L, axis::replay> && requires(L log, const outgoing& o, sequence s) {
    { L::capacity } -> std::convertible_to<std::size_t>;
    { L::can_replay } -> std::convertible_to<bool>;
    { log.record(s, o) } noexcept -> std::same_as<void>;   // before the post; never more than `capacity` unretired
    { log.at(s) } noexcept -> std::same_as<outgoing&>;     // of an unretired chunk
    { log.retire(s) } noexcept -> std::same_as<void>;      // the receiver has everything up to and including s
};

/// Where in its receive a chunk goes that is one part of a larger, striped one.
struct placement {
    std::uint64_t offset{};  ///< of its first byte in the receive
    std::uint64_t whole{};   ///< bytes of the striped chunk: what the receive must have room for
};

/// A log that keeps a placement with each chunk; see stripe/.
template <class L>
concept places_chunks = requires(L log, sequence s) {
    { log.place(s) } noexcept -> std::same_as<placement&>;
};

/// Fixed capacity, replay from any restart point that is not retired.
template <std::size_t Capacity = 64>
class rollback_fifo {
public:
    static_assert(Capacity >= 1 && Capacity <= 1024 && std::has_single_bit(Capacity),
                  "vccl: the capacity of a rollback_fifo must be a power of two between 1 and 1024");
    using policy_axis = axis::replay;
    static constexpr std::size_t capacity = Capacity;  ///< chunks that may be under way; `send` refuses more with `would_block`
    static constexpr bool can_replay = true;  ///< what makes the difference to no_replay

    /// Requires: at most `capacity` chunks are unretired, this one included.
    void record(sequence s, const outgoing& o) noexcept {
        // Member by member, so that the compiler need not put `o` together in memory first.
        outgoing& to = at(s);
        static_cast<posting&>(to) = posting{};
        to.addr = o.addr;
        to.region = o.region;
        to.length = o.length;
        to.flags = o.flags;
    }
    /// Requires: recorded, and no `capacity` chunks recorded since.
    outgoing& at(sequence s) noexcept { return slots_[s.value & (Capacity - 1)]; }
    /// Nothing to do: the slot is used again `capacity` chunks later.
    void retire(sequence) noexcept {}
    /// Optional, for speed: chunks [s, s + contiguous(s)) lie behind each other in one array.
    static constexpr std::uint64_t contiguous(std::uint64_t s) noexcept { return Capacity - (s & (Capacity - 1)); }

private:
    owned_array<outgoing> slots_{new outgoing[Capacity]};
};

/// For those who want an error instead of a replay: the first lost lane ends the channel with `no_replay_log`.
template <std::size_t Capacity = 64>
class no_replay : public rollback_fifo<Capacity> {
public:
    static constexpr bool can_replay = false;  ///< a lane that dies with chunks under way ends the channel
};

/// A log whose chunks have a placement.
template <replay_log Log>
class placed : public Log {
public:
    /// Of an unretired chunk: the stripe sender fills it in, the core reads it.
    placement& place(sequence s) noexcept { return places_[s.value % Log::capacity]; }

private:
    owned_array<placement> places_{new placement[Log::capacity]};
};

static_assert(replay_log<rollback_fifo<>> && replay_log<no_replay<>> && places_chunks<placed<rollback_fifo<>>>);

}  // namespace vccl::inline v0
