#pragma once
/// \file
/// A host's topology through hwloc: of the machine that this runs on, or of another one from hwloc's XML (`lstopo x.xml`).
/// Needs libhwloc 2, but neither rights on the NICs nor libibverbs; it does not know the ports' rates. Set-up only, any thread.

#include <vccl/base/owned.hpp>
#include <vccl/model/machine.hpp>

#include <hwloc.h>

#include <cstdio>

namespace vccl::inline v0 {

namespace detail {

struct destroy_hwloc {
    void operator()(hwloc_topology* t) const noexcept { hwloc_topology_destroy(t); }
};
using hwloc_machine = owned<hwloc_topology, destroy_hwloc>;

VCCL_COLD inline std::string hwloc_address(const decltype(hwloc_obj_attr_u::pcidev)& a) {
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.%01x", unsigned{a.domain}, a.bus, a.dev, a.func);
    return text;
}

/// As sysfs would name its place: "/pci0000:3a/0000:3a:00.0/0000:3b:00.0".
VCCL_COLD inline std::string hwloc_path(hwloc_obj_t device) {
    std::string path;
    for (hwloc_obj_t o = device; o; o = o->parent) {
        if (o->type == HWLOC_OBJ_PCI_DEVICE) path = "/" + hwloc_address(o->attr->pcidev) + path;
        if (o->type != HWLOC_OBJ_BRIDGE) continue;
        const auto& b = o->attr->bridge;
        if (b.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
            path = "/" + hwloc_address(b.upstream.pci) + path;
        } else {
            char root[32];
            std::snprintf(root, sizeof root, "/pci%04x:%02x", unsigned{b.downstream.pci.domain}, b.downstream.pci.secondary_bus);
            path = root + path;
        }
    }
    return path;
}
VCCL_COLD inline int hwloc_numa(hwloc_topology* t, hwloc_obj_t device) {
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(t, device);
    return near && near->nodeset && hwloc_bitmap_weight(near->nodeset) == 1 ? hwloc_bitmap_first(near->nodeset) : -1;
}

/// A device's ports: hwloc notes a state for each.
VCCL_COLD inline std::vector<found_port> hwloc_ports(hwloc_obj_t device) {
    std::vector<found_port> out;
    for (unsigned n = 1; hwloc_obj_get_info_by_name(device, ("Port" + std::to_string(n) + "State").c_str()); ++n)
        out.push_back({n, 0});
    if (out.empty()) out.push_back({});
    return out;
}

VCCL_COLD inline result<topology> topology_of(std::string_view host, hwloc_topology* t) {
    std::vector<found_device> nics;
    std::vector<found_gpu> gpus;
    for (hwloc_obj_t o = hwloc_get_next_osdev(t, nullptr); o != nullptr; o = hwloc_get_next_osdev(t, o))
        if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            nics.push_back({o->name, hwloc_path(o), hwloc_numa(t, o), hwloc_ports(o)});
    constexpr unsigned nvidia = 0x10de, display = 0x03;
    for (hwloc_obj_t o = hwloc_get_next_pcidev(t, nullptr); o != nullptr; o = hwloc_get_next_pcidev(t, o))
        if (o->attr->pcidev.vendor_id == nvidia && o->attr->pcidev.class_id >> 8 == display)
            gpus.push_back({hwloc_path(o), hwloc_numa(t, o)});
    if (nics.empty()) return errc::no_device;
    return arrange(host, nics, gpus);
}

}  // namespace detail

/// `xml`: a file that hwloc wrote, or null for this machine. Returns: the host's NICs, ports and GPUs, with their distances.
/// Errors: parse_error (not hwloc's XML), no_device (no RDMA device is in it), no_memory, system.
VCCL_COLD inline result<topology> topology_from_hwloc(std::string_view host, const char* xml = nullptr) {
    hwloc_topology* made = nullptr;
    if (hwloc_topology_init(&made) != 0) return errc::no_memory;
    const detail::hwloc_machine t(made);
    if (xml && hwloc_topology_set_xml(made, xml) != 0) return errc::parse_error;
    if (hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_ALL) != 0) return errc::system;
    if (hwloc_topology_load(made) != 0) return xml ? errc::parse_error : errc::system;
    return detail::topology_of(host, made);
}

}  // namespace vccl::inline v0
