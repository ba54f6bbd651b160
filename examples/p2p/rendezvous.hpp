#pragma once
// The TCP connection over which A and B agree on what is sent, exchange their connection blobs and compare notes at the
// end. The transfer itself does not touch it. Every wait has a deadline; what comes in is bounded.
#include "files.hpp"

#include <vccl/base/clock.hpp>
#include <vccl/telemetry/event_text.hpp>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <optional>
#include <string>
#include <string_view>

namespace p2p {

enum class note : std::uint8_t { hello = 1, blob, ready, summary, checks, verdict, refusal };

struct message {
    note kind{};
    std::string body;
};

/// The other end is there, and did not answer in time.
struct late_answer : user_error {
    using user_error::user_error;
};

/// "127.0.0.1:7471", "[::1]:7471", ":7471", "myhost:7471"
struct endpoint_name {
    std::string host, port;
};
/// Throws user_error if it is none; a port may be a service's name, which only the system knows.
inline endpoint_name parse_endpoint(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos || colon + 1 == text.size())
        throw user_error("\"" + text + "\" is not HOST:PORT; write for example 127.0.0.1:7471");
    const std::string port = text.substr(colon + 1);
    if (port.find_first_not_of("0123456789") == std::string::npos && (port.size() > 5 || std::stoul(port) > 65535))
        throw user_error(port + " is no port; the largest is 65535");
    std::string host = text.substr(0, colon);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    return {host, port};
}

class listener {
public:
    explicit listener(const std::string& where) {
        const auto found = resolve(where, true);
        for (const addrinfo* a = found.get(); a; a = a->ai_next) {
            file_descriptor s(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
            const int on = 1;
            if (!s || ::setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) continue;
            if (::bind(s.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(s.get(), 4) == 0) {
                socket_ = std::move(s);
                return;
            }
        }
        throw system_error("cannot listen on " + where);
    }
    std::uint16_t port() const {
        sockaddr_storage a{};
        socklen_t size = sizeof a;
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&a), &size);
        return ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(a).sin_port);
    }
    file_descriptor accept(vccl::nanoseconds timeout) {
        pollfd p{socket_.get(), POLLIN, 0};
        if (::poll(&p, 1, static_cast<int>(timeout.count / 1'000'000)) <= 0)
            throw user_error("nobody connected in time; start the other role with --connect");
        file_descriptor s(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!s) throw system_error("accept");
        return s;
    }

    using addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
    static addresses resolve(const std::string& where, bool passive) {
        const endpoint_name name = parse_endpoint(where);
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        hints.ai_flags = passive ? AI_PASSIVE : 0;
        addrinfo* out = nullptr;
        if (const int why = ::getaddrinfo(name.host.empty() ? nullptr : name.host.c_str(), name.port.c_str(), &hints, &out);
            why != 0)
            throw user_error("cannot find " + where + ": " + ::gai_strerror(why));
        return {out, ::freeaddrinfo};
    }

private:
    file_descriptor socket_;
};

class rendezvous {
public:
    static constexpr std::size_t max_body = 64U << 20;
    static constexpr std::string_view hearsay = "the other end says: ";

    /// `patience`: for all that both ends have to tell each other before the first byte is sent.
    rendezvous(file_descriptor s, vccl::nanoseconds patience)
        : socket_(std::move(s)), patience_(patience), ready_by_(vccl::steady_clock{}.now() + patience) {
        const int on = 1;
        (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }

    /// Effects: connects, trying again until the deadline: the other role may start a little later. `waiting()` is called
    /// once, if it is not there yet.
    template <class Waiting>
    static rendezvous connect(const std::string& where, vccl::nanoseconds timeout, Waiting&& waiting) {
        const vccl::nanoseconds deadline = vccl::steady_clock{}.now() + timeout;
        const auto found = listener::resolve(where, false);
        for (bool first = true;; first = false) {
            for (const addrinfo* a = found.get(); a; a = a->ai_next) {
                file_descriptor s(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
                if (s && connect_until(s.get(), *a, deadline)) return rendezvous(std::move(s), timeout);
            }
            if (first) waiting();
            if (vccl::steady_clock{}.now() >= deadline)
                throw system_error("cannot connect to " + where + "; is the other role running with --listen?");
            ::usleep(20'000);
        }
    }

    /// What is left of the patience: the rest of the set-up has so long.
    vccl::nanoseconds time_left() const {
        const vccl::nanoseconds left = ready_by_ - vccl::steady_clock{}.now();
        return left.count > 0 ? left : vccl::nanoseconds{};
    }
    /// " within 30 s (--patience)", once nothing is left of it.
    std::string when_late() const {
        return time_left().count > 0 ? "" : " within " + vccl::duration_text(patience_) + " (--patience)";
    }

    /// The numeric address of this end, without port: the peer can reach this host there.
    std::string own_address() const {
        sockaddr_storage a{};
        socklen_t size = sizeof a;
        char host[NI_MAXHOST] = "127.0.0.1";
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&a), &size);
        ::getnameinfo(reinterpret_cast<sockaddr*>(&a), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
        return a.ss_family == AF_INET6 ? "[" + std::string(host) + "]" : host;
    }

    void send(note kind, std::string_view body) {
        const std::uint64_t head = static_cast<std::uint64_t>(kind) << 32 | body.size();
        put({reinterpret_cast<const char*>(&head), sizeof head});
        put(body);
    }
    /// Like `send`, for when the peer may be gone and there is something worse to report.
    void try_send(note kind, std::string_view body) noexcept {
        try {
            send(kind, body);
        } catch (const user_error&) {}
    }

    /// Returns: the body of the next message, which must be a `wanted`. The peer's refusal becomes this end's error.
    std::string receive(note wanted, vccl::nanoseconds timeout) {
        const vccl::nanoseconds deadline = vccl::steady_clock{}.now() + timeout;
        std::uint64_t head = 0;
        get(reinterpret_cast<char*>(&head), sizeof head, deadline);
        message m{static_cast<note>(head >> 32), {}};
        if ((head & 0xffff'ffff) > max_body) throw user_error("the peer speaks another protocol");
        m.body.resize(head & 0xffff'ffff);
        get(m.body.data(), m.body.size(), deadline);
        if (m.kind == note::refusal) throw user_error(std::string(hearsay) + m.body);
        if (m.kind != wanted) throw user_error("the peer speaks another protocol");
        return std::move(m.body);
    }
    /// The same during the set-up, in what is left for it.
    std::string receive(note wanted) {
        try {
            return receive(wanted, time_left());
        } catch (const late_answer&) { throw user_error("the other role did not go on" + when_late() + "; see what it says"); }
    }
    /// Returns: something came in, or the peer is gone. Never blocks.
    bool readable() const {
        pollfd p{socket_.get(), POLLIN, 0};
        return ::poll(&p, 1, 0) > 0;
    }

private:
    static constexpr const char* gone = "the other end is gone (its process ended or was killed)";
    static constexpr vccl::nanoseconds sending_time{20'000'000'000};  ///< for a peer that takes nothing of what is sent

    /// A host that does not answer at all would keep connect() for minutes.
    static bool connect_until(int fd, const addrinfo& a, vccl::nanoseconds deadline) {
        const std::int64_t left = (deadline - vccl::steady_clock{}.now()).count / 1000 + 1;
        const timeval most{left > 0 ? left / 1'000'000 : 0, left > 0 ? left % 1'000'000 : 1};
        (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        if (::connect(fd, a.ai_addr, a.ai_addrlen) == 0) return true;
        if (errno == EINPROGRESS) errno = ETIMEDOUT;
        return false;
    }

    /// Throws what the peer refused for, if it said so before it went.
    void last_words() {
        try {
            (void)receive(note::refusal, vccl::nanoseconds{1'000'000'000});
        } catch (const user_error& e) {
            if (std::string_view(e.what()).starts_with(hearsay)) throw;
        }
    }

    void put(std::string_view bytes) {
        const vccl::nanoseconds deadline = vccl::steady_clock{}.now() + sending_time;
        while (!bytes.empty()) {
            wait(POLLOUT, deadline);
            const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
            if (n < 0) {
                last_words();
                throw user_error(gone);
            }
            bytes.remove_prefix(static_cast<std::size_t>(n));
        }
    }
    void get(char* to, std::size_t bytes, vccl::nanoseconds deadline) {
        while (bytes != 0) {
            wait(POLLIN, deadline);
            const ssize_t n = ::recv(socket_.get(), to, bytes, MSG_DONTWAIT);
            if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
            if (n <= 0) throw user_error(gone);
            to += n;
            bytes -= static_cast<std::size_t>(n);
        }
    }
    void wait(short what, vccl::nanoseconds deadline) const {
        const vccl::nanoseconds left = deadline - vccl::steady_clock{}.now();
        pollfd p{socket_.get(), what, 0};
        if (left.count <= 0 || ::poll(&p, 1, static_cast<int>(left.count / 1'000'000) + 1) == 0)
            throw late_answer("the other end did not answer in time");
    }

    file_descriptor socket_;
    vccl::nanoseconds patience_, ready_by_;
};

}  // namespace p2p
