#pragma once
/// \file
/// The NIC in a kernel, as a state machine of one ring: which bytes are to be moved next, and the CQEs. Moving them is the
/// caller's, who has many threads for it. One thread; the host build runs the same code under a clock of its own.

#include <vccl/device/gpu_nic/tables.hpp>

namespace vccl::inline v0::device::gpu_nic_detail {

/// The next thing to do for the WQE at hand.
struct step {
    enum class kind : std::uint8_t { none, copy, inlined, atomic };
    kind what{kind::none};
    std::uint64_t to{}, from{};  ///< addresses; an atomic's word is `to`, its result goes to `from`
    std::uint32_t bytes{};
};

class runner {
public:
    static constexpr std::uint32_t piece = 256u << 10;  ///< bytes moved between two looks at ports and states

    VCCL_HOST_DEVICE const fetched_wqe& current() const noexcept { return wqe_; }

    /// Effects: looks at the ring and what the host says; completes what needs no bytes moved. `now` in nanoseconds.
    VCCL_HOST_DEVICE step decide(const tables& t, unsigned queue, std::uint64_t now) noexcept {
        const queue_entry& e = t.queues[queue];
        const std::uint32_t generation = load<order::acquire, scope::system>(&e.generation);
        if (generation != generation_) begin(e, generation);
        const queue_state state = state_of(e);
        if (generation == 0 || state == queue_state::idle) return {};
        report_ = &t.reports[queue];
        if (!busy_) listen();
        if (state == queue_state::error || failed_) {
            flush();
            if (state == queue_state::error && t.progress[e.end].begin(t.ends[e.end])) t.progress[e.end].receives.flush();
            return {};
        }
        if (!busy_ && !take()) return {};
        if (!reachable(t, e)) {
            if (since_ == 0) since_ = now;
            if (now - since_ >= e.retry_time) end({syndrome::transport_retry, wqe_fault::none});
            return {};
        }
        since_ = 0;
        const step next = plan(t, e, now);
        return next.what == step::kind::none || has_crossed(t, e, next.bytes, now) ? next : step{};
    }
    /// Effects: the step's bytes have been moved and can be seen by everyone.
    VCCL_HOST_DEVICE void finish(const step& s) noexcept {
        done_ += s.bytes;
        if (done_ >= wqe_.fields.local.length) end({});
    }

private:
    VCCL_HOST_DEVICE static queue_state state_of(const queue_entry& e) noexcept {
        return static_cast<queue_state>(load<order::acquire, scope::system>(reinterpret_cast<const std::uint32_t*>(&e.state)));
    }
    VCCL_HOST_DEVICE void begin(const queue_entry& e, std::uint32_t generation) noexcept {
        generation_ = generation;
        consumer_ = ring_consumer(e.memory);
        busy_ = failed_ = overrun_ = false;
        heard_ = since_ = due_ = ask_at_ = 0;
    }
    VCCL_HOST_DEVICE void listen() noexcept {
        const std::uint64_t value = consumer_.doorbell();
        if (value == heard_) return;
        heard_ = value;
        if (consumer_.take_doorbell(value, consumer_.next()) != rung::beyond || failed_) return;
        wqe_ = {};
        wqe_.index = consumer_.next();
        end({syndrome::local_qp_operation, wqe_fault::wrong_doorbell});
    }
    VCCL_HOST_DEVICE void flush() noexcept {
        if (busy_) end({syndrome::flushed, wqe_fault::none});
        while (consumer_.has_more()) {
            wqe_ = consumer_.fetch();
            end({syndrome::flushed, wqe_fault::none});
        }
    }
    /// Fetches the next WQE; false if there is none that reaches the peer.
    VCCL_HOST_DEVICE bool take() noexcept {
        if (!consumer_.has_more()) return false;
        wqe_ = consumer_.fetch();
        done_ = 0;
        busy_ = true;
        if (!wqe_.verdict.good())
            end(wqe_.verdict);
        else if (wqe_detail::is(wqe_.fields.opcode, wqe_opcode::nop))
            end({});
        asked_ = 0;
        return busy_;
    }
    VCCL_HOST_DEVICE static bool reachable(const tables& t, const queue_entry& e) noexcept {
        const end_entry& peer = t.ends[e.peer];
        return load<order::acquire, scope::system>(&peer.accepts) == e.memory.qpn &&
               load<order::relaxed, scope::system>(&peer.qpn) == e.peer_qpn &&  // written before `accepts`
               load<order::acquire, scope::system>(&t.port_up[e.port]) != 0 &&
               load<order::acquire, scope::system>(&t.port_up[peer.port]) != 0;
    }
    /// Does a live region of this port have the key, and room for the bytes?
    VCCL_HOST_DEVICE static bool covers(const tables& t, std::uint32_t port, bool remote, std::uint32_t key, std::uint64_t addr,
                                        std::uint64_t bytes) noexcept {
        const std::uint32_t count = load<order::acquire, scope::system>(t.region_count);
        for (std::uint32_t i = 0; i < count; ++i) {
            const region& r = t.regions[i];
            if (load<order::relaxed, scope::system>(remote ? &r.rkey : &r.lkey) != key ||
                load<order::relaxed, scope::system>(&r.live) == 0)
                continue;
            fence<order::acquire, scope::system>();  // the rest of the region was written before it became live
            if (r.port != port) continue;
            return addr >= r.base && bytes <= r.bytes && addr - r.base <= r.bytes - bytes;
        }
        return false;
    }
    /// The same for both ends of the WQE at hand, which is over if not.
    VCCL_HOST_DEVICE bool covers_both(const tables& t, const queue_entry& e) noexcept {
        const wqe_fields& f = wqe_.fields;
        syndrome why = syndrome::none;
        if (!f.inlined && !covers(t, e.port, false, f.local.lkey, f.local.addr, f.local.length))
            why = syndrome::local_protection;
        else if (!covers(t, t.ends[e.peer].port, true, f.remote.rkey, f.remote.addr, f.local.length))
            why = syndrome::remote_access;
        if (why != syndrome::none) end({why, wqe_fault::wrong_memory});
        return why == syndrome::none;
    }
    VCCL_HOST_DEVICE bool brings_immediate() const noexcept { return wqe_detail::is(wqe_.fields.opcode, wqe_opcode::write_imm); }
    /// Is the time over that the bytes take on the port, behind all that other rings have given it? A rate holds for what a port
    /// sends; what a READ brings counts at the port that asked.
    VCCL_HOST_DEVICE bool has_crossed(const tables& t, const queue_entry& e, std::uint32_t bytes, std::uint64_t now) noexcept {
        if (due_ == 0) {
            const std::uint32_t pace = load<order::relaxed, scope::system>(t.pace);
            if (pace == 0) return true;
            const std::uint64_t ticks = std::uint64_t{bytes} * pace * link_ticks / 1000;
            std::uint64_t free = load<order::relaxed, scope::gpu>(&t.port_free[e.port]);
            do due_ = (free > now * link_ticks ? free : now * link_ticks) + ticks;
            while (!compare_exchange<order::relaxed, scope::gpu>(&t.port_free[e.port], free, due_));
        }
        if (now * link_ticks < due_) return false;
        due_ = 0;
        return true;
    }
    /// Has the peer a receive for what a WRITE_WITH_IMM ends with? If not, it is asked again after its time, and so often.
    VCCL_HOST_DEVICE bool receiver_ready(const tables& t, const queue_entry& e, std::uint64_t now) noexcept {
        if (now < ask_at_) return false;
        const end_entry& peer = t.ends[e.peer];
        end_progress& progress = t.progress[e.peer];
        if (progress.begin(peer) && progress.receives.ready()) {
            receives_ = &progress.receives;
            if (receives_->has_room()) return true;
            end({syndrome::remote_operation, wqe_fault::none});
        } else if (e.rnr_retry != 7 && asked_++ == e.rnr_retry) {
            end({syndrome::rnr_retry, wqe_fault::none});
        } else {
            ask_at_ = now + peer.rnr_wait;
        }
        return false;
    }
    VCCL_HOST_DEVICE step plan(const tables& t, const queue_entry& e, std::uint64_t now) noexcept {
        const wqe_fields& f = wqe_.fields;
        const std::uint32_t length = f.local.length, left = length - done_, n = left < piece ? left : piece;
        if (length != 0 && !covers_both(t, e)) return {};
        if (n == left && brings_immediate() && !receiver_ready(t, e, now)) return {};
        if (length == 0) {
            end({});
            return {};
        }
        if (wqe_detail::is_atomic(f.opcode)) {
            if (f.remote.addr % length != 0) {
                end({syndrome::remote_invalid_request, wqe_fault::wrong_memory});
                return {};
            }
            return {step::kind::atomic, f.remote.addr, f.local.addr, length};
        }
        if (f.inlined) return {step::kind::inlined, f.remote.addr, 0, length};
        const std::uint64_t there = f.remote.addr + done_, here = f.local.addr + done_;
        if (wqe_detail::is(f.opcode, wqe_opcode::read)) return {step::kind::copy, here, there, n};
        return {step::kind::copy, there, here, n};
    }
    /// The WQE at hand is over.
    VCCL_HOST_DEVICE void end(const judgement& j) noexcept {
        busy_ = false;
        since_ = due_ = ask_at_ = 0;
        if (j.good() && brings_immediate()) receives_->take({wqe_.fields.immediate, wqe_.fields.local.length});
        if (!j.good() && !failed_) {
            failed_ = true;
            store<order::release, scope::system>(&report_->failed, generation_);
        }
        if (overrun_ || (j.good() && (wqe_.fields.head.flags & wqe_flag::completion) == 0)) return;
        if (!consumer_.has_room()) {
            overrun_ = failed_ = true;
            store<order::release, scope::system>(&report_->overrun, generation_);
            store<order::release, scope::system>(&report_->failed, generation_);
            return;
        }
        const wqe_fields& f = wqe_.fields;
        const bool brings = wqe_detail::is(f.opcode, wqe_opcode::read) || wqe_detail::is_atomic(f.opcode);
        const cqe_body body{consumer_.memory().qpn, f.opcode, brings && j.good() ? f.local.length : 0, j.why,
                            static_cast<std::uint8_t>(j.fault)};
        consumer_.complete(body, wqe_.index);
    }

    ring_consumer consumer_;
    fetched_wqe wqe_{};
    queue_report* report_{};
    receive_consumer* receives_{};  ///< of the peer, once it was found ready
    std::uint64_t heard_{};
    std::uint64_t since_{};  ///< when the peer was first found out of reach; 0: it is not
    std::uint64_t due_{};  ///< when the bytes at hand have crossed their port, in `link_ticks`; 0: none are under way
    std::uint64_t ask_at_{};  ///< not before that the peer is asked again whether it has a receive
    std::uint32_t asked_{};  ///< so often in vain
    std::uint32_t generation_{};
    std::uint32_t done_{};  ///< bytes moved of the WQE at hand
    bool busy_{};
    bool failed_{};
    bool overrun_{};
};

}  // namespace vccl::inline v0::device::gpu_nic_detail
