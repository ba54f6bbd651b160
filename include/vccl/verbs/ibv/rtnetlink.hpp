#pragma once
/// \file
/// Questions to the kernel's tables of routes and neighbours. Any thread.
/// Source: netlink(7), rtnetlink(7), linux/rtnetlink.h.

#include <vccl/base/config.hpp>

#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace vccl::inline v0::verbs::ibv_detail {

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

}  // namespace vccl::inline v0::verbs::ibv_detail
