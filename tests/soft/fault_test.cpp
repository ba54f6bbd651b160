/// \file
/// Faults on command: ports, cables, switches, hung and one-sided failures, addresses, events, rates; and the text of the
/// commands. Manual time.

#include "support.hpp"

#include <vccl/verbs/soft/command_text.hpp>

#include <cstring>

using namespace soft_test;
using kind = async_event::kind;

namespace {

std::vector<kind> events(end& e) {
    std::vector<kind> all;
    for (;;) {
        const auto ev = e.port.next_event();
        REQUIRE(ev);
        if (ev->what == kind::none) return all;
        all.push_back(ev->what);
    }
}

void rebuild(end& a, end& b, std::uint32_t first) {
    end_options o;
    o.first = psn{first};
    for (end* e : {&a, &b}) {
        REQUIRE(e->qp.to_error());
        REQUIRE(e->qp.to_reset());
    }
    drain(a);
    drain(b);
    join(a, b, o);
    join(b, a, o);
}

}  // namespace

TEST_CASE("a port that goes down is reported at its own end only, drops both directions, and works again when up") {
    struct {
        const char* down;
        const char* up;
        bool at_a, at_b;
    } const cases[] = {
        {"down A.nic0.p0", "up A.nic0.p0", true, false},        {"cable-down A.nic0.p0", "cable-up A.nic0.p0", true, false},
        {"down B.nic0.p0", "up B.nic0.p0", false, true},        {"cable-down B.nic0.p0", "cable-up B.nic0.p0", false, true},
        {"switch-down rail0", "switch-up rail0", false, false},
    };
    for (const auto& c : cases) {
        CAPTURE(c.down);
        auto [f, a, b] = make_pair();
        REQUIRE(f.command(c.down));
        CHECK(events(a) == (c.at_a ? std::vector{kind::port_error} : std::vector<kind>{}));
        CHECK(events(b) == (c.at_b ? std::vector{kind::port_error} : std::vector<kind>{}));
        CHECK((a.port.query()->state == port_state::down) == c.at_a);
        CHECK((b.port.query()->state == port_state::down) == c.at_b);
        a.words[0] = b.words[1] = 5;
        REQUIRE(a.qp.post(write(a, b, 8)));
        REQUIRE(b.qp.post(write(b, a, 8, 1, 8)));
        run_dry(f);
        CHECK(drain(a)[0].status == wc_status::retry_exc_err);
        CHECK(drain(b)[0].status == wc_status::retry_exc_err);
        CHECK(b.words[0] == 0);
        CHECK(a.words[1] == 0);

        REQUIRE(f.command(c.up));
        CHECK(events(a) == (c.at_a ? std::vector{kind::port_active} : std::vector<kind>{}));
        CHECK(events(b) == (c.at_b ? std::vector{kind::port_active} : std::vector<kind>{}));
        rebuild(a, b, 1000);
        REQUIRE(a.qp.post(write(a, b, 8)));
        run_dry(f);
        CHECK(drain(a)[0].status == wc_status::success);
    }
}

TEST_CASE("the other rail does not notice") {
    auto f = take(soft_fabric::create(soft_topology(2, 2, 2, 2), by_hand()));
    auto a = make_end(take(f.host("A")), "A.nic0.p1"), b = make_end(take(f.host("B")), "B.nic0.p1");
    join(a, b);
    join(b, a);
    REQUIRE(f.command("down A.nic0.p0"));
    REQUIRE(f.command("switch-down rail0"));
    REQUIRE(a.qp.post(write(a, b, 8)));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::success);
    CHECK(events(a).empty());
}

TEST_CASE("ports of different rails do not reach each other") {
    auto f = take(soft_fabric::create(soft_topology(2, 2, 2, 2), by_hand()));
    auto a = make_end(take(f.host("A")), "A.nic0.p0"), b = make_end(take(f.host("B")), "B.nic0.p1");
    join(a, b);
    join(b, a);
    REQUIRE(a.qp.post(write(a, b, 8)));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::retry_exc_err);
}

TEST_CASE("an outage shorter than the retries is survived") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("down A.nic0.p0"));
    fill(a, 1);
    REQUIRE(a.qp.post(write(a, b, 60000)));
    f.advance(100_ms);
    REQUIRE(f.command("up A.nic0.p0"));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::success);
    CHECK(std::memcmp(a.bytes(), b.bytes(), 60000) == 0);
}

TEST_CASE("the death of one's own port looks as the option says") {
    struct {
        const char* word;
        wc_status first;
        std::size_t completions;
    } const cases[] = {{"op-error", wc_status::loc_qp_op_err, 3}, {"flush", wc_status::wr_flush_err, 3}, {"silent", {}, 0}};
    for (const auto& c : cases) {
        CAPTURE(c.word);
        auto [f, a, b] = make_pair();
        REQUIRE(f.command(std::string("on-down A.nic0.p0 ") + c.word));
        for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(a.qp.post(write(a, b, 100000, i)));
        for (int i = 0; i < 10; ++i) f.step();
        REQUIRE(f.command("down A.nic0.p0"));
        const auto now = f.now();
        auto got = drain(a);
        CHECK(got.size() == c.completions);
        CHECK(f.now() == now);
        if (c.completions != 0) {
            CHECK(got[0].status == c.first);
            CHECK(got[1].status == wc_status::wr_flush_err);
            CHECK(*a.qp.state() == qp_state::error);
            continue;
        }
        // Silent: also when the port is back, also for later work, until the QP is moved to ERR by hand.
        run_dry(f, 10_s);
        REQUIRE(f.command("up A.nic0.p0"));
        REQUIRE(a.qp.post(write(a, b, 8, 3)));
        run_dry(f, 10_s);
        CHECK(drain(a).empty());
        CHECK(*a.qp.state() == qp_state::ready_to_send);
        REQUIRE(a.qp.to_error());
        got = drain(a);
        CHECK(got.size() == 4);
        for (const auto& d : got) CHECK(d.status == wc_status::wr_flush_err);
    }
}

TEST_CASE("a hung port makes no completion and no event, and goes on when cleared") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("hang A.nic0.p0"));
    REQUIRE(a.qp.post(write(a, b, 8)));
    f.advance(100_s);
    CHECK(drain(a).empty());
    CHECK(events(a).empty());
    CHECK(a.port.query()->state == port_state::active);
    REQUIRE(b.qp.post(write(b, a, 8)));  // the other direction works
    f.advance(1_ms);
    CHECK(drain(b).size() == 1);
    REQUIRE(f.command("clear A.nic0.p0"));
    f.advance(1_s);
    CHECK(drain(a)[0].status == wc_status::success);
}

TEST_CASE("a one-sided error fails one WR at one end") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("error A.nic0.p0"));
    REQUIRE(a.qp.post(write(a, b, 8)));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::loc_qp_op_err);
    CHECK(*b.qp.state() == qp_state::ready_to_send);
    rebuild(a, b, 50);
    REQUIRE(a.qp.post(write(a, b, 8)));
    run_dry(f);
    CHECK(drain(a)[0].status == wc_status::success);
}

TEST_CASE("port events can be lost, and PORT_ACTIVE can come twice") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("down A.nic0.p0"));
    REQUIRE(f.command("no-event A.nic0.p0"));
    REQUIRE(f.command("up A.nic0.p0"));
    CHECK(events(a) == std::vector{kind::port_error});
    CHECK(a.port.query()->state == port_state::active);
    REQUIRE(f.command("clear A.nic0.p0"));
    REQUIRE(f.command("twice A.nic0.p0"));
    REQUIRE(f.command("down A.nic0.p0"));
    REQUIRE(f.command("up A.nic0.p0"));
    CHECK(events(a) == std::vector{kind::port_error, kind::port_active, kind::port_active});
}

TEST_CASE("two causes of an outage make one event each way") {
    auto [f, a, b] = make_pair();
    for (const char* c : {"down A.nic0.p0", "cable-down A.nic0.p0", "down A.nic0.p0", "up A.nic0.p0", "cable-up A.nic0.p0"})
        REQUIRE(f.command(c));
    CHECK(events(a) == std::vector{kind::port_error, kind::port_active});
}

TEST_CASE("an event that happened before the port was opened is not reported, each open port has its own") {
    auto f = take(soft_fabric::create(soft_topology(1, 1, 1, 1), by_hand()));
    const auto host = take(f.host("A"));
    auto early = make_end(host, "A.nic0.p0");
    REQUIRE(f.command("down A.nic0.p0"));
    auto late = make_end(host, "A.nic0.p0");
    CHECK(events(late).empty());
    CHECK(late.port.query()->state == port_state::down);
    CHECK(events(early) == std::vector{kind::port_error});
}

TEST_CASE("after a GID change old QPs reach nobody, rebuilt ones do") {
    for (const char* port : {"A.nic0.p0", "B.nic0.p0"}) {
        auto [f, a, b] = make_pair();
        const auto before = a.port.query()->address;
        REQUIRE(f.command(std::string("gid-change ") + port));
        CHECK(events(port[0] == 'A' ? a : b) == std::vector{kind::gid_change});
        CHECK((a.port.query()->address == before) == (port[0] != 'A'));
        a.words[0] = 5;
        REQUIRE(a.qp.post(write(a, b, 8)));
        run_dry(f);
        CHECK(drain(a)[0].status == wc_status::retry_exc_err);
        CHECK(b.words[0] == 0);
        rebuild(a, b, 77);
        REQUIRE(a.qp.post(write(a, b, 8)));
        run_dry(f);
        CHECK(drain(a)[0].status == wc_status::success);
    }
}

TEST_CASE("a failed flush is a failed loopback read; other reads work") {
    auto f = take(soft_fabric::create(soft_topology(2, 1, 1, 1), by_hand()));
    const auto host = take(f.host("A"));
    auto flush = make_end(host, "A.nic0.p0"), a = make_end(host, "A.nic0.p0"), b = make_end(take(f.host("B")), "B.nic0.p0");
    join(flush, flush);
    join(a, b);
    join(b, a);
    REQUIRE(f.command("fail-flush A.nic0.p0"));
    REQUIRE(flush.qp.post(with(write(flush, flush, 8), work_op::read)));
    REQUIRE(a.qp.post(with(write(a, b, 8), work_op::read)));
    run_dry(f);
    CHECK(drain(flush)[0].status == wc_status::rem_op_err);
    CHECK(drain(a)[0].status == wc_status::success);
}

TEST_CASE("latency, delay and rate take their time") {
    auto o = by_hand();
    o.latency = 10_us;
    auto [f, a, b] = make_pair(o);
    const auto takes = [&f = f, &a = a, &b = b](std::uint32_t length) {
        const auto start = f.now();
        REQUIRE(a.qp.post(write(a, b, length)));
        std::vector<completion> got;
        while ((got = drain(a)).empty()) f.advance(1_us);
        CHECK(got[0].status == wc_status::success);
        return f.now() - start;
    };
    CHECK(takes(8) >= 20_us);
    CHECK(takes(8) <= 22_us);
    REQUIRE(f.command("delay B.nic0.p0 100us"));
    CHECK(takes(8) >= 220_us);
    CHECK(takes(8) <= 222_us);
    REQUIRE(f.command("clear all"));
    REQUIRE(f.command("rate A.nic0.p0 1GB/s"));
    CHECK(takes(1'000'000) >= 1000_us);
    CHECK(takes(1'000'000) <= 1040_us);
    CHECK(a.port.query()->bytes_per_second == 1'000'000'000);
    REQUIRE(f.command("rate B.nic0.p0 100MB/s"));
    CHECK(takes(1'000'000) >= 10000_us);
    CHECK(takes(1'000'000) <= 10080_us);
    REQUIRE(f.command("rate all 0"));
    CHECK(takes(1'000'000) <= 30_us);
}

TEST_CASE("a rate that is raised takes effect at once") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("rate A.nic0.p0 1kB/s"));
    for (int i = 0; i < 4; ++i) REQUIRE(a.qp.post(write(a, b, 100'000)));
    f.advance(10_ms);
    REQUIRE(f.command("rate A.nic0.p0 1GB/s"));
    f.advance(10_s);  // the packet that was on the slow wire takes its four seconds
    CHECK(drain(a).size() == 4);
}

TEST_CASE("a QP that waited long for its wire waits no longer than it must for a receive") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("rate A.nic0.p0 1kB/s"));
    for (int i = 0; i < 2; ++i) REQUIRE(a.qp.post(write(a, b, 4096, 1)));
    f.advance(1_ms);  // the second waits four seconds for its turn
    REQUIRE(f.command("rate A.nic0.p0 0"));
    REQUIRE(a.qp.to_error());
    rebuild(a, b, 5);
    REQUIRE(a.qp.post(with(write(a, b, 8, 2), work_op::send)));
    f.advance(100_ms);
    CHECK(drain(a).at(0).status == wc_status::rnr_retry_exc_err);
}

TEST_CASE("a port that many QPs share is shared fairly, and nobody times out while waiting for it") {
    auto o = by_hand();
    auto f = take(soft_fabric::create(soft_topology(2, 1, 1, 1), o));
    end_options eo;
    eo.timers.timeout = 8;  // 1 ms, shorter than the wait
    std::vector<end> left, right;
    const auto ha = take(f.host("A")), hb = take(f.host("B"));
    for (int i = 0; i < 8; ++i) {
        left.push_back(make_end(ha, "A.nic0.p0", eo));
        right.push_back(make_end(hb, "B.nic0.p0", eo));
        join(left.back(), right.back(), eo);
        join(right.back(), left.back(), eo);
    }
    REQUIRE(f.command("rate A.nic0.p0 10MB/s"));
    for (int i = 0; i < 8; ++i) REQUIRE(left[i].qp.post(write(left[i], right[i], 200'000)));
    f.advance(120_ms);
    const auto out = f.status()[0].bytes_out;
    CHECK(out >= 1'150'000);
    CHECK(out <= 1'250'000);
    run_dry(f);
    for (auto& e : left) {
        const auto got = drain(e);
        REQUIRE(got.size() == 1);
        CHECK(got[0].status == wc_status::success);
    }
}

TEST_CASE("a flap goes down and up as often as it says, in its time") {
    auto [f, a, b] = make_pair();
    REQUIRE(f.command("flap A.nic0.p0 5ms 3ms 2x"));
    f.advance(4_ms);
    CHECK(a.port.query()->state == port_state::down);
    f.advance(2_ms);
    CHECK(a.port.query()->state == port_state::active);
    f.advance(3_ms);
    CHECK(a.port.query()->state == port_state::down);
    f.advance(1_s);
    CHECK(a.port.query()->state == port_state::active);
    CHECK(events(a) == std::vector{kind::port_error, kind::port_active, kind::port_error, kind::port_active});
    CHECK(f.next_event_at() == nanoseconds::never());
    CHECK(f.status()[0].downs == 2);
}

TEST_CASE("of very many events the last eight are reported") {
    auto [f, a, b] = make_pair();
    for (int i = 0; i < 20; ++i) {
        REQUIRE(f.command("down A.nic0.p0"));
        REQUIRE(f.command("up A.nic0.p0"));
    }
    const auto all = events(a);
    CHECK(all.size() == 8);
    CHECK(all.back() == kind::port_active);
}

TEST_CASE("a command names a port, a NIC, a host or all") {
    auto f = take(soft_fabric::create(soft_topology(2, 2, 2, 2), by_hand()));
    const auto down = [&] {
        std::string names;
        for (const auto& p : f.status())
            if (!p.up) names.append(p.name.view()).append(" ");
        return names;
    };
    REQUIRE(f.command("  down   A.nic1  "));
    CHECK(down() == "A.nic1.p0 A.nic1.p1 ");
    REQUIRE(f.command("down B"));
    CHECK(down() == "A.nic1.p0 A.nic1.p1 B.nic0.p0 B.nic0.p1 B.nic1.p0 B.nic1.p1 ");
    REQUIRE(f.command("up all"));
    CHECK(down().empty());
}

TEST_CASE("a wrong command changes nothing and says which word is wrong") {
    auto f = take(soft_fabric::create(soft_topology(2, 2, 2, 2), by_hand()));
    struct {
        const char* text;
        errc code;
        std::uint32_t word;
    } const cases[] = {
        {"", errc::parse_error, 0},
        {"explode A.nic0.p0", errc::parse_error, 0},
        {"down", errc::parse_error, 1},
        {"down A.nic0.p9", errc::not_found, 1},
        {"down A.nic", errc::not_found, 1},
        {"switch-down rail9", errc::not_found, 1},
        {"switch-down A.nic0.p0", errc::parse_error, 1},
        {"switch-down rail", errc::parse_error, 1},
        {"switch-down rail99999999999999999999999", errc::parse_error, 1},
        {"loss A.nic0.p0", errc::parse_error, 2},
        {"loss A.nic0.p0 5", errc::parse_error, 2},
        {"loss A.nic0.p0 101%", errc::parse_error, 2},
        {"loss A.nic0.p0 -1%", errc::parse_error, 2},
        {"delay A.nic0.p0 5", errc::parse_error, 2},
        {"delay A.nic0.p0 99999999999999999999s", errc::parse_error, 2},
        {"rate A.nic0.p0 GB/s", errc::parse_error, 2},
        {"flap A.nic0.p0 5ms", errc::parse_error, 2},
        {"flap A.nic0.p0 5ms 5ms 0x", errc::parse_error, 2},
        {"on-down A.nic0.p0 dance", errc::parse_error, 2},
        {"down A.nic0.p0 now", errc::parse_error, 2},
        {"loss A.nic0.p0 5% now", errc::parse_error, 3},
        {"flap A.nic0.p0 5ms 5ms 3x now", errc::parse_error, 5},
        {"rate A.nic0.p0 0.4B/s", errc::parse_error, 2},
        {"switch-down rail0.5", errc::parse_error, 1},
        {"switch-down rail1.5", errc::parse_error, 1},
        {"flap A.nic0.p0 5ms 5ms 2.5x", errc::parse_error, 2},
        {"delay A.nic0.p0 1.5ns", errc::parse_error, 2},
    };
    for (const auto& c : cases) {
        CAPTURE(c.text);
        const status s = f.command(c.text);
        CHECK(s.code == c.code);
        CHECK(s.detail == c.word);
        CHECK(f.check_command(c.text) == s);
    }
    CHECK(f.check_command("down A.nic0.p0"));
    CHECK(f.check_command("flap A 5ms 5ms 2x"));
    for (const auto& p : f.status()) {
        CHECK(p.up);
        CHECK(p.faults == 0);
    }
}

TEST_CASE("what is wrong with a command is said with the word that is, and with what there is instead") {
    const auto f = take(soft_fabric::create(soft_topology(1, 1, 2, 1), by_hand()));
    const auto words = [&f](const char* command) {
        return verbs::describe_command_fault(f.check_command(command), command, f.shape());
    };
    CHECK(words("down A.nic7.p0") == "nothing is called 'A.nic7.p0'; ports: A.nic0.p0 A.nic0.p1");
    CHECK(words("switch-down rail9") == "nothing is called 'rail9'; rails: rail0 rail1");
    CHECK(words("dwn A.nic0.p0") == "'dwn' is no command");
    CHECK(words("") == "the end is no command");
    CHECK(words("loss A.nic0.p0") == "'loss' needs more words; it goes: loss TARGET PERCENT, such as 5%");
    CHECK(words("down A.nic0.p0 now") == "cannot make sense of 'now' or of what follows it; it goes: down TARGET");
    CHECK(words("flap A.nic0.p0 fast") ==
          "cannot make sense of 'fast' or of what follows it; it goes: flap TARGET TIME-DOWN "
          "TIME-UP COUNTx, such as 5ms 10ms 20x");
}

TEST_CASE("quantities are read with their units and fractions") {
    auto f = take(soft_fabric::create(soft_topology(1, 1, 1, 1), by_hand()));
    struct {
        const char* text;
        std::uint64_t rate;
    } const cases[] = {
        {"2GB/s", 2'000'000'000}, {"2.5GB/s", 2'500'000'000}, {"400Gbit/s", 50'000'000'000}, {"12345", 12345}, {"0.5kB/s", 500}};
    for (const auto& c : cases) {
        REQUIRE(f.command(std::string("rate all ") + c.text));
        CHECK(f.status()[0].bytes_per_second == c.rate);
    }
}

TEST_CASE("the same seed and the same calls give the same run, another seed another one") {
    const auto run = [](std::uint64_t seed) {
        auto [f, a, b] = make_pair(by_hand(seed));
        REQUIRE(f.command("loss all 3%"));
        REQUIRE(f.command("dup all 3%"));
        REQUIRE(f.command("reorder all 5%"));
        for (std::uint64_t i = 0; i < 20; ++i) {
            REQUIRE(a.qp.post(write(a, b, 30000, i)));
            REQUIRE(b.qp.post(with(write(b, a, 20000, i), work_op::read)));
        }
        f.advance(5_ms);
        REQUIRE(f.command("flap A.nic0.p0 1ms 2ms 5x"));
        run_dry(f);
        return f.event_hash();
    };
    const auto first = run(42);
    MESSAGE("event log hash of seed 42: ", first);
    CHECK(run(42) == first);
    CHECK(run(43) != first);
}
