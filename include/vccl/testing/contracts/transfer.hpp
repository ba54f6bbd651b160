#pragma once
/// \file
/// Contracts of what moves: WRITE, WRITE with immediate, SEND, READ and the atomics, of every size and alignment. For backend
/// authors; see testing/contracts.hpp.

#include <vccl/testing/contracts/connection.hpp>

namespace vccl::inline v0::testing {

/// Lengths around everything that could be a boundary; the last one is several MiB and odd.
inline std::vector<std::uint32_t> telling_lengths(std::uint32_t mtu) {
    return {0, 1, 7, 64, mtu - 1, mtu, mtu + 1, 3 * mtu + 5, 64 * mtu, (4U << 20) + 3};
}

inline constexpr std::size_t large_memory = (4U << 20) + 4096;

/// Checks that b's memory holds a's bytes [here, here + length) at `there` and `guard` everywhere else.
template <class F>
void check_only(const connection<F>& c, std::size_t here, std::size_t there, std::uint32_t length, unsigned char guard) {
    const auto& to = c.b.memory;
    const auto is_guard = [guard](unsigned char byte) { return byte == guard; };
    const auto first = to.begin() + static_cast<std::ptrdiff_t>(there);
    CHECK(std::equal(first, first + length, c.a.memory.begin() + static_cast<std::ptrdiff_t>(here)));
    CHECK(std::all_of(to.begin(), first, is_guard));
    CHECK(std::all_of(first + length, to.end(), is_guard));
}

VCCL_CONTRACT(contract_write, "a WRITE puts its bytes where they belong, and nothing beyond them", F) {
    F fixture;
    connection<F> c{fixture, {.bytes = large_memory}};
    c.a.fill(3);
    std::uint64_t id = 100;
    for (std::uint32_t length : telling_lengths(c.mtu())) {
        for (std::size_t skew : {0U, 1U, 13U}) {
            CAPTURE(length);
            CAPTURE(skew);
            c.b.clear(0xee);
            const completion done = c.run(c.make(work_op::write, 2 * skew, 64 + skew, length, ++id));
            REQUIRE(done.status == wc_status::success);
            CHECK(done.op == completion_op::write);
            check_only(c, 2 * skew, 64 + skew, length, 0xee);
        }
    }
    CHECK(c.b.done.empty());
}

VCCL_CONTRACT(contract_write_imm, "a WRITE with immediate consumes a receive and brings the immediate and the length", F) {
    F fixture;
    connection<F> c{fixture, {.bytes = large_memory}};
    c.a.fill(5);
    std::uint64_t id = 0;
    for (std::uint32_t length : telling_lengths(c.mtu())) {
        CAPTURE(length);
        c.b.clear(0xdd);
        const std::size_t before = c.b.done.size();
        c.b.must_post_recv(++id, large_memory - 64, 64);
        work w = c.make(work_op::write_imm, 1, 3, length, id + 1000);
        w.immediate = 0x01020304U + length;
        REQUIRE(c.run(w).status == wc_status::success);
        REQUIRE(c.await(c.b, before + 1));
        const completion& got = c.b.done[before];
        CHECK(got.status == wc_status::success);
        CHECK(got.op == completion_op::recv_write_imm);
        CHECK(got.wr_id == id);
        CHECK(got.qp == c.b.qp->number());
        CHECK(got.immediate == w.immediate);
        CHECK(got.byte_len == length);
        check_only(c, 1, 3, length, 0xdd);
    }
}

VCCL_CONTRACT(contract_send, "a SEND lands in the oldest receive, whose length may be larger", F) {
    F fixture;
    connection<F> c{fixture, {.bytes = large_memory}};
    c.a.fill(7);
    std::uint64_t id = 0;
    for (std::uint32_t length : telling_lengths(c.mtu())) {
        CAPTURE(length);
        c.b.clear(0xcc);
        const std::size_t before = c.b.done.size();
        c.b.must_post_recv(++id, 17, length + 9);
        c.b.must_post_recv(++id, 17, length + 9);
        REQUIRE(c.run(c.make(work_op::send, 3, 0, length, 1)).status == wc_status::success);
        REQUIRE(c.await(c.b, before + 1));
        CHECK(c.b.done[before].status == wc_status::success);
        CHECK(c.b.done[before].op == completion_op::recv);
        CHECK(c.b.done[before].wr_id == id - 1);
        CHECK(c.b.done[before].byte_len == length);
        check_only(c, 3, 17, length, 0xcc);
        REQUIRE(c.run(c.make(work_op::send, 3, 0, 0, 2)).status == wc_status::success);
        REQUIRE(c.await(c.b, before + 2));
        CHECK(c.b.done[before + 1].wr_id == id);
    }
}

VCCL_CONTRACT(contract_read, "a READ fetches the peer's bytes", F) {
    F fixture;
    connection<F> c{fixture, {.bytes = large_memory}};
    c.b.fill(9);
    for (std::uint32_t length : telling_lengths(c.mtu())) {
        CAPTURE(length);
        c.a.clear(0xbb);
        const completion done = c.run(c.make(work_op::read, 5, 2, length, 3));
        REQUIRE(done.status == wc_status::success);
        CHECK(done.op == completion_op::read);
        CHECK(std::equal(c.a.memory.begin() + 5, c.a.memory.begin() + 5 + length, c.b.memory.begin() + 2));
        CHECK(c.a.memory[4] == 0xbb);
        CHECK(c.a.memory[5 + length] == 0xbb);
    }
    CHECK(c.b.done.empty());
}

VCCL_CONTRACT(contract_fetch_add, "FETCH_ADD adds once, wraps, and brings the old value", F) {
    if constexpr (!F::backend::capabilities.atomics) {
        MESSAGE("skipped: this backend has no atomics");
    } else {
        F fixture;
        connection<F> c{fixture};
        std::uint64_t expected = UINT64_MAX - 10;
        c.b.set_word(64, expected);
        for (std::uint64_t add : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{25}, UINT64_MAX, std::uint64_t{1} << 63}) {
            work w = c.make(work_op::fetch_add, 8, 64, 8, add);
            w.swap_add = add;
            const completion done = c.run(w);
            REQUIRE(done.status == wc_status::success);
            CHECK(done.op == completion_op::fetch_add);
            CHECK(c.a.word(8) == expected);
            expected += add;
            CHECK(c.b.word(64) == expected);
        }
    }
}

VCCL_CONTRACT(contract_cmp_swap, "CMP_SWAP swaps only an equal value, and brings the old one either way", F) {
    if constexpr (!F::backend::capabilities.atomics) {
        MESSAGE("skipped: this backend has no atomics");
    } else {
        F fixture;
        connection<F> c{fixture};
        c.b.set_word(128, 41);
        work w = c.make(work_op::cmp_swap, 16, 128, 8, 1);
        w.compare = 40;
        w.swap_add = 99;
        REQUIRE(c.run(w).status == wc_status::success);
        CHECK(c.a.word(16) == 41);
        CHECK(c.b.word(128) == 41);
        w.compare = 41;
        const completion done = c.run(w);
        REQUIRE(done.status == wc_status::success);
        CHECK(done.op == completion_op::cmp_swap);
        CHECK(c.a.word(16) == 41);
        CHECK(c.b.word(128) == 99);
    }
}

VCCL_CONTRACT(contract_inline, "an inlined WR needs no key, and its buffer is free as soon as post returns", F) {
    F fixture;
    connection<F> c{fixture};
    const std::uint32_t limit = std::min(fixture.local().inline_limit(), c.shape.limits.inline_bytes);
    REQUIRE(limit > 0);
    unsigned char scratch[64];
    for (std::uint32_t length : {1U, std::min(8U, limit), limit}) {
        for (work_op op : {work_op::write, work_op::write_imm, work_op::send}) {
            CAPTURE(length);
            CAPTURE(int(op));
            c.b.clear(0);
            if (op != work_op::write) c.b.must_post_recv(1, 32, 64);
            std::memset(scratch, 0x5a, sizeof scratch);
            work w = c.make(op, 0, 32, length, 2);
            w.local_addr = reinterpret_cast<std::uint64_t>(scratch);
            w.lkey = lkey{};
            w.flags = work_flags::signaled | work_flags::inlined;
            const std::size_t before = c.a.done.size();
            const std::size_t received = c.b.done.size() + (op == work_op::write ? 0 : 1);
            must(c.a.qp->post(w), "post");
            std::memset(scratch, 0xa5, sizeof scratch);
            REQUIRE(c.await(c.a, before + 1));
            REQUIRE(c.a.done[before].status == wc_status::success);
            REQUIRE(c.await(c.b, received));
            CHECK(std::all_of(c.b.memory.begin() + 32, c.b.memory.begin() + 32 + length, [](auto byte) { return byte == 0x5a; }));
            CHECK(c.b.memory[32 + length] == 0);
        }
    }
}

VCCL_CONTRACT(contract_both_ways, "both ends of a QP initiate at once", F) {
    F fixture;
    connection<F> c{fixture, {.bytes = 1U << 20}};
    const std::uint32_t half = 1U << 19;
    c.a.fill(1);
    c.b.fill(2);
    const auto from_a = std::vector<unsigned char>(c.a.memory.begin(), c.a.memory.begin() + half);
    const auto from_b = std::vector<unsigned char>(c.b.memory.begin(), c.b.memory.begin() + half);
    must(c.a.qp->post(c.make(work_op::write, 0, half, half, 1)), "post");
    must(c.b.qp->post(work{.wr_id = 2,
                           .local_addr = c.b.address(0),
                           .remote_addr = c.a.address(half),
                           .length = half,
                           .lkey = c.b.mr->local_key(),
                           .rkey = c.a.mr->remote_key(),
                           .flags = work_flags::signaled}),
         "post");
    REQUIRE(c.await(c.a, 1));
    REQUIRE(c.await(c.b, 1));
    CHECK(c.a.done[0].status == wc_status::success);
    CHECK(c.b.done[0].status == wc_status::success);
    CHECK(std::equal(from_a.begin(), from_a.end(), c.b.memory.begin() + half));
    CHECK(std::equal(from_b.begin(), from_b.end(), c.a.memory.begin() + half));
}

VCCL_CONTRACT(contract_loopback, "a QP connected to its own port reads and writes local memory", F) {
    if constexpr (!F::backend::capabilities.loopback) {
        MESSAGE("skipped: this backend has no loopback");
    } else {
        F fixture;
        connection<F> c{fixture, fixture.local(), fixture.local(), {}};
        c.b.fill(11);
        REQUIRE(c.run(c.make(work_op::read, 0, 40, 8, 1)).status == wc_status::success);
        CHECK(c.a.word(0) == c.b.word(40));
        REQUIRE(c.run(c.make(work_op::read, 0, 40, 0, 2)).status == wc_status::success);
        c.must_carry();
    }
}

}  // namespace vccl::inline v0::testing

#define VCCL_TRANSFER_CONTRACTS(...)                    \
    VCCL_RUN_CONTRACT(contract_write, __VA_ARGS__);     \
    VCCL_RUN_CONTRACT(contract_write_imm, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_send, __VA_ARGS__);      \
    VCCL_RUN_CONTRACT(contract_read, __VA_ARGS__);      \
    VCCL_RUN_CONTRACT(contract_fetch_add, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_cmp_swap, __VA_ARGS__);  \
    VCCL_RUN_CONTRACT(contract_inline, __VA_ARGS__);    \
    VCCL_RUN_CONTRACT(contract_both_ways, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_loopback, __VA_ARGS__)
