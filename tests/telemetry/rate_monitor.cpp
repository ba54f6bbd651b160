// The rate monitor counts bytes where they fall and tells a slow lane from a silent one.
#include <vccl/telemetry/rate_monitor.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {

using namespace vccl;
using namespace vccl::literals;

constexpr lane_id first{0};
constexpr nanoseconds window{1 << 10};

struct bench {
    nanoseconds now{window * 1000};
    rate_monitor<manual_clock> monitor{{.window_log2 = 10, .look = 8}, manual_clock{&now}};
    std::uint64_t next{};

    void chunk(std::uint64_t bytes, lane_id lane = first) { monitor.on_done({sequence{next++}, bytes, lane, epoch{1}, {}}); }
    /// Windows of `bytes` each, with something due.
    lane_flow flow(unsigned count, std::uint64_t bytes) {
        lane_flow f{};
        for (unsigned i = 0; i < count; ++i) {
            if (bytes != 0) chunk(bytes);
            now += window;
            f = monitor.judge(first, true);
        }
        return f;
    }
};

TEST_CASE("bytes fall into the window of their time, on their lane; old windows are forgotten") {
    bench b;
    const nanoseconds start = b.now;
    b.chunk(100);
    b.chunk(11);
    b.chunk(5, lane_id{1});
    b.now += window * 3;
    b.chunk(7);
    CHECK_EQ(b.monitor.bytes_in(first, start), 111);
    CHECK_EQ(b.monitor.bytes_in(first, start + window), 0);
    CHECK_EQ(b.monitor.bytes_in(first, start + window * 3), 7);
    CHECK_EQ(b.monitor.bytes_in(lane_id{1}, start), 5);
    b.now += window * 62;
    b.chunk(9);
    CHECK_EQ(b.monitor.bytes_in(first, start + window), 0);
    CHECK_EQ(b.monitor.bytes_in(first, start), 0);
    b.now += window * 100'000;
    b.chunk(1);
    CHECK_EQ(b.monitor.bytes_in(first, b.now), 1);
    CHECK_EQ(b.monitor.bytes_in(first, b.now - window), 0);
}

TEST_CASE("the rate is that of the last whole windows") {
    bench b;
    b.flow(20, 1000);
    CHECK_EQ(b.monitor.rate(first), static_cast<std::uint64_t>(1000 * 1e9 / 1024));
}

TEST_CASE("a lane that slows down is congested; one that falls silent stalls; one that comes back flows") {
    bench b;
    CHECK_EQ(b.flow(30, 1000), lane_flow::flowing);
    CHECK_EQ(b.flow(10, 200), lane_flow::congested);
    CHECK_EQ(b.flow(9, 0), lane_flow::stalled);
    CHECK_EQ(b.flow(10, 900), lane_flow::flowing);
}

TEST_CASE("a lane that stays slow for long is what the lane gives: no longer congested") {
    bench b;
    b.flow(30, 1000);
    CHECK_EQ(b.flow(10, 200), lane_flow::congested);
    CHECK_EQ(b.flow(400, 200), lane_flow::flowing);
}

TEST_CASE("silence with nothing due is idleness, and what has just become due has time") {
    bench b;
    b.flow(30, 1000);
    b.now += window * 20;
    CHECK_EQ(b.monitor.judge(first, false), lane_flow::idle);
    CHECK_EQ(b.monitor.judge(first, true), lane_flow::flowing);
    b.now += window * 7;
    CHECK_EQ(b.monitor.judge(first, true), lane_flow::flowing);
    b.now += window;
    CHECK_EQ(b.monitor.judge(first, true), lane_flow::stalled);
}

TEST_CASE("a lane that the protocol gave up has failed until it is restored") {
    bench b;
    b.flow(10, 1000);
    channel_event e{};
    e.what = channel_event::kind::lane_failed;
    b.monitor.on_event(e);
    CHECK_EQ(b.monitor.judge(first, true), lane_flow::failed);
    CHECK_EQ(b.monitor.judge(lane_id{1}, false), lane_flow::idle);
    e.what = channel_event::kind::lane_restored;
    b.monitor.on_event(e);
    CHECK_EQ(b.monitor.judge(first, false), lane_flow::idle);
}

TEST_CASE("options out of range do not break it") {
    nanoseconds now = 1_s;
    rate_monitor<manual_clock> m({.window_log2 = 99, .look = 1000}, manual_clock{&now});
    m.on_done({sequence{0}, 5, lane_id{255}, epoch{1}, {}});
    CHECK_EQ(m.bytes_in(lane_id{255}, now), 5);
    CHECK_EQ(m.judge(first, true), lane_flow::flowing);
}

TEST_CASE("on a fabric: a port held to a tenth of its rate is congested, one that drops everything stalls") {
    using monitor = rate_monitor<manual_clock>;
    using sender = host_sender<verbs::soft, no_backup, on_completion<monitor>, manual_clock, testing::memory_oob>;
    using receiver = host_receiver<verbs::soft, no_backup, manual_clock, testing::memory_oob>;
    verbs::soft_options o;
    o.manual_time = true;
    o.latency = 2_us;
    o.bytes_per_second = 10'000'000'000;
    auto fabric = verbs::soft_fabric::create(verbs::soft_topology(2, 1, 1, 1), o);
    REQUIRE(fabric.has_value());
    host_context<verbs::soft> a(*fabric->host("A"), fabric->shape()), b(*fabric->host("B"), fabric->shape());
    std::vector<char> out(8192), in(8192);
    auto from = a.register_memory(out.data(), out.size()), to = b.register_memory(in.data(), in.size());
    REQUIRE(from.has_value());
    REQUIRE(to.has_value());
    sender tx(a, gpu_id{0}, channel_id{1}, {}, {},
              on_completion<monitor>{monitor{{.window_log2 = 14, .look = 8}, fabric->clock()}}, {}, {}, fabric->clock());
    receiver rx(b, gpu_id{1}, channel_id{1}, {}, {}, {}, {}, {}, fabric->clock());
    auto mine = tx.local_info(), theirs = rx.local_info();
    REQUIRE(mine.has_value());
    REQUIRE(theirs.has_value());
    REQUIRE(tx.begin_connect(*theirs));
    REQUIRE(rx.begin_connect(*mine));
    lane_flow flow{};
    auto run = [&](nanoseconds time) {
        for (const nanoseconds end = fabric->now() + time; fabric->now() < end; fabric->advance(2_us)) {
            while (rx.connected() && rx.next().value - rx.received().value < 16 && rx.recv(to->view())) {}
            while (tx.connected() && tx.next().value - tx.acknowledged().value < 16 && tx.send(from->view())) {}
            tx.progress();
            rx.progress();
            flow = tx.handler().get<monitor>().judge(first, tx.next() != tx.acknowledged());
        }
    };
    run(2_ms);
    CHECK_EQ(flow, lane_flow::flowing);
    REQUIRE(fabric->command("rate A.nic0.p0 1GB/s"));
    run(1_ms);
    CHECK_EQ(flow, lane_flow::congested);
    REQUIRE(fabric->command("loss A.nic0.p0 100%"));
    run(300_us);
    CHECK_EQ(flow, lane_flow::stalled);
    tx.abort();
    rx.abort();
}

}  // namespace
