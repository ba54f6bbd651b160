#pragma once
// Policies that read the settings: the stock ones, chosen when the job starts instead of when the plugin is compiled.
#include "settings.hpp"

#include <vccl/policy/port_policies.hpp>

namespace nccl_net {

/// Every other port of the same host, those of the same NIC first.
struct any_other_port {
    using policy_axis = vccl::axis::port;

    vccl::result<vccl::port_id> backup_for(const vccl::topology& t, vccl::port_id primary, vccl::channel_id c) const noexcept {
        const vccl::lane_list all = backups_for(t, primary, c);
        if (all.empty()) return vccl::status{vccl::errc::no_port, primary.value};
        return *all.begin();
    }
    vccl::lane_list backups_for(const vccl::topology& t, vccl::port_id primary, vccl::channel_id c) const noexcept {
        vccl::lane_list out = vccl::sibling_port{}.backups_for(t, primary, c);
        for (std::uint16_t p = 0; p < t.ports.size() && !out.full(); ++p) {
            const vccl::port_id port{p};
            if (port != primary && t.host_of(port) == t.host_of(primary)) (void)out.add(port);
        }
        return out;
    }
};

struct chosen_ports {
    using policy_axis = vccl::axis::port;
    backup_ports which{};

private:
    template <class Ask>
    auto ask(const Ask& ask) const noexcept {
        switch (which) {
            case backup_ports::nearest: return ask(vccl::first_of<vccl::sibling_port, vccl::adjacent_gpu>{});
            case backup_ports::sibling: return ask(vccl::sibling_port{});
            case backup_ports::adjacent: return ask(vccl::adjacent_gpu{});
            case backup_ports::all: return ask(any_other_port{});
            case backup_ports::none: break;
        }
        return ask(vccl::no_backup{});
    }

public:
    vccl::result<vccl::port_id> backup_for(const vccl::topology& t, vccl::port_id primary, vccl::channel_id c) const noexcept {
        return ask([&](const auto& p) { return p.backup_for(t, primary, c); });
    }
    vccl::lane_list backups_for(const vccl::topology& t, vccl::port_id primary, vccl::channel_id c) const noexcept {
        return ask([&](const auto& p) {
            const auto list = vccl::all_backups(p, t, primary, c);
            return list ? *list : vccl::lane_list{};
        });
    }
};

/// Held down for a chosen time, doubled for each earlier failure of the lane, up to four times, as `vccl::hold_down` does.
struct chosen_failback {
    using policy_axis = vccl::axis::failback;
    vccl::nanoseconds first{};
    constexpr vccl::nanoseconds hold(unsigned times_failed) const noexcept {
        if (first == vccl::nanoseconds::never()) return first;
        return first * (std::int64_t{1} << (times_failed < 2 ? 0 : times_failed == 2 ? 1 : 2));
    }
};

static_assert(vccl::port_policy<chosen_ports> && vccl::failback_policy<chosen_failback>);

}  // namespace nccl_net
