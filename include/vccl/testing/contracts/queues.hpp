#pragma once
/// \file
/// Contracts of the queues: order, unsignaled WRs, chains, full queues, polling. For backend authors; see
/// testing/contracts.hpp.

#include <vccl/testing/contracts/connection.hpp>

namespace vccl::inline v0::testing {

/// Small queues, so that a case reaches their end. A backend may round up; nothing sensible is as large as `never_full`.
inline constexpr connection_shape small_queues{
    .limits = {.send_depth = 16, .recv_depth = 16, .inline_bytes = 64}, .cq_depth = 4096, .timers = endless_rnr};
inline constexpr unsigned never_full = 2048;

/// Posts, letting time pass while the send queue is full.
template <class F>
void post_when_free(connection<F>& c, const work& w) {
    status s = errc::would_block;
    REQUIRE(wait_until(c.fixture, [&] {
        c.collect();
        s = c.a.qp->post(w);
        return s.code != errc::would_block;
    }));
    must(s, "post");
}

/// Gives b receives until a has `n` completions in all.
template <class F>
void receive_until(connection<F>& c, std::size_t n) {
    REQUIRE(wait_until(c.fixture, [&] {
        c.collect();
        if (c.b.done.size() < n) (void)c.b.post_recv(0, 0, 64);
        return c.a.done.size() >= n;
    }));
}

VCCL_CONTRACT(contract_unsignaled, "unsignaled WRs are silent, and their slots come back with a later signaled one", F) {
    F fixture;
    connection<F> c{fixture, small_queues};
    constexpr unsigned count = 200, period = 4;
    c.a.fill(17);
    for (unsigned i = 0; i < count; ++i) {
        work w = c.make(work_op::write, 8 * i, 8 * i, 8, i);
        if (i % period != period - 1) w.flags = work_flags::none;
        post_when_free(c, w);
    }
    REQUIRE(c.await(c.a, count / period));
    CHECK(std::equal(c.a.memory.begin(), c.a.memory.begin() + 8 * count, c.b.memory.begin()));
    c.must_carry();
    REQUIRE(c.a.done.size() == count / period + 1);
    for (unsigned k = 0; k < count / period; ++k) {
        CHECK(c.a.done[k].status == wc_status::success);
        CHECK(c.a.done[k].wr_id == k * period + period - 1);
    }
}

VCCL_CONTRACT(contract_completion_order, "WRs of one QP complete in the order of their posting, whatever they are", F) {
    F fixture;
    connection<F> c{fixture};
    constexpr unsigned count = 48;
    for (unsigned i = 0; i < count; ++i) {
        const work_op op = i % 3 == 0 ? work_op::write : work_op::read;
        must(c.a.qp->post(c.make(op, 1024 * (i % 16), 1024 * (i % 16), i % 2 == 0 ? 1000 : 1, i)), "post");
    }
    REQUIRE(c.await(c.a, count));
    for (unsigned i = 0; i < count; ++i) {
        CHECK(c.a.done[i].status == wc_status::success);
        CHECK(c.a.done[i].wr_id == i);
    }
}

VCCL_CONTRACT(contract_write_order, "of two WRITEs to one place the later one stays", F) {
    F fixture;
    connection<F> c{fixture};
    constexpr unsigned count = 40;
    for (unsigned i = 0; i < count; ++i) c.a.set_word(8 * i, i);
    for (unsigned i = 0; i < count; ++i) must(c.a.qp->post(c.make(work_op::write, 8 * i, 256, 8, i)), "post");
    REQUIRE(c.await(c.a, count));
    CHECK(c.b.word(256) == count - 1);
}

VCCL_CONTRACT(contract_chain, "a chain of WRs is taken in order, as far as there is room", F) {
    F fixture;
    connection<F> c{fixture, small_queues};
    std::vector<work> chain;
    for (unsigned i = 0; i < 8; ++i) chain.push_back(c.make(work_op::write, 8 * i, 8 * i, 8, i));
    c.a.fill(21);
    REQUIRE(must(c.a.qp->post(std::span<const work>(chain)), "post of a chain") == 8);
    REQUIRE(c.await(c.a, 8));
    for (unsigned i = 0; i < 8; ++i) CHECK(c.a.done[i].wr_id == i);
    CHECK(std::equal(c.a.memory.begin(), c.a.memory.begin() + 64, c.b.memory.begin()));

    chain.clear();
    for (unsigned i = 0; i < never_full; ++i) chain.push_back(c.make(work_op::send, 0, 0, 8, 100 + i));
    const unsigned taken = must(c.a.qp->post(std::span<const work>(chain)), "post of a chain");
    CHECK(taken >= 16);
    REQUIRE(taken < never_full);
    const result<unsigned> more = c.a.qp->post(std::span<const work>(chain));
    CHECK(((more && *more == 0) || more.error().code == errc::would_block));
    receive_until(c, 8 + taken);
    for (unsigned i = 0; i < taken; ++i) CHECK(c.a.done[8 + i].wr_id == 100 + i);
}

VCCL_CONTRACT(contract_full_send_queue, "a full send queue says would_block, and takes WRs again after completions", F) {
    F fixture;
    connection<F> c{fixture, small_queues};
    unsigned posted = 0;
    status last;
    for (; posted < never_full; ++posted) {
        last = c.a.qp->post(c.make(work_op::send, 0, 0, 8, posted));
        if (!last) break;
    }
    CHECK(last.code == errc::would_block);
    CHECK(posted >= 16);
    receive_until(c, posted);
    for (unsigned i = 0; i < posted; ++i) {
        CHECK(c.a.done[i].status == wc_status::success);
        CHECK(c.a.done[i].wr_id == i);
    }
    c.must_carry();
}

VCCL_CONTRACT(contract_full_recv_queue, "a full receive queue takes no more, and takes some again once one was used", F) {
    F fixture;
    connection<F> c{fixture, small_queues};
    unsigned posted = 0;
    result<unsigned> last{0U};
    for (; posted < never_full; ++posted) {
        last = c.b.post_recv(posted, 0, 64);
        if (!last || *last == 0) break;
    }
    CHECK(((last && *last == 0) || last.error().code == errc::would_block));
    CHECK(posted >= 16);
    REQUIRE(posted < never_full);
    REQUIRE(c.run(c.make(work_op::send, 0, 0, 8, 1)).status == wc_status::success);
    REQUIRE(c.await(c.b, 1));
    CHECK(c.b.done[0].wr_id == 0);
    c.b.must_post_recv(posted, 0, 64);
}

VCCL_CONTRACT(contract_recv_order, "receives are used in the order of their posting, by SENDs and WRITEs with immediate alike",
              F) {
    F fixture;
    connection<F> c{fixture};
    constexpr unsigned count = 32;
    for (unsigned i = 0; i < count; ++i) c.b.must_post_recv(i, 8192 + 64 * i, 64);
    for (unsigned i = 0; i < count; ++i)
        must(c.a.qp->post(c.make(i % 2 == 0 ? work_op::send : work_op::write_imm, 0, 0, i, i)), "post");
    REQUIRE(c.await(c.b, count));
    for (unsigned i = 0; i < count; ++i) {
        CHECK(c.b.done[i].wr_id == i);
        CHECK(c.b.done[i].byte_len == i);
        CHECK(c.b.done[i].op == (i % 2 == 0 ? completion_op::recv : completion_op::recv_write_imm));
    }
}

VCCL_CONTRACT(contract_late_receive, "a SEND waits for a receive that is posted later", F) {
    F fixture;
    connection<F> c{fixture, {.timers = endless_rnr}};
    c.a.fill(23);
    must(c.a.qp->post(c.make(work_op::send, 0, 0, 100, 1)), "post");
    let_pass(fixture, nanoseconds{2'000'000});
    c.collect();
    CHECK(c.a.done.empty());
    c.b.must_post_recv(1, 0, 100);
    REQUIRE(c.await(c.a, 1));
    CHECK(c.a.done[0].status == wc_status::success);
    REQUIRE(c.await(c.b, 1));
    CHECK(std::equal(c.a.memory.begin(), c.a.memory.begin() + 100, c.b.memory.begin()));
}

VCCL_CONTRACT(contract_poll_room, "poll yields no more than it has room for, and nothing from an empty queue", F) {
    F fixture;
    connection<F> c{fixture};
    completion out[3];
    CHECK(must(c.a.cq->poll(out, 3), "poll") == 0);
    constexpr unsigned count = 7;
    for (unsigned i = 0; i < count; ++i) must(c.a.qp->post(c.make(work_op::write, 0, 0, 8, i)), "post");
    std::vector<std::uint64_t> seen;
    REQUIRE(wait_until(fixture, [&] {
        out[2].wr_id = 999;
        const unsigned n = must(c.a.cq->poll(out, 2), "poll");
        CHECK(n <= 2);
        CHECK(out[2].wr_id == 999);
        for (unsigned i = 0; i < n; ++i) seen.push_back(out[i].wr_id);
        return seen.size() >= count;
    }));
    CHECK(seen == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6});
    CHECK(must(c.a.cq->poll(out, 3), "poll") == 0);
}

VCCL_CONTRACT(contract_shared_cq, "completions of two QPs on one completion queue tell whose they are", F) {
    F fixture;
    connection<F> first{fixture};
    connection<F> second{fixture};
    second.a.qp.emplace(must(fixture.local().create_qp(*first.a.cq, second.shape.limits), "create_qp"));
    must(second.b.qp->to_reset(), "to_reset");
    second.connect();
    for (unsigned i = 0; i < 10; ++i) {
        must(first.a.qp->post(first.make(work_op::write, 0, 0, 8, i)), "post");
        must(second.a.qp->post(second.make(work_op::write, 0, 0, 8, 100 + i)), "post");
    }
    REQUIRE(first.await(first.a, 20));
    for (const completion& done : first.a.done)
        CHECK(done.qp == (done.wr_id < 100 ? first.a.qp->number() : second.a.qp->number()));
}

}  // namespace vccl::inline v0::testing

#define VCCL_QUEUE_CONTRACTS(...)                              \
    VCCL_RUN_CONTRACT(contract_unsignaled, __VA_ARGS__);       \
    VCCL_RUN_CONTRACT(contract_completion_order, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_write_order, __VA_ARGS__);      \
    VCCL_RUN_CONTRACT(contract_chain, __VA_ARGS__);            \
    VCCL_RUN_CONTRACT(contract_full_send_queue, __VA_ARGS__);  \
    VCCL_RUN_CONTRACT(contract_full_recv_queue, __VA_ARGS__);  \
    VCCL_RUN_CONTRACT(contract_recv_order, __VA_ARGS__);       \
    VCCL_RUN_CONTRACT(contract_late_receive, __VA_ARGS__);     \
    VCCL_RUN_CONTRACT(contract_poll_room, __VA_ARGS__);        \
    VCCL_RUN_CONTRACT(contract_shared_cq, __VA_ARGS__)
