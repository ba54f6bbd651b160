/// \file
/// A peer whose address nobody tells so far: connecting waits a little, and a lane that waits for it costs the others nothing.
/// Manual clock, but for the tenth of a second that connecting waits.

#include "checks.hpp"
#include "shy_nic.hpp"

using namespace vccl_test;

namespace {

constexpr unsigned always = ~0u;
constexpr lane_id primary{0}, backup{1};
constexpr const char *senders = "A.nic0.p0", *receivers = "B.nic0.p0";

using shy_world = world<host_sender<shy_nic, journal, manual_clock, testing::memory_oob, hold_down<1>>,
                        host_receiver<shy_nic, journal, manual_clock, testing::memory_oob, hold_down<1>>, shy_nic>;

}  // namespace

TEST_CASE("An address that is told soon is waited for: the channel starts on its primary") {
    for (const char* port : {senders, receivers}) {
        CAPTURE(port);
        shy_nic::shy_at(port, 3);
        shy_world w;
        start(w);
        CHECK(shy_nic::asked == 4);
        CHECK(w.rx->active_lane() == primary);
        REQUIRE(w.transfer(20));
        CHECK(w.rx->handler().count(event::lane_failed) == 0);
        exact(w, 20);
    }
}

TEST_CASE(
    "An address that is not told leaves the channel on its backup; it is asked for now and then, and used once it is told") {
    for (const char* port : {senders, receivers}) {
        CAPTURE(port);
        shy_nic::shy_at(port, always);
        shy_world w;
        start(w);
        REQUIRE(w.transfer(20));
        CHECK(w.rx->active_lane() == backup);
        shy_nic::asked = 0;
        const auto lives = w.rx->lane_health(primary).generation;
        w.rest(2_s);
        CHECK(shy_nic::asked >= 8);   // every 200 ms and a quarter of that
        CHECK(shy_nic::asked <= 24);  // from 1 ms to 200 ms in doubles, then so
        CHECK(w.rx->lane_health(primary).generation - lives <= 24);
        shy_nic::untold = 0;
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(60));
        exact(w, 60);
    }
}

TEST_CASE("Nobody tells any address: connect says so, and a channel that is told later runs") {
    shy_nic::shy_at(senders, always);
    world_options o;
    o.ports = 1;
    o.nics = 1;
    shy_world w(o);
    const auto of_tx = w.tx->local_info(), of_rx = w.rx->local_info();
    REQUIRE(of_tx);
    REQUIRE(of_rx);
    REQUIRE(w.rx->begin_connect(*of_tx));
    const status said = w.tx->connect(*of_rx, nanoseconds{0});
    CHECK(is_too_early(said));
    CHECK(said.lane == 0);
    shy_nic::untold = 0;
    CHECK(w.until([&] { return w.tx->connected() && w.rx->connected(); }, 2_s));
}
