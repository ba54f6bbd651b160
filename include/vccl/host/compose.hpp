#pragma once
/// \file
/// `host_sender<…>` and `host_receiver<…>`: policies in any order, each axis at most once, defaults for the rest; every
/// order gives the same type. A policy that lacks something is named in one sentence before anything else is compiled.

#include <vccl/host/proxy.hpp>
#include <vccl/host/receiver.hpp>
#include <vccl/host/sender.hpp>
#include <vccl/host/tcp_oob.hpp>
#include <vccl/policy/port_policies.hpp>

namespace vccl::inline v0 {

namespace detail {

template <class P>
concept has_axis = requires { typename P::policy_axis; };

template <class P>
struct axis_of {
    using type = void;
};
template <has_axis P>
struct axis_of<P> {
    using type = typename P::policy_axis;
};

template <class Axis, class Default, class... Ps>
struct pick {
    using type = Default;
};
template <class Axis, class Default, class P, class... Ps>
struct pick<Axis, Default, P, Ps...> {
    using type = std::conditional_t<std::same_as<typename axis_of<P>::type, Axis>, P, typename pick<Axis, Default, Ps...>::type>;
};

template <class Axis, class... Ps>
inline constexpr unsigned how_many = (0u + ... + unsigned{std::same_as<typename axis_of<Ps>::type, Axis>});

template <class P>
concept known_axis =
    std::same_as<typename axis_of<P>::type, axis::verbs> || std::same_as<typename axis_of<P>::type, axis::port> ||
    std::same_as<typename axis_of<P>::type, axis::group> || std::same_as<typename axis_of<P>::type, axis::completion> ||
    std::same_as<typename axis_of<P>::type, axis::replay> || std::same_as<typename axis_of<P>::type, axis::failback> ||
    std::same_as<typename axis_of<P>::type, axis::detect> || std::same_as<typename axis_of<P>::type, axis::progress> ||
    std::same_as<typename axis_of<P>::type, axis::clock> || std::same_as<typename axis_of<P>::type, axis::oob>;

struct no_backend {};

/// The ladder: the first thing that is wrong, as a sentence.
template <class... Ps>
struct policies {
    static_assert((has_axis<Ps> && ...),
                  "vccl: every policy of a host_sender or host_receiver must say which axis it is on: using policy_axis = "
                  "vccl::axis::...;");
    static_assert((!has_axis<Ps> || ...) || (known_axis<Ps> && ...),
                  "vccl: a policy_axis of a host_sender or host_receiver must be one of vccl::axis");
    static_assert(
        how_many<axis::verbs, Ps...> == 1,
        "vccl: a host_sender or host_receiver needs exactly one verbs backend, such as vccl::verbs::ibv or vccl::verbs::soft");
    static_assert(
        how_many<axis::port, Ps...> <= 1 && how_many<axis::group, Ps...> <= 1 && how_many<axis::replay, Ps...> <= 1 &&
            how_many<axis::failback, Ps...> <= 1 && how_many<axis::detect, Ps...> <= 1 && how_many<axis::progress, Ps...> <= 1 &&
            how_many<axis::clock, Ps...> <= 1 && how_many<axis::oob, Ps...> <= 1,
        "vccl: two policies on one axis; combine port policies with first_of<...> and handlers with on_completion<...>");
    static_assert(how_many<axis::completion, Ps...> <= 1,
                  "vccl: two completion handlers; combine them: on_completion<First, Second>");

    using verbs = typename pick<axis::verbs, no_backend, Ps...>::type;
    using port = typename pick<axis::port, first_of<sibling_port, adjacent_gpu>, Ps...>::type;
    using group = typename pick<axis::group, qp_group<1>, Ps...>::type;
    using handler = typename pick<axis::completion, on_completion<>, Ps...>::type;
    using replay = typename pick<axis::replay, rollback_fifo<64>, Ps...>::type;
    using failback = typename pick<axis::failback, hold_down<100>, Ps...>::type;
    using detection = typename pick<axis::detect, detect, Ps...>::type;
    using progress = typename pick<axis::progress, caller_driven, Ps...>::type;
    using clock = typename pick<axis::clock, steady_clock, Ps...>::type;
    using oob = typename pick<axis::oob, tcp_oob, Ps...>::type;

    static constexpr bool one_backend = how_many<axis::verbs, Ps...> == 1;
    static_assert(!one_backend || verbs_backend<verbs>,
                  "vccl: the verbs backend does not model verbs_backend; see verbs/backend.hpp and its contract suite");
    static_assert(check_port_policy<port>::ok);
    static_assert(completion_handler<handler>,
                  "vccl: a completion handler needs on_done, on_polled, on_event or on_error, each noexcept and of the form in "
                  "policy/completion.hpp");
    static_assert(replay_log<replay>,
                  "vccl: a replay log needs capacity, can_replay and noexcept record, at and retire; see policy/replay.hpp");
    static_assert(failback_policy<failback>, "vccl: a fail-back policy needs nanoseconds hold(unsigned) const noexcept");
    static_assert(detection_policy<detection>, "vccl: a detection policy needs detection_times times() const noexcept");
    static_assert(clock_source<clock>, "vccl: a clock needs nanoseconds now() const noexcept");
    static_assert(
        oob_channel<oob>,
        "vccl: an out-of-band channel needs listen, connect, advance, send, receive and close, all noexcept; see host/oob.hpp");
};

template <template <class...> class Basic, class P, class Progress>
struct endpoint_of {
    using type = Basic<typename P::verbs, typename P::port, typename P::group, typename P::handler, typename P::replay,
                       typename P::failback, typename P::detection, typename P::clock, typename P::oob>;
};
template <template <class...> class Basic, class P>
struct endpoint_of<Basic, P, proxy_thread> {
    using type = proxied<typename endpoint_of<Basic, P, caller_driven>::type>;
};

}  // namespace detail

/// `Ps`: one `verbs` policy, and any others of a sender's axes.
template <class... Ps>
using host_sender =
    typename detail::endpoint_of<basic_host_sender, detail::policies<Ps...>, typename detail::policies<Ps...>::progress>::type;
/// `Ps`: one `verbs` policy, and any others of a receiver's axes.
template <class... Ps>
using host_receiver =
    typename detail::endpoint_of<basic_host_receiver, detail::policies<Ps...>, typename detail::policies<Ps...>::progress>::type;

}  // namespace vccl::inline v0
