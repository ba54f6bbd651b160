#pragma once
/// \file
/// One RC queue pair: connection, requester and responder state. Written by the engine under its lock, except the posted
/// positions of the queues (application) and `state`, which the application reads.
/// Source: InfiniBand Architecture Specification 1.x, 9.7 (reliable service), 10.3.1 (QP states).

#include <vccl/verbs/backend.hpp>
#include <vccl/verbs/soft/packet.hpp>
#include <vccl/verbs/soft/queues.hpp>

namespace vccl::inline v0::verbs::soft_detail {

/// READs and atomics that a requester has under way at most, and responses that a responder keeps to do.
inline constexpr std::uint32_t read_limit = 16, job_limit = 64, atomic_cache_size = 64;

/// Packets sent and not acknowledged, at most.
inline constexpr std::uint32_t window_packets = 512;

/// A response that is still to be sent, in order.
struct response_job {
    opcode op{};
    nak_code nak{};
    std::uint32_t psn{}, packets{}, done{};
    std::uint32_t length{};
    std::uint32_t rkey{};
    std::uint64_t addr{}, value{};
};

struct atomic_result {
    std::uint32_t psn{};
    std::uint64_t value{};
    bool valid{};
};

struct queue_pair {
    // Identity.
    std::uint32_t number{}, life{};
    std::uint32_t domain{};
    std::uint16_t port{};
    completion_queue* cq{};
    std::atomic<qp_state> state{qp_state::reset};

    // Connection.
    std::uint32_t peer{};
    std::uint16_t peer_port{};
    std::uint32_t own_generation{}, peer_generation{};
    std::uint32_t mtu{};
    qp_timers timers{};

    // Engine bookkeeping.
    std::atomic<bool> rung{};   ///< in the doorbell list
    queue_pair* next_rung{};
    bool queued{};              ///< in the run list, or has a turn in the time queue
    std::int64_t timer_event_at{}, wake_at{};  ///< earliest event of the kind in the time queue; 0: none

    // Requester.
    send_queue send;
    std::uint32_t una{};        ///< oldest PSN that is not acknowledged
    std::uint32_t frontier{};   ///< next PSN to give away
    std::uint32_t reads{};      ///< READs and atomics started and not done
    std::uint8_t retries{}, rnr_retries{};
    std::int64_t timeout_at{}, rnr_until{};
    bool stuck{};               ///< never makes a CQE again until it leaves RTS (port_down_behaviour::silent)

    // Responder.
    receive_queue recv;
    std::uint32_t expected{};   ///< next PSN
    bool nak_sent{}, ack_due{};
    struct {
        bool open{};
        opcode op{};
        std::uint32_t left{}, taken{};
        std::uint32_t rkey{};
        std::uint64_t addr{};
    } message;
    response_job jobs[job_limit];
    std::uint32_t jobs_begin{}, jobs_end{};
    atomic_result atomics[atomic_cache_size];
    std::uint32_t atomics_next{};

    bool outstanding() const noexcept { return send.first != send.next || (send.first != send.started); }
    bool can_receive() const noexcept {
        const auto s = state.load(std::memory_order_relaxed);
        return s == qp_state::ready_to_receive || s == qp_state::ready_to_send;
    }
    bool add_job(const response_job& j) noexcept {
        if (jobs_end - jobs_begin == job_limit) return false;
        jobs[jobs_end++ % job_limit] = j;
        return true;
    }
    std::int64_t timeout() const noexcept { return timers.timeout == 0 ? 0 : timers.time_out().count; }

    /// Back to what a new QP is; the number stays.
    void clear() noexcept {
        ++life;
        send.clear();
        recv.clear();
        una = frontier = reads = expected = 0;
        rnr_until = 0;
        stuck = nak_sent = ack_due = false;
        message = {};
        jobs_begin = jobs_end = 0;
        for (auto& a : atomics) a.valid = false;
    }
};

}  // namespace vccl::inline v0::verbs::soft_detail
