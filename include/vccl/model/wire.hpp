#pragma once
/// \file
/// Everything that the two ends of a channel read from each other's memory or messages: the CTS slot, the immediate,
/// and the control message. Little-endian; sizes and offsets are asserted. docs/protocol.md draws them.

#include <vccl/base/ids.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vccl::inline v0 {

static_assert(std::endian::native == std::endian::little, "the wire formats are those of little-endian machines");

inline constexpr std::uint16_t wire_version = 2;
inline constexpr unsigned max_lanes = 16;     ///< lanes of a channel, primary included
inline constexpr unsigned max_group = 8;      ///< QPs of a lane that share a chunk
inline constexpr unsigned max_window = 256;   ///< receives outstanding on a channel

/// Clear-to-send: the receiver's grant for one chunk, as the 64-bit words that are written, read and checked. It binds the
/// whole chunk to one lane. `acked` rides along: everything below it has been received, flush included.
struct cts_words {
    std::uint64_t sequence;
    std::uint64_t addr;
    std::uint64_t room;     ///< length, rkey: 32 bits each
    std::uint64_t binding;  ///< epoch: 32 bits; generation of the lane, its low 16 bits; lane: 8 bits; 0: 8 bits
    std::uint64_t acked;
    std::uint64_t check;    ///< of all words above: a torn or foreign slot does not match

    /// Takes over the words that neighbours share, `binding` and `acked`, in one go.
    void share(const cts_words& with) noexcept {
        constexpr std::size_t at = 24, bytes = 16;
        std::memcpy(reinterpret_cast<std::byte*>(this) + at, reinterpret_cast<const std::byte*>(&with) + at, bytes);
    }
    static constexpr std::uint32_t length_of(std::uint64_t room) noexcept { return static_cast<std::uint32_t>(room); }
    static constexpr std::uint32_t rkey_of(std::uint64_t room) noexcept { return static_cast<std::uint32_t>(room >> 32); }
    static constexpr std::uint32_t epoch_of(std::uint64_t binding) noexcept { return static_cast<std::uint32_t>(binding); }
    static constexpr std::uint16_t generation_of(std::uint64_t binding) noexcept {
        return static_cast<std::uint16_t>(binding >> 32);
    }
    static constexpr std::uint8_t lane_of(std::uint64_t binding) noexcept { return static_cast<std::uint8_t>(binding >> 48); }
    constexpr std::uint32_t length() const noexcept { return length_of(room); }
    constexpr std::uint32_t rkey() const noexcept { return rkey_of(room); }
    constexpr std::uint32_t epoch() const noexcept { return epoch_of(binding); }
    constexpr std::uint8_t lane() const noexcept { return lane_of(binding); }

    static constexpr std::uint64_t make_room(std::uint32_t length, std::uint32_t rkey) noexcept {
        return length | std::uint64_t{rkey} << 32;
    }
    static constexpr std::uint64_t make_binding(std::uint32_t epoch, std::uint32_t generation, unsigned lane) noexcept {
        return epoch | std::uint64_t{generation & 0xffff} << 32 | std::uint64_t{lane} << 48;
    }
};
/// RDMA-written into slot `sequence % depth` of the sender's ring.
struct cts_slot {
    cts_words words;
    std::uint64_t note;        ///< of the receiver's user
    std::uint64_t note_check;  ///< of sequence and note; it does not match where the receive has none
};
static_assert(sizeof(cts_slot) == 64 && offsetof(cts_words, binding) == 24 && offsetof(cts_words, acked) == 32 &&
              offsetof(cts_words, check) == 40 && offsetof(cts_slot, note) == 48);

/// The check of a slot is the sum of two mixes: of the words that are its own, and of those that it shares with its
/// neighbours, so that a run of slots mixes the latter once. Not a signature: it recognises slots that are half written or
/// left from another lap. The first mix is taken once a chunk: its factors fit an instruction.
inline constexpr std::uint64_t cts_sequence_step = 0x5851f42d;
constexpr std::uint64_t cts_sequence_mix(std::uint64_t sequence) noexcept { return (sequence + 1) * cts_sequence_step; }
constexpr std::uint64_t cts_own_mix(std::uint64_t sequence_mix, std::uint64_t addr, std::uint64_t room) noexcept {
    return (sequence_mix ^ addr) * 0x4c957f2d + room;
}
constexpr std::uint64_t cts_shared_mix(std::uint64_t binding, std::uint64_t acked) noexcept {
    return (binding * 0xff51afd7ed558ccdu + acked) * 0xc4ceb9fe1a85ec53u;
}
/// Not zero for the note 0, which memory holds that nobody has written.
constexpr std::uint64_t cts_note_mix(std::uint64_t sequence, std::uint64_t note) noexcept {
    return cts_shared_mix(sequence + 1, note);
}
constexpr void annotate(cts_slot& slot, std::uint64_t sequence, std::uint64_t note) noexcept {
    slot.note = note;
    slot.note_check = cts_note_mix(sequence, note);
}
constexpr std::uint64_t check_of(const cts_words& w) noexcept {
    return cts_own_mix(cts_sequence_mix(w.sequence), w.addr, w.room) + cts_shared_mix(w.binding, w.acked);
}

/// What lies at the sender for the receiver to write: the CTS ring, preceded by one line for an acknowledgement that
/// travels alone.
struct alignas(64) ack_line {
    std::uint64_t acked;
    std::uint64_t pad[7];
};
static_assert(sizeof(ack_line) == 64);

/// Bits of the 32-bit immediate that ends each part of a chunk:
/// epoch 0-9, part 10-12, parts - 1 13-15, too long 16, sequence 18-31.
struct immediate {
    std::uint32_t raw{};

    static constexpr unsigned epoch_bits = 10, sequence_bits = 14, sequence_shift = 32 - sequence_bits;
    static constexpr std::uint32_t epoch_mask = (1u << epoch_bits) - 1, sequence_mask = (1u << sequence_bits) - 1;

    static constexpr std::uint32_t one_sequence = 1u << sequence_shift;  ///< added, it names the next chunk

    static constexpr immediate make(std::uint32_t epoch, std::uint64_t sequence, unsigned part, unsigned parts,
                                    bool too_long) noexcept {
        return {whole(epoch, sequence).raw | part << 10 | (parts - 1) << 13 | (too_long ? 1u << 16 : 0u)};
    }
    /// Of the whole chunk `sequence`, in one piece.
    static constexpr immediate whole(std::uint32_t epoch, std::uint64_t sequence) noexcept {
        return {(epoch & epoch_mask) | static_cast<std::uint32_t>(sequence) << sequence_shift};
    }
    constexpr std::uint32_t epoch() const noexcept { return raw & epoch_mask; }
    constexpr std::uint32_t sequence() const noexcept { return raw >> sequence_shift; }
    constexpr unsigned part() const noexcept { return raw >> 10 & 7; }
    constexpr unsigned parts() const noexcept { return (raw >> 13 & 7) + 1; }
    constexpr bool too_long() const noexcept { return (raw >> 16 & 1) != 0; }
};
static_assert(max_window < immediate::sequence_mask / 2, "a window must be unambiguous in the immediate's sequence bits");
static_assert(immediate::make(1025, 70000, 7, 8, true).sequence() == (70000 & immediate::sequence_mask));
static_assert(immediate::whole(1025, 70000).raw == immediate::make(1025, 70000, 0, 1, false).raw);

/// How a chunk is cut: `parts` pieces of `part_bytes`, the last one shorter. A function of size and group alone, so that
/// a replay cuts as the first try did and both ends agree.
struct chunk_cut {
    std::uint32_t parts;
    std::uint32_t part_bytes;
};
/// Pieces below this are not worth a work request of their own.
inline constexpr std::uint32_t min_part_bytes = 16 * 1024;

constexpr chunk_cut cut_chunk(std::uint32_t bytes, unsigned group) noexcept {
    if (group == 1 || bytes < 2 * min_part_bytes) return {1, bytes};
    std::uint32_t parts = bytes / min_part_bytes;
    if (parts > group) parts = group;
    // Multiples of 4 KiB: no piece ends inside a packet of the largest MTU.
    const std::uint32_t each =
        static_cast<std::uint32_t>((std::uint64_t{bytes} + parts - 1) / parts + 4095) & ~std::uint32_t{4095};
    return {(bytes + (each - 1)) / each, each};
}
static_assert(cut_chunk(0, 4).parts == 1 && cut_chunk(1 << 20, 4).parts == 4 && cut_chunk(65536 * 2 + 1, 8).parts <= 8);

/// Kinds of control message. Requests are repeated until their answer comes; all are idempotent (G4).
enum class control_kind : std::uint8_t {
    hello = 1,    ///< sender: my lanes are ready         -> hello_ack
    hello_ack,
    notify,       ///< sender: this lane died for me      -> notify_ack, then sync or restore
    notify_ack,
    sync,         ///< receiver: epoch, lanes dead, what arrived -> sync_ack
    sync_ack,
    restore,      ///< receiver: rebuild this lane with these QPs -> restore_ack or restore_nak
    restore_ack,
    restore_nak,  ///< sender: my port is not back yet
    port_back,    ///< sender: my port is back (a hint)
    probe,        ///< either: are you there on this lane?  -> probe_ack
    probe_ack,
    goodbye,      ///< either: closed in order             -> goodbye_ack
    goodbye_ack,
    abort,        ///< either: given up, nothing more completes -> abort_ack
    abort_ack,
};

/// How one end's half of a lane is reached. Part of the connection blob and of restore messages.
struct lane_end {
    std::uint32_t generation;
    std::uint32_t qpn[max_group];
    std::uint32_t psn[max_group];
    std::uint32_t control_qpn;
    std::uint32_t control_psn;
    std::uint32_t mtu;
    std::uint16_t lid;
    std::uint16_t reserved;
    std::uint8_t gid[16];
};
static_assert(sizeof(lane_end) == 100);

/// A control message. Fixed size, so that one buffer serves all.
struct control_message {
    static constexpr std::uint32_t magic_value = 0x6c636376;  // "vccl"

    std::uint32_t magic;
    std::uint16_t version;
    control_kind kind;
    std::uint8_t lane;           ///< the lane that it speaks of
    std::uint64_t connection;    ///< both blobs' nonces mixed: another connection's messages are dropped
    std::uint32_t epoch;
    std::uint32_t number;        ///< of this request; its answer repeats it
    std::uint32_t generation;    ///< of `lane`
    std::uint8_t cause;          ///< fault_cause
    std::uint8_t wc;             ///< wc_status behind it
    std::uint16_t
        count;  ///< sync: how many entries of `arrived` are valid; probe: the way it went, a lane or 0xffff for out of band
    std::uint64_t sequence;  ///< sync: the restart point
    std::uint32_t dead_generation[max_lanes];  ///< sync: every lane is dead up to this generation
    union {
        lane_end end;  ///< restore, restore_ack
        std::uint8_t arrived[max_window];  ///< sync: parts received, a byte a chunk from `sequence` on
    };

    /// Bytes that need to travel.
    constexpr std::size_t size() const noexcept {
        const std::size_t head = 40 + sizeof(dead_generation);
        return kind == control_kind::sync                                           ? head + count
               : kind == control_kind::restore || kind == control_kind::restore_ack ? head + sizeof(lane_end)
                                                                                    : head;
    }
};
static_assert(offsetof(control_message, end) == 104 && sizeof(control_message) == 104 + max_window);

/// Are `bytes` received a message that may be looked at, whatever its connection?
constexpr bool well_formed(const control_message& m, std::size_t bytes) noexcept {
    return bytes >= offsetof(control_message, end) && m.magic == control_message::magic_value && m.version == wire_version &&
           !(m.kind == control_kind::sync && m.count > max_window) && bytes >= m.size();
}

}  // namespace vccl::inline v0
