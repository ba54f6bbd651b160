// verbs::ibv beyond what every backend must do: names, addresses, events of real ports, refusals by the kernel.

#include "endpoints.hpp"

#include <vccl/base/status_text.hpp>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <functional>

using namespace guest;

namespace {

/// The code that `attempt` meets in a child process without root's rights.
errc without_rights(const std::function<errc()>& attempt) {
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit little{1 << 16, 1 << 16};
        if (::setrlimit(RLIMIT_MEMLOCK, &little) != 0 || ::setuid(65534) != 0) ::_exit(255);
        ::_exit(static_cast<int>(attempt()));
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return static_cast<errc>(WEXITSTATUS(status));
}

unsigned flushed(end& e, unsigned expected) {
    unsigned n = 0;
    while (n < expected) {
        const auto c = e.next(2_s);
        if (!c) break;
        n += c->status == wc_status::wr_flush_err ? 1U : 0U;
    }
    return n;
}

status finds(end& here, end& there) { return here.port.find_peer(must(here.port.query()), there.as_peer().address); }

}  // namespace

TEST_CASE("a name that does not exist says whether the device or the port is wrong") {
    CHECK(backend{}.open("no_such_device").error().code == errc::no_device);
    CHECK(backend{}.open("rxe_a0:2").error().code == errc::no_port);
    CHECK(backend{}.open("rxe_a0:1").has_value());
}

TEST_CASE("discovery lists the ports of the chosen devices in order, each on its rail") {
    const backend host_a{.devices = "rxe_a"};
    const topology t = must(host_a.discover());
    CHECK(validate(t));
    REQUIRE(t.ports.size() >= 2);
    for (std::size_t i = 0; i < t.ports.size(); ++i) {
        CHECK(t.ports[i].name.view() == "rxe_a" + std::to_string(i) + ":1");
        CHECK(t.ports[i].rail.value == i);
        CHECK(t.ports[i].bytes_per_second > 0);
        CHECK(host_a.netdev(t.ports[i].name) == "a" + std::to_string(i));
    }
    CHECK(backend{.devices = "nothing"}.discover().error().code == errc::no_device);
}

TEST_CASE("a RoCE port is addressed by its routable IPv4 address and reports its MTU") {
    auto port = must(backend{}.open("rxe_a1"));
    const port_attributes now = must(port.query());
    CHECK(now.state == port_state::active);
    CHECK(now.link == link_layer::ethernet);
    CHECK(now.mtu == 4096);
    const gid wanted{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 1}};
    CHECK(now.address == wanted);
    CHECK(port.inline_limit() >= 64);
}

TEST_CASE("a new address of the port is an event, found by the next query, and used by the next connection") {
    guest::pair p;
    REQUIRE(std::system("ip address del 10.0.0.1/24 dev a0 && ip address add 10.0.0.9/24 dev a0") == 0);
    CHECK(p.a.event(async_event::kind::gid_change));
    CHECK(eventually([&] { return must(p.a.port.query()).address.raw[15] == 9; }));
    p.connect();
    must(p.a.qp.post(p.a.write_to(p.b, 4096)));
    const auto done = p.a.next();
    REQUIRE(std::system("ip address del 10.0.0.9/24 dev a0 && ip address add 10.0.0.1/24 dev a0") == 0);
    REQUIRE(done);
    CHECK(done->status == wc_status::success);
}

TEST_CASE("a fixed GID index is taken as it is") {
    backend fixed;
    fixed.path.gid_index = 0;
    auto port = must(fixed.open("rxe_a0"));
    const port_attributes now = must(port.query());
    CHECK(now.gid_index == 0);
    CHECK(now.address.raw[0] == 0xfe);  // entry 0 is the link-local one
}

TEST_CASE("an own port that goes down and comes back tells so, and carries traffic on the same queue pair again") {
    network_faults network;
    guest::pair p;
    p.a.drain_events();
    CHECK(must(p.a.port.next_event()).what == async_event::kind::none);
    REQUIRE(network.fault("port-down a0"));
    CHECK(p.a.event(async_event::kind::port_error));
    CHECK(must(p.a.port.query()).state == port_state::down);
    REQUIRE(network.fault("port-up a0"));
    CHECK(p.a.event(async_event::kind::port_active));
    CHECK(eventually([&] { return must(p.a.port.query()).state == port_state::active; }));
    p.connect();
    must(p.a.qp.post(p.a.write_to(p.b, 65536)));
    const auto done = p.a.next();
    REQUIRE(done);
    CHECK(done->status == wc_status::success);
}

TEST_CASE("a port asks for a peer's Ethernet address, which the kernel may sleep through") {
    const int s = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    REQUIRE(s >= 0);
    sockaddr_in discard{};
    discard.sin_family = AF_INET;
    discard.sin_port = htons(9);
    discard.sin_addr.s_addr = htonl(0x0a'00'00'02);  // 10.0.0.2: host b, rail 0
    REQUIRE(::bind(s, reinterpret_cast<const sockaddr*>(&discard), sizeof discard) == 0);
    end a("rxe_a0"), b("rxe_b0");
    REQUIRE(std::system("ip neigh flush dev a0") == 0);
    CHECK(eventually([&] { return static_cast<bool>(finds(a, b)); }));
    sockaddr_in from{};
    socklen_t length = sizeof from;
    char byte;
    CHECK(eventually([&] { return ::recvfrom(s, &byte, 1, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &length) == 0; }));
    CHECK(ntohl(from.sin_addr.s_addr) == 0x0a'00'00'01);
    CHECK(finds(a, b));  // known now: nobody is asked
    CHECK(::recvfrom(s, &byte, 1, MSG_DONTWAIT, nullptr, nullptr) == -1);
    ::close(s);
}

TEST_CASE("a peer whose Ethernet address nobody tells is not found, and found once somebody does") {
    network_faults network;
    guest::pair p(1);
    REQUIRE(network.fault("switch-down rail1"));
    REQUIRE(std::system("ip neigh flush dev a1") == 0);
    for (int i = 0; i < 3; ++i) CHECK(is_too_early(finds(p.a, p.b)));
    CHECK(vccl::describe(finds(p.a, p.b)).find("check its port, cables, switch and VLAN") != std::string::npos);
    REQUIRE(network.fault("switch-up rail1"));
    CHECK(eventually([&] { return static_cast<bool>(finds(p.a, p.b)); }));
}

TEST_CASE("an address is asked for whatever its family, and of the router where the peer is behind one") {
    network_faults network;
    end a("rxe_a0"), b("rxe_b0");
    port_attributes own = must(a.port.query());
    gid far = b.as_peer().address;
    std::string mend = "true";
    SUBCASE("IPv6 within the link") {
        backend first;
        first.path.gid_index = 0;
        auto port_a = must(first.open("rxe_a0")), port_b = must(first.open("rxe_b0"));
        own = must(port_a.query());
        far = must(port_b.query()).address;
        REQUIRE(far.raw[0] == 0xfe);
    }
    SUBCASE("behind a router") {
        REQUIRE(std::system("ip route add 10.9.0.0/24 via 10.0.0.2 dev a0") == 0);
        mend = "ip route del 10.9.0.0/24 via 10.0.0.2 dev a0";
        far.raw[13] = 9;  // 10.9.0.2
    }
    REQUIRE(network.fault("switch-down rail0"));
    REQUIRE(std::system("ip neigh flush dev a0; ip -6 neigh flush dev a0") == 0);
    CHECK(is_too_early(a.port.find_peer(own, far)));
    REQUIRE(network.fault("switch-up rail0"));
    CHECK(eventually([&] { return static_cast<bool>(a.port.find_peer(own, far)); }));
    CHECK(std::system(mend.c_str()) == 0);
}

TEST_CASE("what cannot be asked for is left to RTR") {
    end a("rxe_a0"), b("rxe_b0");
    const port_attributes own = must(a.port.query());
    CHECK(a.port.find_peer(own, own.address));  // oneself
    gid other_family{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77}};
    CHECK(a.port.find_peer(own, other_family));
    port_attributes stranger = own;
    stranger.address.raw[15] = 77;  // none of the netdev's addresses
    REQUIRE(std::system("ip neigh flush dev a0") == 0);
    CHECK(eventually([&] { return static_cast<bool>(a.port.find_peer(stranger, b.as_peer().address)); }));
}

TEST_CASE("work caught by the own port's failure ends in completions once the queue pair is moved to ERR") {
    network_faults network;
    guest::pair p(1);
    constexpr unsigned count = 64;
    REQUIRE(network.fault("delay sw_b1 20ms"));  // keeps the work in flight
    for (unsigned i = 0; i < count; ++i) must(p.a.qp.post(p.a.write_to(p.b, 16384, i)));
    REQUIRE(network.fault("port-down a1"));
    must(p.a.qp.to_error());
    CHECK(must(p.a.qp.state()) == qp_state::error);
    std::uint64_t expected = 0;
    while (expected < count) {
        const auto c = p.a.next(2_s);
        REQUIRE_MESSAGE(c, expected << " of " << count << " came");
        CHECK(c->wr_id == expected++);
        CHECK(c->qp == p.a.qp.number());
    }
}

TEST_CASE("a dead switch gives no event, and the sender's retries run out") {
    network_faults network;
    guest::pair p(0, {.timeout = 12, .retry_count = 2});
    p.a.drain_events();
    REQUIRE(network.fault("switch-down rail0"));
    must(p.a.qp.post(p.a.write_to(p.b, 4096, 7)));
    const auto c = p.a.next(10_s);
    REQUIRE(c);
    CHECK(c->status == wc_status::retry_exc_err);
    CHECK(c->wr_id == 7);
    CHECK(must(p.a.port.query()).state == port_state::active);
    CHECK(must(p.a.port.next_event()).what == async_event::kind::none);
    REQUIRE(network.fault("switch-up rail0"));
    p.connect();
    must(p.a.qp.post(p.a.write_to(p.b, 4096, 8)));
    const auto again = p.a.next();
    REQUIRE(again);
    CHECK(again->status == wc_status::success);
}

TEST_CASE("lost acknowledgements fail writes that have landed") {
    network_faults network;
    guest::pair p(0, {.timeout = 12, .retry_count = 2});
    p.a.memory[0] = 0x5a;
    REQUIRE(network.fault("acks sw_a0"));
    must(p.a.qp.post(p.a.write_to(p.b, 4096)));
    const auto c = p.a.next(10_s);
    REQUIRE(c);
    CHECK(c->status == wc_status::retry_exc_err);
    CHECK(p.b.memory[0] == 0x5a);
}

TEST_CASE("posts beyond the send queue are refused, those before them are taken") {
    network_faults network;
    guest::pair p(0, {}, {.send_depth = 8, .recv_depth = 8});
    REQUIRE(network.fault("delay sw_b0 50ms"));
    const std::vector<work> many(300, p.a.write_to(p.b, 64));
    const unsigned taken = must(p.a.qp.post(many));
    CHECK(taken >= 8);
    CHECK(taken < many.size());
    CHECK(p.a.qp.post(many[0]).code == errc::would_block);
    CHECK(p.a.qp.post(many).error().code == errc::would_block);
    for (unsigned i = 0; i < taken; ++i) REQUIRE(p.a.next());
    must(p.a.qp.post(many[0]));
    CHECK(p.a.next());
}

TEST_CASE("nothing that is still on a slow wire lands after the target's queue pair was moved to ERR") {
    network_faults network;
    guest::pair p(0, {.timeout = 13, .retry_count = 1});
    REQUIRE(network.fault("rate sw_b0 200mbit"));
    constexpr std::uint32_t bytes = 256 * 1024;
    unsigned caught = 0;
    for (unsigned char round = 1; round <= 50; ++round) {
        std::fill(p.a.memory.begin(), p.a.memory.end(), round);
        p.connect();
        must(p.a.qp.post(p.a.write_to(p.b, bytes)));
        REQUIRE(eventually([&] { return __atomic_load_n(&p.b.memory[round * 4096], __ATOMIC_RELAXED) == round; }));
        must(p.b.qp.to_error());
        const std::vector<unsigned char> snapshot(p.b.memory.begin(), p.b.memory.begin() + bytes);
        caught += snapshot[bytes - 1] != round ? 1U : 0U;
        REQUIRE(p.a.next(10_s));
        CHECK(std::equal(snapshot.begin(), snapshot.end(), p.b.memory.begin()));
    }
    CHECK(caught > 0);
}

TEST_CASE("a queue pair rebuilt at the very moment of its failure comes up each time") {
    guest::pair p;
    for (int round = 0; round < 200; ++round) {
        CAPTURE(round);
        work refused = p.a.write_to(p.b, 64);
        refused.rkey = rkey{~refused.rkey.value};
        must(p.a.qp.post(refused));
        completion c;
        while (must(p.a.cq.poll(&c, 1)) == 0) {}
        REQUIRE(c.status == wc_status::rem_access_err);
        p.connect();
        must(p.a.qp.post(p.a.write_to(p.b, 64)));
        const auto done = p.a.next();
        REQUIRE(done);
        REQUIRE(done->status == wc_status::success);
    }
}

TEST_CASE("receives posted in one batch are all flushed by ERR, and destroy is final") {
    guest::pair p;
    recv_work r;
    r.addr = p.b.address();
    r.length = 64;
    r.lkey = p.b.mr.local_key();
    const std::vector<recv_work> many(40, r);
    CHECK(must(p.b.qp.post_recv(many)) == 40);
    must(p.b.qp.to_error());
    CHECK(flushed(p.b, 40) == 40);
    must(p.b.qp.destroy());
    must(p.b.qp.destroy());
}

TEST_CASE("an overrun completion queue says so for ever") {
    guest::pair p;
    auto small = must(p.a.port.create_cq(1));
    auto qp = must(p.a.port.create_qp(small, {.send_depth = 64, .recv_depth = 64}));
    must(qp.to_init());
    recv_work r;
    r.addr = p.a.address();
    r.length = 64;
    r.lkey = p.a.mr.local_key();
    CHECK(must(qp.post_recv(std::vector<recv_work>(64, r))) == 64);
    must(qp.to_error());
    CHECK(p.a.event(async_event::kind::cq_error));
    completion c[64];
    CHECK(eventually([&] { return small.poll(c, 64).error().code == errc::cq_overrun; }));
    CHECK(small.poll(c, 64).error().code == errc::cq_overrun);
    must(qp.destroy());
}

TEST_CASE("a sender that starts on a port that is down learns it from the query") {
    network_faults network;
    REQUIRE(network.fault("port-down a0"));
    auto port = must(backend{}.open("rxe_a0"));
    CHECK(must(port.query()).state == port_state::down);
}

TEST_CASE("the kernel's refusals are told apart: rights to the device, and the memlock limit") {
    std::vector<char> memory(1 << 20);
    const auto open_code = [] { return backend{}.open("rxe_a0").error().code; };
    const auto register_code = [&] {
        auto port = backend{}.open("rxe_a0");
        return port ? port->register_memory(memory.data(), memory.size()).error().code : errc::not_found;
    };
    CHECK(without_rights(open_code) == errc::ok);
    CHECK(without_rights(register_code) == errc::permission);
    for (int i = 0; i < 64; ++i) ::chmod(("/dev/infiniband/uverbs" + std::to_string(i)).c_str(), 0600);
    CHECK(without_rights(open_code) == errc::permission);
    for (int i = 0; i < 64; ++i) ::chmod(("/dev/infiniband/uverbs" + std::to_string(i)).c_str(), 0666);
}

TEST_CASE("unsupported and impossible requests are refused with a reason") {
    auto port = must(backend{}.open("rxe_a0"));
    auto cq = must(port.create_cq(16));
    CHECK(port.create_qp(cq, {.inline_bytes = 1 << 20}).error().code == errc::invalid_argument);
    CHECK(port.create_cq(1U << 30).error().code == errc::invalid_argument);
    CHECK(port.register_memory(nullptr, 4096).error().code != errc::ok);
    if constexpr (backend::capabilities.dmabuf) CHECK(port.register_dmabuf(-1, 0, 4096, 0).error().code != errc::ok);
    auto qp = must(port.create_qp(cq, {}));
    must(qp.to_init());
    CHECK(qp.to_ready_to_receive({.mtu = 100}, {}).code == errc::invalid_argument);
    CHECK(!qp.to_ready_to_send(psn{1}, {}));
    CHECK(!qp.post(work{}));
}
