#pragma once
/// \file
/// Commands of an mlx5 device that make a CQ and a QP over memory of one's own, and lead the QP through its states: what DevX
/// passes to the firmware. Pure functions, any thread. Not run on hardware.
/// Source of layout and numbers: the Ethernet Adapters Programming Reference Manual as rdma-core (providers/mlx5/mlx5_ifc.h,
/// tests/mlx5_prm_structs.py) and Linux (include/linux/mlx5/mlx5_ifc.h, qp.h) have it.

#include <vccl/base/byte_order.hpp>
#include <vccl/verbs/backend.hpp>

#include <cstddef>
#include <cstdint>

namespace vccl::inline v0::device::mlx5dv_detail::prm {

/// Bits of a command: the first one, counted from the most significant of the first byte, and how many. None crosses a word of
/// 32 bits but those of 64.
struct field {
    std::uint32_t at{}, width{};
};

/// The bytes of a command or of its answer, all 0 at first.
template <std::size_t Bytes>
class message {
public:
    constexpr message& set(field f, std::uint64_t value) noexcept {
        if (f.width == 64) {
            set({f.at, 32}, value >> 32);
            return set({f.at + 32, 32}, value & 0xffffffff);
        }
        std::uint32_t& word = words_[f.at / 32];
        const std::uint32_t shift = 32 - f.width - f.at % 32;
        const auto mask = static_cast<std::uint32_t>(((std::uint64_t{1} << f.width) - 1) << shift);
        word = big_endian((big_endian(word) & ~mask) | (static_cast<std::uint32_t>(value << shift) & mask));
        return *this;
    }
    constexpr std::uint32_t get(field f) const noexcept {
        const std::uint64_t word = big_endian(words_[f.at / 32]);
        return static_cast<std::uint32_t>(word >> (32 - f.width - f.at % 32) & ((std::uint64_t{1} << f.width) - 1));
    }
    constexpr const void* data() const noexcept { return words_; }
    constexpr void* data() noexcept { return words_; }
    static constexpr std::size_t size() noexcept { return Bytes; }

private:
    std::uint32_t words_[Bytes / 4]{};
};

enum class operation : std::uint16_t {
    create_cq = 0x400,
    create_qp = 0x500,
    reset_to_init = 0x502,
    init_to_rtr = 0x503,
    rtr_to_rts = 0x504,
    to_error = 0x507,
    query_qp = 0x50b,
};

/// Of every command, and of every answer: status, syndrome, and the number of what was made.
/// @{
inline constexpr field opcode{0x00, 16}, object{0x48, 24};
inline constexpr field answer_status{0x00, 8}, answer_syndrome{0x20, 32};
/// @}

/// A CQ's context in create_cq, and where its memory lies.
namespace cqc {
inline constexpr field dbr_umem_valid{0x86, 1}, dbr_umem{0xa0, 32}, log_size{0xe3, 5}, uar{0xe8, 24}, event_queue{0x138, 8},
    dbr_offset{0x240, 64}, umem_offset{0x280, 64}, umem{0x2c0, 32}, umem_valid{0x2e0, 1};
}  // namespace cqc

/// A QP's context: in create_qp, in what changes its state, and in query_qp's answer.
namespace qpc {
inline constexpr std::uint32_t base = 0xc0, path = base + 0xc0;
inline constexpr field state{base + 0x00, 4}, migration{base + 0x13, 2}, domain{base + 0x28, 24}, mtu{base + 0x40, 3},
    log_message{base + 0x43, 5}, log_sq_size{base + 0x51, 4}, uar{base + 0x68, 24}, user_index{base + 0x88, 24},
    remote_qpn{base + 0xa8, 24}, log_ack_request{base + 0x380, 4}, log_reads_out{base + 0x388, 3}, retries{base + 0x38d, 3},
    rnr_retries{base + 0x390, 3}, first_psn{base + 0x3c8, 24}, send_cq{base + 0x3e8, 24}, log_reads_in{base + 0x488, 3},
    atomic_mode{base + 0x48c, 4}, remote_read{base + 0x490, 1}, remote_write{base + 0x491, 1}, remote_atomic{base + 0x492, 1},
    min_rnr_timer{base + 0x4a3, 5}, peer_psn{base + 0x4a8, 24}, receive_cq{base + 0x4e8, 24}, dbr_offset{base + 0x500, 64},
    rq_type{base + 0x565, 3}, dbr_umem_valid{base + 0x683, 1}, dbr_umem{base + 0x720, 32};
/// The memory of its queue, behind the context, in create_qp.
inline constexpr field umem_offset{0x800, 64}, umem{0x840, 32}, umem_valid{0x860, 1};
/// The primary path.
inline constexpr field pkey_index{path + 0x10, 16}, grh{path + 0x28, 1}, lid{path + 0x30, 16}, ack_timeout{path + 0x40, 5},
    gid_index{path + 0x48, 8}, hop_limit{path + 0x58, 8}, traffic_class{path + 0x64, 8}, remote_gid{path + 0x80, 32},
    ecn{path + 0x108, 2}, dscp{path + 0x10a, 6}, udp_port{path + 0x110, 16}, eth_priority{path + 0x121, 3},
    service_level{path + 0x124, 4}, port{path + 0x128, 8}, mac_high{path + 0x130, 16}, mac_low{path + 0x140, 32};
}  // namespace qpc

inline constexpr std::uint32_t migrated = 3, no_receive_queue = 3, ib_atomics = 1, largest_message = 30, ack_every_log = 8;

using create_message = message<0x110>;
using change_message = message<0x110>;
using short_message = message<0x10>;

/// Memory that the device knows by a number, and a place in it.
struct place {
    std::uint32_t umem{};
    std::uint64_t offset{};
};
struct cq_request {
    place entries{}, record{};
    std::uint32_t log_size{}, uar{}, event_queue{};
};
/// 64-byte CQEs, each in its place: neither collapsed nor compressed.
constexpr create_message create_cq(const cq_request& q) noexcept {
    create_message m;
    m.set(opcode, static_cast<std::uint16_t>(operation::create_cq));
    m.set(cqc::dbr_umem_valid, 1).set(cqc::dbr_umem, q.record.umem).set(cqc::dbr_offset, q.record.offset);
    m.set(cqc::log_size, q.log_size).set(cqc::uar, q.uar).set(cqc::event_queue, q.event_queue);
    return m.set(cqc::umem_offset, q.entries.offset).set(cqc::umem, q.entries.umem).set(cqc::umem_valid, 1);
}
struct qp_request {
    place slots{}, record{};
    std::uint32_t log_size{}, uar{}, domain{}, cq{};
};
/// An RC QP without a receive queue. What a READ brings goes to memory, never into a CQE.
constexpr create_message create_qp(const qp_request& q) noexcept {
    create_message m;
    m.set(opcode, static_cast<std::uint16_t>(operation::create_qp));
    m.set(qpc::migration, migrated).set(qpc::domain, q.domain).set(qpc::uar, q.uar).set(qpc::log_sq_size, q.log_size);
    m.set(qpc::rq_type, no_receive_queue).set(qpc::send_cq, q.cq).set(qpc::receive_cq, q.cq).set(qpc::user_index, 0xffffff);
    m.set(qpc::dbr_umem_valid, 1).set(qpc::dbr_umem, q.record.umem).set(qpc::dbr_offset, q.record.offset);
    return m.set(qpc::umem_offset, q.slots.offset).set(qpc::umem, q.slots.umem).set(qpc::umem_valid, 1);
}

/// The local end of a path.
struct origin {
    std::uint32_t qpn{};
    std::uint8_t port{1};
    std::uint16_t pkey_index{};
    bool atomics{};
    std::uint8_t log_reads{};  ///< READs and atomics under way, either way
};
constexpr change_message change(operation what, std::uint32_t qpn) noexcept {
    change_message m;
    return m.set(opcode, static_cast<std::uint16_t>(what)).set(object, qpn);
}
/// The peer may write, read and, where the port can, change memory atomically.
constexpr change_message to_init(const origin& o) noexcept {
    change_message m = change(operation::reset_to_init, o.qpn);
    m.set(qpc::migration, migrated).set(qpc::port, o.port).set(qpc::pkey_index, o.pkey_index);
    m.set(qpc::remote_read, 1).set(qpc::remote_write, 1);
    return o.atomics ? m.set(qpc::remote_atomic, 1).set(qpc::atomic_mode, ib_atomics) : m;
}
/// The way to the peer, as the port's link has it.
struct route {
    bool ethernet{};
    bool global{};             ///< with a GRH; always over Ethernet
    gid remote{};
    std::uint8_t mac[6]{};     ///< Ethernet only
    std::uint16_t lid{};       ///< InfiniBand only
    std::uint8_t gid_index{}, hop_limit{}, traffic_class{}, service_level{};
    std::uint32_t mtu_code{};  ///< 1: 256 bytes ... 5: 4096
};
/// RoCE: two QPs of a host seldom have the same source port, so that switches spread them.
constexpr std::uint16_t udp_port_of(std::uint32_t qpn, std::uint32_t remote) noexcept {
    const std::uint32_t mixed = (qpn * 0x9e3779b1u) ^ (remote * 0x85ebca6bu);
    return static_cast<std::uint16_t>(0xc000 | mixed >> 18);
}
constexpr void set_route(change_message& m, const origin& o, const route& r, std::uint32_t remote_qpn) noexcept {
    m.set(qpc::port, o.port).set(qpc::pkey_index, o.pkey_index);
    if (r.ethernet) {
        m.set(qpc::mac_high, std::uint32_t{r.mac[0]} << 8 | r.mac[1]);
        m.set(qpc::mac_low,
              std::uint32_t{r.mac[2]} << 24 | std::uint32_t{r.mac[3]} << 16 | std::uint32_t{r.mac[4]} << 8 | r.mac[5]);
        m.set(qpc::udp_port, udp_port_of(o.qpn, remote_qpn)).set(qpc::eth_priority, r.service_level & 7u);
        m.set(qpc::dscp, r.traffic_class >> 2).set(qpc::ecn, r.traffic_class & 3u);
    } else {
        m.set(qpc::lid, r.lid).set(qpc::service_level, r.service_level).set(qpc::grh, r.global);
    }
    if (!r.ethernet && !r.global) return;
    m.set(qpc::gid_index, r.gid_index).set(qpc::hop_limit, r.hop_limit).set(qpc::traffic_class, r.traffic_class);
    for (std::uint32_t i = 0; i < 16; ++i) m.set({qpc::remote_gid.at + 8 * i, 8}, r.remote.raw[i]);
}
constexpr change_message to_ready_to_receive(const origin& o, const route& r, const qp_peer& peer,
                                             const qp_timers& timers) noexcept {
    change_message m = change(operation::init_to_rtr, o.qpn);
    m.set(qpc::migration, migrated).set(qpc::mtu, r.mtu_code).set(qpc::log_message, largest_message);
    m.set(qpc::remote_qpn, peer.number.value).set(qpc::peer_psn, peer.first_psn.value);
    m.set(qpc::log_reads_in, o.log_reads).set(qpc::min_rnr_timer, timers.min_rnr_timer);
    set_route(m, o, r, peer.number.value);
    return m;
}
constexpr change_message to_ready_to_send(const origin& o, psn first, const qp_timers& timers) noexcept {
    change_message m = change(operation::rtr_to_rts, o.qpn);
    m.set(qpc::migration, migrated).set(qpc::log_ack_request, ack_every_log).set(qpc::first_psn, first.value);
    m.set(qpc::ack_timeout, timers.timeout).set(qpc::retries, timers.retry_count).set(qpc::rnr_retries, timers.rnr_retry);
    return m.set(qpc::log_reads_out, o.log_reads);
}
constexpr short_message to_error(std::uint32_t qpn) noexcept {
    short_message m;
    return m.set(opcode, static_cast<std::uint16_t>(operation::to_error)).set(object, qpn);
}
constexpr short_message query_qp(std::uint32_t qpn) noexcept {
    short_message m;
    return m.set(opcode, static_cast<std::uint16_t>(operation::query_qp)).set(object, qpn);
}
using query_answer = message<0x110>;
/// A state of the device's as one of ours.
constexpr qp_state state_in(const query_answer& a) noexcept {
    switch (a.get(qpc::state)) {
        case 0: return qp_state::reset;
        case 1: return qp_state::init;
        case 2: return qp_state::ready_to_receive;
        case 3:
        case 5: return qp_state::ready_to_send;  // 5: drained
        default: return qp_state::error;
    }
}

}  // namespace vccl::inline v0::device::mlx5dv_detail::prm
