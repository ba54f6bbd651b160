#pragma once
/// \file
/// Contracts of the fence, on which every failover stands: a QP in ERR or destroyed accounts for all its WRs and writes no more
/// memory; rebuilt or made anew, it carries traffic again. For backend authors; see testing/contracts.hpp.

#include <vccl/testing/contracts/queues.hpp>

namespace vccl::inline v0::testing {

/// Checks that each wr_id of [first, first + n) is in `done` exactly once.
inline void check_each_once(const std::vector<completion>& done, std::uint64_t first, std::size_t n) {
    for (std::uint64_t id = first; id < first + n; ++id) {
        CAPTURE(id);
        CHECK(std::count_if(done.begin(), done.end(), [id](const completion& d) { return d.wr_id == id; }) == 1);
    }
}

VCCL_CONTRACT(contract_flush, "to_error flushes every outstanding WR once: sends, signaled or not, and receives", F) {
    F fixture;
    connection<F> c{fixture, {.timers = endless_rnr}};
    constexpr unsigned sends = 12, recvs = 10;
    for (unsigned i = 0; i < recvs; ++i) c.a.must_post_recv(100 + i, 64 * i, 64);
    for (unsigned i = 0; i < sends; ++i) {
        work w = c.make(work_op::send, 0, 0, 64, i);
        if (i % 3 == 1) w.flags = work_flags::none;
        must(c.a.qp->post(w), "post");
    }
    let_pass(fixture, nanoseconds{1'000'000});
    must(c.a.qp->to_error(), "to_error");
    REQUIRE(c.await(c.a, sends + recvs));
    let_pass(fixture, nanoseconds{1'000'000});
    c.collect();
    CHECK(c.a.done.size() == sends + recvs);
    check_each_once(c.a.done, 0, sends);
    check_each_once(c.a.done, 100, recvs);
    for (const completion& done : c.a.done) CHECK(done.status == wc_status::wr_flush_err);
}

/// How a case makes a QP unable to write: the two fences that a backend offers.
template <class Qp>
void fence(Qp& qp, bool destroy) {
    if (destroy)
        must(qp.destroy(), "destroy");
    else
        must(qp.to_error(), "to_error");
}

/// Large WRs of a are under way, `done_first` of them done, when the QP whose memory they write is fenced; that memory must not
/// change any more while the WRs run into their errors. Returns: whether some of them really were under way.
template <class F>
bool fenced_midway(work_op op, bool destroy, std::size_t done_first) {
    F fixture;
    constexpr std::uint32_t length = 128 * 1024, count = 96;
    connection<F> c{fixture, {.limits = {.send_depth = count}, .cq_depth = count, .bytes = std::size_t{count} * length}};
    endpoint<F>& fenced = op == work_op::write ? c.b : c.a;
    c.a.fill(1);
    c.b.fill(100);
    std::vector<work> chain;
    for (std::uint32_t i = 0; i < count; ++i)
        chain.push_back(c.make(op, std::size_t{i} * length, std::size_t{i} * length, length, i));
    REQUIRE(must(c.a.qp->post(std::span<const work>(chain)), "post of a chain") == count);
    REQUIRE(c.await(c.a, done_first));
    fence(*fenced.qp, destroy);
    const std::vector<unsigned char> snapshot = fenced.memory;
    if (&fenced == &c.a && destroy) {
        let_pass(fixture, nanoseconds{20'000'000});
    } else {
        REQUIRE(c.await(c.a, count));
    }
    CHECK(fenced.memory == snapshot);
    return c.a.done.size() < count || c.a.done.back().status != wc_status::success;
}

/// On a fast backend, or on one processor, all may be done as soon as the first completion is seen; then the fence follows the
/// post at once.
template <class F>
void must_write_no_more(work_op op, bool destroy) {
    const bool midway = fenced_midway<F>(op, destroy, 1) || fenced_midway<F>(op, destroy, 0);
    WARN_MESSAGE(midway, "every run was over before its fence");
}

VCCL_CONTRACT(contract_fence_target, "after to_error no WRITE of the peer lands any more", F) {
    must_write_no_more<F>(work_op::write, false);
}
VCCL_CONTRACT(contract_fence_reader, "after to_error no READ response lands any more", F) {
    must_write_no_more<F>(work_op::read, false);
}
VCCL_CONTRACT(contract_destroy_target, "after destroy no WRITE of the peer lands any more", F) {
    must_write_no_more<F>(work_op::write, true);
}
VCCL_CONTRACT(contract_destroy_reader, "after destroy no READ response lands any more", F) {
    must_write_no_more<F>(work_op::read, true);
}

VCCL_CONTRACT(contract_rebuild, "QPs moved through RESET carry traffic again, any number of times", F) {
    F fixture;
    connection<F> c{fixture};
    const qpn a = c.a.qp->number(), b = c.b.qp->number();
    for (int round = 0; round < 5; ++round) {
        CAPTURE(round);
        c.must_carry();
        c.rebuild();
    }
    c.must_carry();
    CHECK(c.a.qp->number() == a);
    CHECK(c.b.qp->number() == b);
}

VCCL_CONTRACT(contract_rebuild_busy, "RESET empties both queues: nothing old completes, and all the room is there again", F) {
    F fixture;
    connection<F> c{fixture, small_queues};
    for (unsigned i = 0; i < 16; ++i) {
        must(c.a.qp->post(c.make(work_op::send, 0, 0, 64, i)), "post");
        c.a.must_post_recv(100 + i, 0, 64);
    }
    c.rebuild();
    for (unsigned i = 0; i < 16; ++i) {
        must(c.a.qp->post(c.make(work_op::send, 0, 0, 64, 200 + i)), "post");
        c.a.must_post_recv(300 + i, 0, 64);
    }
    receive_until(c, 16);
    CHECK(c.a.done.size() == 16);
    check_each_once(c.a.done, 200, 16);
    for (const completion& done : c.a.done) CHECK(done.status == wc_status::success);
}

VCCL_CONTRACT(contract_rebuilt_alone, "a QP rebuilt behind its peer's back takes nothing from the peer's old life", F) {
    F fixture;
    connection<F> c{fixture};
    c.must_carry();
    must(c.b.qp->to_error(), "to_error");
    must(c.b.qp->to_reset(), "to_reset");
    must(c.b.qp->to_init(), "to_init");
    // A PSN that the old life will not reach: far from every other one of this connection.
    must(c.b.qp->to_ready_to_receive(c.peer(c.a, psn{0x2badf0}), c.shape.timers), "to_ready_to_receive");
    must(c.b.qp->to_ready_to_send(psn{0x3c0de}, c.shape.timers), "to_ready_to_send");
    c.a.fill(1);
    c.b.clear(0);
    CHECK(c.run(c.make(work_op::write, 0, 0, 4096, 1)).status != wc_status::success);
    CHECK(std::all_of(c.b.memory.begin(), c.b.memory.end(), [](auto byte) { return byte == 0; }));
}

VCCL_CONTRACT(contract_recreate, "QPs destroyed and created anew on the same completion queues carry traffic", F) {
    F fixture;
    connection<F> c{fixture};
    for (int round = 0; round < 3; ++round) {
        CAPTURE(round);
        c.must_carry();
        c.a.qp.reset();
        c.b.qp.reset();
        c.a.qp.emplace(must(c.a.port.create_qp(*c.a.cq, c.shape.limits), "create_qp"));
        c.b.qp.emplace(must(c.b.port.create_qp(*c.b.cq, c.shape.limits), "create_qp"));
        c.connect();
    }
    c.must_carry();
}

VCCL_CONTRACT(contract_destroy_busy, "destroying a QP with WRs outstanding leaves its completion queue usable", F) {
    F fixture;
    connection<F> c{fixture, {.timers = endless_rnr}};
    for (unsigned i = 0; i < 8; ++i) {
        must(c.a.qp->post(c.make(work_op::send, 0, 0, 64, i)), "post");
        c.a.must_post_recv(100 + i, 0, 64);
    }
    must(c.a.qp->destroy(), "destroy");
    c.a.qp.reset();
    c.collect();
    c.a.done.clear();
    c.a.qp.emplace(must(c.a.port.create_qp(*c.a.cq, c.shape.limits), "create_qp"));
    must(c.b.qp->to_error(), "to_error");
    must(c.b.qp->to_reset(), "to_reset");
    c.connect();
    c.must_carry();
    CHECK(c.a.done.size() == 1);
}

}  // namespace vccl::inline v0::testing

#define VCCL_FENCE_CONTRACTS(...)                            \
    VCCL_RUN_CONTRACT(contract_flush, __VA_ARGS__);          \
    VCCL_RUN_CONTRACT(contract_fence_target, __VA_ARGS__);   \
    VCCL_RUN_CONTRACT(contract_fence_reader, __VA_ARGS__);   \
    VCCL_RUN_CONTRACT(contract_destroy_target, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_destroy_reader, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_rebuild, __VA_ARGS__);        \
    VCCL_RUN_CONTRACT(contract_rebuild_busy, __VA_ARGS__);   \
    VCCL_RUN_CONTRACT(contract_rebuilt_alone, __VA_ARGS__);  \
    VCCL_RUN_CONTRACT(contract_recreate, __VA_ARGS__);       \
    VCCL_RUN_CONTRACT(contract_destroy_busy, __VA_ARGS__)
