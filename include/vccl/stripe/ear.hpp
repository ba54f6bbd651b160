#pragma once
/// \file
/// What a stripe's endpoint has for a completion handler: passes on to the user's what concerns one stripe, with its number.
/// Chunks are reported by the striped endpoint, when all stripes are done with them. Owner thread.

#include <vccl/policy/completion.hpp>

namespace vccl::inline v0::detail {

template <class Handler>
struct stripe_ear {
    using policy_axis = axis::completion;
    Handler* to{};
    std::uint8_t stripe{};

    void on_event(channel_event e) noexcept {
        e.stripe = stripe;
        if constexpr (hears_events<Handler>) to->on_event(e);
    }
    void on_polled(const completion& c) noexcept
        requires hears_completions<Handler>
    {
        to->on_polled(c);
    }
    verdict on_error(const completion& c) noexcept {
        if constexpr (judges_errors<Handler>)
            return to->on_error(c);
        else
            return stock_verdict(c.status);
    }
};

}  // namespace vccl::inline v0::detail
