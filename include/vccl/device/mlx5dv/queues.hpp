#pragma once
/// \file
/// The verbs objects behind one ring of a ConnectX: a completion queue and a QP whose buffers lie in memory of our choice, and a
/// doorbell page that no other QP uses. Owners; set-up calls, one thread at a time. Not run on hardware.
/// Source: rdma-core, mlx5dv.h, mlx5dv_create_qp(3), mlx5dv_init_obj(3), ibv_alloc_parent_domain(3).

#include <vccl/base/owned.hpp>
#include <vccl/device/mlx5dv/problem.hpp>
#include <vccl/device/ring_memory.hpp>
#include <vccl/verbs/ibv/port.hpp>

#include <infiniband/mlx5dv.h>

#include <cerrno>

namespace vccl::inline v0::device::mlx5dv_detail {

/// What rdma-core asks of a parent domain for one queue: its buffer, and its doorbell record. Kept when the queue goes, for the
/// next one: kernels know the addresses.
template <ring_memory_kind Memory>
class queue_memory {
public:
    queue_memory() = default;
    queue_memory(const queue_memory&) = delete;
    queue_memory& operator=(const queue_memory&) = delete;
    ~queue_memory() {
        for (block& b : blocks_)
            if (b.at != nullptr) Memory::free(b.at);
    }

    static void* allocate(ibv_pd*, void* self, std::size_t bytes, std::size_t alignment, std::uint64_t what) noexcept {
        if (alignment > 4096) return nullptr;
        block& b = static_cast<queue_memory*>(self)->blocks_[what == MLX5DV_RES_TYPE_DBR ? 1 : 0];
        if (b.at == nullptr) b = {Memory::allocate(bytes), bytes};
        return bytes <= b.bytes ? b.at : nullptr;
    }
    static void free(ibv_pd*, void*, void*, std::uint64_t) noexcept {}

private:
    struct block {
        void* at{};
        std::size_t bytes{};
    };
    block blocks_[2];
};

struct free_thread_domain {
    void operator()(ibv_td* td) const noexcept { ibv_dealloc_td(td); }
};
struct free_domain {
    void operator()(ibv_pd* pd) const noexcept { ibv_dealloc_pd(pd); }
};
struct free_cq {
    void operator()(ibv_cq* cq) const noexcept { ibv_destroy_cq(cq); }
};
using thread_domain_ptr = owned<ibv_td, free_thread_domain>;
using domain_ptr = owned<ibv_pd, free_domain>;
using cq_ptr = owned<ibv_cq, free_cq>;

/// A domain whose queues lie in `memory`; with the doorbell page of `td`, if there is one.
template <class Memory>
VCCL_COLD result<domain_ptr> make_domain(ibv_context* context, ibv_pd* pd, ibv_td* td, queue_memory<Memory>& memory) noexcept {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.td = td;
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = &queue_memory<Memory>::allocate;
    attr.free = &queue_memory<Memory>::free;
    attr.pd_context = &memory;
    ibv_pd* const made = ibv_alloc_parent_domain(context, &attr);
    if (made == nullptr) return as_status(mlx5dv_problem::no_own_memory);
    return domain_ptr{made};
}

/// 64-byte CQEs, not compressed, not collapsed.
VCCL_COLD inline result<cq_ptr> make_cq(ibv_context* context, ibv_pd* domain, std::uint32_t depth) noexcept {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = depth - 1;  // rdma-core rounds up one more than this
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = domain;
    mlx5dv_cq_init_attr more{};
    more.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    more.cqe_size = sizeof(cqe64);
    errno = 0;
    ibv_cq_ex* const made = mlx5dv_create_cq(context, &attr, &more);
    if (made == nullptr) return verbs::ibv_detail::from_errno(errno);
    return cq_ptr{ibv_cq_ex_to_cq(made)};
}

/// An RC QP for one-sided operations: with only those asked for, a WQE takes one slot, and the queue has `depth` of them.
/// What a READ brings goes to memory, never into a CQE.
VCCL_COLD inline result<ibv_qp*> make_qp(ibv_context* context, ibv_pd* domain, ibv_cq* cq, std::uint32_t depth) noexcept {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = cq;
    attr.recv_cq = cq;
    attr.cap.max_send_wr = depth;
    attr.cap.max_recv_wr = 1;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = domain;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                          IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    mlx5dv_qp_init_attr more{};
    more.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    more.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
    errno = 0;
    ibv_qp* const made = mlx5dv_create_qp(context, &attr, &more);
    if (made == nullptr) return verbs::ibv_detail::from_errno(errno);
    return made;
}

/// Where the queues lie, and the doorbell register as the CPU sees it.
struct layout {
    ring view{};
    void* doorbell{};
};
VCCL_COLD inline result<layout> find_layout(ibv_qp* qp, ibv_cq* cq, std::uint32_t depth, std::uint32_t cq_depth) noexcept {
    mlx5dv_qp q{};
    mlx5dv_cq c{};
    mlx5dv_obj both{};
    both.qp.in = qp;
    both.qp.out = &q;
    both.cq.in = cq;
    both.cq.out = &c;
    if (const int rc = mlx5dv_init_obj(&both, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ); rc != 0) return verbs::ibv_detail::from_return(rc);
    if (q.sq.wqe_cnt != depth || q.sq.stride != sizeof(wqe_block) || c.cqe_cnt != cq_depth || c.cqe_size != sizeof(cqe64))
        return as_status(mlx5dv_problem::strange_layout);
    layout found;
    found.view.wq = static_cast<wqe_block*>(q.sq.buf);
    found.view.depth_log = static_cast<std::uint32_t>(std::countr_zero(depth));
    found.view.doorbell_record = reinterpret_cast<std::uint32_t*>(q.dbrec);
    found.view.cq = static_cast<cqe64*>(c.buf);
    found.view.cq_depth_log = static_cast<std::uint32_t>(std::countr_zero(cq_depth));
    found.view.cq_record = reinterpret_cast<std::uint32_t*>(c.dbrec);
    found.view.qpn = qp->qp_num;
    found.doorbell = q.bf.reg;
    return found;
}

}  // namespace vccl::inline v0::device::mlx5dv_detail
