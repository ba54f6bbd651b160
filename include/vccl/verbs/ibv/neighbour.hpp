#pragma once
/// \file
/// A peer's Ethernet address, asked for before a QP needs it. The kernel looks the address up when a QP goes to RTR, and may
/// sleep through the answer: it sends the request first, and only then lists who is to be woken by the answer. One that is
/// back at once (seen: soft-RoCE within one host) finds nobody, and RTR sits out its whole second. An address that is known
/// already is not waited for.
/// Source: Linux 6.1, drivers/infiniband/core/addr.c: `rdma_resolve_ip`, `netevent_callback`.

#include <vccl/verbs/backend.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace vccl::inline v0::verbs::ibv_detail {

/// What RoCE does with a GID: ::ffff:a.b.c.d is the IPv4 address a.b.c.d, any other is an IPv6 address.
inline bool is_ipv4_mapped(const std::uint8_t (&raw)[16]) noexcept {
    static constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(raw, prefix, sizeof prefix) == 0;
}

/// Effects: an empty UDP datagram leaves for the peer's discard port through the netdev of this index, so that the kernel asks
/// for the address of the next hop now, if it has none. Waits for nothing; what fails here, RTR will tell. Any thread.
VCCL_COLD inline void ask_for_neighbour(std::uint32_t netdev, const gid& peer) noexcept {
    constexpr std::uint16_t discard_port = 9;  // RFC 863
    const bool v4 = is_ipv4_mapped(peer.raw);
    const int s = ::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return;
    const int index = static_cast<int>(netdev);
    if (::setsockopt(s, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof index) == 0) {
        sockaddr_in to_v4{};
        to_v4.sin_family = AF_INET;
        to_v4.sin_port = htons(discard_port);
        std::memcpy(&to_v4.sin_addr, peer.raw + 12, sizeof to_v4.sin_addr);
        sockaddr_in6 to_v6{};
        to_v6.sin6_family = AF_INET6;
        to_v6.sin6_port = htons(discard_port);
        to_v6.sin6_scope_id = netdev;
        std::memcpy(&to_v6.sin6_addr, peer.raw, sizeof to_v6.sin6_addr);
        const auto* const to = v4 ? reinterpret_cast<const sockaddr*>(&to_v4) : reinterpret_cast<const sockaddr*>(&to_v6);
        ::sendto(s, nullptr, 0, 0, to, v4 ? sizeof to_v4 : sizeof to_v6);
    }
    ::close(s);
}

}  // namespace vccl::inline v0::verbs::ibv_detail
