#pragma once
/// \file
/// The words that the kernels posting on a queue, the host's service and each other's threads share. Each has one writer, or
/// is changed by read-modify-writes inside one GPU's memory only. docs/device.md says who pairs with whom.

#include <vccl/device/result.hpp>
#include <vccl/device/ring.hpp>
#include <vccl/device/wait.hpp>
#include <vccl/model/wire.hpp>

namespace vccl::inline v0::device {

inline constexpr unsigned epoch_bits = 12;
inline constexpr std::uint16_t epoch_mask = (1u << epoch_bits) - 1;
/// Lanes of a device channel: a stamp has four bits for their rings.
inline constexpr unsigned max_queue_lanes = 8;
static_assert(max_queue_lanes <= max_lanes);
/// Signal words of a channel; a SYNC carries all of them.
inline constexpr std::uint32_t max_signal_words = max_window / 8;
static_assert((max_signal_words & (max_signal_words - 1)) == 0);
/// Rings of a queue. Each lane has two, which its generations use in turn, so that a lane can be rebuilt while posters may still
/// be writing into the ring of its former life.
inline constexpr unsigned max_rings = 2 * max_queue_lanes;

/// Where posts go now: everything that a poster must know of the present epoch, in one word, so that it is never half new.
/// Written by the service only.
struct gate {
    static constexpr std::uint64_t closed_bit = 16;
    std::uint64_t raw{};  ///< from bit 0: ring 4, closed 1, 0 3, epoch 12, 0 4, first 16, QP number 24

    /// `first`: the software index that is hardware index 0 of this ring's QP.
    VCCL_HOST_DEVICE static constexpr gate make(std::uint32_t qpn, std::uint64_t first, std::uint32_t epoch,
                                                unsigned ring) noexcept {
        return {std::uint64_t{qpn} << 40 | (first & 0xffff) << 24 | std::uint64_t{epoch & epoch_mask} << 8 | (ring & 15)};
    }
    VCCL_HOST_DEVICE constexpr std::uint32_t qpn() const noexcept { return static_cast<std::uint32_t>(raw >> 40); }
    VCCL_HOST_DEVICE constexpr std::uint16_t first() const noexcept { return static_cast<std::uint16_t>(raw >> 24); }
    VCCL_HOST_DEVICE constexpr std::uint16_t epoch() const noexcept { return static_cast<std::uint16_t>(raw >> 8) & epoch_mask; }
    VCCL_HOST_DEVICE constexpr unsigned ring() const noexcept { return raw & 15; }
    /// The lane has failed and the next one is not chosen yet: its completions are left to the service.
    VCCL_HOST_DEVICE constexpr bool closed() const noexcept { return (raw & closed_bit) != 0; }
    VCCL_HOST_DEVICE constexpr gate close() const noexcept { return {raw | closed_bit}; }
    /// The hardware index of a software index: which slot of the ring it takes, and what its WQE says.
    VCCL_HOST_DEVICE constexpr std::uint16_t hardware(std::uint64_t index) const noexcept {
        return static_cast<std::uint16_t>(index - first());
    }
    friend constexpr bool operator==(const gate&, const gate&) noexcept = default;
};

/// "Everything below `index` is published, and was published last in this epoch, in this ring", in one word.
struct stamp {
    std::uint64_t raw{};

    VCCL_HOST_DEVICE static constexpr stamp make(std::uint64_t index, gate g) noexcept {
        return {index << 16 | std::uint64_t{g.epoch()} << 4 | g.ring()};
    }
    VCCL_HOST_DEVICE constexpr std::uint64_t index() const noexcept { return raw >> 16; }
    VCCL_HOST_DEVICE constexpr std::uint16_t epoch() const noexcept { return static_cast<std::uint16_t>(raw >> 4) & epoch_mask; }
    VCCL_HOST_DEVICE constexpr unsigned ring() const noexcept { return raw & 15; }
    friend constexpr bool operator==(const stamp&, const stamp&) noexcept = default;
};
inline constexpr unsigned index_bits = 48;  ///< at 10^9 WQEs a second for 78 hours, or 10^7 for a year

/// "Everything below `index` is done", and a lock that counts, in one word: who polls takes it with one operation and gives it
/// back with what it found. Who looks from outside can tell that the one who held it has left, even if another has come.
struct completions {
    static constexpr std::uint64_t busy_bit = 1;
    std::uint64_t raw{};  ///< index 48, ticket 16

    VCCL_HOST_DEVICE static constexpr completions make(std::uint64_t index, std::uint16_t ticket = 0) noexcept {
        return {index << 16 | ticket};
    }
    VCCL_HOST_DEVICE constexpr std::uint64_t index() const noexcept { return raw >> 16; }
    VCCL_HOST_DEVICE constexpr std::uint16_t ticket() const noexcept { return static_cast<std::uint16_t>(raw); }
    VCCL_HOST_DEVICE constexpr bool is_busy() const noexcept { return (raw & busy_bit) != 0; }
    /// What the holder leaves who found this.
    VCCL_HOST_DEVICE constexpr completions left(std::uint64_t index) const noexcept {
        return make(index, static_cast<std::uint16_t>(ticket() + 2));
    }
};

/// How far the doorbell has rung, and how many have asked for it to ring since it was last left alone, in one word. Who asks
/// first rings; the others leave, since that one looks again when it has done.
struct bell {
    static constexpr std::uint64_t one = 1;
    std::uint64_t raw{};  ///< index 40, wraps; asks 24

    VCCL_HOST_DEVICE static constexpr bell left_at(std::uint64_t index) noexcept { return {index << 24}; }
    VCCL_HOST_DEVICE constexpr std::uint32_t asks() const noexcept { return raw & 0xffffff; }
    VCCL_HOST_DEVICE constexpr bool has_rung_for(std::uint64_t index) const noexcept {
        return static_cast<std::int64_t>((index << 24) - (raw & ~std::uint64_t{0xffffff})) <= 0;
    }
    VCCL_HOST_DEVICE friend constexpr bool same_index(bell a, bell b) noexcept { return a.raw >> 24 == b.raw >> 24; }
};

/// In the memory of the GPU that posts (host build: the heap). Each group is on lines of its own.
struct queue_words {
    alignas(128) std::uint64_t reserve{};  ///< next free index. Changed by posters
    std::int64_t credits{};                ///< slots that nobody has. Taken by posters, given back by the poller

    alignas(128) std::uint64_t ready{};  ///< a stamp. Changed by the poster whose turn it is, read by the next one

    alignas(128) std::uint64_t rung{};  ///< a `bell`. Changed by posters

    alignas(128) std::uint64_t completed{};  ///< `completions`. Changed by pollers; the one that has it writes this group
    std::uint64_t polled{};                  ///< the gate for which it last polled
    std::uint64_t failure{};               ///< a packed result: the first error CQE of its epoch
    std::uint64_t taken{};                 ///< CQEs taken of that gate's CQ, which began empty

    alignas(128) std::uint64_t looks{};  ///< at the CQ, by those who wait. Changed by waiters
    std::uint64_t reached{};  ///< an index below which everything is done. Written by waiters, for each other; may go back

    alignas(128) std::uint64_t open{};   ///< the gate. Written by the service, like the rest of this group
    std::uint64_t adopted{};             ///< a stamp: everything below it is on the lane of this epoch
    std::uint64_t opened[max_rings]{};   ///< the gate under which each ring was last open
};

/// In host memory, written by the GPU's posters and pollers, read by the service.
struct alignas(128) kernel_words {
    std::uint64_t rung{};     ///< a stamp: how far the doorbell has rung. Written by who rings
    std::uint64_t failure{};  ///< as in queue_words, for the service. Written by the poller
};

/// In host memory, written by the host, read by waiting kernels.
struct alignas(128) host_words {
    std::uint64_t abort{};  ///< not 0: every wait ends with `aborted`. Written by the owner, at any time, on any thread
};

/// A ring and the keys of its lane, as a poster sees them. Never changes once the queue is connected.
struct ring_view {
    device::ring ring{};
    std::uint32_t local_key{};   ///< of the window that is sent from and read into
    std::uint32_t remote_key{};  ///< of the peer's window
    std::uint32_t signal_key{};  ///< of the peer's signal words
    std::uint32_t scratch_key{}; ///< of `scratch`
};

/// A queue as a kernel sees it: where everything is. Read-only once connected.
struct queue_view {
    queue_words* words{};
    kernel_words* told{};
    const host_words* host{};
    std::uint64_t*
        notes{};     ///< memory of the posters, one for each slot: what the word holds once the fetch-add in it is applied
    std::uint64_t* sums{};      ///< memory of the poster, one for each signal word: the sum of all adds. Written at one's turn
    std::uint64_t scratch{};    ///< address of 8 registered bytes that swallow what atomics return
    std::uint64_t window{};     ///< address of the local window
    std::uint64_t remote{};     ///< address of the peer's window
    std::uint64_t signals{};    ///< address of the peer's signal words
    std::uint32_t signal_count{};
    std::uint32_t depth_log{};
    const host_wait* wait{};    ///< host build only
    ring_view rings[max_rings]{};

    VCCL_HOST_DEVICE constexpr std::uint32_t depth() const noexcept { return 1u << depth_log; }
};

}  // namespace vccl::inline v0::device
