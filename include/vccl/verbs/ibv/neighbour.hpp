#pragma once
/// \file
/// Does the kernel know a peer's Ethernet address? A QP that goes to RTR needs it, and a kernel that has to ask for it first
/// keeps the caller for a second and more: always if the peer's rail is dead, now and then if it lives, since Linux sends the
/// request first and only then lists who is to be woken by the answer. So the address is looked for beforehand; where it is
/// missing, the request goes out and RTR is left for later. Nothing here waits. Any thread.
/// Source: rtnetlink(7); Linux 6.1, drivers/infiniband/core/addr.c: `rdma_resolve_ip`, `netevent_callback`, `dst_fetch_ha`.

#include <vccl/verbs/backend.hpp>

#include <linux/rtnetlink.h>
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

/// One question to the kernel's tables of routes and neighbours, and its answer.
class table_question {
public:
    template <class Body>
    table_question(std::uint16_t type, const Body& body) noexcept {
        head().nlmsg_len = NLMSG_LENGTH(sizeof body);
        head().nlmsg_type = type;
        head().nlmsg_flags = NLM_F_REQUEST;
        std::memcpy(NLMSG_DATA(&head()), &body, sizeof body);
    }
    void add(std::uint16_t type, const void* value, std::size_t size) noexcept {
        const rtattr attribute{static_cast<std::uint16_t>(RTA_LENGTH(size)), type};
        char* const at = bytes_ + NLMSG_ALIGN(head().nlmsg_len);
        std::memcpy(at, &attribute, sizeof attribute);
        std::memcpy(at + RTA_LENGTH(0), value, size);
        head().nlmsg_len = static_cast<std::uint32_t>(NLMSG_ALIGN(head().nlmsg_len) + RTA_ALIGN(attribute.rta_len));
    }
    /// Effects: the answer takes the question's place. Returns: 0, or the errno that the kernel gives instead.
    int ask() noexcept {
        const int s = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
        if (s < 0) return errno;
        ssize_t got = ::send(s, bytes_, head().nlmsg_len, MSG_DONTWAIT);
        if (got >= 0) got = ::recv(s, bytes_, sizeof bytes_, MSG_DONTWAIT);  // the kernel answers within send
        const int error = errno;
        ::close(s);
        if (got < 0) return error;
        if (!NLMSG_OK(&head(), static_cast<std::size_t>(got))) return EPROTO;
        if (head().nlmsg_type != NLMSG_ERROR) return 0;
        nlmsgerr said{};
        std::memcpy(&said, NLMSG_DATA(&head()), sizeof said);
        return -said.error;
    }
    template <class Body>
    Body body() const noexcept {
        Body b{};
        if (head().nlmsg_len >= NLMSG_LENGTH(sizeof b)) std::memcpy(&b, bytes_ + NLMSG_HDRLEN, sizeof b);
        return b;
    }
    /// Effects: takes an attribute of the answer, if it has that one, cut to `room`. Returns: its size.
    template <class Body>
    std::size_t take(std::uint16_t type, void* out, std::size_t room) const noexcept {
        rtattr a{};
        for (std::size_t at = NLMSG_SPACE(sizeof(Body)); at + sizeof a <= head().nlmsg_len; at += RTA_ALIGN(a.rta_len)) {
            std::memcpy(&a, bytes_ + at, sizeof a);
            if (a.rta_len < sizeof a || at + a.rta_len > head().nlmsg_len) break;
            if (a.rta_type != type) continue;
            const std::size_t size = a.rta_len - RTA_LENGTH(0);
            std::memcpy(out, bytes_ + at + RTA_LENGTH(0), size < room ? size : room);
            return size;
        }
        return 0;
    }

private:
    nlmsghdr& head() noexcept { return *reinterpret_cast<nlmsghdr*>(bytes_); }
    const nlmsghdr& head() const noexcept { return *reinterpret_cast<const nlmsghdr*>(bytes_); }

    alignas(nlmsghdr) char bytes_[1024]{};
};

/// Who is to be asked for an Ethernet address, and through which netdev: the peer, or the router on the way to it.
struct next_hop {
    int netdev{};
    ip_address address;
};

/// Returns: the next hop from `own` to `peer` through this netdev. Errors: not_found: the kernel does not say, or needs none.
VCCL_COLD inline result<next_hop> find_next_hop(std::uint32_t netdev, const gid& own, const gid& peer) noexcept {
    const ip_address from{own}, to{peer};
    rtmsg r{};
    r.rtm_family = to.family;
    r.rtm_dst_len = static_cast<std::uint8_t>(to.size() * 8);
    table_question route(RTM_GETROUTE, r);
    route.add(RTA_DST, to.bytes, to.size());
    route.add(RTA_OIF, &netdev, sizeof netdev);
    if (from.family == to.family) route.add(RTA_SRC, from.bytes, from.size());
    if (route.ask() != 0 || route.body<rtmsg>().rtm_type != RTN_UNICAST) return errc::not_found;
    next_hop hop{static_cast<int>(netdev), to};
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

/// Returns: whether RTR would have to ask. Where the kernel does not say (before Linux 5.0), as if it would not.
VCCL_COLD inline bool is_stranger(const next_hop& hop) noexcept {
    constexpr int valid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
    ndmsg n{};
    n.ndm_family = hop.address.family;
    n.ndm_ifindex = hop.netdev;
    table_question neighbour(RTM_GETNEIGH, n);
    neighbour.add(NDA_DST, hop.address.bytes, hop.address.size());
    const int error = neighbour.ask();
    return error == ENOENT || (error == 0 && (neighbour.body<ndmsg>().ndm_state & valid) == 0);
}

/// Effects: an empty UDP datagram leaves for the peer's discard port, so that the kernel asks for the next hop's address.
VCCL_COLD inline void ask_for_neighbour(std::uint32_t netdev, const gid& own, const gid& peer) noexcept {
    constexpr std::uint16_t discard_port = 9;  // RFC 863
    const ip_address from{own}, to{peer};
    const int s = ::socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return;
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
    if (to.family == AF_INET) {
        to_v4.sin_family = AF_INET;
        to_v4.sin_port = htons(discard_port);
        std::memcpy(&to_v4.sin_addr, to.bytes, to.size());
        m.msg_name = &to_v4;
        m.msg_namelen = sizeof to_v4;
        by_v4.ipi_ifindex = static_cast<int>(netdev);
        if (from.family == AF_INET) std::memcpy(&by_v4.ipi_spec_dst, from.bytes, from.size());
        through(IPPROTO_IP, IP_PKTINFO, by_v4);
    } else {
        to_v6.sin6_family = AF_INET6;
        to_v6.sin6_port = htons(discard_port);
        to_v6.sin6_scope_id = netdev;
        std::memcpy(&to_v6.sin6_addr, to.bytes, to.size());
        m.msg_name = &to_v6;
        m.msg_namelen = sizeof to_v6;
        by_v6.ipi6_ifindex = netdev;
        if (from.family == AF_INET6) std::memcpy(&by_v6.ipi6_addr, from.bytes, from.size());
        through(IPPROTO_IPV6, IPV6_PKTINFO, by_v6);
    }
    ::sendmsg(s, &m, 0);
    ::close(s);
}

/// Effects: where the peer's Ethernet address, or its router's, is missing, the kernel begins to ask for it. `netdev`: 0, if
/// the GID has none. Errors: timeout (`subject::peer_address`): not known yet; try again.
VCCL_COLD inline status find_neighbour(std::uint32_t netdev, const gid& own, const gid& peer) noexcept {
    if (netdev == 0) return {};
    const auto hop = find_next_hop(netdev, own, peer);
    if (!hop || !is_stranger(*hop)) return {};
    ask_for_neighbour(netdev, own, peer);
    return is_stranger(*hop) ? status{errc::timeout, subject::peer_address, 0} : status{};
}

}  // namespace vccl::inline v0::verbs::ibv_detail
