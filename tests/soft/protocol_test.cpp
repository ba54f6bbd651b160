/// \file
/// RC behaviour at packet level, in manual time: retransmission, refusals, flushes, overrun, late and repeated packets.

#include "support.hpp"

#include <cstring>

using namespace soft_test;

namespace {

std::size_t count(const std::vector<completion>& all, wc_status s) {
    std::size_t n = 0;
    for (const auto& c : all) n += c.status == s ? 1 : 0;
    return n;
}

/// Does `prepare` to each kind of WR's remote side, posts it with a good WR behind, and gives the first status at A.
wc_status refused(pair& p, const work& w) {
    REQUIRE(p.a.qp.post(w));
    REQUIRE(p.a.qp.post(write(p.a, p.b, 8, 99)));
    run_dry(p.fabric);
    const auto got = drain(p.a);
    REQUIRE(got.size() == 2);
    CHECK(got[0].wr_id == w.wr_id);
    CHECK(got[1].status == wc_status::wr_flush_err);
    CHECK(*p.a.qp.state() == qp_state::error);
    return got[0].status;
}

}  // namespace

TEST_CASE("a dead path ends in RETRY_EXC after timeout times retries plus one, then flushes") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("switch-down rail0"));
    for (std::uint64_t i = 0; i < 4; ++i) {
        auto w = write(a, b, 8, i);
        if (i == 1) w.flags = work_flags::none;
        REQUIRE(a.qp.post(w));
    }
    const nanoseconds patience = nanoseconds{4096LL << 14} * 3;  // timeout 14, retry_count 2
    f.advance(patience - 1_ns);
    CHECK(drain(a).empty());
    f.advance(1_ns);
    const auto got = drain(a);
    REQUIRE(got.size() == 4);
    CHECK(got[0].status == wc_status::retry_exc_err);
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(got[i].wr_id == i);
    CHECK(count(got, wc_status::wr_flush_err) == 3);
    CHECK(drain(b).empty());
    CHECK(*b.qp.state() == qp_state::ready_to_send);  // the far end has seen nothing
}

TEST_CASE("timeout 0 waits for ever and goes on once the path is mended by a newer packet") {
    end_options o;
    o.timers.timeout = 0;
    auto [f, a, b] = make_pair(by_hand(), o);
    REQUIRE(f.command("switch-down rail0"));
    REQUIRE(a.qp.post(write(a, b, 8)));
    run_dry(f);
    CHECK(f.next_event_at() == nanoseconds::never());
    CHECK(drain(a).empty());
    REQUIRE(f.command("switch-up rail0"));
    REQUIRE(a.qp.post(write(a, b, 8, 2)));  // its PSN is ahead: NAK, and both arrive
    run_dry(f);
    CHECK(drain(a).size() == 2);
}

TEST_CASE("every byte arrives once and in order over a path that loses, repeats and reorders") {
    for (const char* fault :
         {"loss A.nic0.p0 5%", "loss B.nic0.p0 20%", "dup A.nic0.p0 30%", "reorder A.nic0.p0 20%", "delay B.nic0.p0 70us"}) {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            CAPTURE(fault);
            CAPTURE(seed);
            end_options o;
            o.timers.retry_count = 7;
            o.timers.timeout = 6;
            auto [f, a, b] = make_pair(by_hand(seed), o);
            REQUIRE(f.command(fault));
            fill(a, seed);
            constexpr std::uint32_t length = 50000, n = 16;
            std::vector<recv_work> receives;
            for (std::uint64_t i = 0; i < n; ++i) receives.push_back(receive(b, i, 0));
            CHECK(*b.qp.post_recv(receives) == n);
            for (std::uint64_t i = 0; i < n; ++i) {
                auto w = with(write(a, b, length, i, i * length / 8 * 8), work_op::write_imm);
                w.immediate = static_cast<std::uint32_t>(i);
                REQUIRE(a.qp.post(w));
            }
            run_dry(f);
            const auto sent = drain(a), came = drain(b);
            CHECK(count(sent, wc_status::success) == n);
            REQUIRE(came.size() == n);
            for (std::uint32_t i = 0; i < n; ++i) {
                CHECK(came[i].immediate == i);
                CHECK(std::memcmp(a.bytes() + i * length / 8 * 8, b.bytes() + i * length / 8 * 8, length) == 0);
            }
        }
    }
}

TEST_CASE("an atomic is applied once, however often its packets are lost or repeated") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        end_options o;
        o.timers.retry_count = 7;
        auto [f, a, b] = make_pair(by_hand(seed), o);
        REQUIRE(f.command("loss A.nic0.p0 20%"));
        REQUIRE(f.command("dup B.nic0.p0 30%"));
        b.words[0] = 0;
        for (std::uint64_t i = 0; i < 64; ++i) {
            auto w = with(write(a, b, 8, i), work_op::fetch_add);
            w.local_addr = a.address(i * 8);
            w.swap_add = 1;
            REQUIRE(a.qp.post(w));
        }
        run_dry(f);
        CHECK(count(drain(a), wc_status::success) == 64);
        CHECK(b.words[0] == 64);
        for (std::uint64_t i = 0; i < 64; ++i) CHECK(a.words[i] == i);
    }
}

TEST_CASE("reads survive loss in both directions") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        end_options o;
        o.timers.retry_count = 7;
        auto [f, a, b] = make_pair(by_hand(seed), o);
        REQUIRE(f.command("loss A.nic0.p0 5%"));
        fill(b, seed);
        for (std::uint64_t i = 0; i < 20; ++i) REQUIRE(a.qp.post(with(write(a, b, 40000, i, i * 40000), work_op::read)));
        run_dry(f);
        CHECK(count(drain(a), wc_status::success) == 20);
        CHECK(std::memcmp(a.bytes(), b.bytes(), 800000) == 0);
    }
}

TEST_CASE("any mixture of operations both ways survives loss, duplication and reordering, each exactly once") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        end_options o;
        o.timers.retry_count = 7;
        o.timers.rnr_retry = 7;
        o.timers.timeout = 8;
        o.limits.recv_depth = 256;
        auto [f, a, b] = make_pair(by_hand(seed), o);
        for (const char* fault : {"loss A.nic0.p0 3%", "loss B.nic0.p0 2%", "dup B.nic0.p0 5%", "reorder A.nic0.p0 5%"})
            REQUIRE(f.command(fault));
        // Each WR has 16 KiB of its own at both ends: the lower half of the memory for a's WRs, the upper for b's.
        constexpr std::size_t room = 16384, n = 24, half = 1 << 19;
        verbs::soft_detail::random_source random{seed};
        fill(a, seed);
        fill(b, seed + 1000000);
        for (end* e : {&a, &b}) std::fill_n(e->words.data() + n * room / 8 + (e == &a ? half / 8 : 0), 8, 0);
        const auto a_before = a.words, b_before = b.words;
        struct plan {
            work_op op;
            std::uint32_t length;
        };
        std::vector<plan> plans[2];
        std::size_t receives[2] = {};
        for (int side = 0; side < 2; ++side) {
            end &from = side == 0 ? a : b, &to = side == 0 ? b : a;
            const std::size_t base = side == 0 ? 0 : half;
            for (std::uint64_t i = 0; i < n; ++i) {
                const plan p{static_cast<work_op>(random.below(5)), static_cast<std::uint32_t>(random.below(room))};
                plans[side].push_back(p);
                work w = with(write(from, to, p.length, i, base + i * room), p.op);
                if (p.op == work_op::fetch_add) {
                    w.remote_addr = to.address(base + n * room);
                    w.swap_add = 1;
                }
                if (random.below(4) == 0) w.flags = w.flags | work_flags::fence;
                if (p.op == work_op::send || p.op == work_op::write_imm) {
                    ++receives[1 - side];
                    const recv_work r[] = {receive(to, 1000 + i, static_cast<std::uint32_t>(room), base + i * room)};
                    REQUIRE(to.qp.post_recv(r));
                }
                REQUIRE(from.qp.post(w));
            }
        }
        run_dry(f);
        for (int side = 0; side < 2; ++side) {
            end &from = side == 0 ? a : b, &to = side == 0 ? b : a;
            const auto &from_before = side == 0 ? a_before : b_before, &to_before = side == 0 ? b_before : a_before;
            const std::size_t base = side == 0 ? 0 : half;
            std::uint64_t sent = 0;
            std::size_t came = 0;
            for (const auto& c : drain(from)) {
                CHECK(c.status == wc_status::success);
                if (c.op == completion_op::recv || c.op == completion_op::recv_write_imm)
                    ++came;
                else
                    CHECK(c.wr_id == sent++);
            }
            CHECK(sent == n);
            CHECK(came == receives[side]);
            std::uint64_t adds = 0;
            for (std::uint64_t i = 0; i < n; ++i) {
                const std::size_t at = (base + i * room) / 8;
                const plan& p = plans[side][i];
                if (p.op == work_op::fetch_add)
                    CHECK(from.words[at] == adds++);
                else if (p.op == work_op::read)
                    CHECK(std::memcmp(from.words.data() + at, to_before.data() + at, p.length) == 0);
                else
                    CHECK(std::memcmp(to.words.data() + at, from_before.data() + at, p.length) == 0);
            }
            CHECK(to.words[(base + n * room) / 8] == adds);
        }
    }
}

TEST_CASE("a QP rebuilt with a shorter timeout uses it") {
    end_options o;
    o.timers.timeout = 20;
    auto [f, a, b] = make_pair(by_hand(), o);
    REQUIRE(f.command("switch-down rail0"));
    REQUIRE(a.qp.post(write(a, b, 8)));
    settle(f);
    for (end* e : {&a, &b}) REQUIRE(e->qp.to_reset());
    o.timers.timeout = 10;
    join(a, b, o);
    join(b, a, o);
    REQUIRE(a.qp.post(write(a, b, 8)));
    f.advance(nanoseconds{4096LL << 10} * 3);
    CHECK(drain(a).at(0).status == wc_status::retry_exc_err);
}

TEST_CASE("a lost acknowledgement fails a write that has landed whole") {
    auto [f, a, b] = make_pair();
    fill(a, 5);
    REQUIRE(f.command("drop-acks A.nic0.p0"));
    REQUIRE(a.qp.post(write(a, b, 30000)));
    b.words[5000] = 10;
    auto add = with(write(a, b, 8, 2, 40000), work_op::fetch_add);
    add.swap_add = 1;
    REQUIRE(a.qp.post(add));
    run_dry(f);
    const auto got = drain(a);
    REQUIRE(got.size() == 2);
    CHECK(got[0].status == wc_status::retry_exc_err);
    CHECK(std::memcmp(a.bytes(), b.bytes(), 30000) == 0);
    CHECK(b.words[5000] == 11);  // applied once, unacknowledged
}

TEST_CASE("a partial write leaves a prefix of whole packets") {
    auto [f, a, b] = make_pair();
    fill(a, 5);
    REQUIRE(f.command("partial A.nic0.p0 3"));
    REQUIRE(a.qp.post(write(a, b, 30000)));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::retry_exc_err);
    CHECK(std::memcmp(a.bytes(), b.bytes(), 3 * 4096) == 0);
    for (std::size_t i = 3 * 4096; i < 30000; ++i) REQUIRE(b.bytes()[i] == std::byte{0});
}

TEST_CASE("keys and bounds are checked at both ends, and nothing is written") {
    for (const work_op op : {work_op::write, work_op::write_imm, work_op::read, work_op::fetch_add}) {
        CAPTURE(static_cast<int>(op));
        const auto make = [] {
            auto p = make_pair();
            const recv_work r[] = {receive(p.b, 1, 64)};
            REQUIRE(p.b.qp.post_recv(r));
            return p;
        };
        auto p = make();
        auto w = with(write(p.a, p.b, 8), op);
        w.rkey = rkey{p.b.mr.local_key().value};  // a local key is no remote key
        CHECK(refused(p, w) == wc_status::rem_access_err);
        CHECK(*p.b.qp.state() == qp_state::error);
        CHECK(p.b.port.next_event()->what == async_event::kind::qp_fatal);
        CHECK(p.b.words[0] == 0);

        p = make();
        w = with(write(p.a, p.b, 8), op);
        w.remote_addr = p.b.address(p.b.words.size() * 8);
        CHECK(refused(p, w) == wc_status::rem_access_err);

        p = make();
        w = with(write(p.a, p.b, 8), op);
        w.lkey = lkey{p.a.mr.remote_key().value};
        CHECK(refused(p, w) == wc_status::loc_prot_err);
        CHECK(*p.b.qp.state() == qp_state::ready_to_send);

        p = make();
        w = with(write(p.a, p.b, 8), op);
        w.local_addr = p.a.address() - 1;
        CHECK(refused(p, w) == wc_status::loc_prot_err);
    }
}

TEST_CASE("memory deregistered and registered anew does not answer to the old key") {
    auto p = make_pair();
    auto w = write(p.a, p.b, 8);
    p.b.mr = {};
    p.b.mr = take(p.b.port.register_memory(p.b.words.data(), 4096));
    CHECK(refused(p, w) == wc_status::rem_access_err);
}

TEST_CASE("memory registered with one port is not reachable through another") {
    auto f = take(soft_fabric::create(soft_topology(2, 2, 2, 2), by_hand()));
    auto a = make_end(take(f.host("A")), "A.nic0.p0"), b = make_end(take(f.host("B")), "B.nic0.p0");
    auto other = take(take(f.host("B")).open("B.nic0.p1"));
    join(a, b);
    join(b, a);
    auto mr = take(other.register_memory(b.words.data(), 4096));
    auto w = write(a, b, 8);
    w.rkey = mr.remote_key();
    REQUIRE(a.qp.post(w));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::rem_access_err);
}

TEST_CASE("a receive that is too short fails both ends") {
    auto p = make_pair();
    const recv_work r[] = {receive(p.b, 7, 5000), receive(p.b, 8, 5000)};
    REQUIRE(p.b.qp.post_recv(r));
    CHECK(refused(p, with(write(p.a, p.b, 5001), work_op::send)) == wc_status::rem_inv_req_err);
    const auto got = drain(p.b);
    REQUIRE(got.size() == 2);
    CHECK(got[0].wr_id == 7);
    CHECK(got[0].status == wc_status::loc_len_err);
    CHECK(got[1].status == wc_status::wr_flush_err);
}

TEST_CASE("a receive with a bad key fails both ends") {
    auto p = make_pair();
    recv_work r[] = {receive(p.b, 7, 5000)};
    r[0].lkey = lkey{12345};
    REQUIRE(p.b.qp.post_recv(r));
    CHECK(refused(p, with(write(p.a, p.b, 10), work_op::send)) == wc_status::rem_op_err);
    CHECK(drain(p.b)[0].status == wc_status::loc_prot_err);
}

TEST_CASE("no receive means RNR: waits and retries, then RNR_RETRY_EXC") {
    for (const work_op op : {work_op::send, work_op::write_imm}) {
        end_options o;
        o.timers.rnr_retry = 2;
        o.timers.min_rnr_timer = 12;  // 0.64 ms
        auto p = make_pair(by_hand(), o);
        REQUIRE(p.a.qp.post(with(write(p.a, p.b, 9000), op)));
        p.fabric.advance(700_us);  // one wait is over
        const recv_work r[] = {receive(p.b, 7, 9000)};
        REQUIRE(p.b.qp.post_recv(r));
        run_dry(p.fabric);
        CHECK(drain(p.a)[0].status == wc_status::success);
        CHECK(drain(p.b).size() == 1);

        REQUIRE(p.a.qp.post(with(write(p.a, p.b, 9000, 2), op)));
        const auto start = p.fabric.now();
        while (drain(p.a).empty()) p.fabric.advance(10_us);
        CHECK(p.fabric.now() - start >= 1280_us);
        CHECK(p.fabric.now() - start < 1400_us);
        CHECK(*p.a.qp.state() == qp_state::error);
        CHECK(*p.b.qp.state() == qp_state::ready_to_send);
    }
}

TEST_CASE("rnr_retry 7 waits as long as it takes") {
    end_options o;
    o.timers.rnr_retry = 7;
    auto p = make_pair(by_hand(), o);
    REQUIRE(p.a.qp.post(with(write(p.a, p.b, 8), work_op::send)));
    p.fabric.advance(3_s);
    CHECK(drain(p.a).empty());
    const recv_work r[] = {receive(p.b, 7, 8)};
    REQUIRE(p.b.qp.post_recv(r));
    run_dry(p.fabric);
    CHECK(drain(p.a)[0].status == wc_status::success);
}

TEST_CASE("packets to a QP in ERR, RESET or gone vanish, and the sender runs out of retries") {
    for (int how = 0; how < 3; ++how) {
        auto p = make_pair();
        REQUIRE((how == 0 ? p.b.qp.to_error() : how == 1 ? p.b.qp.to_reset() : p.b.qp.destroy()));
        CHECK(refused(p, write(p.a, p.b, 8)) == wc_status::retry_exc_err);
        CHECK(p.b.words[0] == 0);
    }
}

TEST_CASE("a late packet of an old life is dropped when the PSN is new, and lands when the PSN is reused") {
    for (const bool reuse : {true, false}) {
        CAPTURE(reuse);
        end_options o;
        auto [f, a, b] = make_pair(by_hand(), o);
        REQUIRE(f.command("delay A.nic0.p0 1s"));
        a.words[0] = 0x6057;
        REQUIRE(a.qp.post(write(a, b, 8)));
        settle(f);  // the packet is in flight, with a snapshot of its bytes
        a.words[0] = 1;
        for (end* e : {&a, &b}) {
            REQUIRE(e->qp.to_error());
            REQUIRE(e->qp.to_reset());
        }
        if (!reuse) o.first = psn{0x123456};
        join(a, b, o);
        join(b, a, o);
        f.advance(2_s);
        CHECK(b.words[0] == (reuse ? 0x6057u : 0u));
    }
}

TEST_CASE("after to_error or destroy has returned the QP writes no memory") {
    for (const bool destroy : {false, true}) {
        auto [f, a, b] = make_pair();
        fill(a, 3);
        for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(a.qp.post(write(a, b, 100000, i, i * 100000)));
        for (int i = 0; i < 300; ++i) REQUIRE(f.step());
        REQUIRE((destroy ? b.qp.destroy() : b.qp.to_error()));
        const auto snapshot = b.words;
        CHECK(snapshot[0] == a.words[0]);
        run_dry(f);
        CHECK(b.words == snapshot);
    }
}

TEST_CASE("RESET forgets outstanding work without completions, and the QP can be used again") {
    auto [f, a, b] = make_pair();
    for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(a.qp.post(write(a, b, 8, i)));
    REQUIRE(a.qp.to_reset());
    REQUIRE(b.qp.to_reset());
    run_dry(f);
    CHECK(drain(a).empty());
    CHECK(a.qp.post(write(a, b, 8)).code == errc::invalid_argument);
    join(a, b);
    join(b, a);
    REQUIRE(a.qp.post(write(a, b, 8, 9)));
    run_dry(f);
    CHECK(drain(a)[0].wr_id == 9);
}

TEST_CASE("work posted to a QP in ERR is flushed, receives too") {
    auto [f, a, b] = make_pair();
    const recv_work r[] = {receive(a, 1, 8)};
    REQUIRE(a.qp.post_recv(r));
    REQUIRE(a.qp.to_error());
    auto w = write(a, b, 8, 2);
    w.flags = work_flags::none;
    REQUIRE(a.qp.post(w));
    REQUIRE(a.qp.post_recv(r));
    run_dry(f);
    const auto got = drain(a);
    CHECK(got.size() == 3);
    CHECK(count(got, wc_status::wr_flush_err) == 3);
}

TEST_CASE("a CQ without room is lost, and its QPs with it") {
    end_options o;
    o.cq_depth = 4;
    auto [f, a, b] = make_pair(by_hand(), o);
    for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(a.qp.post(write(a, b, 8, i)));
    run_dry(f);
    CHECK(*a.qp.state() == qp_state::error);
    CHECK(a.port.next_event()->what == async_event::kind::cq_error);
    completion out[8];
    CHECK(*a.cq.poll(out, 8) == 4);
    CHECK(a.cq.poll(out, 8).error().code == errc::cq_overrun);
    CHECK(a.cq.poll(out, 8).error().code == errc::cq_overrun);
}

TEST_CASE("a fence waits for earlier reads") {
    auto [f, a, b] = make_pair();
    a.words[0] = 1;
    b.words[0] = 2;
    REQUIRE(a.qp.post(with(write(a, b, 8, 1), work_op::read)));
    auto w = write(a, b, 8, 2);
    w.remote_addr = b.address(64);
    w.flags = w.flags | work_flags::fence;
    REQUIRE(a.qp.post(w));  // sends what the read brings
    run_dry(f);
    CHECK(b.words[8] == 2);
}

TEST_CASE("QP states follow the ladder, and wrong arguments are refused") {
    auto f = take(soft_fabric::create(soft_topology(2, 1, 1, 1), by_hand()));
    auto a = make_end(take(f.host("A")), "A.nic0.p0"), b = make_end(take(f.host("B")), "B.nic0.p0");
    const auto there = take(b.port.query());
    const qp_peer peer{b.qp.number(), psn{1}, there.address, 0, there.mtu};
    const recv_work r[] = {receive(a, 1, 8)};
    CHECK(*a.qp.state() == qp_state::reset);
    CHECK(a.qp.post_recv(r).error().code == errc::invalid_argument);
    CHECK(!a.qp.to_ready_to_receive(peer, {}));
    REQUIRE(a.qp.to_init());
    CHECK(!a.qp.to_init());
    CHECK(!a.qp.to_ready_to_send(psn{1}, {}));
    qp_peer wrong = peer;
    wrong.mtu = 1000;
    CHECK(a.qp.to_ready_to_receive(wrong, {}).code == errc::invalid_argument);
    wrong = peer;
    wrong.first_psn = psn{1 << 24};
    CHECK(a.qp.to_ready_to_receive(wrong, {}).code == errc::invalid_argument);
    wrong = peer;
    wrong.address.raw[5] ^= 1;  // of another fabric
    CHECK(a.qp.to_ready_to_receive(wrong, {}).code == errc::not_found);
    wrong = peer;
    wrong.address.raw[10] = 0xff;  // no such port
    CHECK(a.qp.to_ready_to_receive(wrong, {}).code == errc::not_found);
    REQUIRE(a.qp.to_ready_to_receive(peer, {}));
    CHECK(a.qp.post(write(a, b, 8)).code == errc::invalid_argument);
    REQUIRE(a.qp.to_ready_to_send(psn{1}, {}));
    CHECK(*a.qp.state() == qp_state::ready_to_send);
}

TEST_CASE("QP numbers come back only after thousands of others") {
    auto f = take(soft_fabric::create(soft_topology(1, 1, 1, 1), by_hand()));
    auto port = take(take(f.host("A")).open("A.nic0.p0"));
    auto cq = take(port.create_cq(16));
    std::vector<bool> seen(1 << 24);
    for (int i = 0; i < 100'000; ++i) {
        auto qp = take(port.create_qp(cq, {1, 1, 0}));
        REQUIRE(!seen[qp.number().value]);
        seen[qp.number().value] = true;
    }
}

TEST_CASE("a peer with a smaller MTU is served with its packets") {
    auto [f, a, b] = make_pair();
    for (end* e : {&a, &b}) REQUIRE(e->qp.to_reset());
    const auto connect = [](end& one, end& other) {
        REQUIRE(one.qp.to_init());
        REQUIRE(one.qp.to_ready_to_receive({other.qp.number(), psn{5}, other.attributes.address, 0, 256}, {}));
        REQUIRE(one.qp.to_ready_to_send(psn{5}, {}));
    };
    connect(a, b);
    connect(b, a);
    fill(a, 1);
    REQUIRE(a.qp.post(write(a, b, 10000)));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::success);
    CHECK(std::memcmp(a.bytes(), b.bytes(), 10000) == 0);
    CHECK(f.status()[0].packets_out == 40);
}
