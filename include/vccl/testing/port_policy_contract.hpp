#pragma once
/// \file
/// What every port policy must do, as a doctest suite that users run on their own:
///     TEST_CASE_TEMPLATE_INVOKE(port_policy_contract, my_policy);
/// and as a plain function for a given policy and topology. Test programs only.

#include <vccl/model/shapes.hpp>
#include <vccl/policy/lanes.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace vccl::inline v0::testing {

namespace detail {

template <class P>
std::string backup_violation(const P& policy, const topology& t, port_id p, channel_id c) {
    const std::string name(t.ports[p.value].name.view());
    const result<port_id> backup = policy.backup_for(t, p, c);
    const result<port_id> again = policy.backup_for(t, p, c);
    if (backup.has_value() != again.has_value() || (backup && *backup != *again)) return name + ": two answers to one question";
    if (!backup && backup.error().code != errc::no_port) return name + ": a missing backup is `no_port`, not another error";
    if (backup && !t.valid(*backup)) return name + ": the backup does not exist";
    if (backup && *backup == p) return name + ": a port cannot back itself up";
    if (backup && t.host_of(*backup) != t.host_of(p)) return name + ": the backup is on another host";
    if constexpr (enumerates_backups<P>) {
        const lane_list all = policy.backups_for(t, p, c);
        if (backup.has_value() == all.empty()) return name + ": backup_for and backups_for disagree on whether there is a backup";
        if (backup && all[0] != *backup) return name + ": the first of backups_for is not backup_for";
        if (all.contains(p)) return name + ": backups_for contains the primary";
        for (port_id b : all)
            if (!t.valid(b) || t.host_of(b) != t.host_of(p))
                return name + ": backups_for names a port of another host or of none";
    }
    return {};
}

template <class P>
std::string primary_violation(const P& policy, const topology& t, gpu_id g, channel_id c) {
    if constexpr (chooses_primary<P>) {
        const std::string name(t.gpus[g.value].name.view());
        const result<port_id> primary = policy.primary_for(t, g, c);
        if (primary && (!t.valid(*primary) || t.host_of(*primary) != t.gpus[g.value].host))
            return name + ": the primary is a port of another host or of none";
    }
    return {};
}

}  // namespace detail

/// Returns: the first rule that the policy breaks over this topology, in words; empty when it keeps them all.
template <class P>
std::string port_policy_violation(const P& policy, const topology& t) {
    const auto count = [](const auto& list) { return static_cast<std::uint16_t>(list.size()); };
    for (std::uint32_t c = 0; c < 4; ++c) {
        const channel_id channel{c};
        for (std::uint16_t i = 0; i < count(t.ports); ++i)
            if (std::string why = detail::backup_violation(policy, t, port_id{i}, channel); !why.empty()) return why;
        for (std::uint16_t i = 0; i < count(t.gpus); ++i)
            if (std::string why = detail::primary_violation(policy, t, gpu_id{i}, channel); !why.empty()) return why;
    }
    if (policy.backup_for(t, port_id{count(t.ports)}, channel_id{0})) return "a port that does not exist has a backup";
    if constexpr (chooses_primary<P>)
        if (policy.primary_for(t, gpu_id{count(t.gpus)}, channel_id{0})) return "a GPU that does not exist has a primary port";
    return {};
}

/// The shapes over which the suite runs: the common ones, and those on which a careless rule stumbles.
inline std::vector<std::pair<std::string, topology>> port_policy_shapes() {
    std::vector<std::pair<std::string, topology>> shapes{
        {"dual-port NICs, one for each of eight GPUs", make_cluster(dual_port_cluster)},
        {"single-port NICs, one for each of eight GPUs", make_cluster(single_port_cluster)},
        {"two dual-port NICs and two GPUs", make_cluster(2, 2, 2, 2)},
        {"an odd number of GPUs", make_cluster(2, 3, 1, 3)},
        {"more GPUs than NICs", make_cluster(2, 2, 1, 8)},
        {"more NICs than GPUs", make_cluster(2, 4, 2, 1)},
        {"four ports on each NIC", make_cluster(2, 2, 4, 2)},
        {"one NIC with one port", make_cluster(2, 1, 1, 1)},
        {"no GPU", make_cluster(2, 2, 2, 0)},
        {"NICs without ports", make_cluster(2, 2, 0, 2)},
        {"nothing at all", topology{}},
    };
    topology unknown = make_cluster(2, 4, 1, 4);
    for (topology::gpu& g : unknown.gpus) g.to_nic.clear();
    shapes.emplace_back("unknown distances", std::move(unknown));
    return shapes;
}

/// For every regular cluster, primary port and channel number tried.
TEST_CASE_TEMPLATE_DEFINE("a port policy names another port of the same host, always the same one, or no_port", P,
                          port_policy_contract) {
    static_assert(check_port_policy<P>::ok);
    const P policy{};
    for (const auto& shape : port_policy_shapes()) {
        const topology& t = shape.second;
        INFO(shape.first);
        CHECK_EQ(port_policy_violation(policy, t), std::string{});
        for (std::uint16_t g = 0; g < t.gpus.size(); ++g) {
            const auto lanes = lanes_for(t, gpu_id{g}, channel_id{0}, policy);
            const std::uint16_t per_host = static_cast<std::uint16_t>(t.gpus.size() / t.hosts.size());
            const auto peer =
                lanes_for(t, gpu_id{static_cast<std::uint16_t>((g + per_host) % t.gpus.size())}, channel_id{0}, policy);
            REQUIRE_EQ(lanes.has_value(), peer.has_value());
            if (!lanes) continue;
            CHECK_MESSAGE(match_rails(rails_of(t, *lanes), rails_of(t, *peer)),
                          "equal GPUs of equal hosts must come to the same rails, or a backup crosses them");
        }
    }
}

}  // namespace vccl::inline v0::testing
