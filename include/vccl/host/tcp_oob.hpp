#pragma once
/// \file
/// The stock out-of-band channel: one TCP connection from sender to receiver, opened anew whenever it is cut. The first
/// bytes on it are the channel's secret; a caller that does not send it within two seconds, or is silent while others wait,
/// is turned away and disturbs nobody. A peer whose host has vanished is noticed by TCP within seconds. Messages are framed
/// by a 16-bit length. Owner thread only; no call blocks.

#include <vccl/host/oob.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace vccl::inline v0 {

namespace detail {

class socket_fd {
public:
    socket_fd() = default;
    explicit socket_fd(int fd) noexcept : fd_(fd) {}
    socket_fd(socket_fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    socket_fd& operator=(socket_fd&& o) noexcept {
        if (this != &o) {
            reset();
            fd_ = std::exchange(o.fd_, -1);
        }
        return *this;
    }
    ~socket_fd() { reset(); }
    void reset() noexcept {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }

private:
    int fd_{-1};
};

struct socket_address {
    sockaddr_storage storage{};
    socklen_t length{};
};

/// "a.b.c.d:port" or "[v6]:port"; names are not resolved.
VCCL_COLD inline bool parse_address(std::string_view text, socket_address& out) noexcept {
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos || colon + 1 == text.size()) return false;
    std::string_view host = text.substr(0, colon);
    char buffer[64]{}, digits[8]{};
    if (text.size() - colon - 1 >= sizeof digits) return false;
    text.substr(colon + 1).copy(digits, sizeof digits - 1);
    char* end = nullptr;
    const unsigned long port = std::strtoul(digits, &end, 10);
    if (digits[0] < '0' || digits[0] > '9' || *end != '\0' || port > 65535) return false;
    const bool six = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (six) host = host.substr(1, host.size() - 2);
    if (host.empty() || host.size() >= sizeof buffer) return false;
    host.copy(buffer, sizeof buffer - 1);
    if (six) {
        auto& a = reinterpret_cast<sockaddr_in6&>(out.storage);
        a.sin6_family = AF_INET6;
        a.sin6_port = htons(static_cast<std::uint16_t>(port));
        out.length = sizeof a;
        return ::inet_pton(AF_INET6, buffer, &a.sin6_addr) == 1;
    }
    auto& a = reinterpret_cast<sockaddr_in&>(out.storage);
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<std::uint16_t>(port));
    out.length = sizeof a;
    return ::inet_pton(AF_INET, buffer, &a.sin_addr) == 1;
}

VCCL_COLD inline oob_address format_address(const sockaddr_storage& s) noexcept {
    char host[64]{}, text[80]{};
    if (s.ss_family == AF_INET6) {
        const auto& a = reinterpret_cast<const sockaddr_in6&>(s);
        ::inet_ntop(AF_INET6, &a.sin6_addr, host, sizeof host);
        std::snprintf(text, sizeof text, "[%s]:%u", host, ntohs(a.sin6_port));
    } else {
        const auto& a = reinterpret_cast<const sockaddr_in&>(s);
        ::inet_ntop(AF_INET, &a.sin_addr, host, sizeof host);
        std::snprintf(text, sizeof text, "%s:%u", host, ntohs(a.sin_port));
    }
    return oob_address{text};
}

VCCL_COLD inline bool same_secret(const oob_secret& a, const oob_secret& b) noexcept {
    unsigned difference = 0;
    for (unsigned i = 0; i < sizeof a.bytes; ++i) difference |= static_cast<unsigned>(a.bytes[i] ^ b.bytes[i]);
    return difference == 0;
}

}  // namespace detail

/// The default on the `oob` axis. One socket an end, one more that listens at a receiver.
class tcp_oob {
public:
    using policy_axis = axis::oob;
    static constexpr std::size_t largest_message = 1024;   ///< bytes; send() refuses more
    static constexpr nanoseconds patience{2'000'000'000};  ///< a caller has so long to name the secret, a connect to complete
    static constexpr nanoseconds courtesy{100'000'000};    ///< the same where others wait for its place
    static constexpr int vanished_after = 4;               ///< seconds without an answer from the peer's kernel

    /// At the receiver. Errors: invalid_argument: no address; io_error: it cannot be bound.
    VCCL_COLD result<oob_address> listen(const oob_address& where, const oob_secret& secret) noexcept {
        secret_ = secret;
        detail::socket_address a;
        if (!detail::parse_address(where.view(), a)) return errc::invalid_argument;
        detail::socket_fd fd{::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        if (!fd) return failed();
        if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&a.storage), a.length) != 0 || ::listen(fd.get(), 8) != 0)
            return failed();
        a.length = sizeof a.storage;
        if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&a.storage), &a.length) != 0) return failed();
        listener_ = std::move(fd);
        return detail::format_address(a.storage);
    }

    /// At the sender. Only remembers: the first advance() calls.
    VCCL_COLD status connect(const oob_address& where, const oob_secret& secret) noexcept {
        secret_ = secret;
        if (!detail::parse_address(where.view(), peer_)) return errc::invalid_argument;
        calling_ = true;
        return {};
    }

    /// Accepts, calls, mends; a system call or two where nothing is new.
    VCCL_COLD oob_state advance(nanoseconds now) noexcept {
        if (listener_) accept(now);
        if (calling_ && link_ && !established_ && now - called_at_ > patience) cut();
        if (calling_ && !link_) call(now);
        // What the peer said before it went is read before a write can meet that it has.
        if (link_) pull_in();
        if (link_) push_out();
        if (link_ && established_)
            state_ = oob_state::up;
        else if (state_ == oob_state::up)
            state_ = oob_state::broken;
        return state_;
    }

    /// False: not connected, too long, or the kernel takes no more now.
    VCCL_COLD bool send(std::span<const std::byte> m) noexcept {
        if (!link_ || !established_ || m.size() > largest_message) return false;
        if (out_size_ + m.size() + 2 > sizeof out_) push_out();
        if (!link_ || out_size_ + m.size() + 2 > sizeof out_) return false;
        const std::uint16_t n = static_cast<std::uint16_t>(m.size());
        std::memcpy(out_ + out_size_, &n, 2);
        std::memcpy(out_ + out_size_ + 2, m.data(), m.size());
        out_size_ += m.size() + 2;
        return true;
    }

    /// Whole messages only, in order; 0: there is none.
    VCCL_COLD std::size_t receive(std::span<std::byte> m) noexcept {
        if (in_size_ < 2) return 0;
        std::uint16_t n = 0;
        std::memcpy(&n, in_, 2);
        if (n == 0 || n > largest_message) {
            cut();
            in_size_ = 0;
            return 0;
        }
        if (in_size_ < 2u + n) return 0;
        const std::size_t given = n <= m.size() ? n : 0;
        std::memcpy(m.data(), in_ + 2, given);
        in_size_ -= 2u + n;
        std::memmove(in_, in_ + 2 + n, in_size_);
        return given;
    }

    /// Pushes out what it can without waiting.
    VCCL_COLD void close() noexcept {
        if (link_) push_out();
        cut();
        listener_.reset();
        for (auto& c : callers_) c = {};
        calling_ = false;
    }

private:
    struct caller {
        detail::socket_fd fd;
        nanoseconds since{};
        oob_secret said{};
        std::size_t heard{};
    };

    static status failed() noexcept { return {errc::system, subject::system_error, static_cast<std::uint32_t>(errno)}; }

    VCCL_COLD void cut() noexcept {
        link_.reset();
        established_ = false;
        out_size_ = 0;
    }

    /// A place for another caller: a free one, or that of the one who has been waiting longest, if he had his time.
    VCCL_COLD caller* vacancy(nanoseconds now) noexcept {
        caller* oldest = &callers_[0];
        for (caller& c : callers_) {
            if (!c.fd) return &c;
            if (c.since < oldest->since) oldest = &c;
        }
        return now - oldest->since >= courtesy ? oldest : nullptr;
    }

    VCCL_COLD void accept(nanoseconds now) noexcept {
        while (caller* place = vacancy(now)) {
            detail::socket_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
            if (!fd) break;
            *place = caller{std::move(fd), now, {}, 0};
        }
        for (caller& c : callers_) {
            if (!c.fd) continue;
            const ssize_t n = ::recv(c.fd.get(), c.said.bytes + c.heard, sizeof c.said.bytes - c.heard, 0);
            if (n > 0) c.heard += static_cast<std::size_t>(n);
            const bool gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
            if (c.heard == sizeof c.said.bytes && detail::same_secret(c.said, secret_)) {
                // The peer called anew: its old connection is dead, whether we have seen that or not.
                cut();
                in_size_ = 0;
                link_ = std::move(c.fd);
                prepare(link_.get());
                established_ = true;
            } else if (gone || c.heard == sizeof c.said.bytes || now - c.since > patience) {
                c.fd.reset();
            }
        }
    }

    VCCL_COLD void call(nanoseconds now) noexcept {
        if (now < next_call_) return;
        next_call_ = now + nanoseconds{50'000'000};
        link_ = detail::socket_fd{::socket(peer_.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        if (!link_) return;
        called_at_ = now;
        in_size_ = 0;
        if (::connect(link_.get(), reinterpret_cast<const sockaddr*>(&peer_.storage), peer_.length) != 0 && errno != EINPROGRESS)
            hang_up(errno);
    }

    VCCL_COLD void hang_up(int why) noexcept {
        if (why == ECONNREFUSED) state_ = oob_state::refused;
        if (state_ == oob_state::up && (why == peer_closed || why == ECONNRESET || why == EPIPE)) state_ = oob_state::closed;
        cut();
    }
    static constexpr int peer_closed = 0;

    static void prepare(int fd) noexcept {
        const auto set = [fd](int level, int option, int value) { (void)::setsockopt(fd, level, option, &value, sizeof value); };
        set(IPPROTO_TCP, TCP_NODELAY, 1);
        set(SOL_SOCKET, SO_KEEPALIVE, 1);
        set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
        set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
        set(IPPROTO_TCP, TCP_KEEPCNT, vanished_after - 1);
        set(IPPROTO_TCP, TCP_USER_TIMEOUT, vanished_after * 1000);
    }

    VCCL_COLD void push_out() noexcept {
        if (calling_ && !established_) {
            // Connected yet? A write tells, and the secret is what there is to write.
            const ssize_t n = ::send(link_.get(), secret_.bytes, sizeof secret_.bytes, MSG_NOSIGNAL);
            if (n == static_cast<ssize_t>(sizeof secret_.bytes)) {
                prepare(link_.get());
                established_ = true;
            } else if (n >= 0 || (errno != EAGAIN && errno != EINTR && errno != ENOTCONN)) {
                hang_up(errno);
            }
            return;
        }
        while (out_size_ != 0) {
            const ssize_t n = ::send(link_.get(), out_, out_size_, MSG_NOSIGNAL);
            if (n < 0) {
                if (errno != EAGAIN && errno != EINTR) hang_up(errno);
                return;
            }
            out_size_ -= static_cast<std::size_t>(n);
            std::memmove(out_, out_ + n, out_size_);
        }
    }

    VCCL_COLD void pull_in() noexcept {
        if (!established_ || !link_ || in_size_ == sizeof in_) return;
        const ssize_t n = ::recv(link_.get(), in_ + in_size_, sizeof in_ - in_size_, 0);
        if (n > 0)
            in_size_ += static_cast<std::size_t>(n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            hang_up(n == 0 ? peer_closed : errno);
    }

    detail::socket_fd listener_, link_;
    caller callers_[4];
    detail::socket_address peer_{};
    oob_secret secret_{};
    oob_state state_{oob_state::opening};
    bool calling_{}, established_{};
    nanoseconds next_call_{}, called_at_{};
    std::size_t out_size_{}, in_size_{};
    std::byte out_[4096], in_[4096];
};

static_assert(oob_channel<tcp_oob>);

}  // namespace vccl::inline v0
