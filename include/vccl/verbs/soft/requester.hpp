#pragma once
/// \file
/// The sending half of an RC QP: WQEs become packets, within a window; go-back-N on NAK or time-out. Engine lock.
/// Source: InfiniBand Architecture Specification 1.x, 9.7.6 (error behaviour of the requester), 9.7.5 (acknowledgements).
///
/// In one process, on a path without faults, rate or latency, a message that finds everything ready is carried out as a
/// whole (`direct`): one copy from user memory to user memory, the same PSNs, checks and completions, no packet.

#include <vccl/verbs/soft/engine.hpp>

namespace vccl::inline v0::verbs::soft_detail {

inline constexpr std::uint32_t message_limit = 1u << 31;
inline constexpr std::uint32_t direct_limit = 16u << 20;  ///< longer messages let others in between their trains

inline void engine::arm_timer(queue_pair& q) noexcept {
    const std::int64_t after = q.timeout();
    if (after == 0) return;
    q.timeout_at = clock() + after;
    push_timer(q);
}

/// Keeps one event for the QP in the time queue, and adds one only if that would come too late.
inline void engine::push_timer(queue_pair& q) noexcept {
    if (q.timer_event_at != 0 && q.timer_event_at <= q.timeout_at) return;
    q.timer_event_at = q.timeout_at;
    schedule(q, q.timeout_at, event_kind::timer);
}

/// A QP's timer event: it may find that its time has moved, or that nothing is outstanding any more.
inline void engine::on_timer(queue_pair& q, std::int64_t at) noexcept {
    if (at == q.timer_event_at) q.timer_event_at = 0;
    send_queue& s = q.send;
    if (q.state.load(std::memory_order_relaxed) != qp_state::ready_to_send || s.first == s.started || q.stuck) return;
    const std::uint32_t next_psn = s.next == s.started ? q.frontier : s.at(s.next).psn + s.at(s.next).done;
    const bool waiting = q.wake_at != 0 && psn_diff(next_psn, q.una) <= 0;  // paced or RNR: nothing in flight to be lost
    const bool hung = (control().port(q.port).faults.load(std::memory_order_relaxed) & fault_hang) != 0;
    if (waiting || hung) return arm_timer(q);
    if (clock() < q.timeout_at) return push_timer(q);
    retry(q);
}

/// One more attempt from the oldest unacknowledged packet, if any is left.
inline void engine::retry(queue_pair& q) noexcept {
    if (q.retries == 0) return fail(q, wc_status::retry_exc_err);
    --q.retries;
    go_back(q, q.una);
    arm_timer(q);
    enqueue(q);
}

/// The next packet to be sent is the one with this PSN, which must not be acknowledged yet.
inline void engine::go_back(queue_pair& q, std::uint32_t to) noexcept {
    send_queue& s = q.send;
    bool found = false;
    for (std::uint32_t i = s.first; i != s.started; ++i) {
        wqe& e = s.at(i);
        const std::int32_t into = psn_diff(to, e.psn);
        if (!found) {
            if (into >= static_cast<std::int32_t>(e.packets)) continue;
            found = true;
            s.next = i;
            if (!reads(e.w.op)) e.done = into > 0 ? static_cast<std::uint32_t>(into) : 0;
        } else if (!reads(e.w.op)) {
            e.done = 0;
        }
    }
}

inline engine::turn engine::send_some(queue_pair& q) noexcept {
    send_queue& s = q.send;
    port_control& p = control().port(q.port);
    unsigned budget = manual_ ? 1 : 32;
    bool sent = false;
    turn outcome = turn::idle;
    while (s.next != s.posted.load(std::memory_order_seq_cst)) {
        const std::uint32_t faults = p.faults.load(std::memory_order_relaxed);
        if (q.state.load(std::memory_order_relaxed) != qp_state::ready_to_send || q.stuck || (faults & fault_hang) != 0) break;
        if (budget-- == 0) {
            outcome = turn::again;
            break;
        }
        if (q.rnr_until != 0) {
            if (clock() < q.rnr_until) {
                wake(q, q.rnr_until);
                break;
            }
            q.rnr_until = 0;
        }
        if ((faults & fault_error_once) != 0 &&
            (p.faults.fetch_and(~static_cast<std::uint32_t>(fault_error_once), std::memory_order_acq_rel) & fault_error_once) !=
                0) {
            fail(q, wc_status::loc_qp_op_err);
            break;
        }
        if (const std::int64_t until = paced_until(q); until != 0) {
            wake(q, until);
            break;
        }
        wqe& e = s.at(s.next);
        if (s.next == s.started) {
            const beginning b = begin(q, e);
            if (b == beginning::completed) continue;
            if (b != beginning::begun) break;
        }
        const std::uint32_t flying = static_cast<std::uint32_t>(psn_diff(e.psn + (reads(e.w.op) ? 0 : e.done), q.una));
        if (flying >= window_packets && flying < psn_mask / 2) break;
        if (!send_train(q, e)) {
            outcome = q.state.load(std::memory_order_relaxed) == qp_state::ready_to_send ? turn::blocked : turn::idle;
            break;
        }
        sent = true;
    }
    if (sent || (outcome == turn::blocked && q.timer_event_at == 0)) arm_timer(q);
    return outcome;
}

/// Gives a WQE its PSNs once its turn has come, or carries it out as a whole.
inline engine::beginning engine::begin(queue_pair& q, wqe& e) noexcept {
    send_queue& s = q.send;
    const work& w = e.w;
    if (has(w.flags, work_flags::fence) && q.reads != 0) return beginning::must_wait;
    if (reads(w.op) && q.reads >= read_limit) return beginning::must_wait;

    wc_status wrong = wc_status::success;
    const std::uint32_t local_bytes = w.op == work_op::fetch_add || w.op == work_op::cmp_swap ? 8 : w.length;
    if (local_bytes > message_limit)
        wrong = wc_status::loc_len_err;
    else if (local_bytes != 0 && !has(w.flags, work_flags::inlined) &&
             memory_.local(q.domain, w.lkey, w.local_addr, local_bytes) == nullptr)
        wrong = wc_status::loc_prot_err;
    else if (w.op == work_op::read && q.peer_port == q.port &&
             (control().port(q.port).faults.load(std::memory_order_relaxed) & fault_flush) != 0)
        wrong = wc_status::rem_op_err;
    if (wrong != wc_status::success) {
        if (s.first != s.next) return beginning::must_wait;  // completions come in order
        fail(q, wrong);
        return beginning::failed;
    }

    e.psn = q.frontier;
    e.packets = packets_of(reads(w.op) && w.op != work_op::read ? 0 : w.length, q.mtu);
    e.done = 0;
    if (s.first == s.next && !manual_ && direct(q, e)) {
        q.una = q.frontier = psn_add(q.frontier, e.packets);
        ++s.next;
        ++s.started;
        finish(q, e);
        return beginning::completed;
    }
    if (reads(w.op)) ++q.reads;
    q.frontier = psn_add(q.frontier, e.packets);
    ++s.started;
    return beginning::begun;
}

/// The short cut. False: take the long way, nothing has happened; that is also how every error is found.
inline bool engine::direct(queue_pair& q, wqe& e) noexcept {
    const work& w = e.w;
    if (slot_of(q.peer) != slot_ || latency_ != 0 || w.length > direct_limit) return false;
    port_control& from = control().port(q.port);
    port_control& to = control().port(q.peer_port);
    if (((from.faults.load(std::memory_order_relaxed) | to.faults.load(std::memory_order_relaxed)) & faults_slow) != 0 ||
        !passes(q) || !active(to) || to.gid_generation.load(std::memory_order_relaxed) != q.peer_generation)
        return false;
    queue_pair* r = find(q.peer);
    if (r == nullptr || !r->can_receive() || r->port != q.peer_port || r->peer_port != q.port ||
        r->peer_generation != q.own_generation || r->mtu != q.mtu || r->expected != e.psn || r->message.open ||
        r->jobs_begin != r->jobs_end)
        return false;

    std::byte* theirs = nullptr;
    if (w.op != work_op::send && (w.length != 0 || w.op >= work_op::fetch_add)) {
        theirs = memory_.remote(r->domain, w.rkey, w.remote_addr, w.op >= work_op::fetch_add ? 8 : w.length);
        if (theirs == nullptr || (w.op >= work_op::fetch_add && (w.remote_addr & 7) != 0)) return false;
    }
    recv_work* into = nullptr;
    if (w.op == work_op::send || w.op == work_op::write_imm) {
        into = r->recv.front();
        if (into == nullptr) return false;
        if (w.op == work_op::send && w.length != 0) {
            if (w.length > into->length) return false;
            theirs = memory_.local(r->domain, into->lkey, into->addr, w.length);
            if (theirs == nullptr) return false;
        }
    }
    std::byte* ours = has(w.flags, work_flags::inlined) ? q.send.inline_at(q.send.next)
                                                        : reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(w.local_addr));
    carry(w, ours, theirs, copy_bytes);
    from.out_packets.fetch_add(e.packets, std::memory_order_relaxed);
    from.out_bytes.fetch_add(w.length, std::memory_order_relaxed);
    to.in_bytes.fetch_add(w.length, std::memory_order_relaxed);
    r->expected = psn_add(r->expected, e.packets);
    r->nak_sent = false;
    if (w.op == work_op::send)
        push_receive(*r, wc_status::success, completion_op::recv, w.length, 0);
    else if (w.op == work_op::write_imm)
        push_receive(*r, wc_status::success, completion_op::recv_write_imm, w.length, w.immediate);
    return q.state.load(std::memory_order_relaxed) == qp_state::ready_to_send;
}

/// Sends the next packets of a WQE that has begun. False: no room, or the QP failed.
inline bool engine::send_train(queue_pair& q, wqe& e) noexcept {
    send_queue& s = q.send;
    const work& w = e.w;
    packet_header h;
    h.op = static_cast<opcode>(w.op);
    h.psn = psn_add(e.psn, e.done);
    h.rkey = w.rkey.value;
    h.remote_addr = w.remote_addr;
    h.flags = packet_first | packet_last | packet_wants_ack;
    if (w.op == work_op::read) {
        h.message = w.length - e.done * q.mtu;
        h.remote_addr += std::uint64_t{e.done} * q.mtu;
    } else if (reads(w.op)) {
        h.swap_add = w.swap_add;
        h.compare = w.compare;
    }
    if (reads(w.op)) {
        if (!transmit(q, h, nullptr, 0)) return false;
        ++s.next;
        return true;
    }

    const std::uint32_t faults = control().port(q.port).faults.load(std::memory_order_relaxed) |
                                 control().port(q.peer_port).faults.load(std::memory_order_relaxed);
    const std::uint32_t most = manual_ || (faults & faults_single) != 0 ? 1 : train_bytes / q.mtu;
    const std::uint32_t left = e.packets - e.done;
    const std::uint32_t n = left < most ? left : most;
    const std::uint32_t offset = e.done * q.mtu;
    const std::uint32_t rest = w.length - offset;
    h.length = rest < n * q.mtu ? rest : n * q.mtu;
    h.packets = n;
    h.message = w.length;
    h.immediate = w.immediate;
    h.flags = e.done == 0 ? packet_first : 0;
    if (n == left) h.flags |= packet_last | packet_wants_ack;
    if ((e.done + n) / 64 != e.done / 64) h.flags |= packet_wants_ack;

    const std::byte* from = nullptr;
    if (h.length != 0) {
        from = has(w.flags, work_flags::inlined) ? s.inline_at(s.next) + offset
                                                 : memory_.local(q.domain, w.lkey, w.local_addr + offset, h.length);
        if (from == nullptr) {
            fail(q, wc_status::loc_prot_err);  // deregistered while it was being sent
            return false;
        }
    }
    if (!transmit(q, h, from, e.done)) return false;
    e.done += n;
    if (e.done == e.packets) ++s.next;
    return true;
}

}  // namespace vccl::inline v0::verbs::soft_detail
