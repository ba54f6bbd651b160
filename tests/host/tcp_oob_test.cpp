/// \file
/// The stock out-of-band channel on real sockets of the loopback interface: strangers, cuts, damage. The channel's own time
/// is passed in by hand; waits for the kernel are bounded and decide nothing.

#include <vccl/base/clock.hpp>
#include <vccl/host/tcp_oob.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace vccl;
using namespace vccl::literals;

namespace {

using bytes = std::vector<std::byte>;
using detail::socket_fd;

bytes message(std::size_t size, unsigned seed = 1) {
    bytes b(size);
    for (std::size_t i = 0; i < size; ++i) b[i] = static_cast<std::byte>(i * 7 + seed);
    return b;
}

/// A listener and its caller, and the time that both are told.
struct channel {
    oob_secret secret{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
    tcp_oob listener, caller;
    oob_address where;
    nanoseconds now{1_s};

    channel() { where = *listener.listen(std::string_view("127.0.0.1:0"), secret); }
    void call() { REQUIRE(caller.connect(where, secret)); }
    /// Both work, in steps of 1 ms of channel time, until `done`; the kernel gets 10 s.
    template <class Done>
    bool until(Done done, int steps = 1'000'000) {
        const nanoseconds end = steady_clock{}.now() + 10_s;
        for (; !done(); --steps) {
            if (steps == 0 || steady_clock{}.now() >= end) return false;
            (void)listener.advance(now);
            (void)caller.advance(now);
            now += 1_ms;
            ::sched_yield();
        }
        return true;
    }
    bool up() {
        return until([&] { return listener.advance(now) == oob_state::up && caller.advance(now) == oob_state::up; });
    }
    bytes take(tcp_oob& end) {
        bytes b(tcp_oob::largest_message);
        std::size_t n = 0;
        if (!until([&] { return (n = end.receive(b)) != 0; })) n = 0;
        b.resize(n);
        return b;
    }
    /// A message goes each way.
    bool works() {
        const bytes there = message(100, 3), back = message(372, 4);
        return up() && caller.send(there) && take(listener) == there && listener.send(back) && take(caller) == back;
    }
};

detail::socket_address address_of(const oob_address& where) {
    detail::socket_address a;
    REQUIRE(detail::parse_address(where.view(), a));
    return a;
}

/// A connection of somebody else.
socket_fd stranger(const oob_address& where) {
    const auto a = address_of(where);
    socket_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&a.storage), a.length) == 0);
    return fd;
}
void say(const socket_fd& fd, const void* what, std::size_t n) {
    REQUIRE(::send(fd.get(), what, n, MSG_NOSIGNAL) == static_cast<ssize_t>(n));
}
/// Has the other side hung up?
bool turned_away(const socket_fd& fd) {
    char c;
    const ssize_t n = ::recv(fd.get(), &c, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/// A listening socket made by hand: a peer that may answer anything.
struct raw_listener {
    socket_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    oob_address where;
    raw_listener() {
        auto a = address_of(std::string_view("127.0.0.1:0"));
        REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&a.storage), a.length) == 0);
        REQUIRE(::listen(fd.get(), 8) == 0);
        REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&a.storage), &a.length) == 0);
        where = detail::format_address(a.storage);
    }
    /// The next call, with its secret read.
    socket_fd answer(tcp_oob& caller, nanoseconds& now) {
        pollfd p{fd.get(), POLLIN, 0};
        for (int i = 0; i < 10'000 && ::poll(&p, 1, 1) == 0; ++i) (void)caller.advance(now += 1_ms);
        socket_fd link{::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        REQUIRE(link);
        oob_secret said{};
        for (int i = 0;
             i < 10'000 && ::recv(link.get(), said.bytes, sizeof said.bytes, MSG_PEEK | MSG_DONTWAIT) != sizeof said.bytes; ++i) {
            (void)caller.advance(now += 1_ms);
            ::sched_yield();
        }
        REQUIRE(::recv(link.get(), said.bytes, sizeof said.bytes, MSG_WAITALL) == sizeof said.bytes);
        return link;
    }
};

/// Passes bytes on between a caller and a listener, as many as it is told, and can cut the wire.
class relay {
public:
    explicit relay(const oob_address& to) : to_(to) {}
    const oob_address& where() const { return front_.where; }
    std::size_t most{65536};  ///< bytes a step and direction
    void step() {
        if (!near_) {
            pollfd p{front_.fd.get(), POLLIN, 0};
            if (::poll(&p, 1, 0) <= 0) return;
            near_ = socket_fd{::accept4(front_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC)};
            far_ = stranger(to_);
            ++calls;
        }
        if (!pump(near_, far_) || !pump(far_, near_)) cut();
    }
    void cut() {
        near_.reset();
        far_.reset();
    }
    unsigned calls{};

private:
    bool pump(const socket_fd& from, const socket_fd& to) {
        char buffer[65536];
        const ssize_t n = most == 0 ? -1 : ::recv(from.get(), buffer, most, MSG_DONTWAIT);
        if (n > 0) return ::send(to.get(), buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) == n;
        return n < 0 && (most == 0 || errno == EAGAIN);
    }
    oob_address to_;
    raw_listener front_;
    socket_fd near_, far_;
};

}  // namespace

TEST_CASE("Messages keep their boundaries, their order and their bytes, both ways") {
    channel c;
    c.call();
    REQUIRE(c.up());
    for (std::size_t size : {1u, 2u, 71u, 72u, 328u, 1023u, 1024u}) {
        REQUIRE(c.caller.send(message(size)));
        REQUIRE(c.listener.send(message(size, 9)));
        CHECK(c.take(c.listener) == message(size));
        CHECK(c.take(c.caller) == message(size, 9));
    }
    for (unsigned i = 1; i <= 9; ++i) REQUIRE(c.caller.send(message(i * 40, i)));
    for (unsigned i = 1; i <= 9; ++i) CHECK(c.take(c.listener) == message(i * 40, i));
    CHECK_FALSE(c.caller.send(message(tcp_oob::largest_message + 1)));
    CHECK(c.works());
}

TEST_CASE("It works over IPv6, too, where there is a loopback for it") {
    channel c;
    auto six = c.listener.listen(std::string_view("[::1]:0"), c.secret);
    if (!six && six.error().code == errc::system) return;
    REQUIRE(six);
    c.where = *six;
    CHECK(c.where.view().starts_with("[::1]:"));
    c.call();
    CHECK(c.works());
}

TEST_CASE("Before the call is up nothing is sent, and nothing is received") {
    channel c;
    CHECK_FALSE(c.caller.send(message(10)));
    CHECK(c.listener.advance(c.now) == oob_state::opening);
    CHECK(c.caller.advance(c.now) == oob_state::opening);
    bytes b(100);
    CHECK(c.caller.receive(b) == 0);
    c.call();
    CHECK(c.works());
}

TEST_CASE("A stranger who says nothing is turned away after the time that a caller has, and the peer works meanwhile") {
    channel c;
    auto before = stranger(c.where);
    c.call();
    REQUIRE(c.works());
    auto after = stranger(c.where);
    REQUIRE(c.works());
    CHECK_FALSE(turned_away(after));
    const nanoseconds later = c.now + tcp_oob::patience + 10_ms;
    REQUIRE(c.until([&] { return c.now >= later; }));
    CHECK(c.until([&] { return turned_away(before) && turned_away(after); }));
    CHECK(c.works());
}

TEST_CASE("More silent strangers than there are places delay the peer by no more than their time") {
    channel c;
    std::vector<socket_fd> crowd;
    for (int i = 0; i < 6; ++i) crowd.push_back(stranger(c.where));
    c.call();
    const nanoseconds begin = c.now;
    REQUIRE(c.works());
    CHECK(c.now - begin <= tcp_oob::patience * 2 + 500_ms);
}

TEST_CASE(
    "More silent strangers than there are places: those who were silent longest make room for others, and the peer is heard") {
    channel c;
    std::vector<socket_fd> strangers;
    for (int i = 0; i < 7; ++i) strangers.push_back(stranger(c.where));
    (void)c.listener.advance(c.now);
    const nanoseconds begin = c.now;
    c.call();
    CHECK(c.works());
    CHECK(c.now - begin < tcp_oob::patience);
    CHECK(turned_away(strangers.front()));
    CHECK_FALSE(turned_away(strangers.back()));
    CHECK(c.until([&] { return turned_away(strangers.back()); }));
    CHECK(c.works());
}

TEST_CASE("A stranger with a wrong secret or garbage is turned away at once, and hears nothing") {
    channel c;
    c.call();
    REQUIRE(c.works());
    oob_secret wrong = c.secret;
    wrong.bytes[15] ^= 1;
    auto near_miss = stranger(c.where), garbage = stranger(c.where), half = stranger(c.where);
    say(near_miss, wrong.bytes, sizeof wrong.bytes);
    const bytes noise = message(5000, 77);
    say(garbage, noise.data(), noise.size());
    say(half, c.secret.bytes, 7);
    const nanoseconds begin = c.now;
    CHECK(c.until([&] { return turned_away(near_miss) && turned_away(garbage); }));
    CHECK(c.now - begin < 1_s);
    CHECK_FALSE(turned_away(half));
    CHECK(c.works());
}

TEST_CASE("Strangers who hang up at once, again and again, disturb nobody") {
    channel c;
    c.call();
    REQUIRE(c.works());
    for (int i = 0; i < 50; ++i) {
        auto s = stranger(c.where);
        if (i % 2) say(s, c.secret.bytes, static_cast<std::size_t>(i % 15 + 1));
        s.reset();
        (void)c.listener.advance(c.now);
    }
    CHECK(c.works());
}

TEST_CASE("A secret that comes byte by byte is a secret") {
    channel c;
    auto slow = stranger(c.where);
    for (unsigned i = 0; i < sizeof c.secret.bytes; ++i) {
        say(slow, c.secret.bytes + i, 1);
        (void)c.listener.advance(c.now += 1_ms);
    }
    CHECK(c.until([&] { return c.listener.advance(c.now) == oob_state::up; }));
    CHECK_FALSE(turned_away(slow));
}

TEST_CASE("A cut connection is opened anew; both ends see the break and the return") {
    channel c;
    relay wire(c.where);
    c.where = wire.where();
    c.call();
    auto working = [&] {
        return c.until([&] {
            wire.step();
            return c.listener.advance(c.now) == oob_state::up && c.caller.advance(c.now) == oob_state::up;
        });
    };
    for (unsigned round = 1; round <= 5; ++round) {
        REQUIRE(working());
        CHECK(wire.calls == round);
        REQUIRE(c.caller.send(message(200, round)));
        bytes b(1024);
        CHECK(c.until([&] {
            wire.step();
            return c.listener.receive(b) == 200;
        }));
        wire.cut();
        bool listener_saw = false, caller_saw = false;
        CHECK(c.until([&] {
            listener_saw |= c.listener.advance(c.now) == oob_state::closed;
            caller_saw |= c.caller.advance(c.now) == oob_state::closed;
            return listener_saw && caller_saw;
        }));
    }
    CHECK(working());
}

TEST_CASE("The peer calls anew although the old connection never closed: the new one counts") {
    channel c;
    auto old = stranger(c.where);
    say(old, c.secret.bytes, sizeof c.secret.bytes);
    REQUIRE(c.until([&] { return c.listener.advance(c.now) == oob_state::up; }));
    c.call();
    REQUIRE(c.works());
    CHECK(turned_away(old));
}

TEST_CASE("Half a message is no message until the rest has come") {
    channel c;
    relay wire(c.where);
    c.where = wire.where();
    c.call();
    REQUIRE(c.until([&] {
        wire.step();
        return c.listener.advance(c.now) == oob_state::up && c.caller.advance(c.now) == oob_state::up;
    }));
    const bytes whole = message(300, 5);
    wire.most = 0;
    REQUIRE(c.caller.send(whole));
    bytes b(1024);
    for (std::size_t passed = 1; passed < whole.size() + 2; ++passed) {
        wire.most = 1;
        REQUIRE(c.until([&, before = c.now] {
            wire.step();
            wire.most = 0;
            return c.now - before > 2_ms;
        }));
        if (passed < whole.size() + 2 - 64) REQUIRE(c.listener.receive(b) == 0);
    }
    wire.most = 65536;
    std::size_t n = 0;
    REQUIRE(c.until([&] {
        wire.step();
        return (n = c.listener.receive(b)) != 0;
    }));
    b.resize(n);
    CHECK(b == whole);
}

TEST_CASE("A message cut in the middle is lost, and the next connection starts with a whole one") {
    channel c;
    relay wire(c.where);
    c.where = wire.where();
    c.call();
    auto up = [&] {
        return c.until([&] {
            wire.step();
            return c.listener.advance(c.now) == oob_state::up && c.caller.advance(c.now) == oob_state::up;
        });
    };
    REQUIRE(up());
    wire.most = 100;
    REQUIRE(c.caller.send(message(300, 5)));
    wire.step();
    wire.cut();
    REQUIRE(
        c.until([&] { return c.listener.advance(c.now) == oob_state::closed && c.caller.advance(c.now) == oob_state::closed; }));
    wire.most = 65536;
    REQUIRE(up());
    REQUIRE(c.caller.send(message(40, 6)));
    bytes b(1024);
    std::size_t n = 0;
    REQUIRE(c.until([&] {
        wire.step();
        return (n = c.listener.receive(b)) != 0;
    }));
    b.resize(n);
    CHECK(b == message(40, 6));
}

TEST_CASE("A length of nothing or beyond the largest message ends the connection, and the caller calls again") {
    for (std::uint16_t length : {std::uint16_t{0}, std::uint16_t{1025}, std::uint16_t{0xffff}}) {
        CAPTURE(length);
        raw_listener liar;
        tcp_oob caller;
        nanoseconds now{1_s};
        REQUIRE(caller.connect(liar.where, {}));
        auto link = liar.answer(caller, now);
        say(link, &length, sizeof length);
        const bytes noise = message(3000, 8);
        say(link, noise.data(), noise.size());
        bytes b(1024);
        const nanoseconds end = steady_clock{}.now() + 10_s;
        while (!turned_away(link) && steady_clock{}.now() < end) {
            (void)caller.advance(now += 1_ms);
            CHECK(caller.receive(b) == 0);
        }
        CHECK(turned_away(link));
        link = liar.answer(caller, now);
        const std::uint16_t five = 5;
        say(link, &five, 2);
        say(link, noise.data(), 5);
        std::size_t n = 0;
        while (n == 0 && steady_clock{}.now() < end) {
            (void)caller.advance(now += 1_ms);
            n = caller.receive(b);
        }
        CHECK(n == 5);
    }
}

TEST_CASE("A message larger than the reader's buffer is dropped alone") {
    channel c;
    c.call();
    REQUIRE(c.up());
    REQUIRE(c.caller.send(message(900)));
    REQUIRE(c.caller.send(message(20, 2)));
    bytes small(100);
    std::size_t n = 0;
    REQUIRE(c.until([&] { return (n = c.listener.receive(small)) != 0; }));
    small.resize(n);
    CHECK(small == message(20, 2));
}

TEST_CASE("Who closes has said what waited to be said") {
    channel c;
    c.call();
    REQUIRE(c.up());
    REQUIRE(c.caller.send(message(900)));
    c.caller.close();
    bytes got(tcp_oob::largest_message);
    std::size_t n = 0;
    const nanoseconds end = steady_clock{}.now() + 10_s;
    while ((n = c.listener.receive(got)) == 0 && steady_clock{}.now() < end) (void)c.listener.advance(c.now);
    got.resize(n);
    CHECK(got == message(900));
}

TEST_CASE("Who went had said something, which is heard, though a write finds the connection reset") {
    channel c;
    c.call();
    REQUIRE(c.up());
    REQUIRE(c.caller.send(message(100)));
    (void)c.caller.advance(c.now);
    REQUIRE(c.listener.send(message(200, 2)));
    c.listener.close();  // with 100 bytes unread: the kernel resets the connection
    REQUIRE(c.caller.send(message(300, 3)));
    bytes got(tcp_oob::largest_message);
    std::size_t n = 0;
    const nanoseconds end = steady_clock{}.now() + 10_s;
    while ((n = c.caller.receive(got)) == 0 && steady_clock{}.now() < end) (void)c.caller.advance(c.now);
    got.resize(n);
    CHECK(got == message(200, 2));
}

TEST_CASE("A peer that reads nothing: sending is refused in the end, and never blocks") {
    raw_listener lazy;
    tcp_oob caller;
    nanoseconds now{1_s};
    REQUIRE(caller.connect(lazy.where, {}));
    auto link = lazy.answer(caller, now);
    unsigned taken = 0;
    while (taken < 1'000'000 && caller.send(message(1024))) ++taken;
    CHECK(taken > 0);
    CHECK(taken < 1'000'000);
    CHECK(caller.advance(now) == oob_state::up);
}

namespace {

/// Takes the loopback interface of the present network namespace up or down.
bool set_loopback(bool up) {
    const socket_fd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    ifreq r{};
    std::strcpy(r.ifr_name, "lo");
    r.ifr_flags = up ? IFF_UP : 0;
    return ::ioctl(fd.get(), SIOCSIFFLAGS, &r) == 0;
}

/// In a network of its own, where packets can be made to vanish. 0: as it should be; 77: this machine gives no such network.
int vanishing_peer() {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !set_loopback(true)) return 77;
    channel c;
    if (!c.caller.connect(c.where, c.secret) || !c.works()) return 1;
    if (!set_loopback(false)) return 2;
    bool listener_saw = false, caller_saw = false;
    for (const nanoseconds end = steady_clock{}.now() + 60_s; !(listener_saw && caller_saw);) {
        if (steady_clock{}.now() >= end) return listener_saw ? 4 : 3;
        listener_saw |= c.listener.advance(c.now) == oob_state::broken;
        caller_saw |= c.caller.advance(c.now) == oob_state::broken;
        c.now += 1_ms;
        ::usleep(10'000);
    }
    return set_loopback(true) && c.works() ? 0 : 5;
}

}  // namespace

TEST_CASE("The peer's host vanishes without a word: both ends notice by themselves, and find each other again") {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(vanishing_peer());
    REQUIRE(child > 0);
    int how = 0;
    REQUIRE(::waitpid(child, &how, 0) == child);
    REQUIRE(WIFEXITED(how));
    if (WEXITSTATUS(how) == 77)
        MESSAGE("skipped: this machine gives no network namespace");
    else
        CHECK(WEXITSTATUS(how) == 0);
}

TEST_CASE("Nobody listens: refused, at once and after a time of work; a new listener at the place is found") {
    channel c;
    raw_listener place;
    const oob_address where = place.where;
    place.fd.reset();
    REQUIRE(c.caller.connect(where, c.secret));
    CHECK(c.until([&] { return c.caller.advance(c.now) == oob_state::refused; }));

    tcp_oob again;
    REQUIRE(again.listen(where, c.secret));
    CHECK(c.until([&] {
        (void)again.advance(c.now);
        return c.caller.advance(c.now) == oob_state::up;
    }));
    again.close();
    bool closed = false;
    CHECK(c.until([&] {
        const oob_state s = c.caller.advance(c.now);
        closed |= s == oob_state::closed;
        return s == oob_state::refused;
    }));
    CHECK(closed);
}

TEST_CASE("After closing, an end is silent and its peer learns of it") {
    channel c;
    c.call();
    REQUIRE(c.works());
    c.caller.close();
    CHECK_FALSE(c.caller.send(message(5)));
    CHECK(c.until([&] { return c.listener.advance(c.now) == oob_state::closed; }));
}

TEST_CASE("Addresses that are none are refused") {
    tcp_oob o;
    for (const char* bad : {"",
                            ":",
                            "127.0.0.1",
                            "127.0.0.1:",
                            "127.0.0.1:x",
                            "127.0.0.1:1x",
                            "127.0.0.1:65536",
                            "127.0.0.1:-1",
                            "127.0.0.1:+1",
                            "127.0.0.1: 1",
                            "127.0.0.1:99999999999",
                            ":80",
                            "localhost:80",
                            "256.0.0.1:80",
                            "1.2.3:80",
                            "1.2.3.4.5:80",
                            "[::1]",
                            "[::1]:",
                            "::1:80",
                            "[::1:80",
                            "[]:80",
                            "[127.0.0.1]:80",
                            "memory:1",
                            "11111111111111111111111111111111111111111111111111:80"}) {
        CAPTURE(std::string(bad));
        CHECK(o.listen(std::string_view(bad), {}).error().code == errc::invalid_argument);
        CHECK(o.connect(std::string_view(bad), {}).code == errc::invalid_argument);
    }
    CHECK(o.advance(1_s) == oob_state::opening);
}

TEST_CASE("An address of another machine, or one that is taken, cannot be listened on: the system's reason is passed on") {
    tcp_oob o;
    const auto foreign = o.listen(std::string_view("192.0.2.1:0"), {});
    CHECK(foreign.error() == status{errc::system, subject::system_error, EADDRNOTAVAIL});
    raw_listener taken;
    CHECK(o.listen(taken.where, {}).error() == status{errc::system, subject::system_error, EADDRINUSE});
}
