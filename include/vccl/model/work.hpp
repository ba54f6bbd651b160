#pragma once
/// \file
/// A work request and its completion as plain values, independent of any backend. A work request has one
/// scatter/gather entry: the library never needs more. Source: InfiniBand Architecture Specification 1.x,
/// chapter 10.8; the numbers of `wc_status` are libibverbs' (infiniband/verbs.h).

#include <vccl/base/ids.hpp>
#include <vccl/base/status.hpp>

namespace vccl::inline v0 {

/// What a work request does. The last two need a backend with `capabilities.atomics`.
enum class work_op : std::uint8_t { write, write_imm, send, read, fetch_add, cmp_swap };

/// Asked for with a work request; combined with `|`.
enum class work_flags : std::uint8_t {
    none = 0,
    signaled = 1,  ///< make a completion also on success
    inlined = 2,   ///< take the bytes while posting; the buffer is free at once, its lkey unused
    fence = 4,     ///< wait for earlier READs and atomics of this QP
};
/// Both sets together.
VCCL_HOST_DEVICE constexpr work_flags operator|(work_flags a, work_flags b) noexcept {
    return static_cast<work_flags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// Is `one` in the set?
VCCL_HOST_DEVICE constexpr bool has(work_flags set, work_flags one) noexcept {
    return (static_cast<unsigned>(set) & static_cast<unsigned>(one)) != 0;
}

/// A send-queue work request.
struct work {
    std::uint64_t wr_id{};        ///< comes back in the completion
    std::uint64_t local_addr{};   ///< source (write, send) or destination (read, atomics: 8 bytes)
    std::uint64_t remote_addr{};  ///< unused by send
    std::uint64_t swap_add{};     ///< fetch_add: the addend; cmp_swap: the new value
    std::uint64_t compare{};      ///< cmp_swap only
    std::uint32_t length{};       ///< bytes; 0 is allowed
    vccl::lkey lkey{};            ///< of the local buffer; unused where the bytes are inlined
    vccl::rkey rkey{};            ///< of the peer's memory; unused by SEND
    std::uint32_t immediate{};    ///< host byte order; write_imm only
    work_op op{work_op::write};   ///< what is to be done
    work_flags flags{work_flags::none};  ///< with what on top
};

/// A receive-queue work request: where a SEND lands. WRITE_IMM consumes one, too, and ignores its buffer.
struct recv_work {
    std::uint64_t wr_id{};  ///< comes back in the completion, unchanged
    std::uint64_t addr{};  ///< where it lands: local, in memory that `lkey` covers
    std::uint32_t length{};  ///< bytes at most: a longer SEND is an error at both ends
    vccl::lkey lkey{};  ///< of the buffer
};

/// Which kind of work, or arrival, a completion stands for.
enum class completion_op : std::uint8_t { write, send, read, fetch_add, cmp_swap, recv, recv_write_imm };

/// What completes a WR of this kind at the end that posted it.
constexpr completion_op completion_of(work_op op) noexcept {
    switch (op) {
        case work_op::send: return completion_op::send;
        case work_op::read: return completion_op::read;
        case work_op::fetch_add: return completion_op::fetch_add;
        case work_op::cmp_swap: return completion_op::cmp_swap;
        case work_op::write:
        case work_op::write_imm: break;
    }
    return completion_op::write;
}
/// What completes the receive of the peer that it uses up.
constexpr completion_op arrival_of(work_op op) noexcept {
    return op == work_op::send ? completion_op::recv : completion_op::recv_write_imm;
}
/// Does it use up a receive of the peer?
constexpr bool takes_receive(work_op op) noexcept { return op == work_op::send || op == work_op::write_imm; }

/// What a completion queue yields. With an error status only `wr_id`, `qp`, `status` and `vendor` are set.
struct completion {
    std::uint64_t wr_id{};      ///< of the work request that it completes
    std::uint32_t byte_len{};   ///< bytes received (recv, recv_write_imm, read)
    std::uint32_t immediate{};  ///< host byte order (recv_write_imm)
    vccl::qpn qp{};             ///< the queue pair on which it happened
    std::uint32_t vendor{};     ///< the vendor's own error number, for the log of an expert
    wc_status status{wc_status::success};  ///< anything but `success`: the queue pair is in ERR
    completion_op op{completion_op::write};  ///< undefined with an error, as in verbs
};

}  // namespace vccl::inline v0
