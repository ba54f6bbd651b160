#pragma once
/// \file
/// Two ways for a metrics text to leave the process: `write_metrics_file`, for a collector that reads a folder, and
/// `metrics_server`, which answers GET /metrics over HTTP/1.1. Both make system calls: use them on a thread of their own,
/// never on one that drives endpoints.

#include <vccl/base/clock.hpp>
#include <vccl/base/status.hpp>
#include <vccl/host/tcp_oob.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <string>

namespace vccl::inline v0 {

/// Effects: replaces the file by `text`, at once: a reader sees the old text or the new, never a part. Errors: io_error.
inline status write_metrics_file(const std::string& path, std::string_view text) {
    const auto failed = [](int error) {
        return status{errc::io_error, subject::system_error, static_cast<std::uint32_t>(error)};
    };
    const std::string fresh = path + ".new";
    const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) return failed(errno);
    status s{};
    while (!text.empty() && s) {
        const ssize_t n = ::write(file, text.data(), text.size());
        if (n >= 0)
            text.remove_prefix(static_cast<std::size_t>(n));
        else if (errno != EINTR)
            s = failed(errno);
    }
    if (::close(file) != 0 && s) s = failed(errno);
    if (s && ::rename(fresh.c_str(), path.c_str()) != 0) s = failed(errno);
    if (!s) ::unlink(fresh.c_str());
    return s;
}

/// Answers one caller after another. A caller gets a second for its request and its answer; who is slower, or asks for more
/// than 4 KiB, is cut off. It is not encrypted and asks for no password: bind it to an address that only friends reach.
class metrics_server {
public:
    metrics_server() = default;
    /// `o` listens no more.
    metrics_server(metrics_server&& o) noexcept : socket_(std::exchange(o.socket_, -1)) {}
    /// What listened before stops.
    metrics_server& operator=(metrics_server o) noexcept {
        std::swap(socket_, o.socket_);
        return *this;
    }
    ~metrics_server() {
        if (socket_ >= 0) ::close(socket_);
    }

    /// Effects: listens at "127.0.0.1:9464" or "[::1]:9464"; port 0: any. Returns: the address, with the port.
    /// Errors: invalid_argument, already_exists (somebody else listens there), io_error.
    result<oob_address> listen(const oob_address& where) {
        detail::socket_address a;
        if (!detail::parse_address(where.view(), a)) return errc::invalid_argument;
        const int s = ::socket(a.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0) return status{errc::io_error, subject::system_error, static_cast<std::uint32_t>(errno)};
        *this = metrics_server(s);
        const int on = 1;
        ::setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(s, reinterpret_cast<const sockaddr*>(&a.storage), a.length) != 0 || ::listen(s, 16) != 0)
            return status{errno == EADDRINUSE ? errc::already_exists : errc::io_error, subject::system_error,
                          static_cast<std::uint32_t>(errno)};
        a.length = sizeof a.storage;
        if (::getsockname(s, reinterpret_cast<sockaddr*>(&a.storage), &a.length) != 0)
            return status{errc::io_error, subject::system_error, static_cast<std::uint32_t>(errno)};
        return detail::format_address(a.storage);
    }

    /// Effects: waits for callers for `time` and gives each what `text()` returns at that moment. Returns: how many got it.
    /// Errors: not_connected before listen().
    template <class Text>
    result<unsigned> serve(nanoseconds time, Text&& text) {
        if (socket_ < 0) return errc::not_connected;
        unsigned served = 0;
        const nanoseconds end = clock_.now() + time;
        for (nanoseconds left = time; left.count > 0; left = end - clock_.now()) {
            if (!ready(socket_, POLLIN, end)) continue;
            const int caller = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (caller < 0) continue;
            served += answer(caller, text);
            ::close(caller);
        }
        return served;
    }

private:
    static constexpr nanoseconds patience{1'000'000'000};
    static constexpr std::size_t longest_request = 4096;

    explicit metrics_server(int s) noexcept : socket_(s) {}

    bool ready(int s, short what, nanoseconds until) const noexcept {
        const std::int64_t ms = ((until - clock_.now()).count + 999'999) / 1'000'000;
        pollfd p{s, what, 0};
        return ms > 0 && ::poll(&p, 1, static_cast<int>(ms < 60'000 ? ms : 60'000)) == 1;
    }

    template <class Text>
    bool answer(int caller, Text&& text) const {
        const nanoseconds until = clock_.now() + patience;
        std::string request;
        while (request.find("\r\n\r\n") == std::string::npos) {
            char part[512];
            if (request.size() > longest_request || !ready(caller, POLLIN, until)) return false;
            const ssize_t n = ::recv(caller, part, sizeof part, 0);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
            if (n > 0) request.append(part, static_cast<std::size_t>(n));
        }
        const std::string_view line = std::string_view(request).substr(0, request.find("\r\n"));
        const bool get = line.starts_with("GET "), found = line.starts_with("GET /metrics ") || line.starts_with("GET /metrics?");
        const std::string body = found ? std::string(text()) : std::string();
        std::string reply =
            found ? "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
            : get ? "HTTP/1.1 404 Not Found\r\n"
                  : "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\n";
        reply += "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
        for (std::string_view rest = reply; !rest.empty();) {
            if (!ready(caller, POLLOUT, until)) return false;
            const ssize_t n = ::send(caller, rest.data(), rest.size(), MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
            if (n > 0) rest.remove_prefix(static_cast<std::size_t>(n));
        }
        // Said at once, so that what the caller still sends does not reset the connection before it has read the answer.
        ::shutdown(caller, SHUT_WR);
        return found;
    }

    int socket_{-1};
    [[no_unique_address]] steady_clock clock_{};
};

}  // namespace vccl::inline v0
