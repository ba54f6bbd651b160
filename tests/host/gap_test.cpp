/// \file
/// The failover gap in simulated time: how many round trips the protocol itself takes, whatever the machine's speed.

#include "world.hpp"

#include <doctest/doctest.h>

using namespace vccl_test;
using kind = channel_event::kind;

namespace {

struct figures {
    nanoseconds detection, gap;
};

figures break_it(const char* what, nanoseconds latency) {
    world_options o;
    o.fabric.latency = latency;
    o.chunk = 8192;
    o.tx.timers.timeout = o.rx.timers.timeout = 8;
    soft_world<> w(o);
    w.pass_time = 200_ns;
    REQUIRE(w.connect());
    REQUIRE(w.run());
    REQUIRE(w.transfer(100));
    const nanoseconds broken = w.fabric.now();
    REQUIRE(w.command(what));
    REQUIRE(w.transfer(200));
    nanoseconds sign = nanoseconds::never(), landed{};
    for (const auto* journal : {&w.tx->handler(), &w.rx->handler()})
        for (const channel_event& e : journal->events) {
            if (e.what == kind::lane_failed && e.at < sign) sign = e.at;
            if (e.what == kind::resumed) landed = e.at;
        }
    REQUIRE(landed > sign);
    CHECK(w.wrong == 0);
    return {sign - broken, landed - sign};
}

}  // namespace

TEST_CASE("A failover takes at most four round trips from the first sign to the first byte that lands, whatever the cause") {
    for (const nanoseconds latency : {2_us, 10_us, 50_us})
        for (const char* what :
             {"down A.nic0.p0", "down B.nic0.p0", "cable-down A.nic0.p0", "cable-down B.nic0.p0", "switch-down rail0"}) {
            CAPTURE(what);
            CAPTURE(latency.count);
            const figures f = break_it(what, latency);
            CHECK(f.gap <= latency * 8);
        }
}

TEST_CASE("A fault with an event is seen within one poll interval") {
    for (const char* what : {"down A.nic0.p0", "down B.nic0.p0", "cable-down A.nic0.p0", "cable-down B.nic0.p0"}) {
        CAPTURE(what);
        CHECK(break_it(what, 5_us).detection <= detection_times{}.poll_interval + 10_us);
    }
}
