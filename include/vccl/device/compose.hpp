#pragma once
/// \file
/// `device_sender<...>` and `device_receiver<...>`: the policies of host endpoints, and those of device/policy.hpp, in any order,
/// each axis at most once, defaults for the rest.

#include <vccl/device/receiver.hpp>
#include <vccl/device/ring_nic.hpp>
#include <vccl/device/sender.hpp>
#include <vccl/host/compose.hpp>

namespace vccl::inline v0 {

namespace axis {
struct rings {};
}  // namespace axis

namespace detail {

template <class P>
concept device_axis =
    std::same_as<typename axis_of<P>::type, axis::sharing> || std::same_as<typename axis_of<P>::type, axis::doorbell> ||
    std::same_as<typename axis_of<P>::type, axis::space> || std::same_as<typename axis_of<P>::type, axis::rings>;

template <class...>
struct policy_list {};

/// The policies that host endpoints have, too.
template <class Kept, class... Ps>
struct without_device_axes {
    using type = Kept;
};
template <class... Kept, class P, class... Ps>
struct without_device_axes<policy_list<Kept...>, P, Ps...> {
    using type = typename std::conditional_t<device_axis<P>, without_device_axes<policy_list<Kept...>, Ps...>,
                                             without_device_axes<policy_list<Kept..., P>, Ps...>>::type;
};
template <class List>
struct as_policies;
template <class... Ps>
struct as_policies<policy_list<Ps...>> {
    using type = policies<Ps...>;
};

/// Rings that a software NIC over the backend consumes.
template <class Verbs, class Space, class Clock>
struct soft_rings {
    using policy_axis = axis::rings;
    using source = device::ring_nic<Verbs, typename Space::shared, Clock>;
};

template <class... Ps>
struct device_policies : as_policies<typename without_device_axes<policy_list<>, Ps...>::type>::type {
    using host = typename as_policies<typename without_device_axes<policy_list<>, Ps...>::type>::type;
    static_assert(how_many<axis::sharing, Ps...> <= 1 && how_many<axis::doorbell, Ps...> <= 1 &&
                      how_many<axis::space, Ps...> <= 1 && how_many<axis::rings, Ps...> <= 1,
                  "vccl: two policies of a device endpoint on one axis");
    static_assert(host::replay::capacity >= 4, "vccl: a device queue has at least 4 slots: rollback_fifo<4> or more");
    using sharing = typename pick<axis::sharing, shared_by_gpu, Ps...>::type;
    using doorbell = typename pick<axis::doorbell, ring_every<>, Ps...>::type;
    using space = typename pick<axis::space, device::host_space, Ps...>::type;
    using source = typename pick<axis::rings, soft_rings<typename host::verbs, space, typename host::clock>, Ps...>::type::source;
    using queue = device::queue_policy<sharing, doorbell, host::replay::can_replay>;
};

}  // namespace detail

/// `Ps`: one `verbs` policy, and any others of a device sender's axes.
template <class... Ps>
using device_sender = basic_device_sender<detail::device_policies<Ps...>>;
/// `Ps`: one `verbs` policy, and any others of a device receiver's axes.
template <class... Ps>
using device_receiver = basic_device_receiver<detail::device_policies<Ps...>>;

}  // namespace vccl::inline v0
