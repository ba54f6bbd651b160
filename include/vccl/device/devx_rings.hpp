#pragma once
/// \file
/// Rings of a ConnectX in memory that the CPU does not reach, a GPU's: QP and CQ are made by DevX commands over memory that the
/// device got by dma-buf or peer mapping, and the poster rings a doorbell page of their own. A `ring_source` on the ports of
/// `verbs::ibv`; for endpoints whose space is `gpu_ring_space`. Link with libmlx5 (`vccl::mlx5dv`). Set-up calls for the owner's
/// thread. Not run on hardware.

#include <vccl/device/mlx5dv/devx.hpp>
#include <vccl/device/mlx5dv_rings.hpp>
#include <vccl/device/ring_image.hpp>

#include <unistd.h>

namespace vccl::inline v0::device {

/// Memory for queues, and how it is filled and shown to a device; `gpu_posts` (mlx5dv_gpu.cuh) for kernels. `share` may give no
/// dma-buf; what it gives is closed by who asked. `copy_in` says whether the bytes are there.
template <class P>
concept devx_poster = doorbell_poster<P> && requires(void* to, const void* from, std::size_t bytes) {
    { P::share(to, bytes) } noexcept -> std::same_as<dmabuf_range>;
    { P::copy_in(to, from, bytes) } noexcept -> std::same_as<bool>;
};

/// `Poster`: where the queues lie, and how the poster reaches the register. `Device`: `mlx5dv_devx`, or a test's.
template <devx_poster Poster, mlx5dv_detail::devx_device Device = mlx5dv_detail::mlx5dv_devx>
class devx_rings {
    struct parts;

public:
    using port_type = typename Device::port_type;  ///< the rings' control queue pairs and keys are its
    class qp;

    /// Returns: a QP in RESET, of 64 slots and 64 CQEs at least. `invalid_argument` (depths), `no_memory`; `unsupported` with a
    /// problem that `text(problem_of(status))` explains, or without one for a receive queue; what rdma-core says.
    VCCL_COLD result<qp> create_qp(port_type& port, const ring_limits& limits) noexcept {
        if (limits.receive_depth != 0) return errc::unsupported;
        if (limits.depth < 4) return errc::invalid_argument;
        const std::uint32_t entries = limits.cq_depth != 0 ? limits.cq_depth : limits.depth;
        auto image = ring_image::make(limits.depth < least ? least : limits.depth, entries < least ? least : entries);
        if (!image) return image.error();
        owned<parts> p(new (std::nothrow) parts(port, std::move(*image)));
        if (!p) return errc::no_memory;
        if (status s = p->prepare(); !s) return s;
        if (status s = p->make(); !s) return s;
        return qp(std::move(p));
    }

private:
    static constexpr std::uint32_t page = 4096, least = page / sizeof(wqe_block);  ///< a queue begins on a page
};

/// What a QP stands on. What was made goes in the opposite order.
template <devx_poster Poster, mlx5dv_detail::devx_device Device>
struct devx_rings<Poster, Device>::parts {
    parts(port_type& p, ring_image i) noexcept : device(p), image(std::move(i)) {}
    parts(const parts&) = delete;
    VCCL_COLD ~parts() {
        drop_queues();
        if (reached != nullptr) Poster::unmap_doorbell(doorbell.reg);
        if (doorbell.handle != nullptr) device.release(doorbell);
        if (known.handle != nullptr) device.release(known);
        if (memory != nullptr) Poster::free(memory);
    }

    VCCL_COLD status prepare() noexcept {
        const auto described = device.describe();
        if (!described) return described.error();
        about = *described;
        const std::size_t record_pair = 2 * sizeof(std::uint32_t), bytes = (image.bytes() + record_pair + page - 1) / page * page;
        memory = Poster::allocate(bytes);
        if (memory == nullptr) return errc::no_memory;
        const dmabuf_range shared = Poster::share(memory, bytes);
        const auto registered = device.register_memory(memory, bytes, shared);
        if (shared.fd >= 0) (void)::close(shared.fd);  // the device holds on to the memory by itself
        if (!registered) return registered.error();
        known = *registered;
        const auto allocated = device.allocate_page();
        if (!allocated) return allocated.error();
        doorbell = *allocated;
        const auto mapped = Poster::map_doorbell(doorbell.reg);
        if (!mapped) return mapped.error();
        reached = *mapped;
        return {};
    }
    /// Effects: new queues in the memory of the old ones, as a QP that was reset would have: see mlx5dv_rings.
    VCCL_COLD status make() noexcept {
        drop_queues();
        if (!Poster::copy_in(memory, image.data(), image.bytes())) return errc::no_memory;
        const ring& local = image.local();
        const auto place_of = [&](const void* part) { return mlx5dv_detail::prm::place{known.number, image.offset_of(part)}; };
        mlx5dv_detail::prm::create_message answer;
        const auto for_cq = mlx5dv_detail::prm::create_cq(
            {place_of(local.cq), place_of(local.cq_record), local.cq_depth_log, doorbell.number, about.event_queue});
        const auto made_cq = device.create(for_cq.data(), for_cq.size(), answer.data(), short_answer);
        if (!made_cq) return made_cq.error();
        cq = *made_cq;
        const auto for_qp =
            mlx5dv_detail::prm::create_qp({place_of(local.wq), place_of(local.doorbell_record), local.depth_log, doorbell.number,
                                           about.domain, answer.get(mlx5dv_detail::prm::object)});
        const auto made_qp = device.create(for_qp.data(), for_qp.size(), answer.data(), short_answer);
        if (!made_qp) return made_qp.error();
        queue_pair = *made_qp;
        view = image.at(memory);
        view.doorbell = reached;
        view.qpn = answer.get(mlx5dv_detail::prm::object);
        return {};
    }
    VCCL_COLD void drop_queues() noexcept {
        if (queue_pair != nullptr) device.destroy(std::exchange(queue_pair, nullptr));
        if (cq != nullptr) device.destroy(std::exchange(cq, nullptr));
        view = {};
    }
    template <class Message>
    VCCL_COLD status change(const Message& m) noexcept {
        return queue_pair != nullptr ? device.change(queue_pair, m.data(), m.size()) : status{errc::invalid_argument};
    }
    mlx5dv_detail::prm::origin origin() const noexcept {
        return {view.qpn, about.port, about.pkey_index, about.atomics, about.log_reads};
    }

    static constexpr std::size_t short_answer = mlx5dv_detail::prm::short_message::size();
    Device device;
    ring_image image;
    mlx5dv_detail::devx_port about{};
    void* memory{};
    mlx5dv_detail::devx_memory known{};
    mlx5dv_detail::devx_page doorbell{};
    std::uint64_t* reached{};  ///< the doorbell register, as the poster sees it
    void* cq{};
    void* queue_pair{};
    ring view{};
};

/// A QP whose send queue a ConnectX reads; see `ring_qp`. Must go before its port.
template <devx_poster Poster, mlx5dv_detail::devx_device Device>
class devx_rings<Poster, Device>::qp {
public:
    qp() = default;

    /// As `ring_qp` asks. Errors: `command_refused`, or what rdma-core says; `port_down` when the port has no address.
    /// @{
    qpn number() const noexcept { return qpn{memory().qpn}; }
    ring memory() const noexcept { return parts_ ? parts_->view : ring{}; }
    VCCL_COLD status to_reset() noexcept { return parts_ ? parts_->make() : gone(); }
    VCCL_COLD status to_init() noexcept {
        return parts_ ? parts_->change(mlx5dv_detail::prm::to_init(parts_->origin())) : gone();
    }
    VCCL_COLD status to_ready_to_receive(const qp_peer& peer, const qp_timers& timers) noexcept {
        if (!parts_) return gone();
        const auto route = parts_->device.find_route(peer);
        if (!route) return route.error();
        return parts_->change(mlx5dv_detail::prm::to_ready_to_receive(parts_->origin(), *route, peer, timers));
    }
    VCCL_COLD status to_ready_to_send(psn first, const qp_timers& timers) noexcept {
        return parts_ ? parts_->change(mlx5dv_detail::prm::to_ready_to_send(parts_->origin(), first, timers)) : gone();
    }
    VCCL_COLD status to_error() noexcept {
        return parts_ ? parts_->change(mlx5dv_detail::prm::to_error(parts_->view.qpn)) : gone();
    }
    VCCL_COLD result<qp_state> state() noexcept {
        if (!parts_ || parts_->queue_pair == nullptr) return gone();
        const auto question = mlx5dv_detail::prm::query_qp(parts_->view.qpn);
        mlx5dv_detail::prm::query_answer answer;
        const status s = parts_->device.query(parts_->queue_pair, question.data(), question.size(), answer.data(), answer.size());
        if (!s) return s;
        return mlx5dv_detail::prm::state_in(answer);
    }
    VCCL_COLD status destroy() noexcept {
        parts_.reset();
        return {};
    }
    /// @}

private:
    friend class devx_rings;
    explicit qp(owned<parts> p) noexcept : parts_(std::move(p)) {}
    static status gone() noexcept { return errc::invalid_argument; }

    owned<parts> parts_;
};

/// As a policy of device endpoints: rings of a ConnectX in a GPU's memory.
template <devx_poster Poster>
struct connectx_gpu_rings {
    using policy_axis = axis::rings;
    using source = devx_rings<Poster>;  ///< what device endpoints ask for queue pairs with rings
};

}  // namespace vccl::inline v0::device
