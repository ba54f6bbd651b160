#pragma once
/// \file
/// A backend that completes every work request while it is posted, inside one process and one thread: to count the
/// instructions of what lies above the verbs, and as the smallest example of a backend of one's own. It has no network
/// and therefore no faults; keys are not checked.

#include <vccl/verbs/backend.hpp>

#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace vccl::inline v0::testing {

/// `MovePayload` false: immediates arrive, the bytes of their chunks stay where they are.
template <bool MovePayload = true>
class loopback {
    struct cq_state {
        std::vector<completion> ring;
        std::uint64_t head{}, tail{};
        void push(const completion& c) noexcept { ring[tail++ & (ring.size() - 1)] = c; }
    };
    struct qp_body {
        cq_state* cq{};
        qp_body* peer{};                      ///< found at the first post
        qp_body *posters{}, *next_poster{};   ///< those whose peer this is; the next of this one's peer
        qpn number{};
        qp_state state{qp_state::reset};
        std::vector<recv_work> receives;
        std::uint64_t posted{}, consumed{};
    };
    struct wire {
        std::unordered_map<std::uint32_t, qp_body*> qps;
        std::uint32_t next{1};
    };

public:
    using policy_axis = axis::verbs;
    static constexpr backend_capabilities capabilities{};  ///< the defaults: no dma-buf, no manual time

    class mr {
    public:
        explicit mr(std::uint32_t key) noexcept : key_(key) {}
        lkey local_key() const noexcept { return lkey{key_}; }
        rkey remote_key() const noexcept { return rkey{key_}; }

    private:
        std::uint32_t key_;
    };

    class cq {
    public:
        explicit cq(std::uint32_t depth) : state_(std::make_unique<cq_state>()) {
            std::size_t n = 1;
            while (n < depth) n *= 2;
            state_->ring.resize(n);
        }
        result<unsigned> poll(completion* out, unsigned room) noexcept {
            unsigned n = 0;
            for (; n < room && state_->head != state_->tail; ++n)
                out[n] = state_->ring[state_->head++ & (state_->ring.size() - 1)];
            return n;
        }
        cq_state* state() const noexcept { return state_.get(); }

    private:
        std::unique_ptr<cq_state> state_;
    };

    class qp {
    public:
        qp(std::shared_ptr<wire> w, cq_state* c, std::uint32_t recv_depth)
            : wire_(std::move(w)), body_(std::make_unique<qp_body>()) {
            std::size_t n = 1;
            while (n < recv_depth) n *= 2;
            body_->cq = c;
            body_->receives.resize(n);
            body_->number = qpn{wire_->next++};
            wire_->qps[body_->number.value] = body_.get();
        }
        qp(qp&&) noexcept = default;
        ~qp() { (void)destroy(); }

        qpn number() const noexcept { return body_->number; }
        status to_reset() noexcept {
            body_->posted = body_->consumed = 0;
            return turn(qp_state::reset);
        }
        status to_init() noexcept { return turn(qp_state::init); }
        status to_ready_to_receive(const qp_peer& p, const qp_timers&) noexcept {
            peer_ = p.number;
            return turn(qp_state::ready_to_receive);
        }
        status to_ready_to_send(psn, const qp_timers&) noexcept { return turn(qp_state::ready_to_send); }
        status to_error() noexcept {
            for (; body_->consumed != body_->posted; ++body_->consumed) {
                completion c{};
                c.wr_id = receive(body_->consumed).wr_id;
                c.qp = body_->number;
                c.status = wc_status::wr_flush_err;
                body_->cq->push(c);
            }
            return turn(qp_state::error);
        }
        result<qp_state> state() noexcept { return body_->state; }

        status post(const work& w) noexcept {
            completion c{};
            c.wr_id = w.wr_id;
            c.qp = body_->number;
            if (body_->state == qp_state::error) {
                c.status = wc_status::wr_flush_err;
                body_->cq->push(c);
                return {};
            }
            if (!body_->peer) [[unlikely]] {
                const auto p = wire_->qps.find(peer_.value);
                if (p == wire_->qps.end()) return errc::not_connected;
                body_->peer = p->second;
                body_->next_poster = std::exchange(p->second->posters, body_.get());
            }
            carry(w, *body_->peer);
            if (has(w.flags, work_flags::signaled)) body_->cq->push(c);
            return {};
        }
        result<unsigned> post(std::span<const work> many) noexcept {
            for (const work& w : many)
                if (status s = post(w); !s) return s;
            return static_cast<unsigned>(many.size());
        }
        result<unsigned> post_recv(std::span<const recv_work> recvs) noexcept {
            for (const recv_work& r : recvs) receive(body_->posted++) = r;
            return static_cast<unsigned>(recvs.size());
        }
        status destroy() noexcept {
            if (!body_) return {};
            wire_->qps.erase(body_->number.value);
            for (qp_body* p = body_->posters; p; p = p->next_poster) p->peer = nullptr;
            if (body_->peer) {
                qp_body** link = &body_->peer->posters;
                while (*link != body_.get()) link = &(*link)->next_poster;
                *link = body_->next_poster;
            }
            body_.reset();
            return {};
        }

    private:
        status turn(qp_state s) noexcept {
            body_->state = s;
            return {};
        }
        recv_work& receive(std::uint64_t n) noexcept { return receive_of(*body_, n); }
        static recv_work& receive_of(qp_body& b, std::uint64_t n) noexcept { return b.receives[n & (b.receives.size() - 1)]; }

        static void carry(const work& w, qp_body& to) noexcept {
            auto* const there = reinterpret_cast<void*>(w.remote_addr);
            auto* const here = reinterpret_cast<void*>(w.local_addr);
            switch (w.op) {
                case work_op::write: std::memcpy(there, here, w.length); break;
                case work_op::read: std::memcpy(here, there, w.length); break;
                case work_op::write_imm:
                    if constexpr (MovePayload) std::memcpy(there, here, w.length);
                    arrive(w, to, completion_op::recv_write_imm);
                    break;
                case work_op::send:
                    std::memcpy(reinterpret_cast<void*>(receive_of(to, to.consumed).addr), here, w.length);
                    arrive(w, to, completion_op::recv);
                    break;
                case work_op::fetch_add:
                case work_op::cmp_swap: {
                    auto& word = *static_cast<std::uint64_t*>(there);
                    std::memcpy(here, &word, sizeof word);
                    if (w.op == work_op::fetch_add)
                        word += w.swap_add;
                    else if (word == w.compare)
                        word = w.swap_add;
                    break;
                }
            }
        }
        static void arrive(const work& w, qp_body& to, completion_op op) noexcept {
            completion c{};
            c.wr_id = receive_of(to, to.consumed++).wr_id;
            c.byte_len = w.length;
            c.immediate = w.immediate;
            c.qp = to.number;
            c.op = op;
            to.cq->push(c);
        }

        std::shared_ptr<wire> wire_;
        std::unique_ptr<qp_body> body_;
        qpn peer_{};
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
        result<cq> create_cq(std::uint32_t depth) noexcept { return cq{depth}; }
        result<qp> create_qp(cq& c, const qp_limits& l) noexcept { return qp{wire_, c.state(), l.recv_depth}; }
        result<mr> register_memory(void*, std::size_t) noexcept { return mr{wire_->next++}; }
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
