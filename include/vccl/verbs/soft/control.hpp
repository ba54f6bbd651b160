#pragma once
/// \file
/// The state of ports and switches, as every process of the fabric sees it: links, faults, rates, event log.
/// All of it is atomics in the segment; any thread of any process may call any function here at any time.

#include <vccl/verbs/backend.hpp>
#include <vccl/verbs/soft/segment.hpp>

namespace vccl::inline v0::verbs::soft_detail {

/// Event codes of `port_control::events`.
enum class port_event : std::uint8_t { none = 0, error = 1, active = 2, gid_change = 3 };

inline void append_event(port_control& p, port_event e) noexcept {
    if ((p.faults.load(std::memory_order_relaxed) & fault_no_event) != 0) return;
    std::uint64_t old = p.events.load(std::memory_order_relaxed);
    std::uint64_t now;
    do {
        now = ((old >> 32) + 1) << 32 | ((old << 4) & 0xffffffffu) | static_cast<std::uint64_t>(e);
    } while (!p.events.compare_exchange_weak(old, now, std::memory_order_acq_rel, std::memory_order_relaxed));
}

/// Reads the event log from where `seen` stands; of more than eight missed events only the last eight are left.
inline port_event read_event(const port_control& p, std::uint32_t& seen) noexcept {
    const std::uint64_t log = p.events.load(std::memory_order_acquire);
    const auto count = static_cast<std::uint32_t>(log >> 32);
    std::uint32_t behind = count - seen;
    if (behind == 0) return port_event::none;
    if (behind > 8) behind = 8;
    seen = count - behind + 1;
    return static_cast<port_event>(log >> (4 * (behind - 1)) & 0xf);
}

inline bool active(const port_control& p) noexcept { return p.link.load(std::memory_order_acquire) == link_active; }

/// Tells every engine to look at the control words again.
inline void announce(const segment& s) noexcept { s.head().changes.fetch_add(1, std::memory_order_acq_rel); }

inline void set_link(const segment& s, std::uint32_t index, link_bits bit, bool on) noexcept {
    port_control& p = s.port(index);
    const std::uint32_t before = on ? p.link.fetch_or(bit, std::memory_order_acq_rel)
                                    : p.link.fetch_and(~static_cast<std::uint32_t>(bit), std::memory_order_acq_rel);
    const std::uint32_t after = on ? before | bit : before & ~static_cast<std::uint32_t>(bit);
    if (before == link_active && after != link_active) {
        p.downs.fetch_add(1, std::memory_order_acq_rel);
        append_event(p, port_event::error);
    } else if (before != link_active && after == link_active) {
        append_event(p, port_event::active);
        if ((p.faults.load(std::memory_order_relaxed) & fault_active_twice) != 0) append_event(p, port_event::active);
    }
    announce(s);
}

inline void set_rail(const segment& s, std::uint32_t rail, bool on) noexcept {
    s.rail(rail).up.store(on ? 1 : 0, std::memory_order_release);
    announce(s);
}

/// The port's address changes; QPs that were set up with the old one no longer get through.
inline void change_gid(const segment& s, std::uint32_t index) noexcept {
    port_control& p = s.port(index);
    p.gid_generation.fetch_add(1, std::memory_order_acq_rel);
    append_event(p, port_event::gid_change);
    announce(s);
}

inline void set_fault(const segment& s, std::uint32_t index, fault_bits bit, bool on) noexcept {
    auto& faults = s.port(index).faults;
    if (on)
        faults.fetch_or(bit, std::memory_order_acq_rel);
    else
        faults.fetch_and(~static_cast<std::uint32_t>(bit), std::memory_order_acq_rel);
    announce(s);
}

inline void set_rate(const segment& s, std::uint32_t index, std::uint64_t bytes_per_second) noexcept {
    port_control& p = s.port(index);
    p.rate.store(bytes_per_second, std::memory_order_relaxed);
    p.out_free.store(0, std::memory_order_relaxed);  // what was waiting for the old rate waits no more
    p.in_free.store(0, std::memory_order_relaxed);
    set_fault(s, index, fault_rate, bytes_per_second != 0);
}

/// Takes every fault off a port, except that it leaves the links as they are.
inline void clear_faults(const segment& s, std::uint32_t index) noexcept {
    port_control& p = s.port(index);
    p.faults.store(0, std::memory_order_release);
    set_rate(s, index, p.base_rate);
}

/// A GID says which fabric, which port and which generation of the port's address.
inline gid make_gid(std::uint32_t identity, std::uint32_t port, std::uint32_t generation) noexcept {
    gid g;
    g.raw[0] = 0xfd;
    g.raw[1] = 0x56;
    for (int i = 0; i < 4; ++i) {
        g.raw[4 + i] = static_cast<std::uint8_t>(identity >> (8 * (3 - i)));
        g.raw[8 + i] = static_cast<std::uint8_t>(port >> (8 * (3 - i)));
        g.raw[12 + i] = static_cast<std::uint8_t>(generation >> (8 * (3 - i)));
    }
    return g;
}

struct gid_parts {
    std::uint32_t identity, port, generation;
};
inline gid_parts parts_of(const gid& g) noexcept {
    gid_parts p{};
    for (int i = 0; i < 4; ++i) {
        p.identity = p.identity << 8 | g.raw[4 + i];
        p.port = p.port << 8 | g.raw[8 + i];
        p.generation = p.generation << 8 | g.raw[12 + i];
    }
    return p;
}

}  // namespace vccl::inline v0::verbs::soft_detail
