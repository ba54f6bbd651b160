#pragma once
/// \file
/// Does the kernel know a peer's Ethernet address? A QP that goes to RTR needs it, and a kernel that has to ask for it first
/// keeps the caller for a second and more: always if the peer's rail is dead, now and then if it lives, since Linux sends the
/// request first and only then lists who is to be woken by the answer. So the address is looked for beforehand; where it is
/// missing, the request goes out and RTR is left for later. Nothing here waits, but that the kernel takes its lock of netdevs
/// (rtnl) to tell of a neighbour. Any thread.
/// Source: rtnetlink(7); Linux 6.1, drivers/infiniband/core/addr.c: `rdma_resolve_ip`, `netevent_callback`, `dst_fetch_ha`.

#include <vccl/verbs/backend.hpp>
#include <vccl/verbs/ibv/rtnetlink.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace vccl::inline v0::verbs::ibv_detail {

/// What RoCE does with a GID: ::ffff:a.b.c.d is the IPv4 address a.b.c.d, any other is an IPv6 address.
inline bool is_ipv4_mapped(const std::uint8_t (&raw)[16]) noexcept {
    static constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(raw, prefix, sizeof prefix) == 0;
}

inline bool is_link_local(const std::uint8_t (&raw)[16]) noexcept { return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80; }

/// An address of a host, as IP calls it.
struct ip_address {
    explicit ip_address(int f) noexcept : family(static_cast<std::uint8_t>(f)) {}
    explicit ip_address(const gid& g) noexcept : ip_address(is_ipv4_mapped(g.raw) ? AF_INET : AF_INET6) {
        std::memcpy(bytes, g.raw + sizeof g.raw - size(), size());
    }
    std::size_t size() const noexcept { return family == AF_INET ? 4 : 16; }

    std::uint8_t family;
    std::uint8_t bytes[16]{};  ///< network order; the first size() count
};

/// Who is to be asked for an Ethernet address, and through which netdev: the peer, or the router on the way to it.
struct next_hop {
    int netdev{};
    ip_address address;
};

/// Returns: the next hop from `own` to `peer`, of one family, through this netdev. Errors: not_found: none is needed, or there
/// is no way, of which RTR will tell; unsupported: the kernel does not say.
VCCL_COLD inline result<next_hop> find_next_hop(std::uint32_t netdev, const ip_address& own, const ip_address& peer) noexcept {
    rtmsg r{};
    r.rtm_family = peer.family;
    r.rtm_dst_len = static_cast<std::uint8_t>(peer.size() * 8);
    table_question route(RTM_GETROUTE, r);
    route.add(RTA_DST, peer.bytes, peer.size());
    route.add(RTA_OIF, &netdev, sizeof netdev);
    route.add(RTA_SRC, own.bytes, own.size());
    if (route.ask() != 0) return errc::unsupported;
    if (route.body<rtmsg>().rtm_type != RTN_UNICAST) return errc::not_found;
    next_hop hop{static_cast<int>(netdev), peer};
    route.take<rtmsg>(RTA_OIF, &hop.netdev, sizeof hop.netdev);
    struct {
        std::uint16_t family;
        std::uint8_t bytes[16];
    } via{};
    if (route.take<rtmsg>(RTA_VIA, &via, sizeof via) != 0) {  // a router of the other family
        hop.address = ip_address{via.family};
        std::memcpy(hop.address.bytes, via.bytes, hop.address.size());
    } else {
        route.take<rtmsg>(RTA_GATEWAY, hop.address.bytes, hop.address.size());
    }
    return hop;
}

enum class neighbour : std::uint8_t {
    known,
    asked_for,
    unknown,
    untold,  ///< the kernel does not say: before Linux 5.0, or where it is not to be asked
};

VCCL_COLD inline neighbour look_up(const next_hop& hop) noexcept {
    constexpr int valid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
    ndmsg n{};
    n.ndm_family = hop.address.family;
    n.ndm_ifindex = hop.netdev;
    table_question question(RTM_GETNEIGH, n);
    question.add(NDA_DST, hop.address.bytes, hop.address.size());
    const int error = question.ask();
    if (error != 0) return error == ENOENT ? neighbour::unknown : neighbour::untold;
    const int state = question.body<ndmsg>().ndm_state;
    return (state & valid) != 0 ? neighbour::known : (state & NUD_INCOMPLETE) != 0 ? neighbour::asked_for : neighbour::unknown;
}

/// Effects: an empty UDP datagram leaves for the peer's discard port, so that the kernel asks for the next hop's address.
/// `own`: null, if the kernel is to choose the source. Returns: whether the kernel took it.
VCCL_COLD inline bool send_nothing(std::uint32_t netdev, const ip_address* own, const ip_address& peer) noexcept {
    constexpr std::uint16_t discard_port = 9;  // RFC 863
    const int s = ::socket(peer.family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return false;
    sockaddr_in to_v4{};
    sockaddr_in6 to_v6{};
    in_pktinfo by_v4{};
    in6_pktinfo by_v6{};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof by_v6)]{};
    msghdr m{};
    m.msg_control = room;
    const auto through = [&](int level, int type, const auto& by) {
        m.msg_controllen = CMSG_SPACE(sizeof by);
        cmsghdr c{};
        c.cmsg_len = CMSG_LEN(sizeof by);
        c.cmsg_level = level;
        c.cmsg_type = type;
        std::memcpy(room, &c, sizeof c);
        std::memcpy(room + CMSG_LEN(0), &by, sizeof by);
    };
    if (peer.family == AF_INET) {
        to_v4.sin_family = AF_INET;
        to_v4.sin_port = htons(discard_port);
        std::memcpy(&to_v4.sin_addr, peer.bytes, peer.size());
        m.msg_name = &to_v4;
        m.msg_namelen = sizeof to_v4;
        by_v4.ipi_ifindex = static_cast<int>(netdev);
        if (own != nullptr) std::memcpy(&by_v4.ipi_spec_dst, own->bytes, own->size());
        through(IPPROTO_IP, IP_PKTINFO, by_v4);
    } else {
        to_v6.sin6_family = AF_INET6;
        to_v6.sin6_port = htons(discard_port);
        to_v6.sin6_scope_id = netdev;
        std::memcpy(&to_v6.sin6_addr, peer.bytes, peer.size());
        m.msg_name = &to_v6;
        m.msg_namelen = sizeof to_v6;
        by_v6.ipi6_ifindex = netdev;
        if (own != nullptr) std::memcpy(&by_v6.ipi6_addr, own->bytes, own->size());
        through(IPPROTO_IPV6, IPV6_PKTINFO, by_v6);
    }
    const bool sent = ::sendmsg(s, &m, 0) == 0;
    ::close(s);
    return sent;
}

/// Effects: where the peer's Ethernet address, or its router's, is missing, the kernel begins to ask for it. `netdev`: 0, if
/// the GID has none. Errors: timeout (`subject::peer_address`): not known yet; try again. Ok also where RTR had better find
/// out for itself: nobody can say, or the question could not leave.
VCCL_COLD inline status find_neighbour(std::uint32_t netdev, const gid& own, const gid& peer) noexcept {
    const ip_address from{own}, to{peer};
    if (netdev == 0 || from.family != to.family) return {};
    const auto hop = find_next_hop(netdev, from, to);
    if (!hop && hop.error().code == errc::not_found) return {};
    neighbour next = hop ? look_up(*hop) : neighbour::untold;
    if (next == neighbour::unknown || next == neighbour::untold) {
        // A GID that is none of the netdev's addresses, or one that is still being tried, is no source.
        const bool sent = send_nothing(netdev, &from, to) || send_nothing(netdev, nullptr, to);
        if (!sent || next == neighbour::untold) return {};
        next = look_up(*hop);
    }
    return next == neighbour::known ? status{} : status{errc::timeout, subject::peer_address, 0};
}

}  // namespace vccl::inline v0::verbs::ibv_detail
