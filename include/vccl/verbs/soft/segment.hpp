#pragma once
/// \file
/// The layout of the memory that all processes of a fabric share: header, port control words, rails, process slots,
/// the topology as bytes, ring positions, then one packet ring for each ordered pair of slots, and memory of each slot for its
/// users' own bytes. In one process it is anonymous memory.
///
/// Every shared word is a lock-free atomic and no lock lives here: a process killed at any instruction blocks nobody.
/// Contents are not trusted by readers: `soft/ring.hpp` checks every length it finds.

#include <vccl/verbs/soft/options.hpp>
#include <vccl/verbs/soft/psn.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vccl::inline v0::verbs::soft_detail {

inline constexpr std::uint64_t segment_magic = 0x72626166'6c636376ull;  // the bytes "vcclfabr"
inline constexpr std::uint32_t segment_version = 2;
inline constexpr std::uint32_t max_slots = soft_options::most_processes;
inline constexpr std::uint32_t max_ports = 4096;
inline constexpr std::uint32_t max_rails = 1024;
inline constexpr std::size_t page = 4096;
inline constexpr std::uint64_t max_memory = std::uint64_t{1} << 40;  ///< of one slot

struct segment_header {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t bytes_of_header;  ///< sizeof(segment_header): a build with another layout is refused
    std::uint64_t bytes;  ///< of the whole segment
    std::uint64_t creator;  ///< process identity, see soft/process.hpp
    std::uint32_t identity;  ///< in every GID, so that an address of another fabric is recognised
    std::uint32_t ports, rails, slots;
    std::uint32_t ring_bytes;
    std::uint32_t topology_bytes;
    std::uint32_t mtu;
    std::int64_t latency;
    std::uint64_t seed;
    std::uint64_t memory_bytes;  ///< of each slot
    alignas(64) std::atomic<std::uint32_t> changes;  ///< grows with every command; engines compare it with what they saw
};

/// `port_control::link`: both bits set means ACTIVE.
enum link_bits : std::uint32_t { link_up = 1, link_cable = 2, link_active = 3 };

/// `port_control::faults`
enum fault_bits : std::uint32_t {
    fault_loss = 1,
    fault_duplicate = 2,
    fault_reorder = 4,
    fault_delay = 8,
    fault_rate = 16,
    fault_hang = 32,  ///< the requester stands still: no CQE, no event
    fault_drop_acks = 64,  ///< acknowledgements and responses that should arrive here are lost
    fault_no_event = 128,  ///< port events are not reported
    fault_flush = 256,  ///< loopback READs fail
    fault_partial = 512,  ///< of each message only the first packets leave
    fault_error_once = 1024,  ///< the next WR fails at this end only
    fault_active_twice = 2048,  ///< PORT_ACTIVE is reported twice
};
/// With any of these the whole-message short cut is not taken.
inline constexpr std::uint32_t faults_slow = fault_loss | fault_duplicate | fault_reorder | fault_delay | fault_rate |
                                             fault_hang | fault_drop_acks | fault_partial | fault_error_once | fault_flush;
/// With any of these each packet travels alone.
inline constexpr std::uint32_t faults_single = fault_loss | fault_duplicate | fault_reorder | fault_partial;

struct alignas(64) port_control {
    std::atomic<std::uint32_t> link;
    std::atomic<std::uint32_t> faults;
    std::atomic<std::uint32_t> gid_generation;
    std::atomic<std::uint32_t> downs;  ///< how often it ceased to be ACTIVE
    std::atomic<std::uint32_t> on_down;  ///< port_down_behaviour
    std::atomic<std::uint32_t> loss, duplicate, reorder;  ///< parts per million
    std::atomic<std::uint32_t> partial;  ///< packets of each message that get through
    std::atomic<std::int64_t> delay;  ///< extra, one way
    std::atomic<std::uint64_t> rate;  ///< bytes per second; 0 unlimited
    std::uint64_t base_rate;  ///< what `clear` restores
    /// The last eight events in four bits each, newest lowest, below a 32-bit count: appended to by one CAS.
    std::atomic<std::uint64_t> events;
    alignas(64) std::atomic<std::int64_t> out_free;  ///< when the wire out of this port has sent all it was given
    alignas(64) std::atomic<std::int64_t> in_free;
    alignas(64) std::atomic<std::uint64_t> out_bytes;
    std::atomic<std::uint64_t> out_packets, dropped;
    alignas(64) std::atomic<std::uint64_t> in_bytes;
};

struct rail_control {
    std::atomic<std::uint32_t> up;
};

struct alignas(64) slot_control {
    std::atomic<std::uint64_t> owner;  ///< process identity; 0 when free
    std::atomic<std::uint32_t> uses;  ///< how often it was claimed
    alignas(64) std::atomic<std::uint64_t> inbound;  ///< a bit for each slot whose ring to here may hold packets
};

/// Producer and consumer positions count bytes and never go back.
struct ring_control {
    alignas(64) std::atomic<std::uint64_t> tail;  ///< producer
    alignas(64) std::atomic<std::uint64_t> head;  ///< consumer
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::size_t round_up(std::size_t n, std::size_t to) noexcept { return (n + to - 1) / to * to; }

/// A word for each QP of a slot. Packets that only say where their bytes lie carry its value; it grows when the bytes may
/// be changed although the peer has not acknowledged them, and such packets are worth nothing from then on.
using voucher = std::atomic<std::uint32_t>;

/// Where things are, computed from the counts alone.
struct segment_layout {
    std::size_t ports, rails, slots, topology, ring_controls, vouchers, rings, memory, bytes;
    std::uint32_t port_count, rail_count, slot_count, topology_size, ring_bytes;
    std::uint64_t memory_bytes;

    static constexpr segment_layout of(std::uint32_t port_count, std::uint32_t rail_count, std::uint32_t slot_count,
                                       std::uint32_t topology_bytes, std::uint32_t ring_bytes,
                                       std::uint64_t memory_bytes) noexcept {
        segment_layout l{};
        l.port_count = port_count;
        l.rail_count = rail_count;
        l.slot_count = slot_count;
        l.topology_size = topology_bytes;
        l.ring_bytes = ring_bytes;
        l.memory_bytes = memory_bytes;
        l.ports = round_up(sizeof(segment_header), 64);
        l.rails = l.ports + port_count * sizeof(port_control);
        l.slots = round_up(l.rails + rail_count * sizeof(rail_control), 64);
        l.topology = l.slots + slot_count * sizeof(slot_control);
        const std::size_t ring_count = ring_bytes == 0 ? 0 : std::size_t{slot_count} * slot_count;
        l.ring_controls = round_up(l.topology + topology_bytes, 64);
        const std::size_t voucher_count = memory_bytes == 0 ? 0 : std::size_t{slot_count} * table_size;
        l.vouchers = l.ring_controls + ring_count * sizeof(ring_control);
        l.rings = round_up(l.vouchers + voucher_count * sizeof(voucher), page);
        l.memory = round_up(l.rings + ring_count * ring_bytes, page);
        l.bytes = l.memory + slot_count * memory_bytes;
        return l;
    }
};

/// Typed access to a mapped segment. A view: the map is owned by `segment_map`. Counts are this process's own copy, so
/// that a peer that writes over the header cannot move anything.
struct segment {
    std::byte* base{};
    segment_layout at{};

    segment_header& head() const noexcept { return *reinterpret_cast<segment_header*>(base); }
    port_control& port(std::uint32_t i) const noexcept { return reinterpret_cast<port_control*>(base + at.ports)[i]; }
    rail_control& rail(std::uint32_t i) const noexcept { return reinterpret_cast<rail_control*>(base + at.rails)[i]; }
    slot_control& slot(std::uint32_t i) const noexcept { return reinterpret_cast<slot_control*>(base + at.slots)[i]; }
    std::byte* topology_bytes() const noexcept { return base + at.topology; }
    ring_control& ring(std::uint32_t from, std::uint32_t to) const noexcept {
        return reinterpret_cast<ring_control*>(base + at.ring_controls)[std::size_t{from} * at.slot_count + to];
    }
    /// Requires: memory_bytes != 0.
    voucher& vouched(std::uint32_t slot, std::uint32_t qp_index) const noexcept {
        return reinterpret_cast<voucher*>(base + at.vouchers)[std::size_t{slot} * table_size + qp_index];
    }
    std::byte* memory(std::uint32_t slot) const noexcept { return base + memory_offset(slot); }
    std::size_t memory_offset(std::uint32_t slot) const noexcept { return at.memory + slot * at.memory_bytes; }
    /// Where the ring's bytes begin.
    std::size_t ring_offset(std::uint32_t from, std::uint32_t to) const noexcept {
        return at.rings + std::size_t{at.ring_bytes} * (std::size_t{from} * at.slot_count + to);
    }
};

}  // namespace vccl::inline v0::verbs::soft_detail
