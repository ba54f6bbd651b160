#pragma once
/// \file
/// What libibverbs and sysfs say of this host: devices and their ports, NVIDIA GPUs, where they hang; model/machine.hpp
/// makes the topology of it. Called by `ibv::discover`; set-up only, any thread.

#include <vccl/base/owned.hpp>
#include <vccl/model/machine.hpp>
#include <vccl/verbs/ibv/port.hpp>
#include <vccl/verbs/ibv/sysfs.hpp>

namespace vccl::inline v0::verbs::ibv_detail {

/// The netdev of a RoCE port ("eth2"), or nothing.
VCCL_COLD inline std::string netdev_of(const std::string& device, unsigned port) {
    return sysfs::line("/sys/class/infiniband/" + device + "/ports/" + std::to_string(port) + "/gid_attrs/ndevs/0");
}

/// A soft device has no hardware of its own: that of its netdev counts.
VCCL_COLD inline std::string hardware_of(const std::string& device) {
    const std::string own = sysfs::resolve("/sys/class/infiniband/" + device + "/device");
    if (!own.empty()) return own;
    const std::string netdev = netdev_of(device, 1);
    return netdev.empty() ? netdev : sysfs::resolve("/sys/class/net/" + netdev + "/device");
}

VCCL_COLD inline result<std::vector<found_port>> find_ports(ibv_device* device) {
    errno = 0;
    const device_ptr context{ibv_open_device(device)};
    ibv_device_attr attr{};
    if (!context) return why_not_open(*device, errno);
    if (const int rc = ibv_query_device(context.get(), &attr); rc != 0) return from_return(rc);
    std::vector<found_port> out;
    for (unsigned number = 1; number <= attr.phys_port_cnt; ++number) {
        ibv_port_attr port{};
        if (const int rc = ibv_query_port(context.get(), static_cast<std::uint8_t>(number), &port); rc != 0)
            return from_return(rc);
        out.push_back({number, bytes_per_second(port.active_speed, port.active_width)});
    }
    return out;
}

struct free_devices {
    void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
};
using device_list = owned<ibv_device*, free_devices>;

inline bool comes_before(std::string_view a, std::string_view b) noexcept {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
}

/// Returns: devices whose name begins with `prefix`, sorted by name; `no_device` when there is none.
VCCL_COLD inline result<std::vector<found_device>> find_devices(std::string_view prefix) {
    int count = 0;
    const device_list list{ibv_get_device_list(&count)};
    if (!list) return status{errc::no_device, subject::system_error, static_cast<std::uint32_t>(errno)};
    // By name, "mlx5_2" before "mlx5_10"; put in their places one by one, since std::sort costs half a second of compiling.
    std::vector<ibv_device*> chosen;
    for (int i = 0; i < count; ++i) {
        const std::string_view name = ibv_get_device_name(list.get()[i]);
        if (!name.starts_with(prefix)) continue;
        auto at = chosen.end();
        while (at != chosen.begin() && comes_before(name, ibv_get_device_name(*(at - 1)))) --at;
        chosen.insert(at, list.get()[i]);
    }
    std::vector<found_device> out;
    for (ibv_device* device : chosen) {
        const std::string name = ibv_get_device_name(device);
        auto ports = find_ports(device);
        if (!ports) return ports.error();
        const std::string path = hardware_of(name);
        const int numa = path.empty() ? -1 : sysfs::number(path + "/numa_node", -1);
        out.push_back({name, path, numa, std::move(*ports)});
    }
    if (out.empty()) return errc::no_device;
    return out;
}

/// In the order of PCI addresses, as CUDA_DEVICE_ORDER=PCI_BUS_ID has them.
VCCL_COLD inline std::vector<found_gpu> find_gpus() {
    std::vector<found_gpu> out;
    const std::string folder = "/sys/bus/pci/devices/";
    for (const std::string& address : sysfs::entries(folder)) {
        const bool nvidia = sysfs::line(folder + address + "/vendor") == "0x10de";
        const bool display = sysfs::line(folder + address + "/class").starts_with("0x03");
        if (nvidia && display)
            out.push_back({sysfs::resolve(folder + address), sysfs::number(folder + address + "/numa_node", -1)});
    }
    return out;
}

}  // namespace vccl::inline v0::verbs::ibv_detail
