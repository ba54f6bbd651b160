#pragma once
/// \file
/// Who runs the engine, and when. Real time: the thread that posts or polls, if the engine is free and something can
/// have happened; a background thread otherwise. A doorbell that finds the engine taken is left for its holder, who
/// looks again after letting go. Manual time: only `step` and `advance`, one event after the other.

#include <vccl/verbs/soft/engine.hpp>

#include <time.h>

namespace vccl::inline v0::verbs::soft_detail {

/// Checks and copies one WR into the send queue; `doorbell` makes it go.
inline status engine::push_send(queue_pair& q, const work& w) noexcept {
    const qp_state state = q.state.load(std::memory_order_relaxed);
    if (state != qp_state::ready_to_send && state != qp_state::error) return {errc::invalid_argument, q.number};
    const bool inlined = has(w.flags, work_flags::inlined);
    if (w.op > work_op::cmp_swap || (inlined && (w.length > q.send.inline_room || w.op >= work_op::read)))
        return {errc::invalid_argument, q.number};
    const std::uint32_t at = q.send.posted.load(std::memory_order_relaxed);
    const auto freed = static_cast<std::uint32_t>(credits_[index_of(q.number)].load(std::memory_order_acquire));
    if (at - freed >= q.send.size()) return errc::would_block;
    q.send.at(at).w = w;
    if (inlined && w.length != 0)
        std::memcpy(q.send.inline_at(at), reinterpret_cast<const void*>(static_cast<std::uintptr_t>(w.local_addr)), w.length);
    q.send.posted.store(at + 1, std::memory_order_seq_cst);
    return {};
}

inline result<unsigned> engine::push_receives(queue_pair& q, std::span<const recv_work> recvs) noexcept {
    if (q.state.load(std::memory_order_relaxed) == qp_state::reset) return status{errc::invalid_argument, q.number};
    std::uint32_t at = q.recv.posted.load(std::memory_order_relaxed);
    unsigned taken = 0;
    for (const recv_work& r : recvs) {
        if (at - q.recv.used.load(std::memory_order_acquire) >= q.recv.size()) break;
        q.recv.ring[at++ & q.recv.mask] = r;
        ++taken;
    }
    q.recv.posted.store(at, std::memory_order_seq_cst);
    if (q.state.load(std::memory_order_seq_cst) == qp_state::error) doorbell(q);
    return taken;
}

inline void engine::doorbell(queue_pair& q) noexcept {
    if (manual_) {
        const locked guard(lock_);
        enqueue(q);
        return;
    }
    drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (lock_.try_lock()) {
        if (!q.queued && service(q) != turn::idle) enqueue(q);
        publish();
        lock_.unlock();
        if (doorbells_.load(std::memory_order_seq_cst) == nullptr && !work_pending()) return;
    } else if (!q.rung.exchange(true, std::memory_order_seq_cst)) {
        q.next_rung = doorbells_.load(std::memory_order_relaxed);
        while (!doorbells_.compare_exchange_weak(q.next_rung, &q, std::memory_order_seq_cst, std::memory_order_relaxed)) {}
    }
    progress();
}

/// Can running the engine do anything? A few loads; the clock is read only when something is due some time.
inline bool engine::work_pending() const noexcept {
    if (busy_.load(std::memory_order_relaxed) || doorbells_.load(std::memory_order_relaxed) != nullptr) return true;
    if (inbound_.load(std::memory_order_acquire)->load(std::memory_order_relaxed) != 0) return true;
    if (control().head().changes.load(std::memory_order_relaxed) != changes_seen_.load(std::memory_order_relaxed)) return true;
    const std::int64_t due = next_due_.load(std::memory_order_relaxed);
    return due != nanoseconds::never().count && due <= clock();
}

inline result<unsigned> engine::poll(completion_queue& cq, completion* out, unsigned room) noexcept {
    if (!manual_ && work_pending()) {
        drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        progress();
    }
    std::uint32_t head = cq.head.load(std::memory_order_relaxed);
    const std::uint32_t tail = cq.tail.load(std::memory_order_acquire);
    if (head == tail) {
        if (cq.overrun.load(std::memory_order_acquire) && cq.tail.load(std::memory_order_acquire) == head)
            return errc::cq_overrun;
        return 0u;
    }
    unsigned n = 0;
    for (; n < room && head != tail; ++n, ++head) {
        const cqe& e = cq.ring[head & cq.mask];
        out[n] = e.what;
        if (!e.of_send) continue;
        auto& credit = credits_[e.index];
        std::uint64_t old = credit.load(std::memory_order_relaxed);
        while (static_cast<std::uint32_t>(old >> 32) == e.life &&
               !credit.compare_exchange_weak(old, std::uint64_t{e.life} << 32 | e.send_done, std::memory_order_release)) {}
    }
    cq.head.store(head, std::memory_order_release);
    return n;
}

inline bool engine::progress() noexcept {
    bool any = false;
    while (lock_.try_lock()) {
        any = pass() || any;
        publish();
        lock_.unlock();
        if (doorbells_.load(std::memory_order_seq_cst) == nullptr) break;
    }
    return any;
}

inline bool engine::pass() noexcept {
    bool any = false;
    for (int round = 0; round < 8; ++round) {
        take_doorbells();
        notice_changes();
        bool did = receive_rings();
        did = run_due(64) || did;
        did = run_list() || did;
        if (!did) break;
        any = true;
        if (lock_.wanted()) break;
    }
    return any;
}

/// Makes `work_pending` true to what the lock's holder leaves behind.
inline void engine::publish() noexcept {
    busy_.store(!run_.empty() || inbound_left_ != 0, std::memory_order_relaxed);
    next_due_.store(queue_.next_at(), std::memory_order_relaxed);
}

inline void engine::take_doorbells() noexcept {
    if (doorbells_.load(std::memory_order_seq_cst) == nullptr) return;
    queue_pair* newest = doorbells_.exchange(nullptr, std::memory_order_seq_cst);
    queue_pair* oldest = nullptr;
    while (newest != nullptr) {
        queue_pair* next = newest->next_rung;
        newest->next_rung = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != nullptr) {
        queue_pair* next = oldest->next_rung;
        oldest->rung.store(false, std::memory_order_seq_cst);
        enqueue(*oldest);
        oldest = next;
    }
}

/// The QP gets a turn: later in this pass, or as an event of now.
inline void engine::enqueue(queue_pair& q) noexcept {
    if (q.queued) return;
    if (!manual_) run_.push_back(&q);  // has a place for each QP
    q.queued = !manual_ || schedule(q, clock(), event_kind::turn);
}

/// Without memory for what is to happen to it, the QP goes to ERR: its user learns of that, a stall would be silent.
inline bool engine::schedule(queue_pair& q, std::int64_t at, event_kind kind) noexcept {
    if (queue_.push({at, 0, nullptr, q.number, kind})) return true;
    enter_error(q);
    return false;
}

inline bool engine::run_list() noexcept {
    if (run_.empty()) return false;
    running_.swap(run_);
    bool did = false;
    for (queue_pair* q : running_) {
        q->queued = false;
        const turn t = service(*q);
        if (t != turn::idle) enqueue(*q);
        did = did || t == turn::again;
    }
    running_.clear();
    return did;
}

inline engine::turn engine::service(queue_pair& q) noexcept {
    if (q.state.load(std::memory_order_relaxed) == qp_state::error) {
        flush(q);
        return turn::idle;
    }
    if (!q.can_receive()) return turn::idle;
    if (const turn t = pump(q); t != turn::idle) return t;
    return q.state.load(std::memory_order_relaxed) == qp_state::ready_to_send ? send_some(q) : turn::idle;
}

inline void engine::wake(queue_pair& q, std::int64_t at) noexcept {
    if (q.wake_at != 0 && q.wake_at <= at) return;
    if (schedule(q, at, event_kind::wake)) q.wake_at = at;
}

inline bool engine::run_due(unsigned limit) noexcept {
    if (queue_.empty()) return false;
    const std::int64_t at = clock();
    bool did = false;
    for (; limit != 0 && queue_.next_at() <= at; --limit) {
        run_event(queue_.pop());
        did = true;
    }
    return did;
}

inline void engine::run_event(const timed_event& e) noexcept {
    if (manual_) {
        const std::uint64_t psn = e.carried == nullptr ? 0 : e.carried->header.psn;
        event_hash_ =
            mix(event_hash_ ^
                mix(static_cast<std::uint64_t>(e.at) + (std::uint64_t{e.which} << 8) + static_cast<std::uint64_t>(e.kind)) ^
                psn << 32);
    }
    if (e.kind == event_kind::flap) return run_flap(e.which);
    if (e.kind == event_kind::deliver) {
        deliver(e.carried->header, e.carried->payload);
        pool_.give(e.carried);
        return;
    }
    queue_pair* q = find(e.which);
    if (q == nullptr) return;
    if (e.kind == event_kind::timer) {
        on_timer(*q, e.at);
    } else if (e.kind == event_kind::wake) {
        if (e.at == q->wake_at) q->wake_at = 0;
        enqueue(*q);
    } else {
        q->queued = false;
        if (service(*q) != turn::idle) enqueue(*q);
    }
}

inline void engine::run_flap(std::uint32_t number) noexcept {
    flap_job& f = flaps_[number];
    f.is_down = !f.is_down;
    set_link(control(), f.port, link_up, !f.is_down);
    notice_changes();
    if (!f.is_down && --f.left == 0) return;
    if (queue_.push({clock() + (f.is_down ? f.down : f.up), 0, nullptr, number, event_kind::flap}) || !f.is_down) return;
    set_link(control(), f.port, link_up, true);  // no memory for the way back up: the flapping is over
    notice_changes();
}

/// Control words changed: ports that died get their behaviour, and everybody looks again.
inline void engine::notice_changes() noexcept {
    const std::uint32_t changes = control().head().changes.load(std::memory_order_acquire);
    if (changes == changes_seen_.load(std::memory_order_relaxed)) return;
    changes_seen_.store(changes, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < downs_seen_.size(); ++i) {
        port_control& p = control().port(i);
        const std::uint32_t downs = p.downs.load(std::memory_order_acquire);
        if (downs == downs_seen_[i]) continue;
        downs_seen_[i] = downs;
        const auto behaviour = static_cast<port_down_behaviour>(p.on_down.load(std::memory_order_relaxed));
        for (queue_pair* q : table_) {
            if (q == nullptr || q->port != i || q->state.load(std::memory_order_relaxed) != qp_state::ready_to_send ||
                q->send.first == q->send.posted.load(std::memory_order_acquire))
                continue;
            if (behaviour == port_down_behaviour::op_error)
                fail(*q, wc_status::loc_qp_op_err);
            else if (behaviour == port_down_behaviour::flush)
                enter_error(*q);
            else if (behaviour == port_down_behaviour::silent)
                q->stuck = true;
        }
    }
    for (queue_pair* q : table_)
        if (q != nullptr && q->can_receive()) enqueue(*q);
}

inline status engine::command(std::string_view text) {
    auto c = parse(text, shape_, control().at.rail_count);
    if (!c) return c.error();
    apply(control(), *c);
    const locked guard(lock_);
    if (c->verb == fault_verb::flap) {
        for (const std::uint32_t port : c->ports) {
            flaps_.push_back({port, c->amount, c->first, c->second, false});
            if (!queue_.push({clock(), 0, nullptr, static_cast<std::uint32_t>(flaps_.size() - 1), event_kind::flap}))
                return errc::no_memory;
        }
        start_thread();
    }
    notice_changes();
    publish();
    return {};
}

inline nanoseconds engine::next_event_at() noexcept {
    const locked guard(lock_);
    return {queue_.next_at()};
}

inline bool engine::step() noexcept {
    const locked guard(lock_);
    if (!manual_ || queue_.next_at() > manual_now_.count) return false;
    run_event(queue_.pop());
    return true;
}

inline void engine::advance(nanoseconds by) noexcept {
    const locked guard(lock_);
    if (!manual_) return;
    const nanoseconds until = manual_now_ + by;
    while (queue_.next_at() <= until.count) {
        if (queue_.next_at() > manual_now_.count) manual_now_ = {queue_.next_at()};
        run_event(queue_.pop());
    }
    manual_now_ = until;
}

inline void engine::start_thread() noexcept {
    if (manual_ || thread_started_) return;
    thread_started_ = ::pthread_create(&thread_, nullptr, &engine::background, this) == 0;
}

/// Low duty: sleeps longer the less there is to do, and leaves the engine to post and poll while they run it.
inline void* engine::background(void* self) noexcept {
    constexpr std::int64_t shortest = 20'000, longest = 200'000, parked = 2'000'000;
    engine& e = *static_cast<engine*>(self);
    std::int64_t pause = shortest;
    std::uint32_t drives = 0;
    while (!e.stop_.load(std::memory_order_acquire)) {
        const std::uint32_t now = e.drives_.load(std::memory_order_relaxed);
        const bool driven = std::exchange(drives, now) != now;
        const bool did = !driven && e.work_pending() && e.progress();
        const std::int64_t most = e.qp_count_.load(std::memory_order_relaxed) == 0 ? parked : longest;
        pause = did ? shortest : pause * 2 < most ? pause * 2 : most;
        const timespec t{0, static_cast<long>(pause)};
        ::nanosleep(&t, nullptr);
    }
    return nullptr;
}

}  // namespace vccl::inline v0::verbs::soft_detail
