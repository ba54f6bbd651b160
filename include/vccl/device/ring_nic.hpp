#pragma once
/// \file
/// A software NIC that consumes mlx5 rings and carries them out over any verbs backend: the same fabric, ports, rates and
/// faults as everything else. It validates strictly and answers as hardware does: a CQE with a syndrome for the first bad WQE,
/// ERR, flush errors for the rest; nothing that a ring holds makes it touch memory outside registered regions.
///
/// Threads: every call takes the NIC's lock, so any thread may make it. Work is done by `progress()`: call it, or give
/// `passenger()` to a `proxy`, whose thread then does. The poster is on a thread (or GPU) of its own; it shares only the ring.

#include <vccl/base/clock.hpp>
#include <vccl/base/mutex.hpp>
#include <vccl/device/ring_nic/engine.hpp>
#include <vccl/host/proxy.hpp>

#include <atomic>
#include <utility>
#include <vector>

namespace vccl::inline v0::device {

/// One serves any number of queue pairs and ports of a backend; it must outlive them.
template <verbs_backend Backend, ring_memory_kind Memory = heap_memory, clock_source Clock = steady_clock>
class ring_nic {
    using engine = ring_nic_detail::engine<typename Backend::port, Memory>;

public:
    using port_type = typename Backend::port;  ///< of the backend beneath
    class qp;

    /// `clock`: what time-outs and rates are measured by.
    explicit ring_nic(Clock clock = {}) noexcept : clock_(clock) {}
    ring_nic(const ring_nic&) = delete;
    ring_nic& operator=(const ring_nic&) = delete;

    /// Returns: `invalid_argument` (depths), `no_memory`, `unsupported` if the port inlines less than a WQE may carry and for a
    /// receive queue, or what the port says.
    VCCL_COLD result<qp> create_qp(port_type& port, const ring_limits& limits) noexcept {
        owned<engine> made(new (std::nothrow) engine);
        if (!made) return errc::no_memory;
        if (status s = made->create(port, limits); !s) return s;
        const scoped_lock lock(mutex_);
        try {
            engines_.push_back(made.get());
        } catch (const std::bad_alloc&) { return errc::no_memory; }
        return qp(*this, std::move(made));
    }

    /// Effects: one pass over all rings, or, as soon as other calls wait for the lock, over one at least; the next pass goes on
    /// there. Returns: whether anything moved.
    bool progress() noexcept {
        const scoped_lock lock(mutex_);
        const nanoseconds now = clock_.now();
        bool moved = false;
        for (std::size_t left = engines_.size(); left != 0; left = mutex_.awaited() ? 0 : left - 1) {
            if (next_ >= engines_.size()) next_ = 0;
            moved |= engines_[next_++]->pass(now);
        }
        return moved;
    }
    /// For `proxy::attach`. Detach before the NIC goes. Posters call nobody, so an idle NIC may be looked at some turns late.
    proxy::passenger passenger() noexcept {
        return {this, [](void* self) noexcept { return static_cast<ring_nic*>(self)->progress(); }, &called_};
    }

private:
    passing_mutex mutex_;
    std::vector<engine*> engines_;
    std::size_t next_{};  // of engines_, where the next pass goes on
    std::atomic<bool> called_{};  // the proxy's; nobody else has a reason to write it
    Clock clock_;
};

/// A QP whose send queue is a ring; see `ring_qp`. Must go before its NIC and its port.
template <verbs_backend Backend, ring_memory_kind Memory, clock_source Clock>
class ring_nic<Backend, Memory, Clock>::qp {
public:
    qp() = default;
    qp(qp&&) noexcept = default;
    /// Swaps: what was owned before goes with `o`.
    qp& operator=(qp&& o) noexcept {
        std::swap(nic_, o.nic_);
        std::swap(engine_, o.engine_);
        return *this;
    }
    ~qp() { (void)destroy(); }

    /// As `ring_qp` asks; each takes the NIC's lock, none waits for the poster.
    /// @{
    qpn number() const noexcept { return qpn{memory().qpn}; }
    ring memory() const noexcept { return engine_ ? engine_->view() : ring{}; }

    status to_reset() noexcept {
        return with([](engine& e, nanoseconds) { return e.reset(); });
    }
    status to_init() noexcept {
        return with([](engine& e, nanoseconds) { return e.qp().to_init(); });
    }
    status to_ready_to_receive(const qp_peer& peer, const qp_timers& timers) noexcept {
        return with([&](engine& e, nanoseconds) { return e.qp().to_ready_to_receive(peer, timers); });
    }
    status to_ready_to_send(psn first, const qp_timers& timers) noexcept {
        return with([&](engine& e, nanoseconds) {
            const status s = e.qp().to_ready_to_send(first, timers);
            if (s) e.run();
            return s;
        });
    }
    status to_error() noexcept {
        return with([](engine& e, nanoseconds now) { return e.fail(now); });
    }
    result<qp_state> state() noexcept {
        if (!engine_) return errc::invalid_argument;
        const scoped_lock lock(nic_->mutex_);
        return engine_->qp().state();
    }
    status destroy() noexcept {
        if (!engine_) return {};
        const scoped_lock lock(nic_->mutex_);
        std::erase(nic_->engines_, engine_.get());
        const status s = engine_->qp().destroy();
        engine_.reset();
        return s;
    }
    /// @}

    /// Has a CQE found the completion queue full? It is lost then, and its QP with it, until `to_reset`.
    bool overrun() const noexcept {
        if (!engine_) return false;
        const scoped_lock lock(nic_->mutex_);
        return engine_->overrun();
    }
    /// Effects: the faults take effect from now on, in place of earlier ones.
    status inject(const ring_faults& f) noexcept {
        return with([&](engine& e, nanoseconds) {
            e.inject(f);
            return status{};
        });
    }
    /// Effects: the next slot and the next CQE are these, as if so many had gone before. For tests of wrapping counters; before
    /// RTS, while nobody posts or polls.
    status start_at(std::uint64_t index, std::uint64_t entry) noexcept {
        return with([=](engine& e, nanoseconds) {
            e.start_at(index, entry);
            return status{};
        });
    }

private:
    friend class ring_nic;
    qp(ring_nic& nic, owned<engine> e) noexcept : nic_(&nic), engine_(std::move(e)) {}

    template <class F>
    status with(F&& f) noexcept {
        if (!engine_) return errc::invalid_argument;
        const scoped_lock lock(nic_->mutex_);
        return f(*engine_, nic_->clock_.now());
    }

    ring_nic* nic_{};
    owned<engine> engine_;
};

}  // namespace vccl::inline v0::device
