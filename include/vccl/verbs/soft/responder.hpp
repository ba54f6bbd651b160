#pragma once
/// \file
/// The receiving half of an RC QP: PSN and access checks, memory, receive completions, and what goes back: coalesced
/// acknowledgements, NAKs, READ and atomic responses, in order. Engine lock.
/// Source: InfiniBand Architecture Specification 1.x, 9.7.4 (responder: receiving), 9.7.5 (responses), 9.9 (errors).

#include <vccl/verbs/soft/engine.hpp>

namespace vccl::inline v0::verbs::soft_detail {

/// May the bytes that the packet refers to still be read? Asked before they are read and, since they may change at any
/// moment, again afterwards.
inline bool engine::vouched(const queue_pair& q, const packet_header& h) const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in revoke(): whoever read a changed byte sees it
    return control().vouched(slot_of(q.peer), index_of(q.peer)).load(std::memory_order_acquire) == h.voucher;
}

/// Where a packet's payload lies in its sender's part of the fabric's memory; null if that cannot be.
inline const std::byte* engine::referred(const queue_pair& q, const packet_header& h) const noexcept {
    const std::uint32_t slot = slot_of(q.peer);
    const std::uint64_t bytes = control().at.memory_bytes;
    if (bytes == 0 || slot >= control().at.slot_count || h.length > bytes || h.at > bytes - h.length || !vouched(q, h))
        return nullptr;
    return control().memory(slot) + h.at;
}

inline void engine::on_request(queue_pair& q, packet_header h, const std::byte* payload) noexcept {
    if (refers(h) && (payload = referred(q, h)) == nullptr) return;
    const std::int32_t ahead = psn_diff(h.psn, q.expected);
    if (ahead > 0) {  // something before it was lost: say so once
        if (!q.nak_sent && q.add_job({opcode::nak, nak_code::sequence, q.expected, 0, 0, 0, 0, 0, 0})) {
            q.nak_sent = true;
            q.ack_due = false;
            enqueue(q);
        }
        return;
    }
    const bool data = h.op <= opcode::send;
    if (ahead < 0) {
        const auto known = static_cast<std::uint32_t>(-ahead);
        if (!data || known >= h.packets) {  // seen before: answer again, change nothing
            if (h.op == opcode::read_request)
                on_read(q, h, true);
            else if (!data)
                on_atomic(q, h, true);
            else
                q.ack_due = true;
            enqueue(q);
            return;
        }
        if (h.length <= std::uint64_t{known} * q.mtu) return;
        h.psn = q.expected;
        h.packets -= known;
        h.length -= known * q.mtu;
        payload += std::size_t{known} * q.mtu;
        h.flags &= static_cast<std::uint8_t>(~packet_first);
    }
    q.nak_sent = false;
    if (data)
        on_data(q, h, payload);
    else if (h.op == opcode::read_request)
        on_read(q, h, false);
    else
        on_atomic(q, h, false);
}

/// The request is wrong: tell the requester why and stop the QP.
inline void engine::refuse(queue_pair& q, nak_code why) noexcept {
    packet_header h;
    h.op = opcode::nak;
    h.nak = why;
    h.psn = q.expected;
    transmit(q, h, nullptr, 0);  // lost when there is no room, as a packet may be; the requester then times out
    push_event(q.domain, {async_event::kind::qp_fatal, qpn{q.number}});
    enter_error(q);
}

/// No receive is posted for a message that needs one.
inline void engine::not_ready(queue_pair& q) noexcept {
    q.add_job({opcode::nak, nak_code::receiver_not_ready, q.expected, 0, 0, 0, 0, 0, 0});
    q.nak_sent = true;  // what follows in flight is dropped in silence; the requester comes back to this PSN
    q.ack_due = false;
    enqueue(q);
}

/// A train of a WRITE or SEND that starts at the expected PSN.
inline void engine::on_data(queue_pair& q, const packet_header& h, const std::byte* payload) noexcept {
    auto& m = q.message;
    const bool first = (h.flags & packet_first) != 0, last = (h.flags & packet_last) != 0;
    if (first == m.open || (!first && m.op != h.op)) return refuse(q, nak_code::invalid_request);
    recv_work* into = nullptr;
    const bool takes_receive = h.op == opcode::send || (h.op == opcode::write_imm && last);
    if (takes_receive && (into = q.recv.front()) == nullptr) return not_ready(q);
    if (first) {
        if (h.op != opcode::send && h.message != 0 && memory_.remote(q.domain, rkey{h.rkey}, h.remote_addr, h.message) == nullptr)
            return refuse(q, nak_code::remote_access);
        m = {true, h.op, h.message, 0, h.rkey, h.remote_addr};
    }
    const bool whole = h.length <= m.left && (last ? h.length == m.left : std::uint64_t{h.packets} * q.mtu == h.length) &&
                       packets_of(h.length, q.mtu) == h.packets;
    if (!whole) return refuse(q, nak_code::invalid_request);

    if (h.length != 0) {
        std::byte* to = nullptr;
        if (h.op == opcode::send) {
            if (std::uint64_t{m.taken} + h.length > into->length) {
                push_receive(q, wc_status::loc_len_err, completion_op::recv, 0, 0);
                return refuse(q, nak_code::invalid_request);
            }
            to = memory_.local(q.domain, into->lkey, into->addr + m.taken, h.length);
            if (to == nullptr) {
                push_receive(q, wc_status::loc_prot_err, completion_op::recv, 0, 0);
                return refuse(q, nak_code::remote_operation);
            }
        } else {
            to = memory_.remote(q.domain, rkey{m.rkey}, m.addr + m.taken, h.length);
            if (to == nullptr) return refuse(q, nak_code::remote_access);  // deregistered meanwhile
        }
        if (arena_.contains(to, h.length))  // memory for devices, see soft::allocate
            stream_bytes(to, payload, h.length);
        else
            copy_bytes(to, payload, h.length);
        if (refers(h) && !vouched(q, h)) {  // they were changed meanwhile: lost, as packets may be
            m.open = m.open && !first;
            return;
        }
    }
    m.left -= h.length;
    m.taken += h.length;
    q.expected = psn_add(q.expected, h.packets);
    if ((h.flags & packet_wants_ack) != 0) {
        q.ack_due = true;
        enqueue(q);
    }
    if (!last) return;
    m.open = false;
    if (h.op == opcode::send)
        push_receive(q, wc_status::success, completion_op::recv, m.taken, 0);
    else if (h.op == opcode::write_imm)
        push_receive(q, wc_status::success, completion_op::recv_write_imm, m.taken, h.immediate);
}

/// Notes what is to be read; `pump` reads it when it sends.
inline void engine::on_read(queue_pair& q, const packet_header& h, bool duplicate) noexcept {
    const std::uint32_t packets = packets_of(h.message, q.mtu);
    if (duplicate && psn_diff(psn_add(h.psn, packets), q.expected) > 0) return;
    if (!duplicate && q.message.open) return refuse(q, nak_code::invalid_request);
    if (h.message != 0 && memory_.remote(q.domain, rkey{h.rkey}, h.remote_addr, h.message) == nullptr)
        return refuse(q, nak_code::remote_access);
    if (!q.add_job({opcode::read_response, {}, h.psn, packets, 0, h.message, h.rkey, h.remote_addr, 0})) return;
    if (!duplicate) q.expected = psn_add(q.expected, packets);
    q.ack_due = false;  // the response acknowledges what came before
    enqueue(q);
}

/// Once only: a repeated request gets the first answer again.
inline void engine::on_atomic(queue_pair& q, const packet_header& h, bool duplicate) noexcept {
    if (duplicate) {
        for (const atomic_result& a : q.atomics)
            if (a.valid && a.psn == h.psn) q.add_job({opcode::atomic_response, {}, h.psn, 1, 0, 0, 0, 0, a.value});
        return;
    }
    if (q.message.open || (h.remote_addr & 7) != 0) return refuse(q, nak_code::invalid_request);
    std::byte* at = memory_.remote(q.domain, rkey{h.rkey}, h.remote_addr, 8);
    if (at == nullptr) return refuse(q, nak_code::remote_access);
    if (!q.add_job({opcode::atomic_response, {}, h.psn, 1, 0, 0, 0, 0, 0})) return;
    const std::uint64_t old = run_atomic(at, h.op == opcode::fetch_add, h.swap_add, h.compare);
    q.jobs[(q.jobs_end - 1) % job_limit].value = old;
    q.atomics[q.atomics_next++ % atomic_cache_size] = {h.psn, old, true};
    q.expected = psn_add(q.expected, 1);
    q.ack_due = false;
    enqueue(q);
}

/// Sends what goes back, in order, then the acknowledgement of all that arrived.
inline engine::turn engine::pump(queue_pair& q) noexcept {
    unsigned budget = manual_ ? 1 : 32;
    while (q.jobs_begin != q.jobs_end) {
        if (budget-- == 0) return turn::again;
        response_job& j = q.jobs[q.jobs_begin % job_limit];
        packet_header h;
        h.op = j.op;
        h.psn = psn_add(j.psn, j.done);
        const std::byte* from = nullptr;
        if (j.op == opcode::nak) {
            h.nak = j.nak;
            h.rnr_timer = q.timers.min_rnr_timer;
        } else if (j.op == opcode::atomic_response) {
            h.swap_add = j.value;
        } else {
            if (const std::int64_t until = paced_until(q); until != 0) {
                wake(q, until);
                return turn::idle;
            }
            const std::uint32_t faults = control().port(q.port).faults.load(std::memory_order_relaxed) |
                                         control().port(q.peer_port).faults.load(std::memory_order_relaxed);
            const std::uint32_t most = manual_ || (faults & faults_single) != 0 ? 1 : train_bytes / q.mtu;
            const std::uint32_t left = j.packets - j.done;
            const std::uint32_t offset = j.done * q.mtu;
            h.packets = left < most ? left : most;
            h.length = j.length - offset < h.packets * q.mtu ? j.length - offset : h.packets * q.mtu;
            if (h.length != 0) {
                from = memory_.remote(q.domain, rkey{j.rkey}, j.addr + offset, h.length);
                if (from == nullptr) {
                    refuse(q, nak_code::remote_access);  // deregistered meanwhile
                    return turn::idle;
                }
            }
        }
        if (!transmit(q, h, from, j.done)) return turn::blocked;
        j.done += h.packets;
        if (j.op != opcode::read_response || j.done == j.packets) ++q.jobs_begin;
    }
    if (q.ack_due) {
        packet_header h;
        h.op = opcode::acknowledge;
        h.psn = psn_add(q.expected, psn_mask);
        if (!transmit(q, h, nullptr, 0)) return turn::blocked;
        q.ack_due = false;
    }
    return turn::idle;
}

}  // namespace vccl::inline v0::verbs::soft_detail
