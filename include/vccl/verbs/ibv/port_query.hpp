#pragma once
/// \file
/// What a port is now: state, MTU, rate, and the GID to use. Called by `port::query` and, since RoCE may renumber its GID
/// table after a flap, again each time a QP goes to RTR. May block for a system call; owner's thread.
/// Source: rdma-core's ibv_query_port and ibv_query_gid_table; IBA 1.4 table of PortInfo speeds and widths.

#include <vccl/verbs/backend.hpp>
#include <vccl/verbs/ibv/error.hpp>
#include <vccl/verbs/ibv/neighbour.hpp>

#include <infiniband/verbs.h>

#include <cstring>

namespace vccl::inline v0::verbs {

/// How packets of a backend's QPs are marked and addressed. The stock values suit most fabrics.
struct ibv_path {
    std::int16_t gid_index{-1};     ///< -1: the best of the port's table
    std::uint16_t pkey_index{0};
    std::uint8_t traffic_class{0};  ///< roCE: DSCP in the upper six bits
    std::uint8_t service_level{0};
    std::uint8_t hop_limit{64};
};

namespace ibv_detail {

constexpr std::uint32_t mtu_bytes(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }
static_assert(mtu_bytes(IBV_MTU_256) == 256 && mtu_bytes(IBV_MTU_4096) == 4096);

/// Returns: the largest MTU of the standard that is not above `bytes`; `invalid_argument` below 256.
constexpr result<ibv_mtu> mtu_of(std::uint32_t bytes) noexcept {
    if (bytes < 256) return status{errc::invalid_argument, bytes};
    ibv_mtu mtu = IBV_MTU_256;
    while (mtu != IBV_MTU_4096 && mtu_bytes(static_cast<ibv_mtu>(mtu + 1)) <= bytes) mtu = static_cast<ibv_mtu>(mtu + 1);
    return mtu;
}

/// Payload bits per second of one lane at this speed code, in units of 100 Mbit/s; 0 if the code is not known.
constexpr std::uint64_t lane_speed(unsigned code) noexcept {
    switch (code) {
        case 1: return 20;      // SDR, 8b/10b
        case 2: return 40;      // DDR
        case 4: return 80;      // QDR
        case 8: return 100;     // FDR10
        case 16: return 136;    // FDR
        case 32: return 250;    // EDR, and 25 Gbit/s Ethernet
        case 64: return 500;    // HDR
        case 128: return 1000;  // NDR
        default: return 0;
    }
}

constexpr unsigned lane_count(unsigned code) noexcept {
    switch (code) {
        case 1: return 1;
        case 2: return 4;
        case 4: return 8;
        case 8: return 12;
        case 16: return 2;
        default: return 0;
    }
}

constexpr std::uint64_t bytes_per_second(unsigned speed, unsigned width) noexcept {
    return lane_speed(speed) * lane_count(width) * 100'000'000 / 8;
}

/// How good a GID is for a QP, the higher the better; 0 for one that will not do. RoCE v2 can be routed and is what
/// switches are set up for; an IPv4-mapped address is the one that people gave the port.
VCCL_COLD inline int rank(const ibv_gid_entry& entry) noexcept {
    const auto& raw = entry.gid.raw;
    int value = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 1;
    if (entry.gid_type == IBV_GID_TYPE_IB) return value;
    if (is_ipv4_mapped(raw))
        value += 2;
    else if (!is_link_local(raw))
        value += 1;
    return value;
}

/// Effects: sets `gid_index` and `address`; leaves them zero when the port has no usable GID.
VCCL_COLD inline status choose_gid(ibv_context* context, unsigned port, const ibv_path& path, port_attributes& out) noexcept {
    ibv_gid_entry table[256];
    const ssize_t count = ibv_query_gid_table(context, table, sizeof table / sizeof *table, 0);
    if (count < 0) return from_errno(static_cast<int>(-count));
    int best = 0;
    for (ssize_t i = 0; i < count; ++i) {
        const ibv_gid_entry& entry = table[i];
        if (entry.port_num != port || entry.gid_index > 0xff) continue;
        const bool wanted = path.gid_index < 0 || static_cast<std::uint32_t>(path.gid_index) == entry.gid_index;
        if (!wanted || rank(entry) <= best) continue;
        best = rank(entry);
        out.gid_index = static_cast<std::uint8_t>(entry.gid_index);
        std::memcpy(out.address.raw, entry.gid.raw, sizeof out.address.raw);
    }
    return {};
}

VCCL_COLD inline result<port_attributes> query_port(ibv_context* context, unsigned port, const ibv_path& path) noexcept {
    ibv_port_attr attr{};
    if (const int rc = ibv_query_port(context, static_cast<std::uint8_t>(port), &attr); rc != 0) return from_return(rc);
    port_attributes out{};
    out.state = attr.state == IBV_PORT_ACTIVE ? port_state::active : port_state::down;
    out.link = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? link_layer::ethernet : link_layer::infiniband;
    out.lid = attr.lid;
    out.mtu = mtu_bytes(attr.active_mtu);
    out.bytes_per_second = bytes_per_second(attr.active_speed, attr.active_width);
    if (const status s = choose_gid(context, port, path, out); !s) return s;
    return out;
}

/// Effects: as `find_neighbour`, for a port's peer. Nothing is asked for that the GID itself says: RoCE v1 has the Ethernet
/// address within a link-local one.
VCCL_COLD inline status find_peer(ibv_context* context, unsigned port, const port_attributes& own, const gid& peer) noexcept {
    ibv_gid_entry entry{};
    if (own.link != link_layer::ethernet || ibv_query_gid_ex(context, port, own.gid_index, &entry, 0) != 0) return {};
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 && is_link_local(peer.raw)) return {};
    return find_neighbour(entry.ndev_ifindex, own.address, peer);
}

}  // namespace ibv_detail
}  // namespace vccl::inline v0::verbs
