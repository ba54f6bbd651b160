#pragma once
/// \file
/// Rings that a ConnectX consumes: QPs made through rdma-core's direct verbs, their queues in memory that GPUs and CPU can use,
/// the doorbell register mapped for the poster. A `ring_source` on the ports of `verbs::ibv`; the ladder, the keys and the
/// control QPs stay verbs'. Link with libmlx5 (`vccl::mlx5dv`). Set-up calls for the owner's thread. Not run on hardware.

#include <vccl/device/mlx5dv/queues.hpp>
#include <vccl/device/ring_source.hpp>
#include <vccl/verbs/ibv.hpp>

#include <utility>

namespace vccl::inline v0 {

namespace axis {
struct rings;
}  // namespace axis

namespace device {

/// Memory for queues, and how a poster of this kind reaches a doorbell register: `mapped_posts` (mlx5dv_gpu.cuh) for kernels.
/// `map_doorbell` gets the register as the CPU has it mapped.
template <class P>
concept doorbell_poster = ring_memory_kind<P> && requires(void* reg) {
    { P::map_doorbell(reg) } noexcept -> std::same_as<result<std::uint64_t*>>;
    { P::unmap_doorbell(reg) } noexcept -> std::same_as<void>;
};

/// `Poster`: where the queues' memory lies, and how the poster reaches the register.
template <doorbell_poster Poster>
class mlx5dv_rings {
    struct parts;

public:
    using port_type = verbs::ibv_port;  ///< the rings' control queue pairs and keys are its
    class qp;

    /// Returns: a QP in RESET. `invalid_argument` (depths), `no_memory`; `unsupported` with a problem that
    /// `text(problem_of(status))` explains, or without one for a receive queue; what rdma-core says.
    VCCL_COLD result<qp> create_qp(port_type& port, const ring_limits& limits) noexcept {
        if (limits.receive_depth != 0) return errc::unsupported;
        const std::uint32_t entries = limits.cq_depth != 0 ? limits.cq_depth : limits.depth;
        if (limits.depth < 4 || limits.depth > 1u << max_ring_depth_log || entries > 1u << 22) return errc::invalid_argument;
        if (!mlx5dv_is_supported(port.native()->device)) return as_status(mlx5dv_problem::no_mlx5);
        owned<parts> p(new (std::nothrow) parts(port, std::bit_ceil(limits.depth), std::bit_ceil(entries)));
        if (!p) return errc::no_memory;
        if (status s = p->prepare(); !s) return s;
        if (status s = p->make(); !s) return s;
        return qp(std::move(p));
    }
};

/// What a QP of a ConnectX stands on. Members go in the opposite order.
template <doorbell_poster Poster>
struct mlx5dv_rings<Poster>::parts {
    parts(port_type& p, std::uint32_t slots, std::uint32_t entries) noexcept : port(p), depth(slots), cq_depth(entries) {}
    ~parts() {
        verbs_qp.reset();
        if (mapped != nullptr) Poster::unmap_doorbell(mapped);
    }

    VCCL_COLD status prepare() noexcept {
        ibv_td_init_attr attr{};
        td = mlx5dv_detail::thread_domain_ptr(ibv_alloc_td(port.native(), &attr));
        if (!td) return as_status(mlx5dv_problem::no_doorbell_page);
        auto for_qp = mlx5dv_detail::make_domain(port.native(), port.domain(), td.get(), qp_memory);
        if (!for_qp) return for_qp.error();
        qp_domain = std::move(*for_qp);
        auto for_cq = mlx5dv_detail::make_domain(port.native(), port.domain(), nullptr, cq_memory);
        if (!for_cq) return for_cq.error();
        cq_domain = std::move(*for_cq);
        return {};
    }
    /// Effects: new queues in the memory of the old ones. A CQ goes on counting through a RESET of its QP, and flush errors
    /// may still be on their way to it; so both are made anew.
    VCCL_COLD status make() noexcept {
        verbs_qp.reset();
        cq.reset();
        auto made_cq = mlx5dv_detail::make_cq(port.native(), cq_domain.get(), cq_depth);
        if (!made_cq) return made_cq.error();
        cq = std::move(*made_cq);
        auto made_qp = mlx5dv_detail::make_qp(port.native(), qp_domain.get(), cq.get(), depth);
        if (!made_qp) return made_qp.error();
        verbs_qp.emplace(port.adopt(*made_qp));
        auto found = mlx5dv_detail::find_layout(*made_qp, cq.get(), depth, cq_depth);
        if (!found) return found.error();
        if (mapped != found->doorbell) {
            if (mapped != nullptr) Poster::unmap_doorbell(mapped);
            mapped = nullptr;
            auto doorbell = Poster::map_doorbell(found->doorbell);
            if (!doorbell) return doorbell.error();
            mapped = found->doorbell;
            reached = *doorbell;
        }
        view = found->view;
        view.doorbell = reached;
        for (std::uint32_t i = 0; i < view.cq_depth(); ++i) view.cq[i] = empty_cqe();
        return {};
    }

    port_type& port;
    std::uint32_t depth, cq_depth;
    mlx5dv_detail::queue_memory<Poster> qp_memory, cq_memory;
    mlx5dv_detail::thread_domain_ptr td;
    mlx5dv_detail::domain_ptr qp_domain, cq_domain;
    mlx5dv_detail::cq_ptr cq;
    late<port_type::qp> verbs_qp;
    void* mapped{};            ///< the doorbell register, as the CPU sees it
    std::uint64_t* reached{};  ///< the same, as the poster does
    ring view{};
};

/// A QP whose send queue a ConnectX reads; see `ring_qp`. Must go before its port.
template <doorbell_poster Poster>
class mlx5dv_rings<Poster>::qp {
public:
    qp() = default;

    /// As `ring_qp` asks; what rdma-core refuses comes back as the status that verbs::ibv would give.
    /// @{
    qpn number() const noexcept { return qpn{memory().qpn}; }
    ring memory() const noexcept { return parts_ ? parts_->view : ring{}; }
    VCCL_COLD status to_reset() noexcept { return parts_ ? parts_->make() : gone(); }
    VCCL_COLD status to_init() noexcept { return alive() ? parts_->verbs_qp->to_init() : gone(); }
    VCCL_COLD status to_ready_to_receive(const qp_peer& peer, const qp_timers& timers) noexcept {
        return alive() ? parts_->verbs_qp->to_ready_to_receive(peer, timers) : gone();
    }
    VCCL_COLD status to_ready_to_send(psn first, const qp_timers& timers) noexcept {
        return alive() ? parts_->verbs_qp->to_ready_to_send(first, timers) : gone();
    }
    VCCL_COLD status to_error() noexcept { return alive() ? parts_->verbs_qp->to_error() : gone(); }
    VCCL_COLD result<qp_state> state() noexcept {
        if (!alive()) return gone();
        return parts_->verbs_qp->state();
    }
    VCCL_COLD status destroy() noexcept {
        if (!alive()) return {};
        const status s = parts_->verbs_qp->destroy();
        parts_.reset();
        return s;
    }
    /// @}

private:
    friend class mlx5dv_rings;
    explicit qp(owned<parts> p) noexcept : parts_(std::move(p)) {}
    bool alive() const noexcept { return parts_ && parts_->verbs_qp; }
    static status gone() noexcept { return errc::invalid_argument; }

    owned<parts> parts_;
};

/// As a policy of device endpoints: rings of a ConnectX.
template <doorbell_poster Poster>
struct connectx_rings {
    using policy_axis = axis::rings;
    using source = mlx5dv_rings<Poster>;  ///< what device endpoints ask for queue pairs with rings
};

}  // namespace device

}  // namespace vccl::inline v0
