#include "world.hpp"

#include <doctest/doctest.h>

using namespace vccl_test;

TEST_CASE("A kernel's puts and signals arrive over the software fabric") {
    soft_world<2> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    CHECK(tx.channels() == 2);
    for (unsigned c = 0; c < 2; ++c) {
        CHECK(tx.channel(c).put_signal(warp_scope{}, 1000 + 5000 * c, 1000 + 5000 * c, 4000, c, 1));
        CHECK(tx.channel(c).fetch_add(thread_scope{}, 4 + c, 5));
    }
    CHECK(w.rx->ref().wait_signal(warp_scope{}, 0, 1));
    CHECK(w.rx->ref().wait_signal(warp_scope{}, 1, 1));
    CHECK(std::memcmp(&w.in[1000], &w.out[1000], 4000) == 0);
    for (unsigned c = 0; c < 2; ++c) CHECK(tx.channel(c).flush(warp_scope{}).what == outcome::ok);
    CHECK(w.rx->ref().peek(4) == 5);
}

TEST_CASE("More lanes than a stamp can tell the rings of are refused") {
    for (unsigned lanes : {device::max_queue_lanes, device::max_queue_lanes + 1}) {
        CAPTURE(lanes);
        world_options o;
        o.tx.channel.lanes = o.rx.channel.lanes = lanes;
        soft_world<2> w(o);
        const errc expected = lanes > device::max_queue_lanes ? errc::invalid_argument : errc::ok;
        CHECK(w.tx->local_info().error().code == expected);
        CHECK(w.rx->local_info().error().code == expected);
    }
}

TEST_CASE("A blob of another version is refused by its version, whatever its size") {
    soft_world<1> w;
    auto of_tx = w.tx->local_info(), of_rx = w.rx->local_info();
    REQUIRE(of_tx);
    REQUIRE(of_rx);
    const std::uint16_t version = wire_version + 1;
    for (auto* blob : {&*of_tx, &*of_rx})
        std::memcpy(blob->data() + offsetof(connection_blob, version), &version, sizeof version);
    const status other{errc::version_mismatch, subject::wire_version, wire_version, version};
    for (const std::size_t bytes : {of_tx->size() - 24, sizeof(connection_blob) + 1000, std::size_t{8}}) {
        of_tx->resize(bytes);
        of_rx->resize(bytes);
        CHECK(w.tx->begin_connect(*of_rx) == other);
        CHECK(w.rx->begin_connect(*of_tx) == other);
    }
}

TEST_CASE("A port dies under a running kernel: nothing is lost, nothing comes twice, and the port is used again") {
    soft_world<2> w;
    REQUIRE(w.connect());
    const auto tx = w.tx->ref();
    bool down = false, up = false;
    const std::uint64_t rounds = 400;
    const nanoseconds begin = w.fabric.now();
    w.every = [&] {
        if (!down && w.fabric.now() - begin > 300_us) {
            down = true;
            CHECK(w.command("down A.nic0.p0"));
        }
        if (!up && w.fabric.now() - begin > 3_ms) {
            up = true;
            CHECK(w.command("up A.nic0.p0"));
        }
    };
    for (std::uint64_t i = 1; i <= rounds; ++i) {
        const std::uint64_t at = i * 2048 % (1 << 19);
        REQUIRE(tx.channel(0).put_signal(warp_scope{}, at, at, 2048, 0, i));
        REQUIRE(tx.channel(1).fetch_add(warp_scope{}, 1, i));
        if (i % 8 == 0) REQUIRE(tx.channel(i / 8).flush(warp_scope{}));
        if (i == rounds / 2) w.rest(200_ms);
    }
    CHECK(tx.channel(0).flush(warp_scope{}));
    CHECK(tx.channel(1).flush(warp_scope{}));
    CHECK(w.rx->ref().peek(0) == rounds);
    CHECK(w.rx->ref().peek(1) == rounds * (rounds + 1) / 2);
    CHECK(std::memcmp(&w.in[2048], &w.out[2048], (1 << 19) - 2048) == 0);
    CHECK(w.tx->handler().count(channel_event::kind::failed_over) == 1);
    CHECK(w.tx->handler().count(channel_event::kind::failed_back) == 1);
    CHECK(w.rx->handler().count(channel_event::kind::failed_over) == 1);
    CHECK(w.rx->handler().count(channel_event::kind::failed_back) == 1);
    CHECK(w.tx->handler().count(channel_event::kind::lane_failed) == 1);
}
