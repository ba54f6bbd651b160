/// \file
/// Sender and receiver in two processes over a shared software fabric, in real time: ports that die, peers that are killed
/// or stopped, connections that cannot be. Waits are bounded, and no timing decides a test.

#include <vccl/model/shapes.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr std::uint32_t chunk = 32 * 1024;
constexpr unsigned buffers = 16;
constexpr nanoseconds patience{60'000'000'000};  ///< of the machine; nothing is expected to take this long

/// What the tests look at afterwards.
struct journal {
    using policy_axis = axis::completion;
    std::vector<channel_event> events;
    std::uint64_t chunks{};
    void on_done(const chunk_report& r) noexcept { chunks += static_cast<bool>(r.outcome); }
    void on_event(const channel_event& e) noexcept { events.push_back(e); }
    unsigned count(channel_event::kind k) const {
        unsigned n = 0;
        for (const auto& e : events) n += e.what == k;
        return n;
    }
};
using event = channel_event::kind;
using sender = host_sender<verbs::soft, sibling_port, qp_group<2>, journal>;
using receiver = host_receiver<verbs::soft, sibling_port, qp_group<2>, journal, hold_down<5>>;

std::string unique_name(const char* what) { return std::string("host-") + what + "-" + std::to_string(::getpid()); }
/// Files of ours in the shared memory directory.
unsigned left_behind(const std::string& name) {
    unsigned n = 0;
    DIR* d = ::opendir("/dev/shm");
    if (!d) return 0;
    while (const dirent* e = ::readdir(d)) n += std::string(e->d_name).find(name) != std::string::npos;
    ::closedir(d);
    return n;
}
void nap(nanoseconds t) {
    const timespec ts{static_cast<time_t>(t.count / 1'000'000'000), static_cast<long>(t.count % 1'000'000'000)};
    ::nanosleep(&ts, nullptr);
}

std::byte byte_of(std::uint64_t s, std::uint64_t i) { return static_cast<std::byte>(s * 131 + i * 7 + i / 251); }

bool put(int fd, const void* p, std::size_t n) { return ::send(fd, p, n, MSG_NOSIGNAL) == static_cast<ssize_t>(n); }
bool get(int fd, void* p, std::size_t n) { return ::recv(fd, p, n, MSG_WAITALL) == static_cast<ssize_t>(n); }
/// Blobs over a socket, as users do it.
bool put_blob(int fd, const std::vector<std::byte>& b) {
    const std::uint32_t n = static_cast<std::uint32_t>(b.size());
    return put(fd, &n, sizeof n) && put(fd, b.data(), n);
}
bool get_blob(int fd, std::vector<std::byte>& b) {
    std::uint32_t n = 0;
    if (!get(fd, &n, sizeof n) || n > 65536) return false;
    b.resize(n);
    return get(fd, b.data(), n);
}

/// How one end fared.
struct outcome {
    std::uint64_t chunks{}, wrong{}, failovers{}, failbacks{};
    status end{};
};

template <class Endpoint>
status join(Endpoint& e, int fd) {
    auto own = e.local_info();
    if (!own) return own.error();
    std::vector<std::byte> theirs;
    if (!put_blob(fd, *own) || !get_blob(fd, theirs)) return errc::io_error;
    return e.connect(theirs, patience);
}

/// The receiving user: takes `chunks` chunks, checks every byte, waits for the end.
outcome receive(const verbs::soft_fabric& fabric, int fd, std::uint64_t chunks, const endpoint_options& o = {}) {
    outcome out;
    auto& f = const_cast<verbs::soft_fabric&>(fabric);
    host_context<verbs::soft> context(*f.host("B"), f.shape());
    receiver rx(context, gpu_id{2}, channel_id{7}, o);
    std::vector<std::byte> bytes(std::size_t{chunk} * buffers);
    if (out.end = join(rx, fd); !out.end) return out;
    auto m = context.register_memory(bytes.data(), bytes.size());
    if (!m) {
        out.end = m.error();
        return out;
    }
    while (out.chunks < chunks) {
        while (rx.next().value < chunks && rx.next().value - out.chunks < buffers)
            if (!rx.recv(m->view(rx.next().value % buffers * chunk, chunk))) break;
        const auto n = rx.wait(sequence{out.chunks}, patience);
        if (!n) {
            out.end = n.error();
            break;
        }
        const std::byte* p = bytes.data() + out.chunks % buffers * chunk;
        out.wrong += *n != chunk;
        for (std::uint64_t i = 0; i < *n; ++i) out.wrong += p[i] != byte_of(out.chunks, i);
        ++out.chunks;
    }
    if (out.end) out.end = rx.wait_closed(patience);
    out.failovers = rx.handler().count(event::failed_over);
    out.failbacks = rx.handler().count(event::failed_back);
    if (rx.handler().chunks != rx.received().value) ++out.wrong;
    return out;
}

/// The sending user: `every(acknowledged)` is called whenever it looks.
outcome send(const verbs::soft_fabric& fabric, int fd, std::uint64_t chunks, const std::function<void(std::uint64_t)>& every = {},
             const endpoint_options& o = {}) {
    outcome out;
    auto& f = const_cast<verbs::soft_fabric&>(fabric);
    host_context<verbs::soft> context(*f.host("A"), f.shape());
    sender tx(context, gpu_id{0}, channel_id{7}, o);
    std::vector<std::byte> bytes(std::size_t{chunk} * buffers);
    if (out.end = join(tx, fd); !out.end) return out;
    auto m = context.register_memory(bytes.data(), bytes.size());
    if (!m) {
        out.end = m.error();
        return out;
    }
    const nanoseconds end = steady_clock{}.now() + patience;
    while (tx.acknowledged().value < chunks && out.end) {
        while (tx.next().value < chunks && tx.next().value - tx.acknowledged().value < buffers) {
            const std::uint64_t s = tx.next().value;
            std::byte* p = bytes.data() + s % buffers * chunk;
            for (std::uint64_t i = 0; i < chunk; ++i) p[i] = byte_of(s, i);
            if (!tx.send(m->view(s % buffers * chunk, chunk))) break;
        }
        if (every) every(tx.acknowledged().value);
        for (int i = 0; i < 50; ++i) tx.progress();
        out.end = tx.health();
        if (steady_clock{}.now() >= end) out.end = errc::timeout;
    }
    out.chunks = tx.acknowledged().value;
    if (out.end) out.end = tx.close(patience);
    out.failovers = tx.handler().count(event::failed_over);
    if (tx.handler().chunks != out.chunks) ++out.wrong;
    return out;
}

/// The other process: it attaches to the fabric, runs `body`, and says how it fared.
class other {
public:
    other(const std::string& fabric, const std::function<outcome(verbs::soft_fabric&, int)>& body) {
        int fds[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            ::close(fds[0]);
            outcome out;
            {
                auto f = verbs::soft_fabric::attach(fabric);
                if (f)
                    out = body(*f, fds[1]);
                else
                    out.end = f.error();
            }
            (void)put(fds[1], &out, sizeof out);
            std::_Exit(0);
        }
        ::close(fds[1]);
        fd_ = fds[0];
    }
    ~other() {
        signal(SIGCONT);
        kill();
        ::close(fd_);
    }
    int fd() const { return fd_; }
    void signal(int sig) const {
        if (pid_ > 0) ::kill(pid_, sig);
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    outcome result() {
        outcome out;
        if (!get(fd_, &out, sizeof out)) out.end = errc::io_error;
        return out;
    }

private:
    pid_t pid_{-1};
    int fd_{-1};
};

/// A fabric of this process, which says afterwards that nothing of it is left.
struct shared {
    std::string name;
    std::optional<verbs::soft_fabric> fabric;
    explicit shared(const char* what) : name(unique_name(what)) {
        verbs::soft_options o;
        o.bytes_per_second = 400'000'000;  // so that a transfer lasts long enough to be disturbed
        auto f = verbs::soft_fabric::create_shared(name, make_cluster(2, 2, 2, 2), o);
        REQUIRE(f);
        fabric.emplace(std::move(*f));
        CHECK(left_behind(name) > 0);
    }
    ~shared() {
        fabric.reset();
        CHECK(left_behind(name) == 0);
    }
};

/// Two ends of a channel where /dev/shm holds a fabric of `settings`, but no more than `bytes` in all: what connect() says at each.
/// Nothing: this user may not have a /dev/shm of its own.
std::optional<std::array<status, 2>> connect_within(const char* bytes, const endpoint_options& settings) {
    constexpr int skipped = 77;
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("none", "/dev/shm", "tmpfs", 0, bytes) != 0)
            std::_Exit(skipped);
        auto f = verbs::soft_fabric::create_shared("narrow", make_cluster(2, 2, 2, 2));
        auto g = verbs::soft_fabric::attach("narrow");
        if (!f || !g) std::_Exit(2);
        host_context<verbs::soft> a(*f->host("A"), f->shape()), b(*g->host("B"), g->shape());
        sender tx(a, gpu_id{0}, channel_id{7}, settings);
        receiver rx(b, gpu_id{2}, channel_id{7}, settings);
        const auto of_tx = tx.local_info(), of_rx = rx.local_info();
        if (!of_tx || !of_rx) std::_Exit(3);
        const std::array<status, 2> said{tx.connect(*of_rx, patience), rx.connect(*of_tx, patience)};
        std::_Exit(put(fds[1], &said, sizeof said) ? 0 : 4);
    }
    ::close(fds[1]);
    std::array<status, 2> said;
    const bool got = get(fds[0], &said, sizeof said);
    ::close(fds[0]);
    int how = -1;
    ::waitpid(pid, &how, 0);
    REQUIRE((how == 0 || (WIFEXITED(how) && WEXITSTATUS(how) == skipped)));
    return got ? std::optional(said) : std::nullopt;
}

void whole(const outcome& out, std::uint64_t chunks) {
    CHECK(out.end.code == errc::ok);
    CHECK(out.chunks == chunks);
    CHECK(out.wrong == 0);
}

}  // namespace

TEST_CASE("Two processes: chunks arrive once, whole and in order, and both ends close") {
    shared s("plain");
    other b(s.name, [](verbs::soft_fabric& f, int fd) { return receive(f, fd, 300); });
    whole(send(*s.fabric, b.fd(), 300), 300);
    whole(b.result(), 300);
}

TEST_CASE("Two processes: either end's port dies in the middle and returns") {
    for (const std::string port : {"A.nic0.p0", "B.nic0.p0"}) {
        CAPTURE(port);
        shared s("port");
        other b(s.name, [](verbs::soft_fabric& f, int fd) { return receive(f, fd, 600); });
        int step = 0;
        const outcome out = send(*s.fabric, b.fd(), 600, [&](std::uint64_t acknowledged) {
            if (step == 0 && acknowledged >= 100) step = s.fabric->command("down " + port) ? 1 : 9;
            if (step == 1 && acknowledged >= 250) step = s.fabric->command("up " + port) ? 2 : 9;
        });
        CHECK(step == 2);
        whole(out, 600);
        const outcome in = b.result();
        whole(in, 600);
        CHECK(in.failovers >= 1);
        CHECK(out.failovers == in.failovers);
    }
}

TEST_CASE("Too little of /dev/shm for a connection is told as that, not as dead lanes") {
    endpoint_options o;
    o.give_up_after = 1_s;
    const auto said = connect_within("size=600k", o);  // room for the fabric, not for what travels between two processes
    if (!said) {
        MESSAGE("skipped: needs a /dev/shm of its own");
        return;
    }
    for (const status& s : *said) {
        CHECK(s.code == errc::no_memory);
        CHECK(s.about == subject::shared_memory);
        CHECK(s.detail == 1);
    }
}

TEST_CASE("The receiving process is killed in the middle: the sender is told in bounded time, and nothing is left behind") {
    shared s("kill-rx");
    other b(s.name, [](verbs::soft_fabric& f, int fd) { return receive(f, fd, 1'000'000); });
    nanoseconds killed{};
    const outcome out = send(*s.fabric, b.fd(), 1'000'000, [&](std::uint64_t acknowledged) {
        if (killed.count != 0 || acknowledged < 100) return;
        b.kill();
        killed = steady_clock{}.now();
    });
    REQUIRE(killed.count != 0);
    CHECK(out.end.code == errc::peer_lost);
    CHECK(steady_clock{}.now() - killed < endpoint_options{}.give_up_after);
    CHECK(out.chunks >= 100);
    CHECK(out.wrong == 0);
}

TEST_CASE("The sending process is killed in the middle: the receiver is told in bounded time, and nothing half is received") {
    shared s("kill-tx");
    other a(s.name, [](verbs::soft_fabric& f, int fd) {
        return send(f, fd, 1'000'000, [fd, told = false](std::uint64_t acknowledged) mutable {
            if (!told && acknowledged >= 100) told = put(fd, "x", 1);
        });
    });
    // A third process does the killing, since this one is busy receiving.
    const pid_t killer = ::fork();
    if (killer == 0) {
        char c;
        // Blobs come first on this socket; only look, so that they reach the receiver.
        for (;;) {
            const ssize_t n = ::recv(a.fd(), &c, 1, MSG_PEEK);
            if (n == 1 && c == 'x') break;
            if (n <= 0) std::_Exit(1);
            nap(1_ms);
        }
        a.signal(SIGKILL);
        std::_Exit(0);
    }
    endpoint_options closed_means_gone;  // nothing else can tell in time
    closed_means_gone.peer_grace = closed_means_gone.give_up_after = 600_s;
    const outcome in = receive(*s.fabric, a.fd(), 1'000'000, closed_means_gone);
    int how = 1;
    ::waitpid(killer, &how, 0);
    CHECK(how == 0);
    CHECK(in.end.code == errc::peer_lost);
    CHECK(in.chunks >= 84);
    CHECK(in.wrong == 0);
}

TEST_CASE("An abort with a deadline returns once the peer has heard it, or when the deadline has passed") {
    shared s("abort");
    other b(s.name, [](verbs::soft_fabric& f, int fd) { return receive(f, fd, 1'000'000); });
    other mute(s.name, [](verbs::soft_fabric& f, int fd) {
        host_context<verbs::soft> at_b(*f.host("B"), f.shape());
        receiver rx(at_b, gpu_id{2}, channel_id{8});
        const status joined = join(rx, fd);
        char c;
        (void)(put(fd, "x", 1) && get(fd, &c, 1));  // connected, and then deaf
        return outcome{.end = joined};
    });
    host_context<verbs::soft> context(*s.fabric->host("A"), s.fabric->shape());
    sender tx(context, gpu_id{0}, channel_id{7});
    CHECK(tx.abort(1_s).code == errc::not_connected);
    REQUIRE(join(tx, b.fd()));
    CHECK(tx.abort(patience));
    CHECK(tx.health().code == errc::aborted);
    const status heard = b.result().end;
    CHECK(heard.code == errc::aborted);
    CHECK(heard.about == subject::peer_code);
    CHECK(heard.detail == static_cast<std::uint32_t>(errc::aborted));

    sender other_tx(context, gpu_id{0}, channel_id{8});
    REQUIRE(join(other_tx, mute.fd()));
    char c;
    REQUIRE(get(mute.fd(), &c, 1));
    CHECK(other_tx.abort(50_ms).code == errc::timeout);
    REQUIRE(put(mute.fd(), "x", 1));
    CHECK(mute.result().end.code == errc::ok);
}

TEST_CASE("The receiving process is stopped for longer than every timer and resumed: the transfer completes") {
    shared s("stop-rx");
    other b(s.name, [](verbs::soft_fabric& f, int fd) { return receive(f, fd, 500); });
    nanoseconds stopped{};
    bool resumed = false;
    const outcome out = send(*s.fabric, b.fd(), 500, [&](std::uint64_t acknowledged) {
        if (stopped.count == 0 && acknowledged >= 100) {
            b.signal(SIGSTOP);
            stopped = steady_clock{}.now();
        }
        if (!resumed && stopped.count != 0 && steady_clock{}.now() - stopped > 4_s) {
            b.signal(SIGCONT);
            resumed = true;
        }
    });
    CHECK(resumed);
    whole(out, 500);
    whole(b.result(), 500);
}

TEST_CASE("The sending process is stopped for longer than every timer and resumed: the transfer completes") {
    shared s("stop-tx");
    other a(s.name, [](verbs::soft_fabric& f, int fd) {
        return send(f, fd, 500, [fd, told = false](std::uint64_t acknowledged) mutable {
            if (!told && acknowledged >= 100) told = put(fd, "x", 1);
        });
    });
    const pid_t stopper = ::fork();
    if (stopper == 0) {
        char c;
        for (;;) {
            const ssize_t n = ::recv(a.fd(), &c, 1, MSG_PEEK);
            if (n == 1 && c == 'x') break;
            if (n <= 0) std::_Exit(1);
            nap(1_ms);
        }
        a.signal(SIGSTOP);
        nap(4_s);
        a.signal(SIGCONT);
        std::_Exit(0);
    }
    whole(receive(*s.fabric, a.fd(), 500), 500);
    int how = 1;
    ::waitpid(stopper, &how, 0);
    CHECK(how == 0);
    char c;
    REQUIRE(get(a.fd(), &c, 1));
    whole(a.result(), 500);
}

TEST_CASE("A peer that is not there, is mute, or has no port: connect says which") {
    auto f = verbs::soft_fabric::create(make_cluster(2, 2, 2, 2));
    REQUIRE(f);
    host_context<verbs::soft> a(*f->host("A"), f->shape()), b(*f->host("B"), f->shape());
    {
        sender tx(a, gpu_id{0}, channel_id{7});
        auto rx = std::make_unique<receiver>(b, gpu_id{2}, channel_id{7});
        const auto blob = *rx->local_info();
        CHECK(tx.connect(blob, 300_ms).code == errc::timeout);
    }
    {
        sender tx(a, gpu_id{0}, channel_id{7});
        std::vector<std::byte> blob;
        {
            receiver rx(b, gpu_id{2}, channel_id{7});
            blob = *rx.local_info();
        }
        CHECK(tx.connect(blob, 20_s).code == errc::peer_lost);
        CHECK(tx.send(memory_view{}).error().code == errc::peer_lost);
    }
    {
        sender tx(a, gpu_id{0}, channel_id{7});
        receiver rx(b, gpu_id{2}, channel_id{7});
        const auto blob = *tx.local_info();
        CHECK(rx.connect(blob, 200_ms).code == errc::peer_lost);
    }
    {
        auto other = verbs::soft_fabric::create(make_cluster(2, 2, 2, 2), {.seed = 2});
        REQUIRE(other);
        host_context<verbs::soft> c(*other->host("B"), other->shape());
        sender tx(a, gpu_id{0}, channel_id{7});
        receiver rx(c, gpu_id{2}, channel_id{7});
        const auto blob = *rx.local_info();
        CHECK(tx.connect(blob, 200_ms).code == errc::not_found);  // not port_down: no cable is to blame
    }
    {
        REQUIRE(f->command("down A"));
        sender tx(a, gpu_id{0}, channel_id{7});
        receiver rx(b, gpu_id{2}, channel_id{7});
        const auto blob = *rx.local_info();
        const status s = tx.connect(blob, 200_ms);
        CHECK(s.code == errc::port_down);
        CHECK(s.lane == 0);
        REQUIRE(f->command("up A"));
    }
    CHECK_FALSE(verbs::soft_fabric::attach("host-no-such-fabric"));
}
