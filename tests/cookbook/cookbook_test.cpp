// The policies of docs/cookbook.md do on a fabric what the page says of them.
#include "audit.hpp"
#include "fastest.hpp"
#include "persistent_log.hpp"
#include "same_numa.hpp"

#include <vccl/model/shapes.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace vccl;
using namespace vccl::literals;

/// Two hosts, two dual-port NICs each, under a manual clock.
struct fabric_of_two {
    verbs::soft_fabric fabric = make();
    host_context<verbs::soft> a{*fabric.host("A"), fabric.shape()}, b{*fabric.host("B"), fabric.shape()};
    std::vector<char> out = std::vector<char>(4096, 'v'), in = std::vector<char>(4096);
    memory from = *a.register_memory(out.data(), out.size()), to = *b.register_memory(in.data(), in.size());

    static verbs::soft_fabric make() {
        verbs::soft_options o;
        o.manual_time = true;
        o.latency = 2_us;
        auto made = verbs::soft_fabric::create(verbs::soft_topology(2, 2, 2, 2), o);
        REQUIRE(made.has_value());
        return std::move(*made);
    }
    template <class Tx, class Rx, class Done>
    bool until(Tx& tx, Rx& rx, Done&& done) {
        for (unsigned pass = 0; !done() && pass < 1'000'000; ++pass) {
            tx.progress();
            rx.progress();
            fabric.advance(2_us);
        }
        return done();
    }
    template <class Tx, class Rx>
    bool connect(Tx& tx, Rx& rx) {
        auto mine = tx.local_info(), theirs = rx.local_info();
        return mine && theirs && tx.begin_connect(*theirs) && rx.begin_connect(*mine) &&
               until(tx, rx, [&] { return tx.connected() && rx.connected(); });
    }
    template <class Tx, class Rx>
    bool transfer(Tx& tx, Rx& rx, unsigned chunks) {
        for (unsigned i = 0; i < chunks; ++i) {
            if (!rx.recv(to.view())) return false;
            const auto s = tx.send(from.view());
            if (!s || !until(tx, rx, [&] { return (tx.ended(*s) && rx.ended(*s)) || !tx.health() || !rx.health(); }))
                return false;
        }
        return bool(tx.health());
    }
};

TEST_CASE("the same NUMA node comes first, the neighbour where there is none") {
    const topology t = make_cluster(2, 4, 1, 4);
    const channel_id c{0};
    CHECK_EQ(*numa_first{}.backup_for(t, port_id{0}, c), port_id{1});
    CHECK_EQ(*numa_first{}.backup_for(t, port_id{3}, c), port_id{2});
    const topology alone = make_cluster(2, 2, 1, 2);
    CHECK_EQ(same_numa_port{}.backup_for(alone, port_id{0}, c).error().code, errc::no_port);
    CHECK_EQ(*numa_first{}.backup_for(alone, port_id{0}, c), port_id{1});

    fabric_of_two f;
    host_sender<verbs::soft, numa_first, manual_clock, testing::memory_oob> tx(f.a, gpu_id{0}, channel_id{1}, {}, {}, {}, {}, {},
                                                                               f.fabric.clock());
    host_receiver<verbs::soft, numa_first, manual_clock, testing::memory_oob> rx(f.b, gpu_id{2}, channel_id{1}, {}, {}, {}, {},
                                                                                 {}, f.fabric.clock());
    REQUIRE(f.connect(tx, rx));
    REQUIRE(f.fabric.command("down A.nic0.p0"));
    CHECK(f.transfer(tx, rx, 3));
    CHECK_EQ(tx.lane_port(tx.active_lane()).view(), "A.nic0.p1");
}

TEST_CASE("the fastest port is the first backup") {
    topology t = make_cluster(2, 2, 2, 1);
    const std::uint64_t rates[] = {10, 20, 50, 20};
    for (std::size_t i = 0; i < t.ports.size(); ++i) t.ports[i].bytes_per_second = rates[i % 4];
    const lane_list of_first = fastest_port{}.backups_for(t, port_id{0}, channel_id{0});
    REQUIRE_EQ(of_first.size(), 3);
    CHECK_EQ(of_first[0], port_id{2});
    CHECK_EQ(of_first[1], port_id{1});
    CHECK_EQ(of_first[2], port_id{3});
    CHECK_EQ(*fastest_port{}.backup_for(t, port_id{6}, channel_id{0}), port_id{5});
}

TEST_CASE("the audit sees completions of each kind and ends a channel that fails too often") {
    using tx_type = host_sender<verbs::soft, sibling_port, audit, manual_clock, testing::memory_oob>;
    using rx_type = host_receiver<verbs::soft, sibling_port, audit, manual_clock, testing::memory_oob>;
    for (const unsigned most : {100u, 0u}) {
        CAPTURE(most);
        fabric_of_two f;
        tx_type tx(f.a, gpu_id{0}, channel_id{1}, {}, {}, audit{.most_errors = most}, {}, {}, f.fabric.clock());
        rx_type rx(f.b, gpu_id{2}, channel_id{1}, {}, {}, audit{}, {}, {}, f.fabric.clock());
        REQUIRE(f.connect(tx, rx));
        REQUIRE(f.transfer(tx, rx, 200));
        CHECK_GE(rx.handler().good[static_cast<unsigned>(wr_kind::arrival)], 200);
        CHECK_GE(tx.handler().good[static_cast<unsigned>(wr_kind::data)], 1);
        CHECK_EQ(tx.handler().errors, 0);
        REQUIRE(f.fabric.command("error A.nic0.p0"));
        CHECK_EQ(f.transfer(tx, rx, 10), most != 0);
        CHECK_GE(tx.handler().errors, 1);
        CHECK_NE(tx.handler().last[0].status, wc_status::success);
        tx.abort();
        rx.abort();
    }
}

TEST_CASE("the persistent log knows after the process what the receiver had not acknowledged") {
    const std::string file = (std::filesystem::temp_directory_path() / ("vccl-log." + std::to_string(::getpid()))).string();
    {
        fabric_of_two f;
        using tx_type = host_sender<verbs::soft, sibling_port, persistent_log, manual_clock, testing::memory_oob>;
        using rx_type = host_receiver<verbs::soft, sibling_port, manual_clock, testing::memory_oob>;
        tx_type tx(f.a, gpu_id{0}, channel_id{1}, {}, {}, {}, persistent_log(file.c_str()), {}, f.fabric.clock());
        rx_type rx(f.b, gpu_id{2}, channel_id{1}, {}, {}, {}, {}, {}, f.fabric.clock());
        REQUIRE(f.connect(tx, rx));
        REQUIRE(f.transfer(tx, rx, 5));
        REQUIRE(f.fabric.command("down A.nic0.p0"));
        REQUIRE(f.transfer(tx, rx, 5));
        for (int i = 0; i < 3; ++i) REQUIRE(tx.send(f.from.view(0, 100)).has_value());  // no receive is posted for these
    }
    const persistent_log after(file.c_str());
    REQUIRE(after.file() != nullptr);
    CHECK_EQ(after.file()->next, 13);
    CHECK_EQ(after.file()->first_unacknowledged, 10);
    CHECK_EQ(after.file()->bytes[12], 100);
    std::filesystem::remove(file);
    CHECK(persistent_log("/no/such/folder/log").file() == nullptr);
}

}  // namespace
