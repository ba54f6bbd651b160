#pragma once
/// \file
/// Ready-made topologies for tests, examples and simulations. Set-up only; any thread.

#include <vccl/model/topology.hpp>

#include <string>

namespace vccl::inline v0::verbs {

/// `hosts` hosts named A, B, C … (then H26, H27 …), each with `nics_per_host` NICs "A.nic0" of `ports_per_nic` ports
/// "A.nic0.p0" and `gpus_per_host` GPUs "A.gpu0". Port j of NIC i is cabled to rail i * ports_per_nic + j; GPU g is
/// nearest to NIC g * nics_per_host / gpus_per_host, and farther from the others by their distance in the row.
inline topology soft_topology(unsigned hosts, unsigned nics_per_host, unsigned ports_per_nic, unsigned gpus_per_host) {
    topology t;
    for (unsigned h = 0; h < hosts; ++h) {
        const std::string host = h < 26 ? std::string(1, static_cast<char>('A' + h)) : "H" + std::to_string(h);
        const host_id id{static_cast<std::uint16_t>(h)};
        t.hosts.push_back({std::string_view(host)});
        for (unsigned n = 0; n < nics_per_host; ++n) {
            const std::string nic = host + ".nic" + std::to_string(n);
            const nic_id number{static_cast<std::uint16_t>(t.nics.size())};
            t.nics.push_back({std::string_view(nic), id, static_cast<std::int16_t>(n), {}});
            for (unsigned p = 0; p < ports_per_nic; ++p) {
                const std::string port = nic + ".p" + std::to_string(p);
                t.ports.push_back({std::string_view(port), number, static_cast<std::uint8_t>(p + 1),
                                   rail_id{static_cast<std::uint16_t>(n * ports_per_nic + p)}, 0});
            }
        }
    }
    for (unsigned h = 0; h < hosts; ++h) {
        for (unsigned g = 0; g < gpus_per_host; ++g) {
            topology::gpu gpu{std::string_view(std::string(t.hosts[h].name.view()) + ".gpu" + std::to_string(g)),
                              host_id{static_cast<std::uint16_t>(h)},
                              static_cast<std::int16_t>(g),
                              {},
                              {}};
            const unsigned nearest = h * nics_per_host + g * nics_per_host / gpus_per_host;
            for (unsigned n = 0; n < t.nics.size(); ++n) gpu.to_nic.push_back(1 + (n > nearest ? n - nearest : nearest - n));
            t.gpus.push_back(std::move(gpu));
        }
    }
    return t;
}

}  // namespace vccl::inline v0::verbs
