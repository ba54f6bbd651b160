#pragma once
/// \file
/// What comes back to the requester, and completions: in order; after the first error the QP is in ERR and everything
/// else is flushed. A CQ without room is overrun: it is lost, and its QPs with it. Engine lock.
/// Source: InfiniBand Architecture Specification 1.x, 9.7.5.1 and 10.10 (completion errors), 11.6.2 (completion status).

#include <vccl/verbs/soft/engine.hpp>

namespace vccl::inline v0::verbs::soft_detail {

inline void engine::on_response(queue_pair& q, const packet_header& h, const std::byte* payload) noexcept {
    if (q.state.load(std::memory_order_relaxed) != qp_state::ready_to_send || q.stuck ||
        (control().port(q.port).faults.load(std::memory_order_relaxed) & fault_hang) != 0)
        return;
    switch (h.op) {
        case opcode::acknowledge: acknowledge(q, psn_add(h.psn, 1)); break;
        case opcode::nak: on_nak(q, h); break;
        case opcode::read_response: on_read_response(q, h, payload); break;
        default: on_atomic_response(q, h); break;
    }
    if (q.state.load(std::memory_order_relaxed) == qp_state::ready_to_send &&
        q.send.next != q.send.posted.load(std::memory_order_seq_cst))
        enqueue(q);
}

/// Everything before `upto` has arrived. False when a READ or atomic before it has not been answered: it is asked for
/// again. A PSN that was never sent or is already acknowledged changes nothing.
inline bool engine::acknowledge(queue_pair& q, std::uint32_t upto) noexcept {
    if (psn_diff(upto, q.una) <= 0) return true;
    if (psn_diff(upto, q.frontier) > 0) return false;
    send_queue& s = q.send;
    const std::uint32_t before = q.una;
    bool missing = false;
    while (s.first != s.started && q.state.load(std::memory_order_relaxed) == qp_state::ready_to_send) {
        wqe& e = s.at(s.first);
        const bool response = reads(e.w.op);
        if (response && e.done != e.packets) {
            q.una = psn_add(e.psn, e.done);
            missing = psn_diff(upto, q.una) > 0;
            break;
        }
        const std::uint32_t end = psn_add(e.psn, e.packets);
        if (psn_diff(end, upto) > 0) {
            q.una = upto;
            if (s.next == s.first && psn_diff(upto, psn_add(e.psn, e.done)) > 0)
                e.done = static_cast<std::uint32_t>(psn_diff(upto, e.psn));
            break;
        }
        q.una = end;
        if (s.next == s.first) ++s.next;  // it had been rewound, and the acknowledgement was late
        if (response) --q.reads;
        finish(q, e);
    }
    if (q.una != before) {
        q.retries = q.timers.retry_count;
        q.rnr_retries = q.timers.rnr_retry;
        if (s.first != s.started) arm_timer(q);
    }
    if (missing) {
        go_back(q, q.una);
        enqueue(q);
    }
    return !missing;
}

inline void engine::on_nak(queue_pair& q, const packet_header& h) noexcept {
    if (psn_diff(h.psn, q.una) < 0 || psn_diff(h.psn, q.frontier) >= 0) return;  // of an earlier attempt
    if (!acknowledge(q, h.psn) || q.state.load(std::memory_order_relaxed) != qp_state::ready_to_send) return;
    switch (h.nak) {
        case nak_code::sequence: return retry(q);
        case nak_code::receiver_not_ready:
            if (q.timers.rnr_retry != 7 && q.rnr_retries-- == 0) return fail(q, wc_status::rnr_retry_exc_err);
            go_back(q, h.psn);
            q.rnr_until = clock() + rnr_wait(h.rnr_timer);
            wake(q, q.rnr_until);
            return;
        case nak_code::invalid_request: return fail(q, wc_status::rem_inv_req_err);
        case nak_code::remote_access: return fail(q, wc_status::rem_access_err);
        case nak_code::remote_operation: return fail(q, wc_status::rem_op_err);
    }
}

inline void engine::on_read_response(queue_pair& q, const packet_header& h, const std::byte* payload) noexcept {
    if (psn_diff(h.psn, q.una) < 0 || psn_diff(h.psn, q.frontier) >= 0 || !acknowledge(q, h.psn)) return;
    send_queue& s = q.send;
    if (s.first == s.started) return;
    wqe& e = s.at(s.first);
    if (e.w.op != work_op::read || h.psn != psn_add(e.psn, e.done)) return;  // a gap: the timer asks again
    const std::uint32_t offset = e.done * q.mtu;
    const std::uint32_t rest = e.w.length - offset;
    const std::uint64_t full = std::uint64_t{h.packets} * q.mtu;
    if (h.packets > e.packets - e.done || h.length != (rest < full ? rest : full)) return fail(q, wc_status::bad_resp_err);
    if (h.length != 0) {
        std::byte* to = memory_.local(q.domain, e.w.lkey, e.w.local_addr + offset, h.length);
        if (to == nullptr) return fail(q, wc_status::loc_prot_err);
        copy_bytes(to, payload, h.length);
    }
    e.done += h.packets;
    if (e.done == e.packets)
        acknowledge(q, psn_add(e.psn, e.packets));
    else
        acknowledge(q, psn_add(e.psn, e.done));
}

inline void engine::on_atomic_response(queue_pair& q, const packet_header& h) noexcept {
    if (psn_diff(h.psn, q.una) < 0 || psn_diff(h.psn, q.frontier) >= 0 || !acknowledge(q, h.psn)) return;
    send_queue& s = q.send;
    if (s.first == s.started) return;
    wqe& e = s.at(s.first);
    if ((e.w.op != work_op::fetch_add && e.w.op != work_op::cmp_swap) || h.psn != e.psn) return;
    std::byte* to = memory_.local(q.domain, e.w.lkey, e.w.local_addr, 8);
    if (to == nullptr) return fail(q, wc_status::loc_prot_err);
    copy_bytes(to, &h.swap_add, 8);
    e.done = 1;
    acknowledge(q, psn_add(e.psn, 1));
}

/// The oldest WQE succeeded.
inline void engine::finish(queue_pair& q, wqe& e) noexcept {
    ++q.send.first;
    if (!has(e.w.flags, work_flags::signaled)) return;
    cqe c;
    c.what.wr_id = e.w.wr_id;
    c.what.op = completion_of(e.w.op);
    c.what.byte_len = e.w.op == work_op::read ? e.w.length : e.w.op > work_op::read ? 8 : 0;
    c.send_done = q.send.first;
    c.of_send = true;
    push_cqe(q, c);
}

/// The oldest WQE failed, and with it the QP.
inline void engine::fail(queue_pair& q, wc_status why) noexcept {
    revoke(q);
    send_queue& s = q.send;
    if (s.first != s.posted.load(std::memory_order_seq_cst)) {
        const wqe& e = s.at(s.first++);
        cqe c;
        c.what.wr_id = e.w.wr_id;
        c.what.op = completion_of(e.w.op);
        c.what.status = why;
        c.send_done = s.first;
        c.of_send = true;
        push_cqe(q, c);
    }
    enter_error(q);
}

inline void engine::enter_error(queue_pair& q) noexcept {
    revoke(q);
    q.state.store(qp_state::error, std::memory_order_seq_cst);
    q.stuck = q.ack_due = false;
    q.message.open = false;
    q.jobs_begin = q.jobs_end;
    flush(q);
}

/// Both queues of a QP in ERR: every WR that is not complete gets a flush error.
inline void engine::flush(queue_pair& q) noexcept {
    send_queue& s = q.send;
    while (s.first != s.posted.load(std::memory_order_seq_cst)) {
        const wqe& e = s.at(s.first++);
        cqe c;
        c.what.wr_id = e.w.wr_id;
        c.what.op = completion_of(e.w.op);
        c.what.status = wc_status::wr_flush_err;
        c.send_done = s.first;
        c.of_send = true;
        push_cqe(q, c);
    }
    s.next = s.started = s.first;
    q.reads = 0;
    while (q.recv.front() != nullptr) push_receive(q, wc_status::wr_flush_err, completion_op::recv, 0, 0);
}

/// Completes the oldest receive.
inline void engine::push_receive(queue_pair& q, wc_status s, completion_op op, std::uint32_t bytes,
                                 std::uint32_t immediate) noexcept {
    cqe c;
    c.what.wr_id = q.recv.front()->wr_id;
    c.what.status = s;
    c.what.op = op;
    c.what.byte_len = bytes;
    c.what.immediate = immediate;
    q.recv.pop();
    push_cqe(q, c);
}

inline void engine::push_cqe(queue_pair& q, const cqe& e) noexcept {
    completion_queue* cq = q.cq;
    if (cq == nullptr || cq->overrun.load(std::memory_order_relaxed)) return;
    cqe c = e;
    c.what.qp = qpn{q.number};
    c.index = index_of(q.number);
    c.life = q.life;
    if (cq->push(c)) return;
    cq->overrun.store(true, std::memory_order_release);
    push_event(cq->domain, {async_event::kind::cq_error, {}});
    for (queue_pair* other : table_)
        if (other != nullptr && other->cq == cq) other->state.store(qp_state::error, std::memory_order_seq_cst);
}

}  // namespace vccl::inline v0::verbs::soft_detail
