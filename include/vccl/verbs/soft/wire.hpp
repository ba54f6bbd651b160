#pragma once
/// \file
/// A packet's way from port to port: link, switch and address checks, faults, pacing, latency; then to the time queue of
/// this process or the ring to another. Nothing here knows what a packet means. Engine lock.

#include <vccl/verbs/soft/engine.hpp>

namespace vccl::inline v0::verbs::soft_detail {

/// How far ahead of its rate a port may be given packets in real time, where wake-ups are late.
inline constexpr std::int64_t pacing_slack = 30'000;

/// Does a packet of this QP leave its port and reach the other one's cable now?
inline bool engine::passes(const queue_pair& q) const noexcept {
    const port_control& p = control().port(q.port);
    if (!active(p) || p.gid_generation.load(std::memory_order_relaxed) != q.own_generation) return false;
    if (q.peer_port == q.port) return true;
    const rail_id rail = shape_.ports[q.port].rail;
    return rail == shape_.ports[q.peer_port].rail && control().rail(rail.value).up.load(std::memory_order_acquire) != 0;
}

/// When the next packet may be given to the wires; 0 for now.
inline std::int64_t engine::paced_until(const queue_pair& q) const noexcept {
    const port_control& from = control().port(q.port);
    const port_control& to = control().port(q.peer_port);
    std::int64_t free = 0;
    if ((from.faults.load(std::memory_order_relaxed) & fault_rate) != 0) free = from.out_free.load(std::memory_order_relaxed);
    if ((to.faults.load(std::memory_order_relaxed) & fault_rate) != 0)
        if (const auto in = to.in_free.load(std::memory_order_relaxed); in > free) free = in;
    if (free == 0) return 0;
    const std::int64_t at = clock();
    const std::int64_t slack = manual_ ? 0 : pacing_slack;
    return free > at + slack ? free - slack / 2 : 0;
}

/// Occupies a wire for as long as `bytes` take; returns when the last of them is through.
inline std::int64_t occupy(std::atomic<std::int64_t>& free, std::uint64_t rate, std::uint32_t bytes, std::int64_t at) noexcept {
    const auto takes = static_cast<std::int64_t>(static_cast<std::uint64_t>(bytes) * 1'000'000'000ull / rate);
    std::int64_t old = free.load(std::memory_order_relaxed);
    std::int64_t next;
    do { next = (old > at ? old : at) + takes; } while (!free.compare_exchange_weak(old, next, std::memory_order_relaxed));
    return next;
}

/// A payload in memory that both processes see is not put into the ring: its receiver reads it where it lies.
inline void engine::refer(const queue_pair& q, packet_header& h, const std::byte* payload) const noexcept {
    constexpr std::uint32_t worth_it = 1024;  // bytes; less is copied as quickly as it is looked up
    if (h.length < worth_it || h.op > opcode::send || !arena_.contains(payload, h.length)) return;
    h.flags |= packet_refers;
    h.at = arena_.offset_of(payload);
    h.voucher = control().vouched(slot_, index_of(q.number)).load(std::memory_order_relaxed);
}

/// Sends one train; `index` is its first packet's number within the message. False: no room, nothing happened.
inline bool engine::transmit(queue_pair& q, packet_header& h, const std::byte* payload, std::uint32_t index) noexcept {
    const std::uint32_t slot = slot_of(q.peer);
    if (slot != slot_ && slot < control().at.slot_count && control().at.ring_bytes != 0) {
        if (!out_[slot]) out_[slot] = ring_producer(control(), slot_, slot);
        refer(q, h, payload);
        if (!out_[slot].room(carried(h))) return false;
    }
    h.dest_qpn = q.peer;
    h.from_port = q.port;
    h.to_port = q.peer_port;
    h.from_generation = q.own_generation;
    h.to_generation = q.peer_generation;

    port_control& from = control().port(q.port);
    port_control& to = control().port(q.peer_port);
    const std::uint32_t from_faults = from.faults.load(std::memory_order_relaxed);
    const std::uint32_t to_faults = to.faults.load(std::memory_order_relaxed);
    bool lost = !passes(q);
    if ((to_faults & fault_drop_acks) != 0 && is_response(h.op)) lost = true;
    if ((from_faults & fault_partial) != 0 && h.op <= opcode::send && index >= from.partial.load(std::memory_order_relaxed))
        lost = true;
    if ((from_faults & fault_loss) != 0 && random_.chance(from.loss.load(std::memory_order_relaxed))) lost = true;
    if ((to_faults & fault_loss) != 0 && random_.chance(to.loss.load(std::memory_order_relaxed))) lost = true;
    if (lost) {
        from.dropped.fetch_add(1, std::memory_order_relaxed);
        return true;
    }
    from.out_packets.fetch_add(h.packets, std::memory_order_relaxed);
    from.out_bytes.fetch_add(h.length, std::memory_order_relaxed);

    std::int64_t due = 0;
    const std::uint32_t faults = from_faults | to_faults;
    if (manual_ || latency_ != 0 || (faults & (fault_rate | fault_delay | fault_reorder)) != 0) {
        const std::int64_t at = clock();
        due = at;
        if ((from_faults & fault_rate) != 0 && h.length != 0)
            due = occupy(from.out_free, from.rate.load(std::memory_order_relaxed) | 1, h.length, at);
        if ((to_faults & fault_rate) != 0 && h.length != 0)
            if (const auto in = occupy(to.in_free, to.rate.load(std::memory_order_relaxed) | 1, h.length, at); in > due) due = in;
        due += latency_;
        if ((from_faults & fault_delay) != 0) due += from.delay.load(std::memory_order_relaxed);
        if ((to_faults & fault_delay) != 0 && q.peer_port != q.port) due += to.delay.load(std::memory_order_relaxed);
        const auto spread = static_cast<std::uint64_t>(2 * latency_ + 20'000);
        if ((from_faults & fault_reorder) != 0 && random_.chance(from.reorder.load(std::memory_order_relaxed)))
            due += 1 + static_cast<std::int64_t>(random_.below(spread));
        if ((to_faults & fault_reorder) != 0 && random_.chance(to.reorder.load(std::memory_order_relaxed)))
            due += 1 + static_cast<std::int64_t>(random_.below(spread));
    }
    launch(h, payload, slot, due);
    const bool twice = ((from_faults & fault_duplicate) != 0 && random_.chance(from.duplicate.load(std::memory_order_relaxed))) ||
                       ((to_faults & fault_duplicate) != 0 && random_.chance(to.duplicate.load(std::memory_order_relaxed)));
    if (twice) launch(h, payload, slot, due);
    return true;
}

/// Keeps a snapshot of the packet, or what it refers to, until its time. Without memory for it, it is lost, as packets may be.
inline void engine::schedule_delivery(const packet_header& h, const std::byte* payload, std::int64_t due) noexcept {
    packet* p = pool_.take(h, payload);
    if (p != nullptr && !queue_.push({due, 0, p, h.dest_qpn, event_kind::deliver})) pool_.give(p);
}

/// Puts a snapshot of the packet on its way. A slot that does not exist is a hole.
inline void engine::launch(const packet_header& h, const std::byte* payload, std::uint32_t slot, std::int64_t due) noexcept {
    if (slot == slot_) {
        schedule_delivery(h, payload, due);
        return;
    }
    if (slot >= control().at.slot_count || control().at.ring_bytes == 0 || !out_[slot].room(carried(h))) return;
    packet_header dated = h;
    dated.due = due;
    out_[slot].push(dated, payload);
    control().slot(slot).inbound.fetch_or(std::uint64_t{1} << slot_, std::memory_order_seq_cst);
}

/// A packet arrives at its destination port, from this process or another. Nothing in it is trusted.
inline void engine::deliver(const packet_header& h, const std::byte* payload) noexcept {
    if (h.to_port >= shape_.ports.size() || static_cast<std::uint8_t>(h.op) >= opcodes || h.packets == 0 ||
        h.packets > psn_mask / 2 || h.psn > psn_mask || (refers(h) && h.op > opcode::send))
        return;
    port_control& to = control().port(h.to_port);
    queue_pair* q = find(h.dest_qpn);
    if (!active(to) || to.gid_generation.load(std::memory_order_relaxed) != h.to_generation || q == nullptr ||
        !q->can_receive() || q->port != h.to_port || q->peer_port != h.from_port || q->peer_generation != h.from_generation) {
        to.dropped.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    to.in_bytes.fetch_add(h.length, std::memory_order_relaxed);
    if (is_response(h.op))
        on_response(*q, h, payload);
    else
        on_request(*q, h, payload);
}

/// Takes what other processes sent. Packets that are not yet due wait here, as in a network.
inline bool engine::receive_rings() noexcept {
    if (slot_ >= max_slots || control().at.ring_bytes == 0) return false;
    constexpr unsigned most = 64;  // records of one ring in a row
    auto& inbound = control().slot(slot_).inbound;
    if (inbound.load(std::memory_order_relaxed) != 0) inbound_left_ |= inbound.exchange(0, std::memory_order_seq_cst);
    bool did = false;
    for (std::uint64_t rings = inbound_left_; rings != 0; rings &= rings - 1) {
        const auto from = static_cast<std::uint32_t>(std::countr_zero(rings));
        inbound_left_ &= ~(std::uint64_t{1} << from);
        if (from >= control().at.slot_count) continue;
        if (!in_[from]) {
            if (!map_.reserve_ring(from, slot_)) continue;
            in_[from] = ring_consumer(control(), from, slot_);
        }
        packet_header h;
        unsigned taken = 0;
        const std::byte* payload = nullptr;
        for (; taken < most && (payload = in_[from].front(h)) != nullptr; ++taken) {
            if (h.due > clock()) {
                schedule_delivery(h, payload, h.due);
            } else {
                deliver(h, payload);
            }
            in_[from].pop();
            did = true;
        }
        if (taken == most) inbound_left_ |= std::uint64_t{1} << from;
    }
    return did;
}

}  // namespace vccl::inline v0::verbs::soft_detail
