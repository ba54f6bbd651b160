/// \file
/// What the operations of a healthy fabric do, in manual time (packet by packet) and in real time (the short cut).

#include "support.hpp"

#include <cstring>

using namespace soft_test;

namespace {

/// Makes progress in either kind of time and collects what `e` completes, until `n` are there.
std::vector<completion> collect(soft_fabric& f, end& e, std::size_t n) {
    std::vector<completion> all;
    const auto deadline = steady_clock{}.now() + 10_s;
    while (all.size() < n && steady_clock{}.now() < deadline) {
        if (f.next_event_at() <= f.now() + 1_s) f.advance(f.next_event_at() > f.now() ? f.next_event_at() - f.now() : 0_ns);
        for (auto& c : drain(e)) all.push_back(c);
    }
    REQUIRE(all.size() == n);
    return all;
}

soft_options kind(int i) {
    soft_options o;
    o.manual_time = i == 0;
    if (i == 2) o.latency = 20_us;  // real time, but by packets
    return o;
}

}  // namespace

TEST_CASE("a write moves its bytes and completes once at the sender only") {
    for (int k = 0; k < 3; ++k) {
        CAPTURE(k);
        auto [f, a, b] = make_pair(kind(k));
        fill(a, 7);
        for (const std::uint32_t length : {0u, 1u, 7u, 8u, 255u, 256u, 257u, 4095u, 4096u, 4097u, 65536u, 1000000u}) {
            CAPTURE(length);
            std::memset(b.bytes(), 0, b.words.size() * 8);
            REQUIRE(a.qp.post(write(a, b, length, length)));
            const auto got = collect(f, a, 1);
            CHECK(got[0].wr_id == length);
            CHECK(got[0].status == wc_status::success);
            CHECK(got[0].op == completion_op::write);
            CHECK(got[0].qp == a.qp.number());
            CHECK(std::memcmp(a.bytes(), b.bytes(), length) == 0);
            CHECK(b.bytes()[length] == std::byte{0});
            CHECK(drain(b).empty());
        }
    }
}

TEST_CASE("a write with immediate consumes a receive and says how many bytes came") {
    for (int k = 0; k < 3; ++k) {
        CAPTURE(k);
        auto [f, a, b] = make_pair(kind(k));
        fill(a, 9);
        const recv_work r[] = {receive(b, 71, 0), receive(b, 72, 0)};
        CHECK(*b.qp.post_recv(r) == 2);
        for (std::uint32_t i = 0; i < 2; ++i) {
            auto w = with(write(a, b, 10000 * i), work_op::write_imm);
            w.immediate = 0xabcd + i;
            REQUIRE(a.qp.post(w));
            const auto got = collect(f, b, 1);
            CHECK(got[0].wr_id == 71 + i);
            CHECK(got[0].op == completion_op::recv_write_imm);
            CHECK(got[0].immediate == 0xabcd + i);
            CHECK(got[0].byte_len == 10000 * i);
            CHECK(std::memcmp(a.bytes(), b.bytes(), 10000 * i) == 0);
        }
        CHECK(collect(f, a, 2)[1].status == wc_status::success);
    }
}

TEST_CASE("a send lands in the oldest receive") {
    for (int k = 0; k < 3; ++k) {
        CAPTURE(k);
        auto [f, a, b] = make_pair(kind(k));
        fill(a, 11);
        const recv_work r[] = {receive(b, 1, 9000, 0), receive(b, 2, 9000, 10000)};
        CHECK(*b.qp.post_recv(r) == 2);
        REQUIRE(a.qp.post(with(write(a, b, 9000, 5), work_op::send)));
        auto small = with(write(a, b, 3, 6), work_op::send);
        small.flags = work_flags::none;
        REQUIRE(a.qp.post(small));
        const auto got = collect(f, b, 2);
        CHECK(got[0].wr_id == 1);
        CHECK(got[0].byte_len == 9000);
        CHECK(got[1].wr_id == 2);
        CHECK(got[1].byte_len == 3);
        CHECK(std::memcmp(a.bytes(), b.bytes(), 9000) == 0);
        CHECK(std::memcmp(a.bytes(), b.bytes() + 10000, 3) == 0);
        CHECK(collect(f, a, 1)[0].wr_id == 5);  // the second was unsignaled
    }
}

TEST_CASE("a read brings remote bytes, atomics bring the old value") {
    for (int k = 0; k < 3; ++k) {
        CAPTURE(k);
        auto [f, a, b] = make_pair(kind(k));
        fill(b, 13);
        REQUIRE(a.qp.post(with(write(a, b, 100001, 1), work_op::read)));
        auto got = collect(f, a, 1);
        CHECK(got[0].op == completion_op::read);
        CHECK(got[0].byte_len == 100001);
        CHECK(std::memcmp(a.bytes(), b.bytes(), 100001) == 0);

        b.words[3] = 40;
        auto add = with(write(a, b, 8, 2, 24), work_op::fetch_add);
        add.swap_add = 2;
        REQUIRE(a.qp.post(add));
        CHECK(collect(f, a, 1)[0].op == completion_op::fetch_add);
        CHECK(a.words[3] == 40);
        CHECK(b.words[3] == 42);

        auto swap = with(add, work_op::cmp_swap);
        swap.compare = 42;
        swap.swap_add = 99;
        REQUIRE(a.qp.post(swap));
        collect(f, a, 1);
        CHECK(a.words[3] == 42);
        CHECK(b.words[3] == 99);
        REQUIRE(a.qp.post(swap));
        collect(f, a, 1);
        CHECK(a.words[3] == 99);
        CHECK(b.words[3] == 99);
    }
}

TEST_CASE("operations of one QP take effect and complete in the order posted") {
    for (int k = 0; k < 3; ++k) {
        CAPTURE(k);
        auto [f, a, b] = make_pair(kind(k));
        std::vector<work> all;
        for (std::uint64_t i = 0; i < 60; ++i) {
            work w = with(write(a, b, 8 + static_cast<std::uint32_t>(i % 3) * 5000, i), i % 3 == 0   ? work_op::write
                                                                                        : i % 3 == 1 ? work_op::read
                                                                                                     : work_op::fetch_add);
            if (w.op == work_op::fetch_add) w.length = 8;
            if (i % 5 == 4) w.flags = w.flags | work_flags::fence;
            all.push_back(w);
        }
        CHECK(*a.qp.post(std::span<const work>(all)) == 60);
        const auto got = collect(f, a, 60);
        for (std::uint64_t i = 0; i < 60; ++i) CHECK(got[i].wr_id == i);
    }
}

TEST_CASE("inlined bytes are taken while posting") {
    for (int k = 0; k < 3; ++k) {
        auto [f, a, b] = make_pair(kind(k));
        a.words[0] = 17;
        auto w = write(a, b, 8);
        w.flags = w.flags | work_flags::inlined;
        w.lkey = lkey{};
        REQUIRE(a.qp.post(w));
        a.words[0] = 18;
        collect(f, a, 1);
        CHECK(b.words[0] == 17);
        w.length = 65;
        CHECK(a.qp.post(w).code == errc::invalid_argument);
    }
}

TEST_CASE("a QP may be connected to itself or to a QP of its own port") {
    for (int k = 0; k < 3; ++k) {
        auto f = take(soft_fabric::create(soft_topology(1, 1, 1, 1), kind(k)));
        auto e = make_end(take(f.host("A")), "A.nic0.p0");
        join(e, e);
        fill(e, 3);
        auto w = with(write(e, e, 4000), work_op::read);
        w.remote_addr += 8000;
        REQUIRE(e.qp.post(w));
        CHECK(collect(f, e, 1)[0].status == wc_status::success);
        CHECK(std::memcmp(e.bytes(), e.bytes() + 8000, 4000) == 0);
    }
}

TEST_CASE("a full send queue says would_block until a completion has been polled") {
    end_options o;
    o.limits.send_depth = 4;
    auto [f, a, b] = make_pair(by_hand(), o);
    auto quiet = write(a, b, 8);
    quiet.flags = work_flags::none;
    for (int i = 0; i < 3; ++i) REQUIRE(a.qp.post(quiet));
    REQUIRE(a.qp.post(write(a, b, 8)));
    CHECK(a.qp.post(quiet).code == errc::would_block);
    run_dry(f);
    CHECK(a.qp.post(quiet).code == errc::would_block);  // done, but nobody has looked
    CHECK(drain(a).size() == 1);
    CHECK(a.qp.post(quiet));
}

TEST_CASE("the batch call takes what fits and says how many") {
    end_options o;
    o.limits.send_depth = 8;
    auto [f, a, b] = make_pair(by_hand(), o);
    const std::vector<work> many(12, write(a, b, 8));
    CHECK(*a.qp.post(std::span<const work>(many)) == 8);
    CHECK(*a.qp.post(std::span<const work>(many)) == 0);
    run_dry(f);
    CHECK(drain(a).size() == 8);
}
