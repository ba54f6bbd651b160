#pragma once
/// \file
/// The port-selection axis: which port stands in when the primary dies, and, if the policy cares, which port is the
/// primary. Asked by both ends, alone, while a channel connects; the set-up thread. Answers depend on the arguments
/// only: both ends must come to the same rails. Users write their own; the sentences below say what one lacks.

#include <vccl/base/time.hpp>
#include <vccl/model/topology.hpp>
#include <vccl/policy/lane_list.hpp>

#include <concepts>

namespace vccl::inline v0 {

namespace detail {

template <class P>
concept says_port_axis = on_axis<P, axis::port>;
template <class P>
concept has_backup_for = requires(const P p, const topology& t, port_id primary, channel_id c) { p.backup_for(t, primary, c); };
template <class P>
concept nothrow_backup_for = requires(const P p, const topology& t, port_id primary, channel_id c) {
    { p.backup_for(t, primary, c) } noexcept;
};
template <class P>
concept typed_backup_for = requires(const P p, const topology& t, port_id primary, channel_id c) {
    { p.backup_for(t, primary, c) } -> std::same_as<result<port_id>>;
};
template <class P>
concept has_primary_for = requires(const P p, const topology& t, gpu_id g, channel_id c) { p.primary_for(t, g, c); };
template <class P>
concept has_backups_for = requires(const P p, const topology& t, port_id primary, channel_id c) { p.backups_for(t, primary, c); };

}  // namespace detail

/// `backup_for(t, primary, c)` names the port of the same host that replaces `primary`; `no_port` means that there is
/// none, any other error stops the connect.
template <class P>
concept port_policy = detail::says_port_axis<P> && detail::nothrow_backup_for<P> && detail::typed_backup_for<P>;

/// A port policy that also chooses the primary port of a GPU's channel. Without it the nearest port is the primary.
template <class P>
concept chooses_primary = requires(const P p, const topology& t, gpu_id g, channel_id c) {
    { p.primary_for(t, g, c) } noexcept -> std::same_as<result<port_id>>;
};

/// A port policy with more than one backup, in the order in which they are tried. The first equals `backup_for`.
template <class P>
concept enumerates_backups = requires(const P p, const topology& t, port_id primary, channel_id c) {
    { p.backups_for(t, primary, c) } noexcept -> std::same_as<lane_list>;
};

/// Instantiate to get the first thing that is wrong with a port policy as one sentence.
template <class P>
struct check_port_policy {
    static_assert(detail::says_port_axis<P>, "vccl: a port policy must say: using policy_axis = vccl::axis::port;");
    static_assert(!detail::says_port_axis<P> || detail::has_backup_for<P>,
                  "vccl: a port policy must have backup_for(const vccl::topology&, vccl::port_id, vccl::channel_id) const");
    static_assert(!detail::has_backup_for<P> || detail::typed_backup_for<P>,
                  "vccl: backup_for must return vccl::result<vccl::port_id>");
    static_assert(!detail::typed_backup_for<P> || detail::nothrow_backup_for<P>,
                  "vccl: backup_for must be noexcept: a failover has no one to catch what it throws");
    static_assert(!detail::has_primary_for<P> || chooses_primary<P>,
                  "vccl: primary_for must be noexcept and return vccl::result<vccl::port_id>");
    static_assert(!detail::has_backups_for<P> || enumerates_backups<P>,
                  "vccl: backups_for must be noexcept and return vccl::lane_list");
    static constexpr bool ok = port_policy<P>;  ///< always true where it compiles
};

/// Returns: all backups of `primary`, whether the policy knows one or several; empty when there is none.
/// An error other than `no_port` is passed on.
template <class P>
result<lane_list> all_backups(const P& policy, const topology& t, port_id primary, channel_id c) noexcept {
    lane_list backups;
    const result<port_id> first = policy.backup_for(t, primary, c);
    if (!first) return first.error().code == errc::no_port ? result<lane_list>{backups} : result<lane_list>{first.error()};
    if constexpr (enumerates_backups<P>) {
        return policy.backups_for(t, primary, c);
    } else {
        backups.add(*first);
        return backups;
    }
}

/// One lane and no backup: a dead port suspends the channel until it returns.
struct no_backup {
    using policy_axis = axis::port;
    /// Always `no_port`: no lane but the primary.
    result<port_id> backup_for(const topology&, port_id primary, channel_id) const noexcept {
        return status{errc::no_port, subject::port, primary.value};
    }
};
static_assert(port_policy<no_backup>);

}  // namespace vccl::inline v0
