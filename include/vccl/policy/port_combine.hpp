#pragma once
/// \file
/// Port policies made of port policies: `first_of` asks one after the other, `each_of` takes the backups of all.
/// Both choose the primary as the first member does that chooses one. Asked at connect; set-up thread.

#include <vccl/policy/port.hpp>

#include <utility>

namespace vccl::inline v0 {

namespace detail {

/// The members of a combination, first to last. Unlike std::tuple it costs no compile time and may be constant.
template <class... Ps>
struct port_policies {};

template <class P, class... Rest>
struct port_policies<P, Rest...> {
    static_assert(check_port_policy<P>::ok);
    [[no_unique_address]] P head{};
    [[no_unique_address]] port_policies<Rest...> rest{};

    constexpr port_policies() noexcept = default;
    constexpr explicit port_policies(P p, Rest... r) noexcept : head(std::move(p)), rest(std::move(r)...) {}

    /// Returns: what `ask` answers for the first member to which it gives anything but `no_port`.
    template <class Ask>
    result<port_id> first_answer(const Ask& ask) const noexcept {
        const result<port_id> mine = ask(head);
        if constexpr (sizeof...(Rest) == 0) {
            return mine;
        } else {
            return mine || mine.error().code != errc::no_port ? mine : rest.first_answer(ask);
        }
    }
    template <class Use>
    void each(const Use& use) const noexcept {
        use(head);
        if constexpr (sizeof...(Rest) != 0) rest.each(use);
    }
};

template <class... Ps>
struct port_combination {
    static_assert(sizeof...(Ps) != 0, "vccl: first_of and each_of combine at least one port policy");
    using policy_axis = axis::port;
    port_policies<Ps...> members{};

    constexpr port_combination() noexcept = default;
    constexpr explicit port_combination(Ps... ps) noexcept : members(std::move(ps)...) {}

    result<port_id> backup_for(const topology& t, port_id primary, channel_id c) const noexcept {
        return members.first_answer([&](const auto& p) noexcept { return p.backup_for(t, primary, c); });
    }
    result<port_id> primary_for(const topology& t, gpu_id g, channel_id c) const noexcept
        requires(chooses_primary<Ps> || ...)
    {
        return members.first_answer([&]<class P>(const P& p) noexcept -> result<port_id> {
            if constexpr (chooses_primary<P>)
                return p.primary_for(t, g, c);
            else
                return errc::no_port;
        });
    }
};

}  // namespace detail

/// The first member that knows a backup decides: first_of<sibling_port, adjacent_gpu>.
template <class... Ps>
struct first_of : detail::port_combination<Ps...> {
    using detail::port_combination<Ps...>::port_combination;

    /// All backups of the first member that knows one.
    lane_list backups_for(const topology& t, port_id primary, channel_id c) const noexcept {
        lane_list backups;
        this->members.each([&](const auto& p) noexcept {
            if (!backups.empty()) return;
            if (const auto more = all_backups(p, t, primary, c)) backups = *more;
        });
        return backups;
    }
};

/// The backups of every member, one member after the other, no port twice: each_of<sibling_port, adjacent_gpu>.
template <class... Ps>
struct each_of : detail::port_combination<Ps...> {
    using detail::port_combination<Ps...>::port_combination;

    /// The backups of all members, each port once.
    lane_list backups_for(const topology& t, port_id primary, channel_id c) const noexcept {
        lane_list backups;
        this->members.each([&](const auto& p) noexcept {
            const auto more = all_backups(p, t, primary, c);
            if (!more) return;
            for (port_id b : *more)
                if (!backups.add(b)) return;
        });
        return backups;
    }
};

}  // namespace vccl::inline v0
