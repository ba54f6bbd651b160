#pragma once
/// \file
/// A software NIC that is a kernel: it consumes mlx5 rings and moves payload by device copies, between memories of GPUs (over
/// NVLink, where peer access is enabled) and mapped host memory. Control traffic, port states and their faults are those of the
/// verbs backend beneath, in one process. It stands on a few multiprocessors of one GPU and needs them for as long as it runs:
/// leave some free, or it starves.
///
/// While the kernel runs, CUDA calls that wait for the whole device never return (cudaDeviceSynchronize, cudaFree, cudaFreeHost,
/// and the lazy loading of kernels: set CUDA_MODULE_LOADING=EAGER). Allocate before run(), free after pause(). QPs may be
/// created and destroyed at any time: the kernel is paused meanwhile.
///
/// Threads: `progress()` on one thread, often: it shows the kernel which ports are up. Set-up calls on the owners' threads.

#include <vccl/device/gpu_nic/backend.cuh>
#include <vccl/device/gpu_nic/ring_place.cuh>
#include <vccl/device/ring_source.hpp>

#include <vector>

namespace vccl::inline v0::device {

/// Set-up calls may take as long as the kernel needs to pause; see above for what must not be called meanwhile.
template <verbs_backend Backend, class Rings = mapped_rings>
class gpu_nic {
    using board = gpu_nic_detail::board;
    using queue_state = gpu_nic_detail::queue_state;

public:
    using port_type = gpu_nic_detail::known_port<typename Backend::port>;  ///< of the backend beneath
    class backend;
    class qp;

    /// `blocks` of the kernel, at most 64; each serves its share of the rings.
    VCCL_COLD static result<owned<gpu_nic>> open(int device, unsigned blocks = 4) noexcept {
        auto made = board::open(device, blocks);
        if (!made) return made.error();
        owned<gpu_nic> nic(new (std::nothrow) gpu_nic(std::move(*made)));
        if (!nic) return errc::no_memory;
        return nic;
    }

    /// Starts and stops the kernel; both may be called again and again. run(): no_device, or CUDA's error. pause() waits for the
    /// kernel.
    /// @{
    status run() noexcept { return board_->run(); }
    void pause() noexcept { board_->pause(); }
    /// @}

    /// Effects: each port sends at most so many bytes a second, from now on; 0: as many as go. Requires: 0, or 1000 or more. Any
    /// thread.
    void limit(std::uint64_t bytes_per_second) noexcept { board_->set_rate(bytes_per_second); }

    /// Returns: a QP in RESET. invalid_argument (depths), no_memory, or what the port says.
    VCCL_COLD result<qp> create_qp(port_type& port, const ring_limits& limits) noexcept;

    /// Effects: the kernel knows the present state of all ports that were opened. Returns: whether there are any.
    bool progress() noexcept {
        const scoped_lock lock(mutex_);
        for (watched& w : ports_) {
            const auto a = w.port.query();
            board_->set_port(w.index, a && a->state == port_state::active);
        }
        return !ports_.empty();
    }

private:
    /// A second handle of the port, for this purpose only: a port object is one thread's.
    struct watched {
        typename Backend::port port;
        unsigned index;
    };
    explicit gpu_nic(owned<board> b) noexcept : board_(std::move(b)) {}

    VCCL_COLD result<port_type> open_port(Backend& beneath, const port_name& name) noexcept {
        auto port = beneath.open(name);
        if (!port) return port.error();
        auto second = beneath.open(name);
        if (!second) return second.error();
        auto index = board_->add_port();
        if (!index) return index.error();
        const scoped_lock lock(mutex_);
        try {
            ports_.push_back({std::move(*second), *index});
        } catch (const std::bad_alloc&) { return errc::no_memory; }
        port_type made(std::move(*port), *board_, *index);
        (void)made.query();
        return made;
    }

    owned<board> board_;
    mutex mutex_;
    std::vector<watched> ports_;
};

/// What endpoints that use this NIC are made over: `Backend`, known to the NIC.
template <verbs_backend Backend, class Rings>
class gpu_nic<Backend, Rings>::backend {
public:
    using policy_axis = axis::verbs;
    using port = port_type;  ///< ports whose queue pairs this NIC consumes
    /// Those of the backend beneath, but for dma-buf and manual time.
    static constexpr backend_capabilities capabilities{.dmabuf = false,
                                                       .manual_time = false,
                                                       .loopback = Backend::capabilities.loopback,
                                                       .atomics = Backend::capabilities.atomics};

    /// Both as they are; the NIC must outlive it.
    backend(gpu_nic& nic, Backend beneath) noexcept : nic_(&nic), beneath_(std::move(beneath)) {}
    /// As the backend beneath, whose ports the NIC gets to know by it.
    /// @{
    result<topology> discover() const { return beneath_.discover(); }
    VCCL_COLD result<port> open(const port_name& name) noexcept { return nic_->open_port(beneath_, name); }
    /// @}

private:
    gpu_nic* nic_;
    Backend beneath_;
};

/// A QP whose ring the kernel consumes; see `ring_qp`. Its peer must be a QP of a `backend` of the same NIC.
template <verbs_backend Backend, class Rings>
class gpu_nic<Backend, Rings>::qp {
    using plain_qp = typename port_type::qp;

public:
    qp() = default;
    qp(qp&&) noexcept = default;
    qp& operator=(qp&&) noexcept = default;

    /// As `ring_qp` asks. Each pauses the kernel or waits until it has let go of the queue; none on a data path.
    /// @{
    qpn number() const noexcept { return qpn{memory().qpn}; }
    ring memory() const noexcept { return parts_ ? parts_->memory.view() : ring{}; }
    /// The receive queue, for a `receive_poster`; no memory, if none was asked for.
    ring receives() const noexcept { return parts_ ? parts_->receives.view() : ring{}; }
    VCCL_COLD status to_reset() noexcept {
        if (!parts_) return errc::invalid_argument;
        if (status s = parts_->halt(queue_state::idle); !s) return s;
        const status s = parts_->plain->to_reset();
        if (s) parts_->renew();
        return s;
    }
    VCCL_COLD status to_init() noexcept { return parts_ ? parts_->plain->to_init() : gone(); }
    /// Errors also: not_found, the peer is not on this NIC.
    VCCL_COLD status to_ready_to_receive(const qp_peer& peer, const qp_timers& timers) noexcept {
        if (!parts_) return gone();
        auto end = parts_->on.find_end(peer.number.value);
        if (!end) return end.error();
        if (status s = parts_->plain->to_ready_to_receive(peer, timers); !s) return s;
        auto& entry = parts_->on.queue(parts_->queue);
        entry.peer = *end;
        entry.peer_qpn = peer.number.value;
        entry.rnr_retry = timers.rnr_retry;
        entry.retry_time = (std::uint64_t{4096} << (timers.timeout & 31)) * (timers.retry_count + 1u);
        return {};
    }
    VCCL_COLD status to_ready_to_send(psn first, const qp_timers& timers) noexcept {
        if (!parts_) return gone();
        const status s = parts_->plain->to_ready_to_send(first, timers);
        if (s) {
            parts_->on.next_generation(parts_->queue);
            parts_->on.set_state(parts_->queue, queue_state::running);
        }
        return s;
    }
    VCCL_COLD status to_error() noexcept {
        if (!parts_) return gone();
        const status s = parts_->plain->to_error();
        const status halted = parts_->halt(queue_state::error);
        return s ? halted : s;
    }
    result<qp_state> state() noexcept {
        if (!parts_) return gone();
        if (parts_->in_error()) return qp_state::error;
        return parts_->plain->state();
    }
    VCCL_COLD status destroy() noexcept {
        parts_.reset();
        return {};
    }
    /// @}

private:
    friend class gpu_nic;
    struct parts {
        board& on;
        late<typename port_type::cq> cq;
        late<plain_qp> plain;
        Rings memory, receives;
        unsigned queue{gpu_nic_detail::max_queues};

        explicit parts(board& b) noexcept : on(b) {}
        /// The kernel stands still while memory goes: CUDA's free waits for every kernel.
        VCCL_COLD ~parts() {
            if (queue != gpu_nic_detail::max_queues) {
                (void)halt(queue_state::idle);
                on.remove_queue(queue);
            }
            const paused meanwhile(on);
            plain.reset();
            memory = {};
            receives = {};
        }
        VCCL_COLD status halt(queue_state s) noexcept {
            on.set_state(queue, s);
            return on.grace();
        }
        VCCL_COLD void renew() noexcept {
            memory.clear();
            on.queue(queue).memory = memory.view();
            on.next_generation(queue);  // what ran in this place before is not looked at again
            if (receives.view().cq == nullptr) return;
            receives.clear();
            on.set_receives(plain->end(), receives.view());
        }
        bool in_error() const noexcept {
            const auto& e = on.queue(queue);
            return e.generation != 0 && e.state == queue_state::running &&
                   load<order::acquire, scope::system>(&on.report(queue).failed) == e.generation;
        }
    };
    struct paused {
        board& on;
        bool was;
        explicit paused(board& b) noexcept : on(b), was(b.running()) { on.pause(); }
        ~paused() {
            if (was) (void)on.run();
        }
    };
    explicit qp(owned<parts> p) noexcept : parts_(std::move(p)) {}
    static status gone() noexcept { return errc::invalid_argument; }

    owned<parts> parts_;
};

template <verbs_backend Backend, class Rings>
VCCL_COLD result<typename gpu_nic<Backend, Rings>::qp> gpu_nic<Backend, Rings>::create_qp(port_type& port,
                                                                                          const ring_limits& limits) noexcept {
    const typename qp::paused meanwhile(*board_);
    owned<typename qp::parts> p(new (std::nothrow) typename qp::parts(*board_));
    if (!p) return errc::no_memory;
    auto memory = Rings::make(*board_, limits.depth, limits.cq_depth != 0 ? limits.cq_depth : limits.depth);
    if (!memory) return memory.error();
    p->memory = std::move(*memory);
    if (limits.receive_depth != 0) {
        auto receives = Rings::make(*board_, limits.receive_depth, limits.receive_depth);
        if (!receives) return receives.error();
        p->receives = std::move(*receives);
    }
    auto cq = port.create_cq(4);
    if (!cq) return cq.error();
    p->cq.emplace(std::move(*cq));
    auto plain = port.create_qp(*p->cq, {.send_depth = 1, .recv_depth = 1, .inline_bytes = 0});
    if (!plain) return plain.error();
    p->plain.emplace(std::move(*plain));
    auto queue = board_->add_queue();
    if (!queue) return queue.error();
    p->queue = *queue;
    p->memory.view().qpn = p->plain->number().value;
    p->receives.view().qpn = p->memory.view().qpn;
    board_->set_state(*queue, queue_state::idle);
    board_->queue(*queue).port = port.index();
    board_->queue(*queue).end = p->plain->end();
    p->renew();
    return qp(std::move(p));
}

}  // namespace vccl::inline v0::device
