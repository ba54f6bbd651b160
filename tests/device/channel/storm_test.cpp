// Seeded schedules of faults under kernels that go on posting: no byte lost, no signal lost or doubled, nobody stuck.
#include "world.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace vccl_test;

namespace {

struct dice {
    std::uint64_t state;
    explicit dice(std::uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}
    std::uint64_t operator()(std::uint64_t below) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (state >> 11) % below;
    }
};

/// What goes wrong, and when it is over.
struct weather {
    soft_world<2>& w;
    dice roll;
    nanoseconds next;
    std::string calm{};  ///< the command that ends the present fault
    unsigned faults{};

    void pass() {
        if (w.fabric.now() < next) return;
        if (!calm.empty()) {
            CHECK(w.command(calm));
            calm.clear();
            next = w.fabric.now() + nanoseconds{static_cast<std::int64_t>(roll(30'000'000))};
            return;
        }
        if (faults == 12) return;
        ++faults;
        static const char* const ports[] = {"A.nic0.p0", "A.nic0.p1", "B.nic0.p0", "B.nic0.p1"};
        const std::string port = ports[roll(4)];
        switch (roll(6)) {
            case 0:
            case 1:
                CHECK(w.command("down " + port));
                calm = "up " + port;
                break;
            case 2:
                CHECK(w.command("cable-down " + port));
                calm = "cable-up " + port;
                break;
            case 3:
                CHECK(w.command("drop-acks " + port));
                calm = "clear " + port;
                break;
            case 4:
                CHECK(w.command("loss " + port + " 30%"));
                calm = "clear " + port;
                break;
            default:
                CHECK(w.command("reorder " + port + " 20%"));
                calm = "clear " + port;
                break;
        }
        next = w.fabric.now() + nanoseconds{static_cast<std::int64_t>(1'000'000 + roll(120'000'000))};
    }
};

unsigned failovers = 0, failbacks = 0;

void run(std::uint64_t seed) {
    CAPTURE(seed);
    world_options o;
    o.fabric.seed = seed + 1;
    o.fabric.on_port_down = static_cast<verbs::port_down_behaviour>(seed % 4);
    o.window = 1 << 16;
    o.tx.timeout = 60_s;
    o.tx.first_index = seed % 3 == 0 ? 0xffffff00 : seed % 3 == 1 ? 0xff00 : 0;
    soft_world<2> w(o);
    REQUIRE(w.connect());
    weather sky{w, dice(seed), w.fabric.now() + 50_us};
    w.every = [&] { sky.pass(); };
    w.pass_time = 5_us;
    dice roll(seed + 77);
    const auto tx = w.tx->ref();
    std::uint64_t sum[2]{}, value[2]{};
    for (unsigned i = 0; i < 500; ++i) {
        const unsigned c = static_cast<unsigned>(roll(2));
        const auto q = tx.channel(c);
        switch (roll(5)) {
            case 0:
            case 1: {
                const std::uint64_t at = c * 32768 + roll(60) * 512;
                REQUIRE(q.put_signal(warp_scope{}, at, at, 512, c, ++value[c]));
                break;
            }
            case 2: {
                const std::uint64_t add = 1 + roll(1000);
                std::uint64_t old = ~0ull;
                REQUIRE(q.fetch_add(thread_scope{}, 2 + c, add, old));
                REQUIRE(old == sum[c]);
                sum[c] += add;
                break;
            }
            case 3: REQUIRE(q.flush(warp_scope{})); break;
            default: w.rest(nanoseconds{static_cast<std::int64_t>(roll(10'000'000))}); break;
        }
        for (unsigned k = 0; k < 2; ++k) {
            REQUIRE(w.rx->ref().peek(k) <= value[k]);
            REQUIRE(w.rx->ref().peek(2 + k) <= sum[k]);
        }
    }
    for (unsigned c = 0; c < 2; ++c) {
        REQUIRE(tx.channel(c).flush(block_scope{}));
        REQUIRE(w.rx->ref().peek(c) == value[c]);
        REQUIRE(w.rx->ref().peek(2 + c) == sum[c]);
    }
    // Every put was of bytes to where they were taken from.
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < w.in.size(); ++i) wrong += w.in[i] != 0 && w.in[i] != w.out[i];
    REQUIRE(wrong == 0);
    failovers += w.tx->handler().count(channel_event::kind::failed_over);
    failbacks += w.tx->handler().count(channel_event::kind::failed_back);
}

}  // namespace

TEST_CASE("Two hundred seeded schedules of faults") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) run(seed);
    CHECK(failovers > 200);
    CHECK(failbacks > 100);
    MESSAGE(failovers << " failovers, " << failbacks << " fail-backs");
}
