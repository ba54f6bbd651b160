#pragma once
/// \file
/// A judged WQE as the work request of a verbs backend. Pure, any thread.

#include <vccl/device/ring_consumer.hpp>
#include <vccl/model/work.hpp>

namespace vccl::inline v0::device {

namespace ring_nic_detail {

constexpr work_op op_of(std::uint8_t opcode) noexcept {
    switch (static_cast<wqe_opcode>(opcode)) {
        case wqe_opcode::write_imm: return work_op::write_imm;
        case wqe_opcode::read: return work_op::read;
        case wqe_opcode::compare_swap: return work_op::cmp_swap;
        case wqe_opcode::fetch_add: return work_op::fetch_add;
        default: return work_op::write;
    }
}

/// Always signaled: the NIC needs to know the end of each. Inline data is what `staged` points to, valid while posting.
/// Requires: a transfer or a plain atomic that was judged good.
inline work translate(const wqe_fields& f, std::uint64_t wr_id, const unsigned char* staged) noexcept {
    work w;
    w.wr_id = wr_id;
    w.op = op_of(f.opcode);
    w.flags = work_flags::signaled;
    if ((f.head.flags & (wqe_flag::fence | wqe_flag::small_fence)) != 0) w.flags = w.flags | work_flags::fence;
    w.remote_addr = f.remote.addr;
    w.rkey = rkey{f.remote.rkey};
    w.local_addr = f.local.addr;
    w.lkey = lkey{f.local.lkey};
    w.length = f.local.length;
    w.immediate = f.immediate;
    w.swap_add = f.operand[0];
    w.compare = f.operand[1];
    if (f.inlined) {
        w.flags = w.flags | work_flags::inlined;
        w.local_addr = reinterpret_cast<std::uintptr_t>(staged);
    }
    return w;
}

}  // namespace ring_nic_detail

}  // namespace vccl::inline v0::device
