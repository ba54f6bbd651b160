/// \file
/// The software RNIC between two processes: 1 MiB writes against one memcpy stream, and an 8-byte round trip.
/// Last line: BENCH soft_xproc ratio=… memcpy_gbs=… soft_gbs=… rtt_us=…

#include "../soft_memcpy.hpp"

#include <string>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace soft_bench;

namespace {

constexpr int trips = 20'000;

void send_all(int fd, const void* p, std::size_t n) {
    if (::write(fd, p, n) != static_cast<ssize_t>(n)) give_up("write", errc::io_error);
}
void receive_all(int fd, void* p, std::size_t n) {
    if (::read(fd, p, n) != static_cast<ssize_t>(n)) give_up("read", errc::peer_lost);
}

void put(end& from, const end_info& to, std::uint64_t value) {
    work w;
    w.flags = work_flags::inlined | work_flags::signaled;
    w.local_addr = reinterpret_cast<std::uintptr_t>(&value);
    w.remote_addr = to.address;
    w.length = 8;
    w.rkey = to.key;
    check(from.qp.post(w), "post");
}
/// Polls until the word has the value; completions of earlier puts are counted off.
void await(end& e, std::uint64_t value) {
    completion out[8];
    patience idle;
    while (__atomic_load_n(reinterpret_cast<std::uint64_t*>(e.memory.data()), __ATOMIC_ACQUIRE) != value) {
        take(e.cq.poll(out, 8), "poll");
        idle.nothing();
    }
}

end_info meet(int fd, end& e) {
    const auto mine = describe(e);
    end_info theirs;
    send_all(fd, &mine, sizeof mine);
    receive_all(fd, &theirs, sizeof theirs);
    connect(e, theirs);
    char ready = 'r';
    send_all(fd, &ready, 1);
    receive_all(fd, &ready, 1);
    return theirs;
}

/// Polls, as a busy proxy does, except while the other process measures memcpy.
int serve(int fd, const std::string& name) {
    auto fabric = take(soft_fabric::attach(name), "attach");
    end b(take(fabric.host("B"), "host"), "B.nic0.p0");
    const auto to_a = meet(fd, b);
    char order;
    while (::read(fd, &order, 1) == 1) {
        if (order == 'w') {  // serve one round of writes
            completion out[8];
            patience idle;
            while (::recv(fd, &order, 1, MSG_DONTWAIT) != 1)
                for (int i = 0; i < 1000; ++i, idle.nothing()) take(b.cq.poll(out, 8), "poll");
        } else if (order == 't') {
            send_all(fd, &order, 1);
            for (std::uint64_t i = 1; i <= trips; ++i) {
                await(b, i);
                put(b, to_a, i);
            }
        }
    }
    return 0;
}

}  // namespace

int main() {
    const std::string name = "bench-" + std::to_string(::getpid());
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) give_up("socketpair", errc::system);
    auto fabric = take(soft_fabric::create_shared(name, verbs::soft_topology(2, 1, 1, 1)), "create_shared");
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(fds[0]);
        std::_Exit(serve(fds[1], name));
    }
    ::close(fds[1]);
    end a(take(fabric.host("A"), "host"), "A.nic0.p0");
    const auto to_b = meet(fds[0], a);

    const buffer scratch;
    std::vector<double> plain, soft;
    for (int i = 0; i < rounds; ++i) {
        plain.push_back(memcpy_rate(a.memory, scratch));
        send_all(fds[0], "w", 1);
        soft.push_back(write_rate(a, to_b, 8));
        send_all(fds[0], "s", 1);
    }
    send_all(fds[0], "t", 1);
    char ready;
    receive_all(fds[0], &ready, 1);
    const auto start = steady_clock{}.now();
    for (std::uint64_t i = 1; i <= trips; ++i) {
        put(a, to_b, i);
        await(a, i);
    }
    const double rtt = seconds_since(start) * 1e6 / trips;
    ::close(fds[0]);
    ::waitpid(child, nullptr, 0);
    std::printf("BENCH soft_xproc ratio=%.3f memcpy_gbs=%.2f soft_gbs=%.2f rtt_us=%.3f\n", median(soft) / median(plain),
                median(plain) * 1e-9, median(soft) * 1e-9, rtt);
    return 0;
}
