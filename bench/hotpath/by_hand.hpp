#pragma once
/// \file
/// The opponent: what an engineer would write straight on the verbs for this one purpose. The same ring of grants, the
/// same writes, receives and polls in the same batches; the buffers are the caller's, so each record names address,
/// length and key. It has what any correct program needs (send-queue credit, completion status, bytes of each receive) and
/// nothing for faults: no lane, epoch or generation, no replay, no check against old or half-written grants.
///
/// Nothing is wasted, either: completions go into a buffer that is made once, work requests are drafts of which only the
/// fields that vary are written.

#include <vccl/testing/loopback.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

namespace hotpath {

using backend = vccl::testing::loopback<false>;

inline constexpr std::uint32_t chunk_bytes = 64 * 1024;
/// Receives posted a step. Twice as many are outstanding: while one batch is under way the next is granted. The most is half
/// of the library's stock window.
inline constexpr unsigned most_step = 32;
inline unsigned step = most_step;
/// Buffers of a chunk each, at both ends, used in turn: none is used again before its chunk has ended.
inline constexpr unsigned pieces = 4 * most_step;

template <unsigned Qps>
class by_hand {
    /// 64 bytes, so that a slot is one line; the flag is the last word of what is written.
    struct alignas(64) slot {
        std::uint64_t addr;
        std::uint32_t length, key;
        std::uint64_t acked, sequence;
    };
    static constexpr std::uint64_t ring_mask = 255, fifo_mask = 63;
    static constexpr unsigned poll_batch = 32, rearm_batch = 16, depth = 256;

    struct buffer {
        std::uint64_t addr;
        std::uint32_t length, key;
    };
    struct receive {
        std::uint32_t bytes, parts_left;
    };

    backend wire_;
    backend::port port_{*wire_.open("p")};
    backend::cq tx_cq_{*port_.create_cq(1024)}, rx_cq_{*port_.create_cq(1024)};
    std::vector<backend::qp> tx_qp_, rx_qp_;
    slot line_{};  ///< at the sender: an acknowledgement that travels alone
    std::vector<slot> ring_ = std::vector<slot>(ring_mask + 1), staged_ = std::vector<slot>(ring_mask + 1);
    std::vector<std::byte> bytes_ = std::vector<std::byte>(pieces * chunk_bytes);
    buffer from_[pieces], to_[pieces];

    std::uint64_t sent_ = 0, posted_ = 0, acked_ = 0, tx_marks_[Qps]{}, tx_limit_[Qps];
    buffer fifo_[fifo_mask + 1]{};
    std::uint64_t tx_chunks_ = 0, tx_bytes_ = 0;
    vccl::work write_{};
    vccl::completion tx_polled_[poll_batch]{};

    std::uint64_t recv_posted_ = 0, granted_ = 0, received_ = 0, told_ = 0, rx_marks_ = 0, rx_limit_ = depth;
    receive ledger_[ring_mask + 1]{};
    std::uint64_t rx_chunks_ = 0, rx_bytes_ = 0;
    unsigned owed_[Qps]{};
    vccl::work grant_{};
    vccl::recv_work rearm_[Qps][rearm_batch]{};
    vccl::completion rx_polled_[poll_batch]{};

public:
    bool connect() {
        const vccl::qp_limits l{depth, depth, 256};
        for (unsigned i = 0; i < Qps; ++i) {
            tx_qp_.push_back(std::move(*port_.create_qp(tx_cq_, l)));
            rx_qp_.push_back(std::move(*port_.create_qp(rx_cq_, l)));
            tx_limit_[i] = depth;
            for (auto& one : rearm_[i]) one.wr_id = i;
        }
        for (unsigned i = 0; i < Qps; ++i) {
            auto up = [](backend::qp& q, vccl::qpn peer) {
                vccl::qp_peer p{};
                p.number = peer;
                return q.to_init() && q.to_ready_to_receive(p, {}) && q.to_ready_to_send(vccl::psn{0}, {});
            };
            if (!up(tx_qp_[i], rx_qp_[i].number()) || !up(rx_qp_[i], tx_qp_[i].number())) return false;
            for (unsigned n = 0; n < 96 / rearm_batch; ++n)
                if (!rx_qp_[i].post_recv(rearm_[i])) return false;
        }
        for (unsigned i = 0; i < pieces; ++i) {
            from_[i] = {reinterpret_cast<std::uint64_t>(&bytes_[i * chunk_bytes]), chunk_bytes, 1};
            to_[i] = {from_[i].addr, chunk_bytes, 2};
        }
        for (slot& s : ring_) s.sequence = ~std::uint64_t{0};
        write_.op = vccl::work_op::write_imm;
        grant_.op = vccl::work_op::write;
        grant_.lkey = vccl::lkey{3};
        grant_.rkey = vccl::rkey{4};
        return true;
    }

    void run(std::uint64_t chunks) {
        const std::uint64_t goal = received_ + chunks;
        while (received_ < goal) {
            receiver_step(goal);
            sender_step(goal);
        }
    }

private:
    __attribute__((noinline)) void receiver_step(std::uint64_t goal) {
        for (const std::uint64_t end = std::min({goal, received_ + 2 * step, recv_posted_ + step}); recv_posted_ < end;
             ++recv_posted_) {
            slot& s = staged_[recv_posted_ & ring_mask];
            const buffer& to = to_[recv_posted_ % pieces];
            s.addr = to.addr;
            s.length = to.length;
            s.key = to.key;
            s.sequence = recv_posted_;
            ledger_[recv_posted_ & ring_mask] = {0, Qps};
        }
        const auto n = rx_cq_.poll(rx_polled_, poll_batch);
        if (!n) std::abort();
        for (unsigned i = 0; i < *n; ++i) arrived(rx_polled_[i]);
        for (; received_ != recv_posted_ && ledger_[received_ & ring_mask].parts_left == 0; ++received_) {
            ++rx_chunks_;
            rx_bytes_ += ledger_[received_ & ring_mask].bytes;
        }
        if (granted_ != recv_posted_)
            grant();
        else if (told_ != received_)
            tell();
    }

    void arrived(const vccl::completion& c) {
        if (c.status != vccl::wc_status::success) std::abort();
        if (c.op != vccl::completion_op::recv_write_imm) {
            rx_limit_ = c.wr_id + depth;
            return;
        }
        const unsigned q = static_cast<unsigned>(c.wr_id);
        if (++owed_[q] == rearm_batch) {
            if (!rx_qp_[q].post_recv(rearm_[q])) std::abort();
            owed_[q] = 0;
        }
        receive& r = ledger_[c.immediate & ring_mask];
        r.bytes += c.byte_len;
        --r.parts_left;
    }

    /// An acknowledgement on its own: no receive was posted for it to ride on.
    void tell() {
        if (rx_marks_ == rx_limit_) return;
        told_ = received_;
        grant_.local_addr = reinterpret_cast<std::uint64_t>(&told_);
        grant_.remote_addr = reinterpret_cast<std::uint64_t>(&line_.acked);
        grant_.length = sizeof told_;
        post_grant();
    }

    void grant() {
        if (rx_marks_ == rx_limit_) return;
        const std::uint64_t first = granted_;
        told_ = received_;
        do staged_[granted_ & ring_mask].acked = received_;
        while (++granted_ != recv_posted_ && (granted_ & ring_mask) != 0);
        grant_.local_addr = reinterpret_cast<std::uint64_t>(&staged_[first & ring_mask]);
        grant_.remote_addr = reinterpret_cast<std::uint64_t>(&ring_[first & ring_mask]);
        grant_.length = static_cast<std::uint32_t>((granted_ - first) * sizeof(slot));
        post_grant();
    }
    void post_grant() {
        grant_.wr_id = ++rx_marks_;
        grant_.flags = grant_.length <= 256 ? vccl::work_flags::inlined : vccl::work_flags::none;
        if (rx_marks_ % (depth / 4) == 0) grant_.flags = grant_.flags | vccl::work_flags::signaled;
        if (!rx_qp_[0].post(grant_)) std::abort();
    }

    __attribute__((noinline)) void sender_step(std::uint64_t goal) {
        for (const std::uint64_t end = std::min(goal, acked_ + fifo_mask + 1); sent_ < end; ++sent_)
            fifo_[sent_ & fifo_mask] = from_[sent_ % pieces];
        const auto n = tx_cq_.poll(tx_polled_, poll_batch);
        if (!n) std::abort();
        for (unsigned i = 0; i < *n; ++i) {
            const vccl::completion& c = tx_polled_[i];
            if (c.status != vccl::wc_status::success) std::abort();
            tx_limit_[c.wr_id >> 56] = (c.wr_id & 0xffffffffffffff) + depth;
        }
        acknowledged(std::atomic_ref(line_.acked).load(std::memory_order_acquire));
        for (; posted_ != sent_; ++posted_) {
            slot& s = ring_[posted_ & ring_mask];
            if (std::atomic_ref(s.sequence).load(std::memory_order_acquire) != posted_) break;
            acknowledged(s.acked);
            if (!post(fifo_[posted_ & fifo_mask], s)) break;
        }
    }

    void acknowledged(std::uint64_t upto) {
        for (; acked_ < upto; ++acked_) {
            ++tx_chunks_;
            tx_bytes_ += fifo_[acked_ & fifo_mask].length;
        }
    }

    bool post(const buffer& b, const slot& s) {
        if (b.length > s.length) std::abort();
        for (unsigned p = 0; p < Qps; ++p)
            if (tx_marks_[p] == tx_limit_[p]) return false;
        const std::uint32_t each = b.length / Qps;
        write_.lkey = vccl::lkey{b.key};
        write_.rkey = vccl::rkey{s.key};
        write_.length = each;
        write_.immediate = static_cast<std::uint32_t>(posted_);
        for (unsigned p = 0; p < Qps; ++p) {
            write_.local_addr = b.addr + p * each;
            write_.remote_addr = s.addr + p * each;
            write_.wr_id = ++tx_marks_[p] | std::uint64_t{p} << 56;
            write_.flags = tx_marks_[p] % (depth / 4) == 0 ? vccl::work_flags::signaled : vccl::work_flags::none;
            if (!tx_qp_[p].post(write_)) std::abort();
        }
        return true;
    }
};

}  // namespace hotpath
