#pragma once
/// \file
/// DevX of rdma-core, as far as queues in memory of one's own need it: memory and doorbell pages that the device knows, and
/// commands to its firmware. `mlx5dv_devx` is the real one; a test has its own. Set-up calls, one thread at a time. Not run on
/// hardware.
/// Source: rdma-core, mlx5dv.h, mlx5dv_devx_*(3), mlx5dv_init_obj(3).

#include <vccl/base/owned.hpp>
#include <vccl/device/mlx5dv/command.hpp>
#include <vccl/device/mlx5dv/problem.hpp>
#include <vccl/verbs/ibv/port.hpp>

#include <infiniband/mlx5dv.h>

#include <bit>
#include <cerrno>
#include <concepts>

namespace vccl::inline v0::device {

/// Where memory lies in a dma-buf.
struct dmabuf_range {
    int fd{-1};              ///< the dma-buf; -1: there is none
    std::uint64_t offset{};  ///< in it, in bytes
};

namespace mlx5dv_detail {

/// Memory that the device knows.
struct devx_memory {
    void* handle{};
    std::uint32_t number{};
};
/// A doorbell page, and the register in it, as the CPU has it mapped.
struct devx_page {
    void* handle{};
    std::uint32_t number{};
    void* reg{};
};
/// What commands about QPs of a port need to know.
struct devx_port {
    std::uint32_t domain{};       ///< the protection domain's number
    std::uint32_t event_queue{};
    std::uint8_t port{1};
    std::uint16_t pkey_index{};
    bool atomics{};
    std::uint8_t log_reads{};
};

/// Each call that makes something has one that ends it. Statuses are those of mlx5dv_problem, or what rdma-core says.
template <class D>
concept devx_device = requires(D d, void* p, const void* in, std::size_t n, const dmabuf_range& exported, const devx_memory& m,
                               const devx_page& page, const qp_peer& peer) {
    { d.describe() } noexcept -> std::same_as<result<devx_port>>;
    { d.register_memory(p, n, exported) } noexcept -> std::same_as<result<devx_memory>>;
    { d.release(m) } noexcept -> std::same_as<void>;
    { d.allocate_page() } noexcept -> std::same_as<result<devx_page>>;
    { d.release(page) } noexcept -> std::same_as<void>;
    { d.create(in, n, p, n) } noexcept -> std::same_as<result<void*>>;
    { d.change(p, in, n) } noexcept -> std::same_as<status>;
    { d.query(p, in, n, p, n) } noexcept -> std::same_as<status>;
    { d.destroy(p) } noexcept -> std::same_as<void>;
    { d.find_route(peer) } noexcept -> std::same_as<result<prm::route>>;
};

/// The device behind a port of `verbs::ibv`.
class mlx5dv_devx {
public:
    using port_type = verbs::ibv_port;

    explicit mlx5dv_devx(port_type& port) noexcept : port_(&port) {}

    VCCL_COLD result<devx_port> describe() noexcept {
        if (!mlx5dv_is_supported(context()->device)) return as_status(mlx5dv_problem::no_mlx5);
        devx_port d;
        if (mlx5dv_devx_query_eqn(context(), 0, &d.event_queue) != 0) return as_status(mlx5dv_problem::no_devx);
        mlx5dv_pd found{};
        mlx5dv_obj what{};
        what.pd.in = port_->domain();
        what.pd.out = &found;
        if (const int rc = mlx5dv_init_obj(&what, MLX5DV_OBJ_PD); rc != 0) return verbs::ibv_detail::from_return(rc);
        const verbs::ibv_qp_origin& o = port_->origin();
        d.domain = found.pdn;
        d.port = o.port;
        d.pkey_index = o.path.pkey_index;
        d.atomics = o.atomics;
        d.log_reads = static_cast<std::uint8_t>(std::bit_width(o.read_depth) - (o.read_depth != 0));
        return d;
    }
    /// By dma-buf, if there is one; else by address, which works for host memory, and for a GPU's under nvidia-peermem.
    VCCL_COLD result<devx_memory> register_memory(void* at, std::size_t bytes, const dmabuf_range& exported) noexcept {
        mlx5dv_devx_umem* made = nullptr;
        if (exported.fd >= 0) {
            mlx5dv_devx_umem_in in{};
            in.addr = reinterpret_cast<void*>(exported.offset);
            in.size = bytes;
            in.access = IBV_ACCESS_LOCAL_WRITE;
            in.pgsz_bitmap = ~std::uint64_t{4095};
            in.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
            in.dmabuf_fd = exported.fd;
            made = mlx5dv_devx_umem_reg_ex(context(), &in);
        }
        if (made == nullptr) made = mlx5dv_devx_umem_reg(context(), at, bytes, IBV_ACCESS_LOCAL_WRITE);
        if (made == nullptr) return as_status(mlx5dv_problem::no_gpu_memory, static_cast<std::uint32_t>(errno));
        return devx_memory{made, made->umem_id};
    }
    VCCL_COLD void release(const devx_memory& m) noexcept {
        (void)mlx5dv_devx_umem_dereg(static_cast<mlx5dv_devx_umem*>(m.handle));
    }
    VCCL_COLD result<devx_page> allocate_page() noexcept {
        mlx5dv_devx_uar* made = mlx5dv_devx_alloc_uar(context(), MLX5DV_UAR_ALLOC_TYPE_NC);
        if (made == nullptr) made = mlx5dv_devx_alloc_uar(context(), MLX5DV_UAR_ALLOC_TYPE_BF);  // older kernels have no other
        if (made == nullptr) return as_status(mlx5dv_problem::no_doorbell_page);
        return devx_page{made, made->page_id, made->reg_addr};
    }
    VCCL_COLD void release(const devx_page& p) noexcept { mlx5dv_devx_free_uar(static_cast<mlx5dv_devx_uar*>(p.handle)); }

    /// Returns: the object; `command_refused` with the firmware's syndrome, which the answer holds.
    VCCL_COLD result<void*> create(const void* in, std::size_t bytes, void* out, std::size_t room) noexcept {
        void* const made = mlx5dv_devx_obj_create(context(), in, bytes, out, room);
        if (made == nullptr) return refused(out);
        return made;
    }
    VCCL_COLD status change(void* object, const void* in, std::size_t bytes) noexcept {
        prm::short_message out;
        if (mlx5dv_devx_obj_modify(of(object), in, bytes, out.data(), out.size()) != 0) return refused(out.data());
        return {};
    }
    VCCL_COLD status query(void* object, const void* in, std::size_t bytes, void* out, std::size_t room) noexcept {
        if (mlx5dv_devx_obj_query(of(object), in, bytes, out, room) != 0) return refused(out);
        return {};
    }
    VCCL_COLD void destroy(void* object) noexcept { (void)mlx5dv_devx_obj_destroy(of(object)); }

    /// The kernel resolves the peer's Ethernet address, which may take it as long as the peer does not answer; the QPs of the
    /// lane itself have found it before.
    VCCL_COLD result<prm::route> find_route(const qp_peer& peer) noexcept {
        const auto local = port_->query();
        if (!local) return local.error();
        const auto mtu = verbs::ibv_detail::mtu_of(peer.mtu);
        if (!mtu) return mtu.error();
        const verbs::ibv_qp_origin& o = port_->origin();
        prm::route r;
        r.ethernet = local->link == link_layer::ethernet;
        r.global = r.ethernet || peer.lid == 0;
        r.remote = peer.address;
        r.lid = peer.lid;
        r.gid_index = static_cast<std::uint8_t>(local->gid_index);
        r.hop_limit = o.path.hop_limit;
        r.traffic_class = o.path.traffic_class;
        r.service_level = o.path.service_level;
        r.mtu_code = static_cast<std::uint32_t>(*mtu);
        if (r.global && local->address == gid{}) return status{errc::port_down, o.port};
        if (!r.ethernet) return r;
        if (const status s = find_mac(r, o.port); !s) return s;
        return r;
    }

private:
    struct free_handle {
        void operator()(ibv_ah* ah) const noexcept { (void)ibv_destroy_ah(ah); }
    };
    ibv_context* context() const noexcept { return port_->native(); }
    static mlx5dv_devx_obj* of(void* object) noexcept { return static_cast<mlx5dv_devx_obj*>(object); }
    /// Every answer begins with a status and a syndrome of the firmware's.
    VCCL_COLD static status refused(const void* out) noexcept {
        prm::message<8> head;
        std::memcpy(head.data(), out, head.size());
        if (head.get(prm::answer_status) == 0) return verbs::ibv_detail::from_errno(errno);
        return as_status(mlx5dv_problem::command_refused, head.get(prm::answer_syndrome));
    }
    VCCL_COLD status find_mac(prm::route& r, std::uint8_t port) noexcept {
        ibv_ah_attr attr{};
        attr.port_num = port;
        attr.is_global = 1;
        attr.grh.sgid_index = r.gid_index;
        attr.grh.hop_limit = r.hop_limit;
        std::memcpy(attr.grh.dgid.raw, r.remote.raw, sizeof r.remote.raw);
        errno = 0;
        const owned<ibv_ah, free_handle> handle{ibv_create_ah(port_->domain(), &attr)};
        if (!handle) return verbs::ibv_detail::from_errno(errno);
        mlx5dv_ah found{};
        mlx5dv_obj what{};
        what.ah.in = handle.get();
        what.ah.out = &found;
        if (const int rc = mlx5dv_init_obj(&what, MLX5DV_OBJ_AH); rc != 0) return verbs::ibv_detail::from_return(rc);
        std::memcpy(r.mac, found.av->rmac, sizeof r.mac);
        return {};
    }

    port_type* port_;
};
static_assert(devx_device<mlx5dv_devx>);

}  // namespace mlx5dv_detail

}  // namespace vccl::inline v0::device
