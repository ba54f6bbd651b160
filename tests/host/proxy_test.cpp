/// \file
/// A proxy thread that drives several channels while the user's threads send and receive, with ports dying meanwhile.
/// Real time, one process; worth most under the thread sanitizer.

#include <vccl/model/shapes.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <thread>
#include <vector>

using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr std::uint32_t chunk = 8192;
constexpr unsigned buffers = 8;
constexpr nanoseconds patience{60'000'000'000};

using sender = host_sender<verbs::soft, sibling_port, qp_group<2>, counters, proxy_thread>;
using receiver = host_receiver<verbs::soft, sibling_port, qp_group<2>, counters, hold_down<5>, proxy_thread>;

std::byte byte_of(unsigned channel, std::uint64_t s, std::uint64_t i) {
    return static_cast<std::byte>(channel * 17 + s * 131 + i * 7);
}

/// One channel with both of its ends, and the user's memory.
struct channel {
    unsigned number;
    std::vector<std::byte> out, in;   // outlive the endpoints, which may still work on them
    memory out_memory, in_memory;
    sender tx;
    receiver rx;

    channel(unsigned n, proxy& pa, proxy& pb, host_context<verbs::soft>& a, host_context<verbs::soft>& b)
        : number(n),
          out(std::size_t{chunk} * buffers),
          in(std::size_t{chunk} * buffers),
          out_memory(*a.register_memory(out.data(), out.size())),
          in_memory(*b.register_memory(in.data(), in.size())),
          tx(pa, a, gpu_id{static_cast<std::uint16_t>(n % 2)}, channel_id{n}),
          rx(pb, b, gpu_id{static_cast<std::uint16_t>(2 + n % 2)}, channel_id{n}) {}

    bool connect() {
        auto t = tx.local_info();
        auto r = rx.local_info();
        return t && r && rx.begin_connect(*t) && tx.connect(*r, patience);
    }
    /// The sending user. Returns how many chunks went out.
    std::uint64_t send(std::uint64_t chunks) {
        for (std::uint64_t s = 0; s < chunks; ++s) {
            if (s >= buffers && !tx.wait(sequence{s - buffers}, patience)) return s;
            std::byte* p = out.data() + s % buffers * chunk;
            for (std::uint32_t i = 0; i < chunk; ++i) p[i] = byte_of(number, s, i);
            if (!tx.send(out_memory.view(s % buffers * chunk, chunk))) return s;
        }
        return tx.wait(sequence{chunks - 1}, patience) ? chunks : 0;
    }
    /// The receiving user. Returns how many chunks came in whole.
    std::uint64_t receive(std::uint64_t chunks) {
        std::uint64_t posted = 0, good = 0;
        for (std::uint64_t s = 0; s < chunks; ++s) {
            for (; posted < chunks && posted < s + buffers; ++posted)
                if (!rx.recv(in_memory.view(posted % buffers * chunk, chunk))) return good;
            if (!rx.wait(sequence{s}, patience)) return good;
            const std::byte* p = in.data() + s % buffers * chunk;
            bool same = true;
            for (std::uint32_t i = 0; i < chunk; ++i) same &= p[i] == byte_of(number, s, i);
            good += same;
        }
        return good;
    }
};

struct machine {
    verbs::soft_fabric fabric{*verbs::soft_fabric::create(make_cluster(2, 2, 2, 2))};
    host_context<verbs::soft> a{*fabric.host("A"), fabric.shape()}, b{*fabric.host("B"), fabric.shape()};
};

}  // namespace

TEST_CASE("One proxy a host drives four channels, while a thread for each end of each sends and receives, and a port dies") {
    constexpr unsigned channels = 4;
    constexpr std::uint64_t chunks = 250;
    machine m;
    proxy pa, pb;
    std::vector<std::unique_ptr<channel>> all;
    for (unsigned n = 0; n < channels; ++n) all.push_back(std::make_unique<channel>(n, pa, pb, m.a, m.b));
    for (auto& c : all) REQUIRE(c->connect());
    std::vector<std::uint64_t> sent(channels), received(channels);
    std::vector<std::thread> users;
    for (unsigned n = 0; n < channels; ++n) {
        users.emplace_back([&, n] { sent[n] = all[n]->send(chunks); });
        users.emplace_back([&, n] { received[n] = all[n]->receive(chunks); });
    }
    const auto at = [&](std::uint64_t n) {
        const nanoseconds end = steady_clock{}.now() + patience;
        while (all[0]->rx.locked([](auto& e) { return e.received().value; }) < n && steady_clock{}.now() < end)
            std::this_thread::yield();
    };
    at(60);
    CHECK(m.fabric.command("down A.nic0.p0"));
    at(120);
    CHECK(m.fabric.command("up A.nic0.p0"));
    at(180);
    CHECK(m.fabric.command("down B.nic1.p0"));
    for (auto& u : users) u.join();
    for (unsigned n = 0; n < channels; ++n) {
        CAPTURE(n);
        CHECK(sent[n] == chunks);
        CHECK(received[n] == chunks);
        CHECK(all[n]->tx.health());
        CHECK(all[n]->rx.locked([](auto& e) { return e.handler().chunks; }) == chunks);
        CHECK(all[n]->tx.locked([](auto& e) { return e.handler().bytes; }) == chunks * chunk);
    }
    CHECK(all[0]->rx.locked([](auto& e) { return e.handler().failovers; }) >= 1);
}

TEST_CASE("Channels come and go while the proxy drives others") {
    machine m;
    proxy pa, pb;
    channel steady(0, pa, pb, m.a, m.b);
    REQUIRE(steady.connect());
    std::uint64_t sent = 0, received = 0;
    std::thread out([&] { sent = steady.send(400); }), in([&] { received = steady.receive(400); });
    for (unsigned n = 1; n <= 8; ++n) {
        channel passing(n, pa, pb, m.a, m.b);
        CHECK(passing.connect());
        CHECK(passing.rx.recv(passing.in_memory.view(0, chunk)));
        CHECK(passing.tx.send(passing.out_memory.view(0, chunk)));
        if (n % 2) CHECK(passing.tx.wait(sequence{0}, patience));
    }
    out.join();
    in.join();
    CHECK(sent == 400);
    CHECK(received == 400);
}

TEST_CASE("A proxied end that gives up tells the users who wait") {
    machine m;
    proxy pa, pb;
    channel c(0, pa, pb, m.a, m.b);
    REQUIRE(c.connect());
    REQUIRE(c.rx.recv(c.in_memory.view(0, chunk)));
    std::thread waiting([&] { CHECK(c.rx.wait(sequence{0}, patience).code == errc::aborted); });
    c.tx.locked([](auto& e) { e.abort(); });
    waiting.join();
    CHECK(c.tx.send(c.out_memory.view(0, chunk)).error().code == errc::aborted);
}

TEST_CASE("A chunk that was too long is no success at either proxied end, and the channel goes on") {
    machine m;
    proxy pa, pb;
    channel c(0, pa, pb, m.a, m.b);
    REQUIRE(c.connect());
    for (const std::uint32_t room : {chunk / 2, chunk}) {
        const auto in = c.rx.recv(c.in_memory.view(0, room));
        const auto out = c.tx.send(c.out_memory.view(0, chunk));
        REQUIRE(in);
        REQUIRE(out);
        const errc expected = room < chunk ? errc::message_too_long : errc::ok;
        CHECK(c.tx.wait(*out, patience).code == expected);
        CHECK(c.rx.wait(*in, patience).code == expected);
    }
}
