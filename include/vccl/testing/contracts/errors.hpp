#pragma once
/// \file
/// Contracts of refused requests: keys, ranges, receives, dead peers. Where soft-RoCE reports another status than the
/// InfiniBand specification says, both are listed. For backend authors; see testing/contracts.hpp.

#include <vccl/testing/contracts/connection.hpp>

namespace vccl::inline v0::testing {

/// A local key or address that our own NIC refuses: LOC_PROT_ERR by the specification, LOC_QP_OP_ERR on soft-RoCE up to
/// Linux 6.1; 6.12 only flushes.
inline constexpr std::initializer_list<wc_status> local_refusal{wc_status::loc_prot_err, wc_status::loc_qp_op_err,
                                                                wc_status::wr_flush_err};

/// Posts `w` and a good WR behind it: `w` must fail in one of the `expected` ways, the other one be flushed, the QP be in ERR,
/// and b's memory be as before.
template <class F>
void must_fail(connection<F>& c, const work& w, std::initializer_list<wc_status> expected) {
    c.b.fill(200);
    const std::vector<unsigned char> before = c.b.memory;
    must(c.a.qp->post(w), "post");
    const status behind = c.a.qp->post(c.make(work_op::write, 0, 0, 8, 99));
    const std::size_t n = behind ? 2 : 1;
    REQUIRE(c.await(c.a, n));
    CAPTURE(int(c.a.done[0].status));
    CHECK(one_of(c.a.done[0].status, expected));
    CHECK(c.a.done[0].wr_id == w.wr_id);
    if (n == 2) {
        CHECK(c.a.done[1].status == wc_status::wr_flush_err);
        CHECK(c.a.done[1].wr_id == 99);
    }
    CHECK(must(c.a.qp->state(), "state") == qp_state::error);
    CHECK(c.b.memory == before);
}

VCCL_CONTRACT(contract_bad_rkey, "a remote key that nobody gave out is refused: REM_ACCESS_ERR", F) {
    for (work_op op : {work_op::write, work_op::read, work_op::write_imm}) {
        CAPTURE(int(op));
        F fixture;
        connection<F> c{fixture};
        c.b.must_post_recv(1, 0, 64);
        work w = c.make(op, 0, 0, 64, 1);
        w.rkey = rkey{w.rkey.value ^ 0xffffff00U};
        must_fail(c, w, {wc_status::rem_access_err});
    }
}

VCCL_CONTRACT(contract_out_of_range, "a remote address outside the registered memory is refused: REM_ACCESS_ERR", F) {
    for (work_op op : {work_op::write, work_op::read}) {
        CAPTURE(int(op));
        F fixture;
        connection<F> c{fixture};
        must_fail(c, c.make(op, 0, c.shape.bytes - 4, 8, 1), {wc_status::rem_access_err});
    }
    F fixture;
    connection<F> c{fixture};
    work w = c.make(work_op::write, 0, 0, 8, 1);
    w.remote_addr -= 4;
    must_fail(c, w, {wc_status::rem_access_err});
}

VCCL_CONTRACT(contract_deregistered, "memory that is no longer registered is refused", F) {
    F fixture;
    connection<F> c{fixture};
    c.must_carry();
    c.a.done.clear();
    const work w = c.make(work_op::write, 0, 0, 64, 1);
    c.b.mr.reset();
    const std::vector<unsigned char> before = c.b.memory;
    CHECK(c.run(w).status == wc_status::rem_access_err);
    CHECK(c.b.memory == before);
}

VCCL_CONTRACT(contract_bad_lkey, "a local key that nobody gave out is refused at home", F) {
    F fixture;
    connection<F> c{fixture};
    work w = c.make(work_op::write, 0, 0, 64, 1);
    w.lkey = lkey{w.lkey.value ^ 0xffffff00U};
    must_fail(c, w, local_refusal);
}

VCCL_CONTRACT(contract_local_range, "a local address outside the registered memory is refused at home", F) {
    F fixture;
    connection<F> c{fixture};
    must_fail(c, c.make(work_op::write, c.shape.bytes - 4, 0, 8, 1), local_refusal);
}

VCCL_CONTRACT(contract_misaligned_atomic,
              "an atomic on an address that is no multiple of 8 is refused, by post or with REM_INV_REQ_ERR", F) {
    if constexpr (!F::backend::capabilities.atomics) {
        MESSAGE("skipped: this backend has no atomics");
    } else {
        F fixture;
        connection<F> c{fixture};
        work w = c.make(work_op::fetch_add, 0, 12, 8, 1);
        w.swap_add = 1;
        // Some libraries look at the address before the NIC does.
        if (const status s = connection<F>{fixture}.a.qp->post(w); !s) {
            CHECK(s.code == errc::invalid_argument);
            return;
        }
        must_fail(c, w, {wc_status::rem_inv_req_err});
    }
}

VCCL_CONTRACT(contract_short_receive, "a SEND that is larger than its receive fails at both ends and writes nothing beyond it",
              F) {
    F fixture;
    connection<F> c{fixture};
    const std::uint32_t length = 3 * c.mtu();
    c.b.fill(1);
    const std::vector<unsigned char> before = c.b.memory;
    c.b.must_post_recv(7, 100, length - 1);
    const completion sent = c.run(c.make(work_op::send, 0, 0, length, 1));
    CAPTURE(int(sent.status));
    CHECK(one_of(sent.status, {wc_status::rem_inv_req_err, wc_status::rem_op_err}));
    REQUIRE(c.await(c.b, 1));
    CAPTURE(int(c.b.done[0].status));
    CHECK(one_of(c.b.done[0].status, {wc_status::loc_len_err, wc_status::loc_qp_op_err}));
    CHECK(c.b.done[0].wr_id == 7);
    CHECK(std::equal(before.begin(), before.begin() + 100, c.b.memory.begin()));
    CHECK(std::equal(before.begin() + 100 + length - 1, before.end(), c.b.memory.begin() + 100 + length - 1));
}

VCCL_CONTRACT(contract_no_receive, "a SEND without a receive ends in RNR_RETRY_EXC when its retries are used up", F) {
    for (work_op op : {work_op::send, work_op::write_imm}) {
        CAPTURE(int(op));
        F fixture;
        connection<F> c{fixture, {.timers = {.timeout = 14, .retry_count = 2, .rnr_retry = 1, .min_rnr_timer = 10}}};
        const completion done = c.run(c.make(op, 0, 0, 64, 1));
        CAPTURE(int(done.status));
        CHECK(done.status == wc_status::rnr_retry_exc_err);
    }
}

VCCL_CONTRACT(contract_dead_peer, "a peer whose QP is in ERR or gone ends in RETRY_EXC, and gets nothing written", F) {
    for (bool gone : {false, true}) {
        CAPTURE(gone);
        F fixture;
        connection<F> c{fixture};
        c.must_carry();
        c.a.done.clear();
        if (gone)
            must(c.b.qp->destroy(), "destroy");
        else
            must(c.b.qp->to_error(), "to_error");
        must_fail(c, c.make(work_op::write, 0, 0, 4096, 1), {wc_status::retry_exc_err});
    }
}

VCCL_CONTRACT(contract_errors_stay_with_their_qp, "an error of one QP leaves another one of the same ports alone", F) {
    F fixture;
    connection<F> good{fixture};
    connection<F> bad{fixture};
    work w = bad.make(work_op::write, 0, 0, 64, 1);
    w.rkey = rkey{w.rkey.value ^ 0xffffff00U};
    must_fail(bad, w, {wc_status::rem_access_err});
    good.must_carry();
}

VCCL_CONTRACT(contract_post_in_error, "a WR posted to a QP in ERR is refused or flushed, never carried out", F) {
    F fixture;
    connection<F> c{fixture};
    c.a.fill(1);
    c.b.clear(0);
    must(c.a.qp->to_error(), "to_error");
    const status s = c.a.qp->post(c.make(work_op::write, 0, 0, 64, 5));
    if (s) {
        REQUIRE(c.await(c.a, 1));
        CHECK(c.a.done[0].status == wc_status::wr_flush_err);
        CHECK(c.a.done[0].wr_id == 5);
    }
    CHECK(std::all_of(c.b.memory.begin(), c.b.memory.end(), [](auto byte) { return byte == 0; }));
}

VCCL_CONTRACT(contract_receive_in_error,
              "a receive posted to a QP in ERR is refused, flushed once, or kept without a word; RESET frees its place", F) {
    F fixture;
    connection<F> c{fixture};
    constexpr unsigned count = 8;
    must(c.a.qp->to_error(), "to_error");
    std::size_t taken = 0;
    for (unsigned i = 0; i < count; ++i)
        if (const result<unsigned> n = c.a.post_recv(100 + i, 64 * i, 64)) taken += *n;
    let_pass(fixture, nanoseconds{5'000'000});
    c.collect();
    CHECK(c.a.done.size() <= taken);  // soft-RoCE takes them and completes none
    for (const completion& done : c.a.done) {
        CHECK(done.status == wc_status::wr_flush_err);
        CHECK(std::count_if(c.a.done.begin(), c.a.done.end(), [&](const auto& d) { return d.wr_id == done.wr_id; }) == 1);
    }
    c.rebuild();
    c.must_carry();
}

}  // namespace vccl::inline v0::testing

#define VCCL_ERROR_CONTRACTS(...)                                       \
    VCCL_RUN_CONTRACT(contract_bad_rkey, __VA_ARGS__);                  \
    VCCL_RUN_CONTRACT(contract_out_of_range, __VA_ARGS__);              \
    VCCL_RUN_CONTRACT(contract_deregistered, __VA_ARGS__);              \
    VCCL_RUN_CONTRACT(contract_bad_lkey, __VA_ARGS__);                  \
    VCCL_RUN_CONTRACT(contract_local_range, __VA_ARGS__);               \
    VCCL_RUN_CONTRACT(contract_misaligned_atomic, __VA_ARGS__);         \
    VCCL_RUN_CONTRACT(contract_short_receive, __VA_ARGS__);             \
    VCCL_RUN_CONTRACT(contract_no_receive, __VA_ARGS__);                \
    VCCL_RUN_CONTRACT(contract_dead_peer, __VA_ARGS__);                 \
    VCCL_RUN_CONTRACT(contract_errors_stay_with_their_qp, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_post_in_error, __VA_ARGS__);             \
    VCCL_RUN_CONTRACT(contract_receive_in_error, __VA_ARGS__)
