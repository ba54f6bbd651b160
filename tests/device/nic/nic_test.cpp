// What the ring NIC does with good WQEs: every operation, in order, a CQE for each that asks, laps of small queues, QP states.

#include "world.hpp"

namespace {

using namespace ring_test;

void fill(std::vector<std::uint64_t>& words, std::uint64_t seed) {
    for (auto& w : words) w = seed += 0x9e3779b97f4a7c15;
}

TEST_CASE("WRITE and READ move the bytes that they name and no others") {
    auto w = make_world();
    fill(w.near_words, 1);
    fill(w.far_words, 2);
    const auto near_before = w.near_words, far_before = w.far_words;
    w.post.put(write(w.post.head(), w.there(8192), w.here(4096, 5000)));
    w.post.put(read(w.post.head(), w.there(100), w.here(20000, 3001)));
    w.post.ring_it();
    w.settle();
    auto near_expected = near_before, far_expected = far_before;
    std::memcpy(reinterpret_cast<char*>(far_expected.data()) + 8192, reinterpret_cast<const char*>(near_before.data()) + 4096,
                5000);
    std::memcpy(reinterpret_cast<char*>(near_expected.data()) + 20000, reinterpret_cast<const char*>(far_before.data()) + 100,
                3001);
    CHECK(w.far_words == far_expected);
    CHECK(w.near_words == near_expected);
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 2);
    CHECK(cqes[0].index == 0);
    CHECK(cqes[0].opcode == 0x08);
    CHECK(cqes[0].qpn == w.qp.number().value);
    CHECK(cqes[1].index == 1);
    CHECK(cqes[1].bytes == 3001);
}

TEST_CASE("An inline WRITE of every length carries its bytes; its slots are free at once") {
    for (unsigned length = 0; length <= max_long_inline_bytes; ++length) {
        auto w = make_world();
        unsigned char bytes[max_long_inline_bytes];
        for (unsigned i = 0; i < length; ++i) bytes[i] = static_cast<unsigned char>(i + 1);
        if (length <= max_inline_bytes)
            w.post.put(inline_write(w.post.head(), w.there(64), bytes, length));
        else
            w.post.put(long_inline_write(w.post.head(), w.there(64), bytes, length));
        w.post.put(nop(w.post.head()));  // finds the right slot behind it
        w.post.ring_it();
        w.settle();
        REQUIRE(std::memcmp(w.far_bytes() + 64, bytes, length) == 0);
        REQUIRE(w.far_bytes()[64 + length] == 0);
        const auto cqes = w.post.poll();
        REQUIRE(cqes.size() == 2);
        REQUIRE(cqes[1].why == syndrome::none);
        REQUIRE(cqes[1].index == (length <= max_inline_bytes ? 1 : 2));
    }
}

TEST_CASE("A WRITE with immediate completes a receive of the peer") {
    auto w = make_world();
    const recv_work receive{77, 0, 0, {}};
    REQUIRE(w.far_qp.post_recv(std::span(&receive, 1)));
    w.near_words[0] = 42;
    w.post.put(write_imm(w.post.head(), w.there(0), w.here(0, 8), 0xcafe));
    w.post.ring_it();
    w.settle();
    CHECK(w.far_words[0] == 42);
    completion c;
    REQUIRE(take(w.far_cq.poll(&c, 1)) == 1);
    CHECK(c.wr_id == 77);
    CHECK(c.immediate == 0xcafe);
}

TEST_CASE("Atomics return the old value, also those masked ones that amount to plain ones") {
    auto w = make_world();
    w.far_words[0] = 100, w.far_words[1] = 200, w.far_words[2] = 300, w.far_words[3] = 400;
    w.post.put(fetch_add(w.post.head(), w.there(0), w.here(0, 8), 5));
    w.post.put(compare_swap(w.post.head(), w.there(8), w.here(8, 8), 7, 200));
    w.post.put(compare_swap(w.post.head(), w.there(8), w.here(16, 8), 9, 200));  // does not match any more
    w.post.put(masked_fetch_add_64(w.post.head(), w.there(16), w.here(24, 8), 1, 0));
    w.post.put(masked_compare_swap_64(w.post.head(), w.there(24), w.here(32, 8), {1, 400, ~0ull, ~0ull}));
    w.post.ring_it();
    w.settle();
    CHECK(w.far_words[0] == 105);
    CHECK(w.far_words[1] == 7);
    CHECK(w.far_words[2] == 301);
    CHECK(w.far_words[3] == 1);
    CHECK(w.near_words[0] == 100);
    CHECK(w.near_words[1] == 200);
    CHECK(w.near_words[2] == 7);
    CHECK(w.near_words[3] == 300);
    CHECK(w.near_words[4] == 400);
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 5);
    for (const auto& c : cqes) CHECK(c.bytes == 8);
    CHECK(cqes[4].index == 4);
}

TEST_CASE("Masked atomics that a verbs backend cannot carry out are refused, not approximated") {
    auto w = make_world();
    w.post.put(masked_fetch_add_32(w.post.head(), w.there(0), w.here(0, 4), 1, 0));
    w.post.ring_it();
    w.settle();
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].why == syndrome::local_qp_operation);
    CHECK(cqes[0].vendor == static_cast<int>(wqe_fault::not_possible));
    CHECK(w.far_words[0] == 0);
}

TEST_CASE("Only WQEs that ask for a CQE get one, and CQEs come in order") {
    auto w = make_world();
    for (int i = 0; i < 12; ++i) {
        const std::uint8_t flags = i % 3 == 2 ? wqe_flag::completion : 0;
        if (i % 2 == 0)
            w.post.put(
                inline_write(w.post.head(flags), w.there(static_cast<std::size_t>(i) * 8), 1000u + static_cast<unsigned>(i)));
        else
            w.post.put(nop(w.post.head(flags)));  // done at once, but completes behind what was posted before
    }
    w.post.ring_it();
    CHECK(w.nic.progress());
    CHECK(w.post.poll().empty());  // the first WRITE has not been acknowledged
    w.settle();
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 4);
    for (unsigned i = 0; i < 4; ++i) CHECK(cqes[i].index == 3 * i + 2);
    for (unsigned i = 0; i < 12; i += 2) CHECK(w.far_words[i] == 1000 + i);
}

TEST_CASE("A queue of four slots goes on through laps and through the wraps of 16, 24 and 32 bits") {
    for (const std::uint64_t start : {0ull, 0xfff9ull, 0xfffff9ull, 0xfffffff9ull, 0xfffffffffff9ull}) {
        CAPTURE(start);
        world_options o;
        o.limits = {4, 4};
        o.index = start;
        o.entry = start - 2;
        auto w = make_world(o);
        for (std::uint64_t round = 0; round < 40; ++round) {
            const std::size_t many = 1 + round % 4;
            for (std::size_t i = 0; i < many; ++i) w.post.put(inline_write(w.post.head(), w.there(8 * i), round * 4 + i));
            w.post.ring_it();
            w.settle();
            const auto cqes = w.post.poll();
            REQUIRE(cqes.size() == many);
            for (std::size_t i = 0; i < many; ++i) {
                REQUIRE(cqes[i].why == syndrome::none);
                REQUIRE(cqes[i].index == static_cast<std::uint16_t>(w.post.next() - many + i));
                REQUIRE(w.far_words[i] == round * 4 + i);
            }
        }
    }
}

TEST_CASE("A WQE of two slots may lie across the end of the ring") {
    world_options o;
    o.limits = {4, 4};
    o.index = 3;
    auto w = make_world(o);
    unsigned char bytes[60];
    std::memset(bytes, 0x5a, sizeof bytes);
    w.post.put(long_inline_write(w.post.head(), w.there(0), bytes, 60));
    w.post.ring_it();
    w.settle();
    CHECK(std::memcmp(w.far_bytes(), bytes, 60) == 0);
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].index == 3);
}

TEST_CASE("Before RTS nothing is taken up; afterwards what was posted is") {
    auto w = make_world();
    REQUIRE(w.qp.to_reset());
    REQUIRE(w.far_qp.to_reset());
    w.post = poster(w.qp.memory());
    w.post.put(inline_write(w.post.head(), w.there(0), 7));
    w.post.ring_it();
    w.settle();
    CHECK(w.far_words[0] == 0);
    w.connect();
    w.settle();
    CHECK(w.far_words[0] == 7);
    CHECK(w.post.poll().size() == 1);
}

TEST_CASE("ERR flushes what is outstanding and what is posted later; RESET and the ladder bring the QP back") {
    auto w = make_world();
    REQUIRE(w.fabric.command("down A.nic0.p0"));
    for (int i = 0; i < 3; ++i) w.post.put(inline_write(w.post.head(0), w.there(0), 9));
    w.post.ring_it();
    w.settle();
    REQUIRE(w.qp.to_error());
    auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 3);  // also those that asked for none
    for (const auto& c : cqes) CHECK(c.why == syndrome::flushed);
    CHECK(take(w.qp.state()) == qp_state::error);

    w.post.put(inline_write(w.post.head(), w.there(0), 9));
    w.post.put(nop(w.post.head()));
    w.post.ring_it();
    w.settle();
    cqes = w.post.poll();
    REQUIRE(cqes.size() == 2);
    CHECK(cqes[0].why == syndrome::flushed);
    CHECK(cqes[1].why == syndrome::flushed);
    CHECK(cqes[1].index == 4);

    REQUIRE(w.fabric.command("up A.nic0.p0"));
    REQUIRE(w.qp.to_reset());
    REQUIRE(w.far_qp.to_reset());
    w.post = poster(w.qp.memory());
    w.connect();
    w.post.put(inline_write(w.post.head(), w.there(0), 11));
    w.post.ring_it();
    w.settle();
    CHECK(w.far_words[0] == 11);
    cqes = w.post.poll();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].why == syndrome::none);
}

TEST_CASE("Two QPs of one NIC share it and do not see each other's doorbells") {
    auto w = make_world();
    auto second = take(w.nic.create_qp(w.a, {8, 8}));
    CHECK(second.number() != w.qp.number());
    w.post.put(inline_write(w.post.head(), w.there(0), 3));
    w.post.record();
    w.post.knock(encode_doorbell(w.post.next(), second.number().value));  // a doorbell for somebody else
    w.settle();
    CHECK(w.far_words[0] == 0);
    w.post.ring_it();
    w.settle();
    CHECK(w.far_words[0] == 3);
    REQUIRE(second.destroy());
    w.post.put(inline_write(w.post.head(), w.there(8), 4));
    w.post.ring_it();
    w.settle();
    CHECK(w.far_words[1] == 4);
}

TEST_CASE("Depths out of range are refused with a reason") {
    auto w = make_world();
    for (const ring_limits bad :
         {ring_limits{0, 0}, ring_limits{3, 0}, ring_limits{(1u << 15) + 1, 0}, ring_limits{16, (1u << 22) + 1}}) {
        auto q = w.nic.create_qp(w.a, bad);
        REQUIRE_FALSE(q);
        CHECK(q.error().code == errc::invalid_argument);
    }
    CHECK(w.nic.create_qp(w.a, {16, 0, 4}).error().code == errc::unsupported);  // no receive queues
    auto largest = w.nic.create_qp(w.a, {1u << 15, 0});
    REQUIRE(largest);
    CHECK(largest->memory().depth() == 1u << 15);
    CHECK(take(w.nic.create_qp(w.a, {5, 0})).memory().depth() == 8);
}

TEST_CASE("What a QP that is gone is asked, it refuses") {
    manual_nic::qp nothing;
    CHECK(nothing.to_error().code == errc::invalid_argument);
    CHECK(nothing.state().error().code == errc::invalid_argument);
    CHECK(nothing.memory().wq == nullptr);
    CHECK(nothing.destroy());
}

}  // namespace
