#pragma once
/// \file
/// The lanes that each port policy picks for a GPU, as a table, and why. Pure; used by vccl-topo.

#include <vccl/base/status_text.hpp>
#include <vccl/policy/lanes.hpp>
#include <vccl/policy/port_policies.hpp>
#include <vccl/stripe/cut.hpp>
#include <vccl/stripe/ports.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace vccl_topo {

using namespace vccl;

inline std::string name_of(const topology& t, port_id p) { return std::string(t.ports[p.value].name.view()); }

inline std::string distance_text(distance d) {
    if (d <= path::nearest) return "nearest";
    if (d < path::same_root) return std::to_string(d) + " PCI links";
    if (d < path::same_numa) return "through one root complex";
    if (d < path::other_numa) return "same NUMA node";
    if (d < path::unknown) return "another NUMA node";
    return "distance unknown";
}

/// Why a primary: how its NIC lies to the GPU.
inline std::string why_primary(const topology& t, gpu_id g, port_id p) {
    const topology::gpu& gpu = t.gpus[g.value];
    const nic_id n = t.ports[p.value].nic;
    return gpu.to_nic.empty() ? "distances unknown: GPUs take the NICs in turn" : distance_text(gpu.to_nic[n.value]);
}

/// Why a backup: how it lies to the primary.
inline std::string why_backup(const topology& t, gpu_id g, port_id primary, port_id backup) {
    const nic_id own = t.ports[primary.value].nic, other = t.ports[backup.value].nic;
    if (own == other) return "the same NIC's port " + std::to_string(t.ports[backup.value].number);
    if (const auto partner = adjacent_gpu::partner(t, g))
        if (const auto nic = nearest_nic(t, *partner); nic && *nic == other)
            return "NIC of the partner " + std::string(t.gpus[partner->value].name.view());
    return "another NIC: " +
           (t.gpus[g.value].to_nic.empty() ? "distance unknown" : distance_text(t.gpus[g.value].to_nic[other.value]));
}

/// One row of the table.
struct row {
    std::string policy, lanes, rails, why;
};

inline row row_of(const topology& t, gpu_id g, const std::string& policy, const result<lane_list>& lanes) {
    row r{policy, "none", "-", ""};
    if (!lanes) {
        r.why = describe(lanes.error());
        return r;
    }
    r.lanes.clear();
    r.rails.clear();
    for (unsigned l = 0; l < lanes->size(); ++l) {
        const port_id p = (*lanes)[l];
        const char* then = l == 0 ? "" : " > ";
        r.lanes += then + name_of(t, p);
        r.rails += then + std::to_string(t.ports[p.value].rail.value);
        r.why += (l == 0 ? "" : "; ") + (l == 0 ? why_primary(t, g, p) : why_backup(t, g, (*lanes)[0], p));
    }
    if (lanes->size() == 1 && policy != "no_backup") r.why += "; the policy knows no backup for it";
    return r;
}

/// All stock policies, for one channel of a GPU; with more than one stripe, where each begins and goes.
inline std::vector<row> rows_of(const topology& t, gpu_id g, channel_id c, unsigned stripes) {
    std::vector<row> out;
    const auto add = [&](const char* name, const auto& policy) { out.push_back(row_of(t, g, name, lanes_for(t, g, c, policy))); };
    add("no_backup", no_backup{});
    add("sibling_port", sibling_port{});
    add("adjacent_gpu", adjacent_gpu{});
    add("channel_parity", channel_parity{});
    add("first_of<sibling_port, adjacent_gpu>", first_of<sibling_port, adjacent_gpu>{});
    add("each_of<sibling_port, adjacent_gpu>", each_of<sibling_port, adjacent_gpu>{});
    if (stripes < 2) return out;
    const auto primary = nearest_port(t, g);
    const auto ports = primary ? stripe_ports(t, &g, *primary, stripes, no_backup{}) : result<lane_list>(primary.error());
    if (!ports) {
        out.push_back({"stripes<" + std::to_string(stripes) + ">", "none", "-", describe(ports.error())});
        return out;
    }
    for (unsigned i = 0; i < stripes; ++i)
        out.push_back(row_of(t, g, "stripe " + std::to_string(i) + " of " + std::to_string(stripes),
                             lanes_for(t, (*ports)[i], c, stripe_port<no_backup>{{}, *ports})));
    return out;
}

inline std::string table_of(const topology& t, gpu_id g, channel_id c, unsigned stripes) {
    const topology::gpu& gpu = t.gpus[g.value];
    std::string out = std::string(gpu.name.view()) + (gpu.numa >= 0 ? ", NUMA node " + std::to_string(gpu.numa) : "") +
                      (gpu.pci.view().empty() ? "" : ", " + std::string(gpu.pci.view())) + "\n";
    std::vector<row> rows = rows_of(t, g, c, stripes);
    rows.insert(rows.begin(), {"policy", "lanes", "rails", "why"});
    std::size_t width[3]{};
    for (const row& r : rows) {
        width[0] = std::max(width[0], r.policy.size());
        width[1] = std::max(width[1], r.lanes.size());
        width[2] = std::max(width[2], r.rails.size());
    }
    const auto cell = [](const std::string& text, std::size_t n) { return text + std::string(n - text.size() + 2, ' '); };
    for (const row& r : rows)
        out += "  " + cell(r.policy, width[0]) + cell(r.lanes, width[1]) + cell(r.rails, width[2]) + r.why + "\n";
    return out;
}

}  // namespace vccl_topo
