#pragma once
/// \file
/// One ring and the verbs QP that carries out what is posted there. Each pass: completions of the backend become CQEs, in
/// order; then new WQEs become work requests. The first error moves both to ERR, and everything behind it is flushed. The
/// NIC's lock is held for every call.

#include <vccl/base/owned.hpp>
#include <vccl/device/ring_memory.hpp>
#include <vccl/device/ring_nic/faults.hpp>
#include <vccl/device/ring_nic/translate.hpp>
#include <vccl/device/ring_source.hpp>

namespace vccl::inline v0::device::ring_nic_detail {

/// A fetched WQE that has no CQE yet, in order of the ring.
struct pending {
    std::uint64_t index{};
    nanoseconds done_at{};
    std::uint32_t bytes{};
    std::uint8_t opcode{};
    bool asks{};       ///< for a CQE also on success
    bool done{};       ///< its end is known
    syndrome why{};
    std::uint8_t vendor{};
};

/// Bytes that a READ or atomic brings.
constexpr std::uint32_t bytes_read(const wqe_fields& f) noexcept {
    return static_cast<wqe_opcode>(f.opcode) == wqe_opcode::read || wqe_detail::is_atomic(f.opcode) ? f.local.length : 0;
}

template <class Port, class Memory>
class engine {
public:
    using qp_type = typename Port::qp;

    /// Returns: what the port says; `unsupported` if it inlines fewer bytes than a WQE may carry, and for a receive queue.
    VCCL_COLD status create(Port& port, const ring_limits& limits) noexcept {
        if (limits.receive_depth != 0) return errc::unsupported;
        auto memory = ring_memory<Memory>::make(limits.depth, limits.cq_depth != 0 ? limits.cq_depth : limits.depth);
        if (!memory) return memory.error();
        memory_ = std::move(*memory);
        if (port.inline_limit() < max_long_inline_bytes) return errc::unsupported;
        const std::uint32_t depth = memory_.view().depth();
        pending_.reset(new (std::nothrow) pending[2 * depth]{});
        if (!pending_) return errc::no_memory;
        auto cq = port.create_cq(2 * depth);  // a generation's completions may still lie there while the next one begins
        if (!cq) return cq.error();
        cq_.emplace(std::move(*cq));
        auto qp = port.create_qp(*cq_, {.send_depth = depth, .recv_depth = 1, .inline_bytes = max_long_inline_bytes});
        if (!qp) return qp.error();
        qp_.emplace(std::move(*qp));
        memory_.view().qpn = qp_->number().value;
        start_at(0, 0);
        return {};
    }
    engine() = default;
    engine(engine&&) = delete;
    VCCL_COLD ~engine() { qp_.reset(); }  // before its CQ

    qp_type& qp() noexcept { return *qp_; }
    const ring& view() const noexcept { return memory_.view(); }
    bool overrun() const noexcept { return overrun_; }
    void inject(const ring_faults& f) noexcept { faults_ = f; }

    VCCL_COLD status reset() noexcept {
        const status s = qp_->to_reset();
        if (s) start_at(0, 0);
        return s;
    }
    void start_at(std::uint64_t index, std::uint64_t entry) noexcept {
        memory_.clear(entry);
        consumer_ = ring_consumer(memory_.view(), index, entry);
        first_ = last_ = 0;
        ++generation_;
        failed_ = errored_ = condemned_ = overrun_ = running_ = lost_ = false;
        heard_ = 0;
    }
    void run() noexcept { running_ = true; }
    VCCL_COLD status fail(nanoseconds now) noexcept {
        const status s = qp_->to_error();
        failed_ = true;
        (void)pass(now);
        return s;
    }

    /// Effects: does what can be done without waiting. Returns: whether there was anything to do.
    bool pass(nanoseconds now) noexcept {
        if (!running_) return false;
        bool moved = take_completions(now);
        moved |= retire(now);
        moved |= listen(now);
        if (consumer_.has_more()) moved |= take_up(now);
        return retire(now) || moved;
    }

private:
    // Twice the slots: a bad doorbell is entered behind as many WQEs as there may be.
    pending& at(std::uint64_t i) noexcept { return pending_[i & (2 * memory_.view().depth() - 1)]; }
    std::uint64_t oldest() noexcept { return first_ == last_ ? consumer_.next() : at(first_).index; }

    // wr_id: which pending, of which life of the QP.
    static constexpr unsigned life_shift = 48;
    std::uint64_t wr_id_of(std::uint64_t i) const noexcept { return i | generation_ << life_shift; }
    static constexpr std::uint64_t place_of(std::uint64_t wr_id) noexcept {
        return wr_id & ((std::uint64_t{1} << life_shift) - 1);
    }

    bool take_completions(nanoseconds now) noexcept {
        completion some[16];
        bool any = false;
        for (;;) {
            const auto n = cq_->poll(some, 16);
            if (!n || *n == 0) return any;
            for (unsigned i = 0; i < *n; ++i) ended(some[i], now);
            any = true;
        }
    }
    void ended(const completion& c, nanoseconds now) noexcept {
        const std::uint64_t i = place_of(c.wr_id);
        if (wr_id_of(i) != c.wr_id || i < first_ || i >= last_) return;  // of an earlier life
        pending& p = at(i);
        p.done = true;
        p.done_at = now;
        p.why = syndrome_of(c.status);
        p.vendor = static_cast<std::uint8_t>(c.vendor);
    }

    /// Writes the CQEs of what has ended, in order.
    bool retire(nanoseconds now) noexcept {
        bool any = false;
        for (; first_ != last_; ++first_) {
            pending& p = at(first_);
            if (!p.done || (faults_.cqe_delay.count != 0 && now < p.done_at + faults_.cqe_delay)) break;
            any = true;
            if (errored_) {  // NOPs, too, and what was bad in itself
                p.why = syndrome::flushed;
                p.vendor = 0;
            }
            write_cqe(p);
            if (p.why == syndrome::none) continue;
            errored_ = true;
            if (!failed_) stop();
        }
        return any;
    }
    void write_cqe(const pending& p) noexcept {
        if (overrun_ || (!p.asks && p.why == syndrome::none)) return;
        if (!consumer_.has_room() || faults_.cq_overrun) {
            overrun_ = true;  // as hardware: the queue takes no entry any more, and its QP is lost
            if (!failed_) stop();
            return;
        }
        const cqe_body body{view().qpn, p.opcode, p.bytes, p.why, p.vendor};  // named, or nvcc 13 loses the braces
        consumer_.complete(body, p.index);
    }
    VCCL_COLD void stop() noexcept {
        failed_ = true;
        (void)qp_->to_error();
    }

    /// Looks how far the poster has got.
    bool listen(nanoseconds now) noexcept {
        const std::uint64_t value = consumer_.doorbell();
        if (value != heard_) {
            heard_ = value;
            lost_ = faults_.lost_doorbells != 0;
            if (!lost_) return took(consumer_.take_doorbell(value, oldest()), now);
            --faults_.lost_doorbells;
            lost_at_ = now;
        }
        if (!lost_ || faults_.record_after.count == 0 || now < lost_at_ + faults_.record_after) return false;
        lost_ = false;
        return took(consumer_.take_record(oldest()), now);
    }
    bool took(rung r, nanoseconds now) noexcept {
        if (r != rung::beyond || failed_ || condemned_) return r == rung::further;
        // Nobody knows which WQEs were meant: the queue ends here.
        condemn(append(consumer_.next(), 0, true), {syndrome::local_qp_operation, wqe_fault::wrong_doorbell}, now);
        return true;
    }

    /// Work requests that are posted together, and the inline data that they point to.
    struct batch {
        static constexpr unsigned most = 16;
        work many[most];
        unsigned char staged[most][max_long_inline_bytes];
        unsigned count{};
    };
    VCCL_NOINLINE bool take_up(nanoseconds now) noexcept {
        batch b;
        bool any = false;
        while (consumer_.has_more() && (failed_ || !condemned_)) {
            any = true;
            begin(b, now);
            if (b.count == batch::most) post(b, now);
        }
        post(b, now);
        return any;
    }
    /// Fetches the next WQE, and puts it into the batch if it is for the backend.
    void begin(batch& b, nanoseconds now) noexcept {
        fetched_wqe w = consumer_.fetch();
        pending& p = append(w.index, w.fields.opcode, (w.fields.head.flags & wqe_flag::completion) != 0);
        if (failed_) {
            condemn(p, {syndrome::flushed, wqe_fault::none}, now);
        } else if (!w.verdict.good()) {
            condemn(p, w.verdict, now);
        } else if (static_cast<wqe_opcode>(w.fields.opcode) == wqe_opcode::nop) {
            p.done = true;
            p.done_at = now;
        } else if (!make_plain(w.fields)) {
            condemn(p, {syndrome::local_qp_operation, wqe_fault::not_possible}, now);
        } else {
            p.bytes = bytes_read(w.fields);
            unsigned char* const staged = b.staged[b.count];
            if (w.fields.inlined)
                for (unsigned i = 0; i < w.fields.local.length; ++i) staged[i] = inline_byte(w.block[0], w.block[1], i);
            b.many[b.count++] = translate(w.fields, wr_id_of(last_ - 1), staged);
        }
    }
    void post(batch& b, nanoseconds now) noexcept {
        if (b.count == 0) return;
        const unsigned taken = qp_->post(std::span<const work>(b.many, b.count)).value_or(0U);
        for (unsigned i = taken; i < b.count; ++i)
            condemn(at(place_of(b.many[i].wr_id)), {syndrome::local_qp_operation, wqe_fault::refused}, now);
        b.count = 0;
    }
    pending& append(std::uint64_t index, std::uint8_t opcode, bool asks) noexcept {
        pending& p = at(last_++);
        p = pending{};
        p.index = index;
        p.opcode = opcode;
        p.asks = asks;
        return p;
    }
    /// Nothing is taken up behind a WQE that is bad in itself, until those before it have ended and it has its CQE.
    void condemn(pending& p, const judgement& j, nanoseconds now) noexcept {
        condemned_ = p.done = true;
        p.done_at = now;
        p.why = j.why;
        p.vendor = static_cast<std::uint8_t>(j.fault);
    }

    ring_memory<Memory> memory_;
    late<typename Port::cq> cq_;
    late<qp_type> qp_;
    owned_array<pending> pending_;
    ring_consumer consumer_;
    std::uint64_t first_{}, last_{};  ///< of pending
    std::uint64_t generation_{};
    ring_faults faults_{};
    std::uint64_t heard_{};  ///< the doorbell register's last value
    nanoseconds lost_at_{};
    bool lost_{};     ///< that value, by an injected fault
    bool running_{};  ///< in RTS, or in ERR after it
    bool failed_{};   ///< in ERR
    bool errored_{};  ///< a CQE with an error was written
    bool condemned_{};
    bool overrun_{};
};

}  // namespace vccl::inline v0::device::ring_nic_detail
