#pragma once
/// \file
/// A verbs backend over another one, whose ports, memory and QPs the NIC in a kernel knows, too: what a kernel posts on rings is
/// moved by that kernel, everything else by the backend beneath. Threads: as that backend's.

#include <vccl/device/gpu_nic/board.cuh>
#include <vccl/verbs/backend.hpp>

namespace vccl::inline v0::device::gpu_nic_detail {

/// Registered with the backend and with the NIC.
template <class Mr>
class known_mr {
public:
    known_mr(Mr mr, board& on, unsigned slot) noexcept : mr_(std::move(mr)), board_(&on), slot_(slot) {}
    known_mr(known_mr&& o) noexcept : mr_(std::move(o.mr_)), board_(std::exchange(o.board_, nullptr)), slot_(o.slot_) {}
    known_mr& operator=(known_mr&& o) noexcept {
        std::swap(mr_, o.mr_);
        std::swap(board_, o.board_);
        std::swap(slot_, o.slot_);
        return *this;
    }
    ~known_mr() {
        if (board_ != nullptr) board_->remove_region(slot_);
    }
    lkey local_key() const noexcept { return mr_.local_key(); }
    rkey remote_key() const noexcept { return mr_.remote_key(); }

private:
    Mr mr_;
    board* board_;
    unsigned slot_;
};

/// A QP that its peer's ring can write to as long as it is in RTR or RTS.
template <class Qp>
class known_qp {
public:
    known_qp(Qp qp, board& on, unsigned end) noexcept : qp_(std::move(qp)), board_(&on), end_(end) {}
    known_qp(known_qp&& o) noexcept : qp_(std::move(o.qp_)), board_(std::exchange(o.board_, nullptr)), end_(o.end_) {}
    known_qp& operator=(known_qp&& o) noexcept {
        std::swap(qp_, o.qp_);
        std::swap(board_, o.board_);
        std::swap(end_, o.end_);
        return *this;
    }
    ~known_qp() { (void)destroy(); }

    qpn number() const noexcept { return qp_.number(); }
    unsigned end() const noexcept { return end_; }
    VCCL_COLD status to_reset() noexcept {
        return closed([](Qp& q) { return q.to_reset(); });
    }
    VCCL_COLD status to_init() noexcept { return qp_.to_init(); }
    VCCL_COLD status to_ready_to_receive(const qp_peer& peer, const qp_timers& timers) noexcept {
        const status s = qp_.to_ready_to_receive(peer, timers);
        if (s) board_->accept(end_, peer.number.value, static_cast<std::uint64_t>(rnr_wait(timers.min_rnr_timer)));
        return s;
    }
    VCCL_COLD status to_ready_to_send(psn first, const qp_timers& timers) noexcept { return qp_.to_ready_to_send(first, timers); }
    /// A fence against the backend and against the kernel.
    VCCL_COLD status to_error() noexcept {
        return closed([](Qp& q) { return q.to_error(); });
    }
    result<qp_state> state() noexcept { return qp_.state(); }
    status post(const work& w) noexcept { return qp_.post(w); }
    result<unsigned> post(std::span<const work> many) noexcept { return qp_.post(many); }
    result<unsigned> post_recv(std::span<const recv_work> recvs) noexcept { return qp_.post_recv(recvs); }
    VCCL_COLD status destroy() noexcept {
        if (board_ == nullptr) return {};
        const status s = closed([](Qp& q) { return q.destroy(); });
        std::exchange(board_, nullptr)->remove_end(end_);
        return s;
    }

private:
    template <class F>
    VCCL_COLD status closed(F&& f) noexcept {
        board_->refuse(end_);
        const status fenced = board_->grace();
        const status s = f(qp_);
        return s ? fenced : s;
    }

    Qp qp_;
    board* board_;
    unsigned end_;
};

template <class Port>
class known_port {
public:
    using qp = known_qp<typename Port::qp>;
    using cq = typename Port::cq;
    using mr = known_mr<typename Port::mr>;

    known_port(Port port, board& on, unsigned index) noexcept : port_(std::move(port)), board_(&on), index_(index) {}

    /// Effects: also shows the NIC whether the port is up.
    result<port_attributes> query() noexcept {
        auto a = port_.query();
        if (a) board_->set_port(index_, a->state == port_state::active);
        return a;
    }
    result<cq> create_cq(std::uint32_t depth) noexcept { return port_.create_cq(depth); }
    VCCL_COLD result<qp> create_qp(cq& completions, const qp_limits& limits) noexcept {
        auto made = port_.create_qp(completions, limits);
        if (!made) return made.error();
        auto end = board_->add_end(made->number().value, index_);
        if (!end) return end.error();
        return qp(std::move(*made), *board_, *end);
    }
    /// Memory that the backend beneath touches must be the CPU's; what only rings name may be any that the NIC's GPU reaches.
    VCCL_COLD result<mr> register_memory(void* memory, std::size_t bytes) noexcept {
        auto made = port_.register_memory(memory, bytes);
        if (!made) return made.error();
        const region r{
            reinterpret_cast<std::uintptr_t>(memory), bytes, made->local_key().value, made->remote_key().value, index_, 0};
        auto slot = board_->add_region(r);
        if (!slot) return slot.error();
        return mr(std::move(*made), *board_, *slot);
    }
    result<async_event> next_event() noexcept { return port_.next_event(); }
    std::uint32_t inline_limit() noexcept { return port_.inline_limit(); }
    unsigned index() const noexcept { return index_; }

private:
    Port port_;
    board* board_;
    unsigned index_;
};

}  // namespace vccl::inline v0::device::gpu_nic_detail
