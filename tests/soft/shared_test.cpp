/// \file
/// A fabric between processes: attaching, killed and stopped peers, damaged memory. Real time; waits are bounded and no
/// timing decides a test. The second process is a fork that lives on its own attachment.

#include "support.hpp"

#include <cstring>
#include <functional>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

using namespace soft_test;

namespace {

std::string unique_name(const char* what) { return std::string("test-") + what + "-" + std::to_string(::getpid()); }
std::string path_of(const std::string& name) { return verbs::soft_detail::path_of(name); }

/// Polls `e` until it has completed `n`, or until time is up.
std::vector<completion> collect(end& e, std::size_t n, nanoseconds patience = 20_s) {
    std::vector<completion> all;
    const auto deadline = steady_clock{}.now() + patience;
    while (all.size() < n && steady_clock{}.now() < deadline) {
        const auto some = drain(e);
        all.insert(all.end(), some.begin(), some.end());
        if (some.empty()) ::sched_yield();
    }
    return all;
}

/// What one side tells the other.
struct card {
    std::uint32_t qpn{};
    gid address{};
    std::uint64_t memory{};
    std::uint32_t rkey{};
};
card card_of(end& e) { return {e.qp.number().value, e.port.query()->address, e.address(), e.mr.remote_key().value}; }
bool connect_to(end& e, const card& c, const qp_timers& timers = {}) {
    return e.qp.to_init() && e.qp.to_ready_to_receive({qpn{c.qpn}, psn{100}, c.address, 0, 4096}, timers) &&
           e.qp.to_ready_to_send(psn{100}, timers);
}
work write_to(end& from, const card& to, std::uint32_t length, std::uint64_t id = 1) {
    work w;
    w.wr_id = id;
    w.flags = work_flags::signaled;
    w.local_addr = from.address();
    w.remote_addr = to.memory;
    w.length = length;
    w.lkey = from.mr.local_key();
    w.rkey = rkey{to.rkey};
    return w;
}

/// A forked process with a socket to it. It runs `body` and leaves without destructors of its parent's objects.
class child {
public:
    explicit child(const std::function<bool(int)>& body) {
        int fds[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::close(fds[0]);
            std::_Exit(body(fds[1]) ? 0 : 1);
        }
        ::close(fds[1]);
        fd_ = fds[0];
    }
    ~child() {
        end_by(SIGKILL);
        ::close(fd_);
    }
    int fd() const { return fd_; }
    pid_t pid() const { return pid_; }
    void end_by(int sig) {
        if (pid_ <= 0) return;
        ::kill(pid_, sig);
        ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
    int wait() {
        int status = -1;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        return status;
    }

private:
    pid_t pid_{-1};
    int fd_{-1};
};

template <class T>
bool put(int fd, const T& v) {
    return ::write(fd, &v, sizeof v) == static_cast<ssize_t>(sizeof v);
}
template <class T>
bool get(int fd, T& v) {
    return ::read(fd, &v, sizeof v) == static_cast<ssize_t>(sizeof v);
}

/// The usual peer: attaches as host B, connects, and polls until the socket closes.
bool serve(int fd, const std::string& name) {
    auto f = soft_fabric::attach(name);
    if (!f) return false;
    auto b = make_end(*f->host("B"), "B.nic0.p0");
    card theirs;
    if (!put(fd, card_of(b)) || !get(fd, theirs) || !connect_to(b, theirs) || !put(fd, 'r')) return false;
    std::vector<recv_work> receives(64, receive(b, 1, 1 << 16));
    if (!b.qp.post_recv(receives)) return false;
    char stop;
    for (;;) {
        const auto n = ::recv(fd, &stop, 1, MSG_DONTWAIT);
        if (n == 0 || (n == 1 && stop == 'q')) return true;
        if (n == 1) put(fd, __atomic_load_n(&b.words[0], __ATOMIC_ACQUIRE));
        drain(b);
        ::sched_yield();
    }
}

struct two_processes {
    soft_fabric fabric;
    child peer;
    end a;
    card b;

    explicit two_processes(const char* what, const soft_options& o = {}, const qp_timers& timers = {})
        : fabric(take(soft_fabric::create_shared(unique_name(what), soft_topology(2, 2, 2, 2), o))),
          peer([name = unique_name(what)](int fd) { return serve(fd, name); }),
          a(make_end(take(fabric.host("A")), "A.nic0.p0")) {
        REQUIRE(get(peer.fd(), b));
        REQUIRE(put(peer.fd(), card_of(a)));
        REQUIRE(connect_to(a, b, timers));
        char ready;
        REQUIRE(get(peer.fd(), ready));
    }
};

/// Registered memory of the fabric at the sending end.
struct sent_from {
    soft::buffer memory;
    soft::port::mr mr;
    sent_from(two_processes& p, std::size_t bytes)
        : memory(take(take(p.fabric.host("A")).allocate(bytes))), mr(take(p.a.port.register_memory(memory.data(), bytes))) {}
    work write_to(const card& to, std::uint32_t length) const {
        work w;
        w.op = work_op::write_imm;
        w.flags = work_flags::signaled;
        w.local_addr = reinterpret_cast<std::uintptr_t>(memory.data());
        w.remote_addr = to.memory;
        w.length = length;
        w.lkey = mr.local_key();
        w.rkey = rkey{to.rkey};
        return w;
    }
};
soft_options with_memory(std::uint64_t bytes) {
    soft_options o;
    o.memory_bytes = bytes;
    o.ring_bytes = 65536;
    return o;
}
void stop(pid_t pid) {
    ::kill(pid, SIGSTOP);
    int stopped = 0;
    REQUIRE(::waitpid(pid, &stopped, WUNTRACED) == pid);
    REQUIRE(WIFSTOPPED(stopped));
}
/// The first word of the peer's memory, after it has looked at its rings a few times.
std::uint64_t first_word(const child& peer) {
    std::uint64_t seen = 0;
    for (int i = 0; i < 8; ++i) {
        REQUIRE(put(peer.fd(), 'l'));
        REQUIRE(get(peer.fd(), seen));
    }
    return seen;
}
constexpr qp_timers patient{.timeout = 20};  // 13 seconds
/// Attaches as host A, connects, and writes out of the fabric's memory when told to.
bool write_once(int fd, const std::string& name, std::uint32_t length) {
    auto f = soft_fabric::attach(name);
    if (!f) return false;
    auto a = make_end(*f->host("A"), "A.nic0.p0");
    auto memory = f->host("A")->allocate(length);
    auto mr = memory ? a.port.register_memory(memory->data(), length) : result<soft::port::mr>(memory.error());
    card theirs;
    char go;
    if (!mr || !put(fd, card_of(a)) || !get(fd, theirs) || !connect_to(a, theirs, patient) || !get(fd, go)) return false;
    std::memset(memory->data(), 1, length);
    work w = write_to(a, theirs, length);
    w.local_addr = reinterpret_cast<std::uintptr_t>(memory->data());
    w.lkey = mr->local_key();
    return a.qp.post(w) && put(fd, 'p') && get(fd, go);
}

}  // namespace

TEST_CASE("all operations work between processes") {
    two_processes p("ops");
    fill(p.a, 3);
    for (const std::uint32_t length : {0u, 1u, 8u, 4096u, 100000u, 1u << 20}) {
        REQUIRE(p.a.qp.post(write_to(p.a, p.b, length)));
        const auto got = collect(p.a, 1);
        REQUIRE(got.size() == 1);
        CHECK(got[0].status == wc_status::success);
    }
    const auto sent = p.a.words;
    std::fill(p.a.words.begin(), p.a.words.end(), 0);
    REQUIRE(p.a.qp.post(with(write_to(p.a, p.b, 1 << 20), work_op::read)));
    REQUIRE(collect(p.a, 1).at(0).status == wc_status::success);
    CHECK(p.a.words == sent);

    auto add = with(write_to(p.a, p.b, 8), work_op::fetch_add);
    add.swap_add = 5;
    REQUIRE(p.a.qp.post(add));
    REQUIRE(collect(p.a, 1).at(0).status == wc_status::success);
    CHECK(p.a.words[0] == sent[0]);
    REQUIRE(p.a.qp.post(add));
    REQUIRE(collect(p.a, 1).at(0).status == wc_status::success);
    CHECK(p.a.words[0] == sent[0] + 5);

    REQUIRE(p.a.qp.post(with(write_to(p.a, p.b, 60000), work_op::send)));
    REQUIRE(p.a.qp.post(with(write_to(p.a, p.b, 60000), work_op::write_imm)));
    for (const auto& c : collect(p.a, 2)) CHECK(c.status == wc_status::success);
    CHECK(p.a.qp.post(with(write_to(p.a, p.b, 1 << 17), work_op::send)));  // larger than the receive
    CHECK(collect(p.a, 1).at(0).status == wc_status::rem_inv_req_err);
}

TEST_CASE("a path between processes that loses, repeats, reorders and crawls delivers every byte") {
    qp_timers timers;
    timers.retry_count = 7;
    timers.timeout = 14;  // half a second in all: processes that share processors are slow to answer
    const char* faults[] = {"loss A.nic0.p0 2%", "dup A.nic0.p0 10%", "reorder A.nic0.p0 5%", "rate A.nic0.p0 500MB/s",
                            "delay B.nic0.p0 200us"};
    for (const char* fault : faults) {  // out of the fabric's memory
        CAPTURE(fault);
        two_processes p("lossy", with_memory(1 << 21), timers);
        REQUIRE(p.fabric.command(fault));
        const sent_from source(p, 1 << 20);
        fill(p.a, 9);
        std::memcpy(source.memory.data(), p.a.words.data(), 1 << 20);
        const auto sent = p.a.words;
        std::fill(p.a.words.begin(), p.a.words.end(), 0);
        for (int i = 0; i < 4; ++i) REQUIRE(p.a.qp.post(source.write_to(p.b, 1 << 20)));
        for (const auto& c : collect(p.a, 4)) CHECK(c.status == wc_status::success);
        REQUIRE(p.a.qp.post(with(write_to(p.a, p.b, 1 << 20), work_op::read)));
        REQUIRE(collect(p.a, 1).at(0).status == wc_status::success);
        CHECK(p.a.words == sent);
    }
    for (const char* fault : faults) {
        CAPTURE(fault);
        two_processes p("lossy", {}, timers);
        REQUIRE(p.fabric.command(fault));
        fill(p.a, 8);
        const auto sent = p.a.words;
        for (int i = 0; i < 4; ++i) REQUIRE(p.a.qp.post(write_to(p.a, p.b, 1 << 20)));
        for (const auto& c : collect(p.a, 4)) CHECK(c.status == wc_status::success);
        std::fill(p.a.words.begin(), p.a.words.end(), 0);
        REQUIRE(p.a.qp.post(with(write_to(p.a, p.b, 1 << 20), work_op::read)));
        REQUIRE(collect(p.a, 1).at(0).status == wc_status::success);
        CHECK(p.a.words == sent);
    }
}

TEST_CASE("what lies in the fabric's memory is read by its receiver, there: the ring carries only where that is") {
    two_processes p("refers", with_memory(1 << 21), patient);
    const sent_from source(p, 1 << 20);
    std::memset(source.memory.data(), 1, 1 << 20);
    stop(p.peer.pid());
    REQUIRE(p.a.qp.post(source.write_to(p.b, 1 << 20)));  // sixteen times the ring
    std::memset(source.memory.data(), 2, 1 << 20);        // no user may do that yet; it shows when the bytes are read
    ::kill(p.peer.pid(), SIGCONT);
    REQUIRE(collect(p.a, 1).at(0).status == wc_status::success);
    REQUIRE(p.a.qp.post(with(write_to(p.a, p.b, 8), work_op::read)));
    REQUIRE(collect(p.a, 1).at(0).status == wc_status::success);
    CHECK(p.a.words[0] == 0x0202020202020202);
}

TEST_CASE("from the fabric's memory to the fabric's memory, in every length and alignment") {
    const auto name = unique_name("both");
    auto f = take(soft_fabric::create_shared(name, soft_topology(2, 1, 1, 1), with_memory(1 << 18)));
    auto other = take(soft_fabric::attach(name));
    auto a = make_end(take(f.host("A")), "A.nic0.p0"), b = make_end(take(other.host("B")), "B.nic0.p0");
    join(a, b);
    join(b, a);
    constexpr std::uint32_t room = 1 << 17;
    const auto from = take(take(f.host("A")).allocate(room)), to = take(take(other.host("B")).allocate(room));
    const auto from_mr = take(a.port.register_memory(from.data(), room));
    for (std::uint32_t i = 0; i < room; ++i) from.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
    for (const std::uint32_t length : {1u, 1023u, 1024u, 4095u, 4096u, 4097u, 32768u, 32769u, 100000u})
        for (const std::uint32_t shift : {0u, 1u, 8u, 64u}) {
            CAPTURE(length);
            CAPTURE(shift);
            std::memset(to.data(), 0xee, room);
            {
                // Registered anew each time: that b's lock is taken before and after is an order that the thread sanitizer
                // sees; of the one through two mappings of one file it knows nothing.
                const auto to_mr = take(b.port.register_memory(to.data(), room));
                work w = write(a, b, length);
                w.local_addr = reinterpret_cast<std::uintptr_t>(from.data()) + 3 * shift;
                w.remote_addr = reinterpret_cast<std::uintptr_t>(to.data()) + shift;
                w.lkey = from_mr.local_key();
                w.rkey = to_mr.remote_key();
                REQUIRE(a.qp.post(w));
                REQUIRE(collect(a, 1).at(0).status == wc_status::success);
            }
            CHECK(std::memcmp(to.data() + shift, from.data() + 3 * std::size_t{shift}, length) == 0);
            CHECK(to.data()[shift + length] == std::byte{0xee});
            CHECK((shift == 0 || to.data()[shift - 1] == std::byte{0xee}));
        }
}

TEST_CASE("bytes that were changed after their QP or their memory was given up never arrive") {
    struct way {
        const char* name;
        void (*go)(two_processes&, sent_from&);
    };
    for (const way& given_up : {way{"to_error", [](two_processes& p, sent_from&) { REQUIRE(p.a.qp.to_error()); }},
                                way{"to_reset", [](two_processes& p, sent_from&) { REQUIRE(p.a.qp.to_reset()); }},
                                way{"destroy", [](two_processes& p, sent_from&) { REQUIRE(p.a.qp.destroy()); }},
                                way{"deregister", [](two_processes&, sent_from& m) { m.mr = {}; }},
                                way{"free", [](two_processes&, sent_from& m) { m.memory = {}; }}}) {
        CAPTURE(given_up.name);
        two_processes p("revoke", with_memory(1 << 21), patient);
        constexpr std::uint32_t length = 1 << 13;
        sent_from source(p, length);
        std::byte* const bytes = source.memory.data();
        std::memset(bytes, 1, length);
        stop(p.peer.pid());
        REQUIRE(p.a.qp.post(source.write_to(p.b, length)));
        given_up.go(p, source);
        std::memset(bytes, 2, length);
        ::kill(p.peer.pid(), SIGCONT);
        CHECK(first_word(p.peer) == 0);
    }
}

TEST_CASE("who takes a killed process's place and memory cannot be taken for it") {
    const auto name = unique_name("memory-heir");
    constexpr std::uint32_t length = 1 << 13;
    auto f = take(soft_fabric::create_shared(name, soft_topology(2, 2, 2, 2), with_memory(length)));
    child peer([name](int fd) { return serve(fd, name); });
    child sender([name](int fd) { return write_once(fd, name, length); });
    card of_peer, of_sender;
    char word;
    REQUIRE(get(peer.fd(), of_peer));
    REQUIRE(get(sender.fd(), of_sender));
    REQUIRE(put(peer.fd(), of_sender));
    REQUIRE(put(sender.fd(), of_peer));
    REQUIRE(get(peer.fd(), word));
    stop(peer.pid());
    REQUIRE(put(sender.fd(), 'g'));
    REQUIRE(get(sender.fd(), word));
    sender.end_by(SIGKILL);
    auto heir = take(soft_fabric::attach(name));
    const auto memory = take(take(heir.host("A")).allocate(length));
    std::memset(memory.data(), 2, length);
    const auto e = make_end(take(heir.host("A")), "A.nic0.p1");
    REQUIRE(verbs::soft_detail::slot_of(e.qp.number().value) == verbs::soft_detail::slot_of(of_sender.qpn));
    ::kill(peer.pid(), SIGCONT);
    CHECK(first_word(peer) == 0);
}

TEST_CASE("the fabric's memory is given out in pages, and comes back") {
    auto f = take(soft_fabric::create_shared(unique_name("memory"), soft_topology(1, 1, 1, 1), with_memory(4 * 4096 - 1)));
    const auto host = take(f.host("A"));
    auto one = take(host.allocate(1)), two = take(host.allocate(4097)), three = take(host.allocate(4096));
    CHECK(host.allocate(1).error().code == errc::no_memory);
    CHECK(host.allocate(0).error().code == errc::no_memory);
    std::memset(two.data(), 1, two.size());
    std::byte* const was = two.data();
    two = {};
    CHECK(host.allocate(3 * 4096).error().code == errc::no_memory);
    CHECK(take(host.allocate(2 * 4096)).data() == was);
    CHECK(one.data() + 4096 == was);
    CHECK(three.data() == was + 2 * 4096);

    auto other = take(soft_fabric::attach(unique_name("memory")));  // another place, another part
    CHECK(take(take(other.host("A")).allocate(4 * 4096)).size() == 4 * 4096);

    auto alone = take(soft_fabric::create(soft_topology(1, 1, 1, 1), with_memory(1 << 20)));
    CHECK(take(alone.host("A")).allocate(1).error().code == errc::unsupported);
    auto without = take(soft_fabric::create_shared(unique_name("without"), soft_topology(1, 1, 1, 1)));
    CHECK(take(without.host("A")).allocate(1).error().code == errc::unsupported);
    CHECK(
        soft_fabric::create_shared(unique_name("huge"), soft_topology(1, 1, 1, 1), with_memory(~std::uint64_t{0})).error().code ==
        errc::invalid_argument);
}

TEST_CASE("a port taken down by one process is seen by the other") {
    two_processes p("down");
    auto tool = take(soft_fabric::attach(unique_name("down")));
    REQUIRE(tool.command("down A.nic0.p0"));
    CHECK(p.a.port.next_event()->what == async_event::kind::port_error);
    CHECK(p.a.port.query()->state == port_state::down);
    REQUIRE(p.a.qp.post(write_to(p.a, p.b, 8)));
    CHECK(collect(p.a, 1).at(0).status == wc_status::retry_exc_err);
    REQUIRE(tool.command("up A.nic0.p0"));
    CHECK(p.a.port.next_event()->what == async_event::kind::port_active);
}

TEST_CASE("a flap from another process happens, and the port is up in the end") {
    auto f = take(soft_fabric::create_shared(unique_name("flap"), soft_topology(1, 1, 1, 1)));
    auto a = make_end(take(f.host("A")), "A.nic0.p0");
    auto tool = take(soft_fabric::attach(unique_name("flap")));
    REQUIRE(tool.command("flap A.nic0.p0 1ms 1ms 3x"));
    const auto deadline = steady_clock{}.now() + 20_s;
    while (tool.next_event_at() < nanoseconds::never() && steady_clock{}.now() < deadline) ::sched_yield();
    CHECK(f.status()[0].downs == 3);
    CHECK(a.port.query()->state == port_state::active);
}

TEST_CASE("a killed peer ends in RETRY_EXC, and its place is taken by the next process") {
    auto p = two_processes("kill");
    p.peer.end_by(SIGKILL);
    REQUIRE(p.a.qp.post(write_to(p.a, p.b, 1 << 20)));
    CHECK(collect(p.a, 1).at(0).status == wc_status::retry_exc_err);

    const std::string name = unique_name("kill");
    child heir([name](int fd) { return serve(fd, name); });
    card theirs;
    REQUIRE(get(heir.fd(), theirs));
    CHECK(verbs::soft_detail::slot_of(theirs.qpn) == verbs::soft_detail::slot_of(p.b.qpn));
    CHECK(theirs.qpn != p.b.qpn);
    REQUIRE(put(heir.fd(), card_of(p.a)));
    REQUIRE(p.a.qp.to_reset());
    REQUIRE(connect_to(p.a, theirs));
    char ready;
    REQUIRE(get(heir.fd(), ready));
    REQUIRE(p.a.qp.post(write_to(p.a, theirs, 1 << 20)));
    CHECK(collect(p.a, 1).at(0).status == wc_status::success);
}

TEST_CASE("peers killed at any moment of a transfer block nobody") {
    auto f = take(soft_fabric::create_shared(unique_name("storm"), soft_topology(2, 1, 1, 1)));
    const std::string name = unique_name("storm");
    auto a = make_end(take(f.host("A")), "A.nic0.p0");
    qp_timers timers;
    timers.timeout = 10;
    for (int round = 0; round < 20; ++round) {
        child peer([name](int fd) { return serve(fd, name); });
        card b;
        REQUIRE(get(peer.fd(), b));
        REQUIRE(put(peer.fd(), card_of(a)));
        REQUIRE(a.qp.to_reset());
        REQUIRE(connect_to(a, b, timers));
        char ready;
        REQUIRE(get(peer.fd(), ready));
        for (std::uint64_t i = 0; i < 64; ++i)
            REQUIRE(a.qp.post(i % 2 ? write_to(a, b, 1 << 18, i) : with(write_to(a, b, 1 << 18, i), work_op::read)));
        auto got = collect(a, static_cast<std::size_t>(round));
        peer.end_by(SIGKILL);
        const auto rest = collect(a, 64 - got.size());
        got.insert(got.end(), rest.begin(), rest.end());
        REQUIRE(got.size() == 64);
        for (std::uint64_t i = 0; i < 64; ++i) CHECK(got[i].wr_id == i);
    }
}

TEST_CASE("what was sent to a stopped peer arrives late, if its QP still takes it") {
    auto p = two_processes("stop");
    p.a.words[0] = 4711;
    stop(p.peer.pid());
    REQUIRE(p.a.qp.post(write_to(p.a, p.b, 16)));
    CHECK(collect(p.a, 1).at(0).status == wc_status::retry_exc_err);
    ::kill(p.peer.pid(), SIGCONT);
    std::uint64_t seen = 0;
    for (int i = 0; i < 20'000 && seen != 4711; ++i) {
        REQUIRE(put(p.peer.fd(), 'l'));
        REQUIRE(get(p.peer.fd(), seen));
    }
    CHECK(seen == 4711);
}

TEST_CASE("a peer that computes and does not poll is served by its background thread") {
    auto f = take(soft_fabric::create_shared(unique_name("idle"), soft_topology(2, 1, 1, 1)));
    auto other = take(soft_fabric::attach(unique_name("idle")));
    auto a = make_end(take(f.host("A")), "A.nic0.p0");
    auto b = make_end(take(other.host("B")), "B.nic0.p0");  // never polled
    join(a, b);
    join(b, a);
    fill(a, 4);
    REQUIRE(a.qp.post(write(a, b, 1 << 20)));
    CHECK(collect(a, 1).at(0).status == wc_status::success);
}

TEST_CASE("attaching to what is not a fabric gives a typed error") {
    CHECK(soft_fabric::attach("no-such-fabric").error().code == errc::not_found);
    CHECK(soft_fabric::attach("").error().code == errc::invalid_argument);
    CHECK(soft_fabric::attach("../etc/passwd").error().code == errc::invalid_argument);
    const auto name = unique_name("bad");
    const auto with_content = [&](const std::vector<unsigned char>& bytes) {
        const int fd = ::open(path_of(name).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        REQUIRE(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
        ::close(fd);
        const auto s = soft_fabric::attach(name).error().code;
        ::unlink(path_of(name).c_str());
        return s;
    };
    CHECK(with_content({}) == errc::bad_blob);
    CHECK(with_content(std::vector<unsigned char>(100, 0)) == errc::bad_blob);
    CHECK(with_content(std::vector<unsigned char>(100000, 0)) == errc::bad_blob);

    // A true one, damaged in each byte of its header and topology in turn.
    std::vector<unsigned char> good;
    {
        soft_options o;
        o.processes = 1;
        o.ring_bytes = 65536;
        auto f = take(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1), o));
        const int fd = ::open(path_of(name).c_str(), O_RDONLY);
        good.resize(1 << 20);
        good.resize(static_cast<std::size_t>(::read(fd, good.data(), good.size())));
        ::close(fd);
    }
    CHECK(with_content(good) == errc::ok);
    auto version = good;
    version[8] ^= 1;
    CHECK(with_content(version) == errc::version_mismatch);
    for (const std::uint32_t mtu : {0u, 128u, 3000u, 8192u, 65536u}) {  // with 65536 a train would have no packet
        auto other = good;
        std::memcpy(other.data() + offsetof(verbs::soft_detail::segment_header, mtu), &mtu, sizeof mtu);
        CAPTURE(mtu);
        CHECK(with_content(other) == errc::bad_blob);
    }
    auto past = good;
    past[offsetof(verbs::soft_detail::segment_header, latency) + 7] = 0x80;
    CHECK(with_content(past) == errc::bad_blob);
    auto half = good;
    half.resize(good.size() / 2);
    CHECK(with_content(half) == errc::bad_blob);
    for (std::size_t i = 0; i < 4096; ++i) {
        auto damaged = good;
        damaged[i] ^= 0x81;
        with_content(damaged);  // any answer will do, as long as there is one
    }
}

TEST_CASE("a file that was removed while its fabric runs harms neither that fabric nor the next of its name") {
    const auto name = unique_name("removed");
    auto first = std::make_unique<soft_fabric>(take(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1))));
    REQUIRE(::unlink(path_of(name).c_str()) == 0);
    CHECK(first->command("down A.nic0.p0"));
    const auto second = take(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1)));
    first.reset();
    CHECK(soft_fabric::attach(name));
}

TEST_CASE("a FIFO with a fabric's name keeps nobody waiting") {
    const auto name = unique_name("fifo");
    REQUIRE(::mkfifo(path_of(name).c_str(), 0600) == 0);
    CHECK(soft_fabric::attach(name).error().code == errc::bad_blob);
    CHECK(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1)));  // as over any file that is no fabric
}

TEST_CASE("a name in use is refused, that of a dead creator is taken over") {
    const auto name = unique_name("name");
    {
        auto first = take(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1)));
        CHECK(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1)).error().code == errc::already_exists);
        CHECK(soft_fabric::attach(name));
    }
    CHECK(soft_fabric::attach(name).error().code == errc::not_found);
    {
        child creator([name](int fd) {
            auto f = soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1));
            char c;
            return f && put(fd, 'r') && get(fd, c);
        });
        char ready;
        REQUIRE(get(creator.fd(), ready));
        CHECK(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1)).error().code == errc::already_exists);
        ::kill(creator.pid(), SIGKILL);
        siginfo_t ended{};
        REQUIRE(::waitid(P_PID, static_cast<id_t>(creator.pid()), &ended, WEXITED | WNOWAIT) == 0);
        CHECK(soft_fabric::create_shared(name, soft_topology(2, 1, 1, 1)));  // dead, though nobody has waited for it yet
    }
    CHECK(soft_fabric::create_shared(name, soft_topology(2, 1, 1, 1)));
}

TEST_CASE("a fabric of another user is refused as theirs, whether it runs or not") {
    if (::geteuid() != 0) {
        MESSAGE("skipped: only root can be another user");
        return;
    }
    const auto name = unique_name("theirs");
    const auto as_another_user = [name](int fd) {
        if (::setuid(65534) != 0) return false;
        return put(fd, soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1)).error()) &&
               put(fd, soft_fabric::attach(name).error());
    };
    const auto check = [&] {
        child other(as_another_user);
        status of_create, of_attach;
        REQUIRE(get(other.fd(), of_create));
        REQUIRE(get(other.fd(), of_attach));
        CHECK(of_create == status{errc::permission, subject::owner, 0});
        CHECK(of_attach == status{errc::permission, subject::owner, 0});
    };
    {
        auto running = take(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1)));
        check();
    }
    const int left = ::open(path_of(name).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    REQUIRE(left >= 0);
    check();
    ::close(left);
    ::unlink(path_of(name).c_str());
}

TEST_CASE("more processes than the fabric has places for are refused") {
    soft_options o;
    o.processes = 2;
    const auto name = unique_name("full");
    auto f = take(soft_fabric::create_shared(name, soft_topology(1, 1, 1, 1), o));
    auto second = take(soft_fabric::attach(name)), third = take(soft_fabric::attach(name));
    REQUIRE(f.host("A"));
    {
        auto leaves = std::move(second);
        REQUIRE(leaves.host("A"));
        CHECK(third.host("A").error().code == errc::no_memory);
    }
    CHECK(third.host("A"));
}

TEST_CASE("a peer that scribbles over the rings harms only the traffic") {
    const auto name = unique_name("vandal");
    soft_options shape;
    shape.memory_bytes = 65536;
    auto f = take(soft_fabric::create_shared(name, soft_topology(2, 1, 1, 1), shape));
    auto other = take(soft_fabric::attach(name));
    qp_timers timers;
    timers.timeout = 8;
    end_options o;
    o.timers = timers;
    auto a = make_end(take(f.host("A")), "A.nic0.p0", o);
    auto b = make_end(take(other.host("B")), "B.nic0.p0", o);
    const auto memory = take(take(f.host("A")).allocate(65536));
    const auto mr = take(a.port.register_memory(memory.data(), memory.size()));
    auto referring = write(a, b, 30000);
    referring.local_addr = reinterpret_cast<std::uintptr_t>(memory.data());
    referring.lkey = mr.local_key();
    auto vandal = take(verbs::soft_detail::segment_map::attach(name));
    verbs::soft_detail::random_source random{7};
    const auto& view = vandal.view;
    for (int round = 0; round < 200; ++round) {
        for (end* e : {&a, &b}) REQUIRE(e->qp.to_reset());
        join(a, b, o);
        join(b, a, o);
        for (int i = 0; i < 4; ++i) REQUIRE(a.qp.post(i % 2 ? referring : write(a, b, 30000)));
        for (int i = 0; i < 20; ++i) {
            // A random word of a random place of a ring: positions, record heads, packet headers.
            const auto from = static_cast<std::uint32_t>(random.below(2)), to = static_cast<std::uint32_t>(random.below(2));
            std::byte* at = random.below(4) == 0 ? reinterpret_cast<std::byte*>(&view.ring(from, to)) + random.below(2) * 64
                                                 : view.base + view.ring_offset(from, to) + random.below(4096) * 8;
            const std::uint64_t value = random.below(3) == 0 ? ~0ull : random.below(2) == 0 ? random.next() : random.below(1000);
            __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), value, __ATOMIC_RELAXED);
            view.slot(0).inbound.fetch_or(random.next());
            view.slot(1).inbound.fetch_or(random.next());
            drain(a);
            drain(b);
        }
    }
    CHECK(*a.qp.state() != qp_state::reset);
}
