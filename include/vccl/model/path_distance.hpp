#pragma once
/// \file
/// How far apart two PCI devices of a host are, from what the kernel says about each: its NUMA node and its place in the
/// PCI tree. Pure; whoever reads the machine passes the strings in. Any thread.

#include <vccl/model/topology.hpp>

#include <string_view>

namespace vccl::inline v0 {

/// Where a device hangs. `path` is its resolved sysfs directory, such as
/// "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", or empty when unknown; only what follows "/pci" counts.
struct device_place {
    int numa{-1};  ///< -1: unknown
    std::string_view path;  ///< not kept beyond the call
};

/// Distances by kind of path. Below `same_root` a distance is the number of PCI links between the devices.
namespace path {
inline constexpr distance nearest = 1;       ///< said to be the nearest, by whoever wrote the topology
inline constexpr distance same_root = 100;   ///< one root complex: the path climbs to the CPU
inline constexpr distance same_numa = 200;   ///< another root complex of the same NUMA node
inline constexpr distance other_numa = 300;  ///< between NUMA nodes
inline constexpr distance unknown = 400;     ///< the kernel said too little
}  // namespace path

/// Returns: the distance between two devices of one host; symmetric.
constexpr distance path_distance(device_place a, device_place b) noexcept {
    constexpr auto tree = [](std::string_view p) {
        const std::size_t at = p.find("/pci");
        return at == std::string_view::npos ? std::string_view{} : p.substr(at + 1);
    };
    constexpr auto links = [](std::string_view p) {
        distance n = 0;
        for (char c : p) n += c == '/' ? 1U : 0U;
        return n;
    };
    const std::string_view x = tree(a.path), y = tree(b.path);
    std::size_t common = 0;  // length of the shared part, up to a whole directory
    for (std::size_t i = 0; i <= x.size() && i <= y.size(); ++i) {
        const bool end_x = i == x.size() || x[i] == '/', end_y = i == y.size() || y[i] == '/';
        if (end_x && end_y) common = i;
        if (i == x.size() || i == y.size() || x[i] != y[i]) break;
    }
    if (common != 0) {
        if (x.substr(0, common).find('/') == std::string_view::npos) return path::same_root;
        const distance n = links(x.substr(common)) + links(y.substr(common));
        return n < path::same_root ? n : path::same_root - 1;
    }
    if (a.numa < 0 || b.numa < 0) return path::unknown;
    return a.numa == b.numa ? path::same_numa : path::other_numa;
}

}  // namespace vccl::inline v0
