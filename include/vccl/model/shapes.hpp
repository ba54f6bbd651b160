#pragma once
/// \file
/// Topologies of regular clusters, for tests, examples and the software RNIC. Any thread.

#include <vccl/model/path_distance.hpp>
#include <vccl/model/topology.hpp>

#include <string>

namespace vccl::inline v0 {

/// "A" … "Z", "AA", "AB" …
inline std::string host_letters(unsigned index) {
    std::string out;
    for (unsigned n = index + 1; n != 0; n = (n - 1) / 26) out.insert(out.begin(), static_cast<char>('A' + (n - 1) % 26));
    return out;
}

/// What a regular cluster is made of.
struct cluster_shape {
    unsigned hosts{2};  ///< named A, B, ... in this order
    unsigned nics_per_host{2};  ///< A.nic0, A.nic1, ...
    unsigned ports_per_nic{2};                       ///< A.nic0.p0, ...; port r of NIC n is on the same rail on every host.
    unsigned gpus_per_host{2};                       ///< A.gpu0, ...; they share the NICs out evenly
    std::uint64_t bytes_per_second{25'000'000'000};  ///< 200 Gb/s a port
};

/// The cluster of VCCL's fault-tolerance design with dual-port NICs: eight GPUs a host, each with its own NIC.
inline constexpr cluster_shape dual_port_cluster{.hosts = 2, .nics_per_host = 8, .ports_per_nic = 2, .gpus_per_host = 8};
/// The same with single-port NICs.
inline constexpr cluster_shape single_port_cluster{.hosts = 2, .nics_per_host = 8, .ports_per_nic = 1, .gpus_per_host = 8};

/// Requires: fewer than 65,536 of each thing in all.
/// Returns: hosts "A", "B" …, "A.nic0", "A.nic0.p0" (port number 1), "A.gpu0". The rail is the port's place in its host,
/// so that equal names after the host are on one rail. GPUs share the NICs out evenly, in order; the first half of a
/// host's NICs and GPUs is on NUMA node 0, the rest on node 1.
inline topology make_cluster(const cluster_shape& shape) {
    topology t;
    for (unsigned h = 0; h < shape.hosts; ++h) {
        const std::string host = host_letters(h);
        const host_id id{static_cast<std::uint16_t>(h)};
        t.hosts.push_back({std::string_view(host)});
        for (unsigned n = 0; n < shape.nics_per_host; ++n) {
            const std::string nic = host + ".nic" + std::to_string(n);
            const nic_id at{static_cast<std::uint16_t>(t.nics.size())};
            t.nics.push_back(
                {std::string_view(nic), id, static_cast<std::int16_t>(2 * n >= shape.nics_per_host && n != 0 ? 1 : 0), {}});
            for (unsigned p = 0; p < shape.ports_per_nic; ++p)
                t.ports.push_back({std::string_view(nic + ".p" + std::to_string(p)), at, static_cast<std::uint8_t>(p + 1),
                                   rail_id{static_cast<std::uint16_t>(n * shape.ports_per_nic + p)}, shape.bytes_per_second});
        }
        for (unsigned g = 0; g < shape.gpus_per_host; ++g)
            t.gpus.push_back({std::string_view(host + ".gpu" + std::to_string(g)),
                              id,
                              static_cast<std::int16_t>(2 * g >= shape.gpus_per_host && g != 0 ? 1 : 0),
                              {},
                              {}});
    }
    for (std::size_t i = 0; i < t.gpus.size(); ++i) {
        topology::gpu& gpu = t.gpus[i];
        const std::size_t own = shape.nics_per_host * (i % shape.gpus_per_host) / shape.gpus_per_host;
        for (std::size_t n = 0; n < t.nics.size(); ++n) {
            const bool nearest = t.nics[n].host == gpu.host && n % shape.nics_per_host == own;
            gpu.to_nic.push_back(nearest ? path::nearest : path_distance({gpu.numa, {}}, {t.nics[n].numa, {}}));
        }
    }
    return t;
}

/// The same from four numbers, 200 Gb/s a port.
inline topology make_cluster(unsigned hosts, unsigned nics_per_host, unsigned ports_per_nic, unsigned gpus_per_host) {
    return make_cluster(
        {.hosts = hosts, .nics_per_host = nics_per_host, .ports_per_nic = ports_per_nic, .gpus_per_host = gpus_per_host});
}

}  // namespace vccl::inline v0
