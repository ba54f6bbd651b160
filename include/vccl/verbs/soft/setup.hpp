#pragma once
/// \file
/// The software NIC's objects: slot, ports, QPs and their states, memory. Set-up calls, any thread; each takes the
/// engine's lock, so when `to_error`, `to_reset` or `destroy_qp` return the QP writes no more memory.

#include <vccl/verbs/soft/engine.hpp>

#include <new>

namespace vccl::inline v0::verbs::soft_detail {

inline engine::engine(segment_map&& map, topology&& shape, bool manual)
    : map_(std::move(map)),
      shape_(std::move(shape)),
      manual_(manual),
      mtu_(map_.view.head().mtu),
      identity_(map_.view.head().identity),
      latency_(map_.view.head().latency),
      random_{map_.view.head().seed} {
    run_.reserve(table_size);
    running_.reserve(table_size);
    changes_seen_ = control().head().changes.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < shape_.ports.size(); ++i) downs_seen_.push_back(control().port(i).downs);
}

inline engine::~engine() {
    stop_.store(true, std::memory_order_release);
    if (thread_started_) ::pthread_join(thread_, nullptr);
    while (!queue_.empty())
        if (const timed_event e = queue_.pop(); e.carried != nullptr) pool_.give(e.carried);
    if (slot_ < max_slots) control().slot(slot_).owner.store(0, std::memory_order_release);
}

/// Takes a place among the fabric's processes: a free one, or that of a dead process. `no_memory`: all are taken.
inline status engine::claim_slot() {
    const locked guard(lock_);
    if (slot_ < max_slots) return {};
    const std::uint64_t self = own_identity();
    for (std::uint32_t i = 0; i < control().at.slot_count; ++i) {
        slot_control& s = control().slot(i);
        std::uint64_t owner = s.owner.load(std::memory_order_acquire);
        if ((owner != 0 && alive(owner)) || !s.owner.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) continue;
        slot_ = i;
        s.inbound.store(0, std::memory_order_release);
        const std::uint32_t uses = s.uses.fetch_add(1, std::memory_order_acq_rel);
        for (auto& g : generations_) g = static_cast<std::uint8_t>(uses * 17);
        random_.state = mix(control().head().seed + i);
        if (control().at.ring_bytes != 0)
            for (std::uint32_t from = 0; from < control().at.slot_count; ++from) {
                ring_consumer old(control(), from, i);
                old.drain();  // what was meant for the slot's last owner
            }
        if (control().at.memory_bytes != 0) {
            arena_ = arena(control().memory(slot_), control().at.memory_bytes);
            for (std::uint32_t q = 0; q < table_size; ++q)  // what the last owner has sent refers to memory that is ours now
                control().vouched(slot_, q).fetch_add(1, std::memory_order_seq_cst);
        }
        inbound_.store(&s.inbound, std::memory_order_release);
        return {};
    }
    return {errc::no_memory, control().at.slot_count};
}

inline result<std::unique_ptr<port_domain>> engine::open(std::uint16_t port) noexcept {
    const locked guard(lock_);
    try {
        auto d = std::make_unique<port_domain>();
        d->port = port;
        d->id = static_cast<std::uint32_t>(domains_.size());
        d->events_seen = static_cast<std::uint32_t>(control().port(port).events.load(std::memory_order_acquire) >> 32);
        domains_.push_back(d.get());
        return result<std::unique_ptr<port_domain>>(std::move(d));
    } catch (const std::bad_alloc&) { return errc::no_memory; }
}

inline void engine::close(const port_domain& d) noexcept {
    const locked guard(lock_);
    domains_[d.id] = nullptr;
}

inline queue_pair* engine::find(std::uint32_t number) noexcept {
    queue_pair* q = table_[index_of(number)];
    return q != nullptr && q->number == number ? q : nullptr;
}

inline result<queue_pair*> engine::create_qp(const port_domain& d, completion_queue& cq, const qp_limits& limits) noexcept {
    if (limits.send_depth == 0 || limits.recv_depth == 0 || limits.send_depth > 65536 || limits.recv_depth > 65536)
        return errc::invalid_argument;
    std::unique_ptr<queue_pair> q;
    try {
        q = std::make_unique<queue_pair>();
        q->send.allocate(limits.send_depth, limits.inline_bytes);
        q->recv.allocate(limits.recv_depth);
    } catch (const std::bad_alloc&) { return errc::no_memory; }
    const locked guard(lock_);
    std::uint32_t index = cursor_;
    for (std::uint32_t tried = 0; table_[index] != nullptr; index = (index + 1) % table_size)
        if (++tried == table_size) return {errc::no_memory};
    cursor_ = (index + 1) % table_size;
    q->number = make_qpn(slot_, ++generations_[index], index);
    q->domain = d.id;
    q->port = d.port;
    q->cq = &cq;
    credits_[index].store(0, std::memory_order_release);
    table_[index] = q.get();
    qp_count_.fetch_add(1, std::memory_order_relaxed);
    start_thread();
    return q.release();
}

inline void engine::destroy_qp(queue_pair& q) noexcept {
    const locked guard(lock_);
    take_doorbells();
    std::erase(run_, &q);
    revoke(q);
    table_[index_of(q.number)] = nullptr;
    qp_count_.fetch_sub(1, std::memory_order_relaxed);
    delete &q;
}

/// The CQ goes away: QPs that still use it can complete nothing more.
inline void engine::detach(completion_queue& cq) noexcept {
    const locked guard(lock_);
    for (queue_pair* q : table_) {
        if (q == nullptr || q->cq != &cq) continue;
        q->cq = nullptr;
        enter_error(*q);
    }
}

inline result<std::uint32_t> engine::add_memory(std::uint32_t domain, void* memory, std::size_t bytes) noexcept {
    const locked guard(lock_);
    return memory_.add(domain, memory, bytes);
}

inline void engine::remove_memory(std::uint32_t local_key) noexcept {
    const locked guard(lock_);
    if (const auto r = memory_.range_of(local_key); r.bytes != 0) revoke(r.start, r.bytes);
    memory_.remove(local_key);
}

/// Memory whose bytes go to other processes with one copy. Errors: unsupported: the fabric has none; no_memory: no gap of
/// that size is left, or the machine has none.
inline result<std::byte*> engine::take_memory(std::size_t bytes) noexcept {
    const locked guard(lock_);
    if (slot_ >= max_slots || control().at.memory_bytes == 0) return errc::unsupported;
    try {
        const auto p = arena_.take(bytes);
        if (!p) return p;
        const status s = map_.reserve(control().memory_offset(slot_) + arena_.offset_of(*p), bytes);
        if (s) return p;
        arena_.give(*p);
        return s;
    } catch (const std::bad_alloc&) { return errc::no_memory; }
}

inline void engine::give_memory(const std::byte* p, std::size_t bytes) noexcept {
    const locked guard(lock_);
    revoke(reinterpret_cast<std::uintptr_t>(p), bytes);
    arena_.give(p);
}

/// Packets of this QP that only refer to their bytes are worth nothing from now on: the user may change them.
inline void engine::revoke(const queue_pair& q) noexcept {
    if (control().at.memory_bytes == 0) return;
    control().vouched(slot_, index_of(q.number)).fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}
/// The same of every QP that still sends from there.
inline void engine::revoke(std::uint64_t addr, std::uint64_t bytes) noexcept {
    if (control().at.memory_bytes == 0) return;
    for (queue_pair* q : table_) {
        bool sends = false;
        for (std::uint32_t i = q == nullptr ? 0 : q->send.first; q != nullptr && i != q->send.started; ++i)
            sends = sends || q->send.at(i).w.local_addr - addr < bytes;
        if (sends) revoke(*q);
    }
}

/// Work that was outstanding is forgotten without a completion, as drivers do.
inline status engine::to_reset(queue_pair& q) noexcept {
    const locked guard(lock_);
    q.state.store(qp_state::reset, std::memory_order_seq_cst);
    revoke(q);
    q.clear();
    credits_[index_of(q.number)].store(std::uint64_t{q.life} << 32, std::memory_order_release);
    return {};
}

inline status engine::to_init(queue_pair& q) noexcept {
    const locked guard(lock_);
    if (q.state.load(std::memory_order_relaxed) != qp_state::reset) return {errc::invalid_argument, q.number};
    q.state.store(qp_state::init, std::memory_order_seq_cst);
    return {};
}

inline status engine::to_ready_to_receive(queue_pair& q, const qp_peer& peer, const qp_timers& timers) noexcept {
    const gid_parts to = parts_of(peer.address);
    const std::uint32_t mtu = peer.mtu == 0 ? mtu_ : peer.mtu;
    if (mtu < 256 || mtu > mtu_ || (mtu & (mtu - 1)) != 0 || peer.number.value > psn_mask || peer.first_psn.value > psn_mask ||
        timers.min_rnr_timer > 31)
        return {errc::invalid_argument, q.number};
    if (to.identity != identity_ || to.port >= shape_.ports.size() ||
        peer.address != make_gid(to.identity, to.port, to.generation))
        return {errc::not_found, q.number};
    const std::uint32_t slot = slot_of(peer.number.value);
    if (slot != slot_ && slot < control().at.slot_count && control().at.ring_bytes != 0) {
        if (auto s = map_.reserve_ring(slot_, slot); !s) return s;
        if (auto s = map_.reserve_ring(slot, slot_); !s) return s;
    }

    const locked guard(lock_);
    if (q.state.load(std::memory_order_relaxed) != qp_state::init) return {errc::invalid_argument, q.number};
    q.peer = peer.number.value;
    q.peer_port = static_cast<std::uint16_t>(to.port);
    q.peer_generation = to.generation;
    q.own_generation = control().port(q.port).gid_generation.load(std::memory_order_acquire);
    q.mtu = mtu;
    q.timers = timers;
    q.expected = peer.first_psn.value;
    q.state.store(qp_state::ready_to_receive, std::memory_order_seq_cst);
    return {};
}

inline status engine::to_ready_to_send(queue_pair& q, psn first, const qp_timers& timers) noexcept {
    if (first.value > psn_mask || timers.timeout > 31 || timers.retry_count > 7 || timers.rnr_retry > 7)
        return {errc::invalid_argument, q.number};
    const locked guard(lock_);
    if (q.state.load(std::memory_order_relaxed) != qp_state::ready_to_receive) return {errc::invalid_argument, q.number};
    q.timers.timeout = timers.timeout;
    q.timers.retry_count = q.retries = timers.retry_count;
    q.timers.rnr_retry = q.rnr_retries = timers.rnr_retry;
    q.una = q.frontier = first.value;
    q.state.store(qp_state::ready_to_send, std::memory_order_seq_cst);
    return {};
}

inline status engine::to_error(queue_pair& q) noexcept {
    const locked guard(lock_);
    enter_error(q);
    return {};
}

inline void engine::push_event(std::uint32_t domain, async_event e) noexcept {
    port_domain* d = domains_[domain];
    if (d == nullptr) return;
    d->local[d->local_end++ % port_domain::room] = e;
    if (d->local_end - d->local_begin > port_domain::room) ++d->local_begin;
    d->local_count.store(d->local_end - d->local_begin, std::memory_order_release);
}

inline async_event engine::next_event(port_domain& d) noexcept {
    switch (read_event(control().port(d.port), d.events_seen)) {
        case port_event::error: return {async_event::kind::port_error, {}};
        case port_event::active: return {async_event::kind::port_active, {}};
        case port_event::gid_change: return {async_event::kind::gid_change, {}};
        case port_event::none: break;
    }
    if (d.local_count.load(std::memory_order_acquire) == 0) return {};
    const locked guard(lock_);
    const async_event e = d.local[d.local_begin++ % port_domain::room];
    d.local_count.store(d.local_end - d.local_begin, std::memory_order_release);
    return e;
}

}  // namespace vccl::inline v0::verbs::soft_detail
