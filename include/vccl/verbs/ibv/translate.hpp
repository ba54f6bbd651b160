#pragma once
/// \file
/// Our values in libibverbs' structures and back, field by field, where the caller has them. Called by `qp::post` and
/// `cq::poll` on the data path: no allocation, and a structure is not cleared before it is filled.
/// Source: infiniband/verbs.h.

#include <vccl/model/work.hpp>

#include <endian.h>
#include <infiniband/verbs.h>

namespace vccl::inline v0::verbs::ibv_detail {

inline constexpr ibv_wr_opcode opcode_of[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,  IBV_WR_SEND,
                                              IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
static_assert(static_cast<unsigned>(work_op::cmp_swap) == 5 && static_cast<unsigned>(work_op::write) == 0);

constexpr unsigned send_flags(work_flags flags) noexcept {
    return (has(flags, work_flags::signaled) ? unsigned{IBV_SEND_SIGNALED} : 0U) |
           (has(flags, work_flags::inlined) ? unsigned{IBV_SEND_INLINE} : 0U) |
           (has(flags, work_flags::fence) ? unsigned{IBV_SEND_FENCE} : 0U);
}

/// Effects: `wr` is the last of a chain and takes its bytes through `sge`, which must live until the post.
VCCL_ALWAYS_INLINE void fill(ibv_send_wr& wr, ibv_sge& sge, const work& w) noexcept {
    sge.addr = w.local_addr;
    sge.length = w.length;
    sge.lkey = w.lkey.value;
    wr.wr_id = w.wr_id;
    wr.next = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = w.length != 0 ? 1 : 0;  // an entry of length 0 means 2 GiB to some hardware
    wr.opcode = opcode_of[static_cast<unsigned>(w.op)];
    wr.send_flags = send_flags(w.flags);
    wr.imm_data = htobe32(w.immediate);
    if (w.op < work_op::fetch_add) {
        wr.wr.rdma.remote_addr = w.remote_addr;
        wr.wr.rdma.rkey = w.rkey.value;
    } else {
        const bool add = w.op == work_op::fetch_add;
        wr.wr.atomic.remote_addr = w.remote_addr;
        wr.wr.atomic.compare_add = add ? w.swap_add : w.compare;
        wr.wr.atomic.swap = w.swap_add;
        wr.wr.atomic.rkey = w.rkey.value;
    }
}

VCCL_ALWAYS_INLINE void fill(ibv_recv_wr& wr, ibv_sge& sge, const recv_work& w) noexcept {
    sge.addr = w.addr;
    sge.length = w.length;
    sge.lkey = w.lkey.value;
    wr.wr_id = w.wr_id;
    wr.next = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = w.length != 0 ? 1 : 0;
}

/// By the low bits of a send queue's opcode; the entries of operations that we never post are not used.
inline constexpr completion_op sent_op[8] = {completion_op::send, completion_op::write, completion_op::read,
                                             completion_op::cmp_swap, completion_op::fetch_add};
static_assert(IBV_WC_SEND == 0 && IBV_WC_RDMA_WRITE == 1 && IBV_WC_RDMA_READ == 2 && IBV_WC_COMP_SWAP == 3 &&
              IBV_WC_FETCH_ADD == 4);
static_assert(IBV_WC_RECV_RDMA_WITH_IMM == IBV_WC_RECV + 1);

/// With an error status libibverbs leaves all but four fields undefined; they are not read then.
VCCL_ALWAYS_INLINE void fill(completion& c, const ibv_wc& wc) noexcept {
    c.wr_id = wc.wr_id;
    c.qp = qpn{wc.qp_num};
    c.status = static_cast<wc_status>(wc.status);
    c.immediate = 0;
    if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
        c.byte_len = 0;
        c.vendor = wc.vendor_err;
        c.op = completion_op::write;
        return;
    }
    c.byte_len = wc.byte_len;
    c.vendor = 0;
    if ((wc.opcode & IBV_WC_RECV) == 0) {
        c.op = sent_op[wc.opcode & 7];
    } else {
        c.op = wc.opcode == IBV_WC_RECV ? completion_op::recv : completion_op::recv_write_imm;
        if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) c.immediate = be32toh(wc.imm_data);
    }
}

}  // namespace vccl::inline v0::verbs::ibv_detail
