#pragma once
/// \file
/// The receive queue of a QP whose send queue is a ring, for WRITE_WITH_IMM: both sides of it. In memory it is a `ring` that is
/// only received on: receive WQEs in its slots (they bring no bytes, so nobody reads them), the receive word of its doorbell
/// record, and a completion queue of its own. One thread a side at a time, a kernel's included.
/// Source of the formats: rdma-core, providers/mlx5/mlx5dv.h and qp.c (mlx5_post_recv).

#include <vccl/device/ring_consumer.hpp>

namespace vccl::inline v0::device {

/// What a receive brought.
struct arrival {
    std::uint32_t immediate{};     ///< host byte order
    std::uint32_t bytes{};         ///< of the WRITE
    syndrome why{syndrome::none};  ///< flushed: the QP is in ERR, and nothing came
    friend constexpr bool operator==(const arrival&, const arrival&) noexcept = default;
};

/// The owner's side.
class receive_poster {
public:
    receive_poster() = default;
    /// Of a queue that is as new.
    VCCL_HOST_DEVICE explicit receive_poster(const ring& r) noexcept : ring_(r) {}

    /// Effects: posts as many receives as there is room for, and at most `n`. Returns: how many.
    VCCL_HOST_DEVICE std::uint32_t post(std::uint32_t n) noexcept {
        const auto room = static_cast<std::uint32_t>(ring_.depth() - (posted_ - polled_));
        const std::uint32_t taken = n < room ? n : room;
        posted_ += taken;
        store<order::release, scope::system>(&ring_.doorbell_record[receive_record], encode_record(posted_));
        return taken;
    }
    /// Effects: takes the next arrival, if there is one; what the WRITE brought can be read then. Its receive is free.
    VCCL_HOST_DEVICE bool poll(arrival& out) noexcept {
        const cqe64& slot = ring_.entry(polled_);
        const cqe_tail tail = tail_of(load<order::acquire, scope::system>(&slot.word[15]));  // pairs with the NIC's release
        if (!is_written(tail, polled_, ring_.cq_depth_log)) return false;
        cqe64 read{};
        for (unsigned i = 0; i < 15; ++i) read.word[i] = load<order::relaxed, scope::system>(&slot.word[i]);
        read.word[15] = encode(tail);
        const cqe_body body = decode(read);
        out = {body.immediate, body.byte_count, body.why};
        store<order::release, scope::system>(ring_.cq_record, encode_cq_record(++polled_));
        return true;
    }

private:
    ring ring_{};
    std::uint64_t posted_{}, polled_{};
};

/// The NIC's side.
class receive_consumer {
public:
    receive_consumer() = default;
    /// Of a queue that is as new.
    VCCL_HOST_DEVICE explicit receive_consumer(const ring& r) noexcept : completions_(r) {}

    /// Is a receive posted that was not taken? A record that names more than the queue holds is as none.
    VCCL_HOST_DEVICE bool ready() const noexcept {
        const ring& r = completions_.memory();
        const auto record = load<order::acquire, scope::system>(&r.doorbell_record[receive_record]);
        const auto there = static_cast<std::uint16_t>(decode_record(record) - static_cast<std::uint16_t>(taken_));
        return there != 0 && there <= r.depth();
    }
    /// As its completion queue's.
    VCCL_HOST_DEVICE bool has_room() const noexcept { return completions_.has_room(); }
    /// Effects: the next receive is taken, by a WRITE whose bytes can be seen, or by an error. Requires: ready(), has_room().
    VCCL_HOST_DEVICE void take(const arrival& a) noexcept {
        const cqe_body body{completions_.memory().qpn, 0, a.bytes, a.why, 0, a.immediate};
        completions_.write(body, a.why == syndrome::none ? cqe_opcode::received_imm : cqe_opcode::response_error, taken_++);
    }
    /// Effects: all that are posted end without having been used.
    VCCL_HOST_DEVICE void flush() noexcept {
        while (ready() && has_room()) take({0, 0, syndrome::flushed});
    }

private:
    cq_writer completions_;
    std::uint64_t taken_{};
};

}  // namespace vccl::inline v0::device
