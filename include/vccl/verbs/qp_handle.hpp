#pragma once
/// \file
/// The QP that a port hands out, over a body that stays where it is while the handle is moved: others point to it.

#include <vccl/verbs/qp_ladder.hpp>

#include <memory>
#include <span>
#include <utility>

namespace vccl::inline v0::verbs {

/// Models `verbs_qp` over `Body`: a qp_ladder with `post(const work&)` and `post_recv(span)`, and with steps of its own where a
/// step does more. The body's destructor silences it. Sole owner; one thread at a time; after destroy() only destroy().
template <class Body>
class qp_handle {
public:
    /// Makes the body out of `args`. Throws: what that does.
    template <class... Args>
    explicit qp_handle(std::in_place_t, Args&&... args) : body_(std::make_unique<Body>(std::forward<Args>(args)...)) {}

    /// As the concept has them.
    /// @{
    qpn number() const noexcept { return body_->number; }
    result<qp_state> state() noexcept { return body_->state; }
    status to_reset() noexcept { return body_->to_reset(); }
    status to_init() noexcept { return body_->to_init(); }
    status to_ready_to_receive(const qp_peer& p, const qp_timers& t) noexcept { return body_->to_ready_to_receive(p, t); }
    status to_ready_to_send(psn first, const qp_timers& t) noexcept { return body_->to_ready_to_send(first, t); }
    status to_error() noexcept { return body_->to_error(); }
    status post(const work& w) noexcept { return body_->post(w); }
    result<unsigned> post(std::span<const work> many) noexcept {
        unsigned taken = 0;
        status s;
        while (taken < many.size() && (s = post(many[taken]))) ++taken;
        if (taken == 0 && !s && s.code != errc::would_block) return s;
        return taken;
    }
    result<unsigned> post_recv(std::span<const recv_work> many) noexcept { return body_->post_recv(many); }
    status destroy() noexcept {
        body_.reset();
        return {};
    }
    /// @}

private:
    std::unique_ptr<Body> body_;
};

}  // namespace vccl::inline v0::verbs
