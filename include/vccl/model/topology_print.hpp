#pragma once
/// \file
/// A topology as the text that parse_topology reads back to an equal one. Distances to NICs of other hosts have no
/// meaning and are not printed. Set-up only, any thread.

#include <vccl/model/path_distance.hpp>
#include <vccl/model/topology.hpp>

#include <string>

namespace vccl::inline v0 {

namespace detail {

/// " host=A" unless the name says so already.
inline std::string belongs_to(std::string_view name, std::string_view key, std::string_view parent) {
    const std::size_t dot = name.rfind('.');
    if (dot != std::string_view::npos && name.substr(0, dot) == parent) return {};
    return " " + std::string(key) + "=" + std::string(parent);
}

inline std::string rate_text(std::uint64_t bytes_per_second) {
    constexpr std::string_view prefixes = "kMGT";
    std::string unit;
    for (std::size_t i = 0; i < prefixes.size() && bytes_per_second % 1000 == 0 && bytes_per_second != 0; ++i) {
        bytes_per_second /= 1000;
        unit = prefixes[i];
    }
    return std::to_string(bytes_per_second) + unit + "B/s";
}

inline std::string place_text(std::int16_t numa, std::string_view pci) {
    std::string out;
    if (numa >= 0) out += " numa=" + std::to_string(numa);
    if (!pci.empty()) out += " pci=" + std::string(pci);
    return out;
}

/// " near=…" where that says it all, else " to=…", or nothing where the NUMA nodes say it.
inline std::string distances_text(const topology& t, const topology::gpu& g) {
    if (g.to_nic.empty() && !t.nics.empty()) return " to=unknown";
    std::string near, to;
    bool near_says_all = true;
    for (std::size_t n = 0; n < t.nics.size(); ++n) {
        if (t.nics[n].host != g.host) continue;
        const std::string name(t.nics[n].name.view());
        const distance d = g.to_nic[n];
        if (d == path::nearest)
            near += (near.empty() ? " near=" : ",") + name;
        else
            near_says_all = near_says_all && d == path_distance({g.numa, {}}, {t.nics[n].numa, {}});
        to += (to.empty() ? " to=" : ",") + name + ":" + std::to_string(d);
    }
    return near_says_all ? near : to;
}

}  // namespace detail

/// Requires: validate(t).
inline std::string print_topology(const topology& t) {
    std::string out;
    for (const auto& h : t.hosts) out += "host " + std::string(h.name.view()) + "\n";
    for (const auto& n : t.nics)
        out += "nic " + std::string(n.name.view()) +
               detail::belongs_to(n.name.view(), "host", t.hosts[n.host.value].name.view()) +
               detail::place_text(n.numa, n.pci.view()) + "\n";
    for (const auto& p : t.ports)
        out += "port " + std::string(p.name.view()) + detail::belongs_to(p.name.view(), "nic", t.nics[p.nic.value].name.view()) +
               " number=" + std::to_string(p.number) + " rail=" + std::to_string(p.rail.value) +
               (p.bytes_per_second != 0 ? " rate=" + detail::rate_text(p.bytes_per_second) : std::string()) + "\n";
    for (const auto& g : t.gpus)
        out += "gpu " + std::string(g.name.view()) +
               detail::belongs_to(g.name.view(), "host", t.hosts[g.host.value].name.view()) +
               detail::place_text(g.numa, g.pci.view()) + detail::distances_text(t, g) + "\n";
    return out;
}

}  // namespace vccl::inline v0
