#pragma once
/// \file
/// The NIC's side of one ring: how far the poster has got, the next WQE, and the CQEs. What a software NIC does in between is
/// its own. One thread (or one kernel thread) at a time; whatever the ring's memory holds does no harm.

#include <vccl/device/atomic.hpp>
#include <vccl/device/ring.hpp>
#include <vccl/device/wqe_judge.hpp>

namespace vccl::inline v0::device {

/// What came of looking at a doorbell.
enum class rung : std::uint8_t {
    nothing,  ///< nothing new, or an older value
    further,  ///< there are new WQEs
    beyond,   ///< for more WQEs than the queue holds; nothing was taken over
};

/// A WQE as it was fetched: read once, so that it stays as it was judged.
struct fetched_wqe {
    std::uint64_t index{};
    unsigned slots{1};
    wqe_block block[2];
    wqe_fields fields{};
    judgement verdict{};
};

/// The NIC's side of a completion queue. One thread at a time.
class cq_writer {
public:
    cq_writer() = default;
    /// The queue of `r`; `entry` is the first CQE to be written.
    VCCL_HOST_DEVICE explicit cq_writer(const ring& r, std::uint64_t entry = 0) noexcept : ring_(r), entry_(entry) {}

    VCCL_HOST_DEVICE const ring& memory() const noexcept { return ring_; }
    /// Is there room for a CQE? As far as the poller has said; a NIC that goes on without room overwrites what was not polled.
    VCCL_HOST_DEVICE bool has_room() const noexcept {
        const std::uint32_t polled = decode_cq_record(load<order::acquire, scope::system>(ring_.cq_record));
        return ((entry_ - polled) & 0xffffff) < ring_.cq_depth();
    }
    /// Effects: writes the next CQE, its last word last. `index`: of the WQE.
    VCCL_HOST_DEVICE void write(const cqe_body& body, cqe_opcode what, std::uint64_t index) noexcept {
        const cqe64 made = encode(
            body, {static_cast<std::uint16_t>(index), static_cast<std::uint8_t>(what), owner_of(entry_, ring_.cq_depth_log)});
        cqe64& slot = ring_.entry(entry_++);
        // Word by word and atomic: a poller that has fallen a lap behind may be reading the entry.
        for (unsigned i = 0; i < 15; ++i) store<order::relaxed, scope::system>(&slot.word[i], made.word[i]);
        store<order::release, scope::system>(&slot.word[15], made.word[15]);  // pairs with the poller's acquire load of it
    }

private:
    ring ring_{};
    std::uint64_t entry_{};
};

class ring_consumer {
public:
    ring_consumer() = default;
    /// `index` is that of the first slot to be fetched, `entry` that of the first CQE to be written.
    VCCL_HOST_DEVICE explicit ring_consumer(const ring& r, std::uint64_t index = 0, std::uint64_t entry = 0) noexcept
        : completions_(r, entry), next_(index), posted_(index) {}

    VCCL_HOST_DEVICE const ring& memory() const noexcept { return completions_.memory(); }
    VCCL_HOST_DEVICE std::uint64_t next() const noexcept { return next_; }  ///< the first slot that was not fetched
    VCCL_HOST_DEVICE bool has_more() const noexcept { return next_ != posted_; }

    /// The register's value now. The poster's WQEs up to what it names can be read afterwards: pairs with its release store.
    VCCL_HOST_DEVICE std::uint64_t doorbell() const noexcept { return load<order::acquire, scope::system>(memory().doorbell); }

    /// Effects: takes over a value of the register. One for another QP is nothing. `oldest`: the first slot whose WQE has not
    /// completed.
    VCCL_HOST_DEVICE rung take_doorbell(std::uint64_t value, std::uint64_t oldest) noexcept {
        const doorbell_fields d = decode_doorbell(value);
        return d.qpn == memory().qpn ? go_to(d.next, oldest) : rung::nothing;
    }
    /// The same of the doorbell record, which is there when a doorbell was lost.
    VCCL_HOST_DEVICE rung take_record(std::uint64_t oldest) noexcept {
        return go_to(decode_record(load<order::acquire, scope::system>(memory().doorbell_record + send_record)), oldest);
    }

    /// Effects: fetches and judges the next WQE. Requires: has_more().
    VCCL_HOST_DEVICE fetched_wqe fetch() noexcept {
        fetched_wqe w{};
        w.index = next_;
        w.block[0] = memory().slot(next_);
        w.slots = slots_of(w.block[0]);
        const std::uint64_t there = posted_ - next_;
        if (w.slots > 1 && there > 1) w.block[1] = memory().slot(next_ + 1);  // else it is the poster's, who may be writing it
        w.fields = decode(w.block[0], w.block[1]);
        w.verdict = judge(w.fields, next_, memory().qpn);
        if (w.slots > there) {
            w.slots = static_cast<unsigned>(there);
            if (w.verdict.good()) w.verdict = {syndrome::local_qp_operation, wqe_fault::wrong_segments};
        }
        next_ += w.slots;
        return w;
    }

    /// As those of its completion queue.
    /// @{
    VCCL_HOST_DEVICE bool has_room() const noexcept { return completions_.has_room(); }
    VCCL_HOST_DEVICE void complete(const cqe_body& body, std::uint64_t index) noexcept {
        completions_.write(body, body.why == syndrome::none ? cqe_opcode::request : cqe_opcode::request_error, index);
    }
    /// @}

private:
    /// 16 bits tell how far: not backwards, and not further than the ring reaches from the oldest WQE in it.
    VCCL_HOST_DEVICE rung go_to(std::uint16_t low, std::uint64_t oldest) noexcept {
        const auto step = static_cast<std::uint16_t>(low - static_cast<std::uint16_t>(posted_));
        if (step == 0 || step > 0x8000) return rung::nothing;
        if (posted_ + step - oldest > memory().depth()) return rung::beyond;
        posted_ += step;
        return rung::further;
    }

    cq_writer completions_;
    std::uint64_t next_{};
    std::uint64_t posted_{};
};

}  // namespace vccl::inline v0::device
