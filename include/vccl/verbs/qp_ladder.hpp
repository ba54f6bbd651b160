#pragma once
/// \file
/// Where a QP is and whom it is connected to: what is alike in all software QPs that one thread uses.

#include <vccl/verbs/backend.hpp>

namespace vccl::inline v0::verbs {

/// A base for the QP of a backend of one's own. A step out of order is refused and changes nothing; emptying the queues is
/// up to who derives from it.
struct qp_ladder {
    vccl::qpn number{};                ///< given by the backend, for life
    qp_state state{qp_state::reset};   ///< changed by the steps below only
    qp_peer peer{};                    ///< as of the last step to RTR
    psn first_psn{};                   ///< as of the last step to RTS, like the next
    qp_timers timers{};                ///< how long a send tries

    /// The steps of the concept `verbs_qp`. Errors: invalid_argument with the QP's number: out of order.
    /// @{
    status to_reset() noexcept {
        state = qp_state::reset;
        return {};
    }
    status to_init() noexcept { return step(qp_state::reset, qp_state::init); }
    status to_ready_to_receive(const qp_peer& p, const qp_timers&) noexcept {
        if (status s = step(qp_state::init, qp_state::ready_to_receive); !s) return s;
        peer = p;
        return {};
    }
    status to_ready_to_send(psn first, const qp_timers& t) noexcept {
        if (status s = step(qp_state::ready_to_receive, qp_state::ready_to_send); !s) return s;
        first_psn = first;
        timers = t;
        return {};
    }
    status to_error() noexcept {
        state = qp_state::error;
        return {};
    }
    /// @}

    /// May sends be posted? In ERR they are flushed.
    bool takes_sends() const noexcept { return state == qp_state::ready_to_send || state == qp_state::error; }
    /// May receives be posted, to be used later?
    bool takes_receives() const noexcept { return state != qp_state::reset && state != qp_state::error; }
    /// Does what `sender` sends arrive here? Not if this QP was connected to a former life of it.
    bool hears(const qp_ladder& sender) const noexcept {
        return (state == qp_state::ready_to_receive || state == qp_state::ready_to_send) && peer.number == sender.number &&
               peer.first_psn == sender.first_psn;
    }

private:
    status step(qp_state from, qp_state to) noexcept {
        if (state != from) return {errc::invalid_argument, number.value};
        state = to;
        return {};
    }
};

}  // namespace vccl::inline v0::verbs
