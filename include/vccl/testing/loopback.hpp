#pragma once
/// \file
/// A backend that completes every work request while it is posted, inside one process and one thread: to count the
/// instructions of what lies above the verbs, and as the smallest example of a backend of one's own. It has no network
/// and therefore no faults; keys are not checked.

#include <vccl/verbs/backend.hpp>
#include <vccl/verbs/carry.hpp>
#include <vccl/verbs/completion_ring.hpp>
#include <vccl/verbs/memory_table.hpp>
#include <vccl/verbs/qp_handle.hpp>

#include <bit>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace vccl::inline v0::testing {

/// `MovePayload` false: immediates arrive, the bytes of their chunks stay where they are.
template <bool MovePayload = true>
class loopback {
    class body;
    struct wire {
        std::unordered_map<std::uint32_t, body*> qps;
        std::shared_ptr<verbs::memory_table> memory{std::make_shared<verbs::memory_table>()};
        std::uint32_t next{1};
    };

    /// A QP: `peer` is found at the first post; `posters` are those whose peer this is, linked through `next_poster`.
    class body : public verbs::qp_ladder {
    public:
        body(std::shared_ptr<wire> w, verbs::completion_ring* c, std::uint32_t recv_depth)
            : qp_ladder{qpn{w->next++}}, wire_(std::move(w)), cq_(c), receives_(std::bit_ceil(recv_depth)) {
            wire_->qps[number.value] = this;
        }
        body(const body&) = delete;
        ~body() {
            wire_->qps.erase(number.value);
            for (body* p = posters_; p; p = p->next_poster_) p->peer_ = nullptr;
            if (!peer_) return;
            body** link = &peer_->posters_;
            while (*link != this) link = &(*link)->next_poster_;
            *link = next_poster_;
        }

        status to_reset() noexcept {
            posted_ = consumed_ = 0;
            return qp_ladder::to_reset();
        }
        status to_error() noexcept {
            for (; consumed_ != posted_; ++consumed_) complete(receive(consumed_).wr_id, wc_status::wr_flush_err);
            return qp_ladder::to_error();
        }
        status post(const work& w) noexcept {
            if (state == qp_state::error) {
                complete(w.wr_id, wc_status::wr_flush_err);
                return {};
            }
            if (!peer_) [[unlikely]] {
                const auto p = wire_->qps.find(peer.number.value);
                if (p == wire_->qps.end()) return errc::not_connected;
                peer_ = p->second;
                next_poster_ = std::exchange(peer_->posters_, this);
            }
            peer_->take(w);
            if (has(w.flags, work_flags::signaled)) complete(w.wr_id, wc_status::success);
            return {};
        }
        result<unsigned> post_recv(std::span<const recv_work> recvs) noexcept {
            for (const recv_work& r : recvs) receive(posted_++) = r;
            return static_cast<unsigned>(recvs.size());
        }

    private:
        recv_work& receive(std::uint64_t n) noexcept { return receives_[n & (receives_.size() - 1)]; }
        void complete(std::uint64_t id, wc_status s) noexcept {
            completion c{};
            c.wr_id = id;
            c.qp = number;
            c.status = s;
            cq_->push(c);
        }
        void take(const work& w) noexcept {
            const std::uint64_t there = w.op == work_op::send ? receive(consumed_).addr : w.remote_addr;
            if (MovePayload || w.op != work_op::write_imm)
                verbs::carry(w, reinterpret_cast<std::byte*>(w.local_addr), reinterpret_cast<std::byte*>(there));
            if (!takes_receive(w.op)) return;
            completion c{};
            c.wr_id = receive(consumed_++).wr_id;
            c.byte_len = w.length;
            c.immediate = w.immediate;
            c.qp = number;
            c.op = arrival_of(w.op);
            cq_->push(c);
        }

        std::shared_ptr<wire> wire_;
        verbs::completion_ring* cq_;
        body *peer_{}, *posters_{}, *next_poster_{};
        std::vector<recv_work> receives_;
        std::uint64_t posted_{}, consumed_{};
    };

public:
    using policy_axis = axis::verbs;
    static constexpr backend_capabilities capabilities{};  ///< the defaults: no dma-buf, no manual time
    using mr = verbs::memory_registration;  ///< its keys are looked at by nobody
    using qp = verbs::qp_handle<body>;      ///< the states are kept in order, nothing else is checked

    class cq {
    public:
        explicit cq(std::uint32_t depth) : ring_(std::make_unique<verbs::completion_ring>(depth)) {}
        result<unsigned> poll(completion* out, unsigned room) noexcept { return ring_->take(out, room); }
        verbs::completion_ring* ring() const noexcept { return ring_.get(); }

    private:
        std::unique_ptr<verbs::completion_ring> ring_;
    };

    class port {
    public:
        using cq = loopback::cq;
        using qp = loopback::qp;
        using mr = loopback::mr;
        explicit port(std::shared_ptr<wire> w) noexcept : wire_(std::move(w)) {}
        result<port_attributes> query() noexcept {
            port_attributes a{};
            a.state = port_state::active;
            a.mtu = 4096;
            return a;
        }
        result<cq> create_cq(std::uint32_t depth) noexcept {
            if (depth > verbs::completion_ring::most_depth) return errc::invalid_argument;
            return cq{depth};
        }
        result<qp> create_qp(cq& c, const qp_limits& l) noexcept {
            if (l.recv_depth > verbs::completion_ring::most_depth) return errc::invalid_argument;
            return qp{std::in_place, wire_, c.ring(), l.recv_depth};
        }
        result<mr> register_memory(void* p, std::size_t bytes) noexcept { return mr::make(wire_->memory, 0, p, bytes); }
        result<async_event> next_event() noexcept { return async_event{}; }
        std::uint32_t inline_limit() noexcept { return 256; }

    private:
        std::shared_ptr<wire> wire_;
    };

    /// `unsupported`: write a topology by hand, `make_cluster` has some.
    result<topology> discover() const { return errc::unsupported; }
    /// A port of any name.
    result<port> open(const port_name&) noexcept { return port{wire_}; }

private:
    std::shared_ptr<wire> wire_{std::make_shared<wire>()};
};

static_assert(verbs_backend<loopback<>>);

}  // namespace vccl::inline v0::testing
