/// \file
/// A proxy thread that drives several channels while the user's threads send and receive, with ports dying meanwhile.
/// Real time, one process; worth most under the thread sanitizer.

#include "proxied_channel.hpp"

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

using channel = vccl_test::proxied_channel<sender, receiver, chunk, buffers>;

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
