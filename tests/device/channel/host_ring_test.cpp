// Mode 4: kernels ask through a ring, the host's proxy posts; the same operations, results and failover.
#include "world.hpp"

#include <vccl/device/host_ring.hpp>

#include <doctest/doctest.h>

using namespace vccl_test;
using device::request;
using device::request_op;

namespace {

using base_world = soft_world<2, hold_down<1>, sibling_port, rollback_fifo<16>>;

/// Everything of a world, with a ring in front of the sender.
struct ring_world : base_world {
    using sender = typename decltype(tx)::element_type;
    std::unique_ptr<host_ring<sender>> ring;
    bool proxy{true};

    explicit ring_world(world_options o = {}, std::uint32_t words = 64) : base_world(o) {
        host_ring_options h;
        h.words = words;
        h.wait = &waiting;
        h.timeout = 20_s;
        ring = std::make_unique<host_ring<sender>>(*tx, h);
    }
    status start() {
        if (status s = ring->open(); !s) return s;
        if (status s = connect(); !s) return s;
        service = false;  // the ring drives the sender
        every = [this] {
            if (proxy) ring->progress();
            if (more) more();
        };
        return {};
    }
    std::function<void()> more;
};

}  // namespace

TEST_CASE("A request is its words") {
    for (const request r :
         {request{request_op::put, 65535, 0, 1u << 30, (1ull << 62) + 5, 7, 0},
          request{request_op::get, 3, 0, 0, 9, (1ull << 62) + 1, 0}, request{request_op::signal, 1, 31, 0, 0, 0, ~0ull},
          request{request_op::fetch_add, 2, 30, 0, 0, 0, 1}, request{request_op::put_signal, 4, 1, 77, 8, 9, 1ull << 63}}) {
        std::uint64_t w[device::max_request_words];
        for (unsigned i = 0; i < device::words_of(r.op); ++i) w[i] = request_word(r, i) | 1;
        CHECK(device::decode_request(w) == r);
    }
    const request beyond{request_op::put, 0, 0, 8, 1ull << 63, (1ull << 63) + 8, 0};
    const std::uint64_t w[]{request_word(beyond, 0), request_word(beyond, 1), request_word(beyond, 2)};
    CHECK(device::decode_request(w).remote == (1ull << 63) - 1);  // and not 0, which is in every window
    CHECK(device::decode_request(w).local == (1ull << 63) - 1);
    CHECK(device::words_of(static_cast<request_op>(0)) == 0);
    CHECK(device::words_of(static_cast<request_op>(15)) == 0);
}

TEST_CASE("Kernels' requests are carried out in order, with results") {
    ring_world w;
    REQUIRE(w.start());
    const auto tx = w.ring->ref();
    CHECK(tx.channels() == 2);
    std::uint64_t added[2]{};
    for (std::uint64_t i = 1; i <= 300; ++i) {
        const auto c = tx.channel(static_cast<std::uint32_t>(i % 2));
        REQUIRE(c.put_signal(warp_scope{}, i * 64, i * 64, 64, i % 2, i));
        std::uint64_t old = ~0ull;
        REQUIRE(c.fetch_add(thread_scope{}, 2 + i % 2, i, old));
        REQUIRE(old == added[i % 2]);
        added[i % 2] += i;
        if (i % 50 == 0) REQUIRE(c.flush(block_scope{}).what == outcome::ok);
    }
    CHECK(tx.channel(0).flush(thread_scope{}).what == outcome::ok);
    CHECK(tx.channel(1).flush(thread_scope{}).what == outcome::ok);
    CHECK(w.rx->ref().peek(0) == 300);
    CHECK(w.rx->ref().peek(1) == 299);
    CHECK(w.rx->ref().peek(2) + w.rx->ref().peek(3) == 300 * 301 / 2);
    CHECK(std::memcmp(&w.in[64], &w.out[64], 300 * 64) == 0);
    CHECK(tx.get(warp_scope{}, 1 << 19, 64, 4096));
    CHECK(tx.flush(thread_scope{}));
    CHECK(std::memcmp(&w.out[1 << 19], &w.in[64], 4096) == 0);
}

TEST_CASE("A full ring waits for the proxy, and says timeout if there is none") {
    ring_world w({}, 16);
    REQUIRE(w.start());
    w.proxy = false;
    const auto tx = w.ring->ref().within(50'000);
    for (unsigned i = 1; i <= 8; ++i) CHECK(tx.signal(thread_scope{}, 0, i));
    CHECK(tx.signal(thread_scope{}, 0, 9).what == outcome::timeout);
    CHECK(tx.flush(thread_scope{}).what == outcome::timeout);
    w.proxy = true;
    CHECK(tx.within(1'000'000'000).signal(thread_scope{}, 0, 9));
    CHECK(tx.within(1'000'000'000).flush(thread_scope{}));
    CHECK(w.rx->ref().peek(0) == 9);
}

TEST_CASE("What is asked before the sender is connected waits for it") {
    ring_world w;
    w.ring->abort_kernels();  // nobody to abort yet
    CHECK_FALSE(w.ring->progress());
    REQUIRE(w.ring->open());
    CHECK(w.ring->open().code == vccl::errc::already_connected);
    const auto tx = w.ring->ref();
    CHECK(tx.put_signal(thread_scope{}, 0, 0, 64, 0, 1));
    w.every = [&] { w.ring->progress(); };
    CHECK(tx.within(1'000'000).flush(thread_scope{}).what == outcome::timeout);
    REQUIRE(w.connect());
    CHECK(tx.flush(thread_scope{}));
    CHECK(w.rx->ref().peek(0) == 1);
}

TEST_CASE("A request that is only half there waits") {
    ring_world w;
    REQUIRE(w.start());
    const auto tx = w.ring->ref();
    CHECK(tx.signal(thread_scope{}, 0, 1));
    w.rest(1_ms);
    CHECK(w.rx->ref().peek(0) == 1);
    // The second word of the next request comes late: it still has the flag of the lap before.
    CHECK(tx.signal(thread_scope{}, 0, 2));
    const_cast<std::uint64_t*>(w.ring->words())[3] ^= 1;
    w.rest(1_ms);
    CHECK(w.rx->ref().peek(0) == 1);
    const_cast<std::uint64_t*>(w.ring->words())[3] ^= 1;
    w.rest(1_ms);
    CHECK(w.rx->ref().peek(0) == 2);
}

TEST_CASE("What no kernel would write is an error of the ring, and touches nothing") {
    for (const std::uint64_t word :
         {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0xffff} << 5 | 2,
          std::uint64_t{5} << 1 | std::uint64_t{66} << 31}) {  // an addition with a reply slot that there is not
        ring_world w;
        REQUIRE(w.start());
        CHECK(w.ring->ref().signal(thread_scope{}, 0, 1));
        auto* const words = const_cast<std::uint64_t*>(w.ring->words());
        words[0] = word | 1;
        words[1] |= 1;
        words[2] |= 1;
        words[3] |= 1;
        const device_result r = w.ring->ref().flush(thread_scope{});
        CHECK(r.what == outcome::error);
        CHECK(w.rx->ref().peek(0) == 0);
    }
}

TEST_CASE("Errors and the end come through the ring") {
    ring_world w;
    REQUIRE(w.start());
    const auto tx = w.ring->ref();
    SUBCASE("out of bounds") {
        CHECK(tx.put(thread_scope{}, w.in.size() - 4, 0, 8));
        const device_result r = tx.flush(thread_scope{});
        CHECK(r.what == outcome::error);
        CHECK(r.why == syndrome::remote_access);
    }
    SUBCASE("dead peer") {
        w.rx.reset();
        CHECK(tx.put(thread_scope{}, 0, 0, 8));
        CHECK(tx.flush(thread_scope{}).what == outcome::aborted);
    }
    SUBCASE("abort word") {
        w.proxy = false;
        CHECK(tx.put(thread_scope{}, 0, 0, 8));
        w.more = [&] { w.ring->abort_kernels(); };
        CHECK(tx.flush(thread_scope{}).what == outcome::aborted);
    }
}

TEST_CASE(
    "The first flush of a ring does not say that the queue has moved, nor does one after a failing back that nobody waited for") {
    ring_world w;
    REQUIRE(w.start());
    const auto tx = w.ring->ref();
    CHECK(tx.signal(thread_scope{}, 0, 1));
    CHECK(tx.flush(thread_scope{}).what == outcome::ok);
    REQUIRE(w.command("down A.nic0.p0"));
    CHECK(tx.signal(thread_scope{}, 0, 2));
    CHECK(tx.flush(thread_scope{}).what == outcome::moved);
    REQUIRE(w.command("up A.nic0.p0"));
    w.rest(1_s);
    REQUIRE(w.tx->handler().count(channel_event::kind::failed_back) == 1);
    CHECK(tx.signal(thread_scope{}, 0, 3));
    CHECK(tx.flush(thread_scope{}).what == outcome::ok);
}

TEST_CASE("An addition that found no room leaves no old value for the next one") {
    ring_world w({}, 16);
    REQUIRE(w.start());
    const auto tx = w.ring->ref();
    std::uint64_t old = ~0ull;
    REQUIRE(tx.fetch_add(thread_scope{}, 0, 3, old));
    CHECK(old == 0);
    w.proxy = false;
    std::uint64_t value = 0;
    while (tx.within(0).signal(thread_scope{}, 1, value + 1)) ++value;
    CHECK(tx.within(0).fetch_add(thread_scope{}, 0, 5, old).what == outcome::timeout);
    w.proxy = true;
    REQUIRE(tx.flush(thread_scope{}));
    CHECK(w.rx->ref().peek(0) == 3);
    REQUIRE(tx.fetch_add(thread_scope{}, 0, 7, old));
    CHECK(old == 3);
}

TEST_CASE("Additions whose old value nobody waited for give their reply slots back") {
    ring_world w;
    REQUIRE(w.start());
    const auto tx = w.ring->ref();
    std::uint64_t old = 0;
    for (unsigned i = 0; i < 200; ++i) {
        CHECK(tx.within(0).fetch_add(thread_scope{}, 0, 1, old).what == outcome::timeout);
        if (i % 7 == 6) REQUIRE(tx.flush(thread_scope{}));
    }
    REQUIRE(tx.flush(thread_scope{}));
    CHECK(w.rx->ref().peek(0) == 200);
    for (std::uint64_t i = 0; i < 70; ++i) {
        REQUIRE(tx.fetch_add(thread_scope{}, 0, 1, old));
        REQUIRE(old == 200 + i);
    }
    // All slots wanted at once while nobody answers: the next one waits for a slot, and has the value of its own turn.
    w.proxy = false;
    const auto other = tx.within(0);
    unsigned asked = 0;
    while (other.signal(thread_scope{}, 1, asked + 1)) ++asked;
    CHECK(other.fetch_add(thread_scope{}, 0, 1, old).what == outcome::timeout);
    w.proxy = true;
    REQUIRE(tx.fetch_add(thread_scope{}, 0, 1, old));
    CHECK(old == 270);
}

TEST_CASE("A signal word that there is not, or a message too long, is an error and touches no other word") {
    ring_world w;
    REQUIRE(w.start());
    const auto tx = w.ring->ref();
    const auto ends_with = [&](syndrome why) {
        const device_result r = tx.flush(thread_scope{});
        CHECK(r.what == outcome::error);
        CHECK(r.why == why);
        for (unsigned word = 0; word < w.rx->ref().words(); ++word) CHECK(w.rx->ref().peek(word) == 0);
    };
    SUBCASE("the first beyond") {
        CHECK(tx.signal(thread_scope{}, w.rx->ref().words(), 1));
        ends_with(syndrome::remote_access);
    }
    SUBCASE("more than 8 bits") {
        CHECK(tx.signal(thread_scope{}, 256, 1));
        ends_with(syndrome::remote_access);
    }
    SUBCASE("added to") {
        CHECK(tx.fetch_add(thread_scope{}, 257, 1));
        ends_with(syndrome::remote_access);
    }
    SUBCASE("2^31 bytes and a few") {
        CHECK(tx.put_signal(thread_scope{}, 0, 0, (std::uint64_t{1} << 31) + 8, 0, 1));
        ends_with(syndrome::local_length);
    }
    SUBCASE("2^32 bytes and a few") {
        CHECK(tx.put_signal(thread_scope{}, 0, 0, (std::uint64_t{1} << 32) + 8, 0, 1));
        ends_with(syndrome::local_length);
    }
}

TEST_CASE("A port dies and returns behind the ring: nothing is lost, nothing comes twice") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        ring_world w;
        REQUIRE(w.start());
        const nanoseconds begin = w.fabric.now();
        bool down = false, up = false;
        w.more = [&] {
            if (!down && w.fabric.now() - begin > nanoseconds{static_cast<std::int64_t>(seed * 37'000)}) {
                down = true;
                CHECK(w.command(seed % 2 != 0 ? "down A.nic0.p0" : "down B.nic0.p0"));
            }
            if (!up && w.fabric.now() - begin > 400_ms) {
                up = true;
                CHECK(w.command(seed % 2 != 0 ? "up A.nic0.p0" : "up B.nic0.p0"));
            }
        };
        const auto tx = w.ring->ref();
        std::uint64_t sum = 0;
        for (std::uint64_t i = 1; i <= 200; ++i) {
            const auto c = tx.channel(static_cast<std::uint32_t>(i % 2));
            REQUIRE(c.put_signal(warp_scope{}, i * 512, i * 512, 512, i % 2, i));
            REQUIRE(c.fetch_add(warp_scope{}, 2 + i % 2, i));
            sum += i;
            if (i == 150) w.rest(600_ms);
        }
        REQUIRE(tx.channel(0).flush(thread_scope{}));
        REQUIRE(tx.channel(1).flush(thread_scope{}));
        CHECK(w.rx->ref().peek(0) == 200);
        CHECK(w.rx->ref().peek(1) == 199);
        CHECK(w.rx->ref().peek(2) + w.rx->ref().peek(3) == sum);
        CHECK(std::memcmp(&w.in[512], &w.out[512], 200 * 512) == 0);
        CHECK(w.tx->handler().count(channel_event::kind::failed_over) >= 1);
        CHECK(w.tx->handler().count(channel_event::kind::failed_back) == 1);
    }
}
