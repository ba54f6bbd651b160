#pragma once
/// \file
/// Where the root of a job is found: "host:port", with a name, a number, or "[v6]". Set-up thread; resolving a name may take as
/// long as the system's resolver does.

#include <vccl/host/tcp_oob.hpp>

#include <netdb.h>

#include <string>

namespace vccl::inline v0::detail {

struct resolved_address {
    socket_address where;
    bool by_name{};  ///< not a number
};

/// Errors: invalid_argument (no host:port), not_found (the name is unknown).
inline result<resolved_address> resolve_address(std::string_view text) {
    resolved_address out;
    if (parse_address(text, out.where)) return out;
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) return errc::invalid_argument;
    const std::string host(text.substr(0, colon)), port(text.substr(colon + 1));
    if (port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos || std::stoul(port) > 65535)
        return errc::invalid_argument;
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0 || !found) return errc::not_found;
    std::memcpy(&out.where.storage, found->ai_addr, found->ai_addrlen);
    out.where.length = found->ai_addrlen;
    out.by_name = true;
    ::freeaddrinfo(found);
    return out;
}

/// The address without its port, as a text that an endpoint's `oob` takes with ":0" behind it.
inline std::string host_part(const oob_address& a) {
    const std::string text(a.view());
    return text.substr(0, text.rfind(':'));
}

/// `code` with errno, which may be 0.
inline status with_errno(errc code) noexcept { return status{code, subject::system_error, static_cast<std::uint32_t>(errno)}; }
inline status last_socket_error() noexcept { return with_errno(errc::system); }

/// A listening socket. A name is not bound to: on many hosts their own name leads to a loopback address.
inline result<socket_fd> listen_at(const resolved_address& at) noexcept {
    socket_address a = at.where;
    if (at.by_name && a.storage.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(a.storage).sin_addr.s_addr = INADDR_ANY;
    if (at.by_name && a.storage.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(a.storage).sin6_addr = in6addr_any;
    socket_fd fd{::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!fd) return last_socket_error();
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a.storage), a.length) != 0 || ::listen(fd.get(), 1024) != 0)
        return last_socket_error();
    return fd;
}

/// This end's address of a socket.
inline oob_address own_address(int fd) noexcept {
    socket_address a;
    a.length = sizeof a.storage;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&a.storage), &a.length) != 0) return {};
    return format_address(a.storage);
}

}  // namespace vccl::inline v0::detail
