#pragma once
/// \file
/// `striped_sender<…>` and `striped_receiver<…>`: as host_sender and host_receiver, with two further axes in any order:
/// `stripes<N>` and a share policy. With one stripe, the default, they are the host endpoints themselves.

#include <vccl/host/compose.hpp>
#include <vccl/stripe/receiver.hpp>
#include <vccl/stripe/sender.hpp>

namespace vccl::inline v0 {

namespace detail {

template <class P>
inline constexpr bool of_stripes =
    std::same_as<typename axis_of<P>::type, axis::share> || std::same_as<typename axis_of<P>::type, axis::stripes>;

template <class... Ps>
struct policy_pack {
    template <template <class...> class To>
    using into = To<Ps...>;
};

/// The policies that are the host endpoints' own business.
template <class Kept, class... Ps>
struct host_policies {
    using type = Kept;
};
template <class... Kept, class P, class... Ps>
struct host_policies<policy_pack<Kept...>, P, Ps...>
    : host_policies<std::conditional_t<of_stripes<P>, policy_pack<Kept...>, policy_pack<Kept..., P>>, Ps...> {};

template <unsigned Count, class Share>
struct striped {
    template <class... As>
    using sender = basic_striped_sender<Count, Share, As...>;
    template <class... As>
    using receiver = basic_striped_receiver<Count, Share, As...>;
};
template <class Share>
struct striped<1, Share> {
    template <class... As>
    using sender = basic_host_sender<As...>;
    template <class... As>
    using receiver = basic_host_receiver<As...>;
};

template <class... Ps>
struct striped_policies {
    static_assert(how_many<axis::stripes, Ps...> <= 1 && how_many<axis::share, Ps...> <= 1,
                  "vccl: stripes<N> and a share policy at most once each");
    using share = typename pick<axis::share, equal_finish, Ps...>::type;
    static_assert(share_policy<share>,
                  "vccl: a share policy needs a constant levels and std::uint64_t rate(const stripe_view&) const noexcept");
    using host = typename host_policies<policy_pack<>, Ps...>::type::template into<policies>;
    using made_of = striped<pick<axis::stripes, stripes<1>, Ps...>::type::count, share>;
    using sender = typename endpoint_of<made_of::template sender, host, typename host::progress>::type;
    using receiver = typename endpoint_of<made_of::template receiver, host, typename host::progress>::type;
};

}  // namespace detail

/// `Ps`: a sender's policies, `stripes<N>`, a share policy.
template <class... Ps>
using striped_sender = typename detail::striped_policies<Ps...>::sender;
/// `Ps`: a receiver's policies, `stripes<N>`; a share policy here counts for nothing.
template <class... Ps>
using striped_receiver = typename detail::striped_policies<Ps...>::receiver;

}  // namespace vccl::inline v0
