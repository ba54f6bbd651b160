#pragma once
/// \file
/// From what was found in a machine (`found_*`) to its topology. Whoever reads the machine (sysfs, hwloc) fills these in; what
/// is made of them can be tested without it. Set-up only, any thread.

#include <vccl/model/path_distance.hpp>

#include <string>

namespace vccl::inline v0 {

/// A port of a NIC that was found.
struct found_port {
    unsigned number{1};  ///< 1-based, as the kernel numbers them
    std::uint64_t bytes_per_second{};  ///< line rate now; 0: unknown, or the link is down
};
/// A NIC that was found.
struct found_device {
    std::string name;   ///< "mlx5_0"
    std::string path;   ///< resolved sysfs directory of the PCI function, or empty
    int numa{-1};       ///< -1: unknown, as on machines with one node
    std::vector<found_port> ports;  ///< in the order in which the kernel lists them
};
/// A GPU that was found.
struct found_gpu {
    std::string path;  ///< resolved sysfs directory of the PCI function
    int numa{-1};  ///< -1: unknown
};

namespace detail {

/// Returns: the last part of a device's path if that is a PCI address ("0000:3b:00.0"), else nothing.
inline std::string_view pci_address(std::string_view device_path) noexcept {
    const std::string_view last = device_path.substr(device_path.rfind('/') + 1);
    return last.size() >= 12 && last[last.size() - 2] == '.' && last[last.size() - 5] == ':' ? last : std::string_view{};
}

/// Returns: what two functions of one card share ("…/0000:3b:00"), or nothing. Virtual functions have other slots.
VCCL_COLD inline std::string_view card_of(std::string_view device_path) noexcept {
    return pci_address(device_path).empty() ? std::string_view{} : device_path.substr(0, device_path.rfind('.'));
}

inline bool same_card(std::string_view a, std::string_view b) noexcept { return !card_of(a).empty() && card_of(a) == card_of(b); }

}  // namespace detail

/// The ports of one card, which usually shows one device for each of them, make one NIC. Rails: nothing tells which switch
/// a port is cabled to, so the nth port of every host is taken to be on rail n, as rail-optimised fabrics are built.
VCCL_COLD inline topology arrange(std::string_view host, const std::vector<found_device>& devices,
                                  const std::vector<found_gpu>& gpus) {
    topology t;
    t.hosts.push_back({fixed_name<48>{host}});
    const host_id self{0};
    std::vector<const found_device*> first_of;  // of each NIC
    for (const found_device& device : devices) {
        std::size_t nic = 0;
        while (nic < first_of.size() && !detail::same_card(device.path, first_of[nic]->path)) ++nic;
        if (nic == first_of.size()) {
            first_of.push_back(&device);
            t.nics.push_back(
                {device.name.c_str(), self, static_cast<std::int16_t>(device.numa), detail::pci_address(device.path)});
        }
        const nic_id id{static_cast<std::uint16_t>(nic)};
        for (const found_port& port : device.ports) {
            const auto place = static_cast<std::uint8_t>(t.port_count(id) + 1);
            const rail_id rail{static_cast<std::uint16_t>(t.ports.size())};
            t.ports.push_back(
                {std::string_view{device.name + ":" + std::to_string(port.number)}, id, place, rail, port.bytes_per_second});
        }
    }
    for (const found_gpu& gpu : gpus) {
        const std::string name = "gpu" + std::to_string(t.gpus.size());
        topology::gpu& made = t.gpus.emplace_back();
        made.name = std::string_view{name};
        made.host = self;
        made.numa = static_cast<std::int16_t>(gpu.numa);
        made.pci = detail::pci_address(gpu.path);
        for (const found_device* nic : first_of)
            made.to_nic.push_back(path_distance({gpu.numa, gpu.path}, {nic->numa, nic->path}));
    }
    return t;
}

}  // namespace vccl::inline v0
