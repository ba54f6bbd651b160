/// \file
/// The ways of the control messages: lost, doubled, cut, gone, and old messages that come again. Manual clock.

#include "checks.hpp"

using namespace vccl_test;

namespace {

using ordinary = soft_world<>;
constexpr lane_id primary{0}, backup{1};

/// Port 0 of A dies and returns, several times, while `every` interferes.
void survives(ordinary& w, const std::function<void()>& every) {
    for (int round = 0; round < 3; ++round) {
        const std::uint64_t from = w.checked;
        auto breaks = at_chunk(w, from + 20, "down A.nic0.p0");
        REQUIRE(w.transfer(from + 60, [&] {
            every();
            breaks();
        }));
        REQUIRE(w.command("up A.nic0.p0"));
        REQUIRE(w.until(
            [&] {
                every();
                return w.rx->active_lane() == primary;
            },
            20_s));
    }
    REQUIRE(w.transfer(w.checked + 50, every));
    exact(w, w.checked);
    CHECK(w.rx->handler().count(event::failed_over) >= 3);
}

}  // namespace

TEST_CASE("Out-of-band messages are lost, however many: failover and fail-back are only repeated until they get through") {
    for (unsigned percent : {30u, 60u, 90u, 100u}) {
        CAPTURE(percent);
        ordinary w;
        start(w);
        w.oob->lost_percent = percent;
        survives(w, [] {});
    }
}

TEST_CASE("Control messages that come twice or ten times change nothing") {
    for (unsigned copies : {1u, 9u}) {
        CAPTURE(copies);
        ordinary w;
        start(w);
        std::size_t known[2]{};
        survives(w, [&] {
            std::deque<std::vector<std::byte>>* const queues[] = {&w.oob->to_caller, &w.oob->to_listener};
            for (int i = 0; i < 2; ++i) {
                auto& q = *queues[i];
                for (std::size_t n = q.size(), at = std::min(known[i], n); at < n; ++at)
                    for (unsigned c = 0; c < copies; ++c) q.push_back(q[at]);
                known[i] = q.size();
            }
        });
    }
}

TEST_CASE("Every control message ever sent is repeated again and again, much later: old news changes nothing") {
    ordinary w;
    start(w);
    std::vector<std::vector<std::byte>> told[2];
    std::size_t known[2]{}, next[2]{};
    unsigned passes = 0;
    survives(w, [&] {
        std::deque<std::vector<std::byte>>* const queues[] = {&w.oob->to_caller, &w.oob->to_listener};
        for (int i = 0; i < 2; ++i) {
            auto& q = *queues[i];
            for (std::size_t at = std::min(known[i], q.size()); at < q.size(); ++at) told[i].push_back(q[at]);
            if (passes % 7 == 0 && !told[i].empty()) q.push_back(told[i][next[i]++ % told[i].size()]);
            known[i] = q.size();
        }
        ++passes;
    });
    CHECK(told[0].size() > 20);
    CHECK(next[0] > told[0].size());
}

TEST_CASE("The out-of-band channel is cut for seconds: traffic goes on over the lanes, busy or idle") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.oob->cut = true;
    w.pass_time = 50_us;
    const nanoseconds end = w.fabric.now() + 8_s;
    while (w.fabric.now() < end) {
        REQUIRE(w.transfer(w.checked + 20));
        w.rest(20_ms);
    }
    w.rest(8_s);
    CHECK(w.tx->health());
    CHECK(w.rx->health());
    w.pass_time = 2_us;
    REQUIRE(w.transfer(w.checked + 20));
    CHECK(w.tx->handler().count(event::oob_lost) == 1);
    CHECK(w.rx->handler().count(event::oob_lost) == 1);
    w.oob->cut = false;
    REQUIRE(w.transfer(w.checked + 20));
    w.rest(10_ms);
    CHECK(w.tx->handler().count(event::oob_restored) == 1);
    CHECK(w.rx->handler().count(event::oob_restored) == 1);
    CHECK(w.rx->handler().count(event::failed_over) == 0);
    exact(w, w.checked);
}

TEST_CASE("A port dies while the out-of-band channel is cut: the other lane carries the messages") {
    for (const std::string end : {"A", "B"}) {
        CAPTURE(end);
        ordinary w;
        start(w);
        REQUIRE(w.transfer(20));
        w.oob->cut = true;
        REQUIRE(w.transfer(80, at_chunk(w, 40, "down " + end + ".nic0.p0")));
        CHECK(w.rx->active_lane() == backup);
        REQUIRE(w.command("up " + end + ".nic0.p0"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
        REQUIRE(w.transfer(140));
        exact(w, 140);
    }
}

TEST_CASE("Every lane and the out-of-band channel are cut for less than the peer's grace: the channel resumes") {
    ordinary w;
    start(w);
    REQUIRE_FALSE(w.transfer(80, at_chunk(w, 40, "down all"), 100_ms));
    w.oob->cut = true;
    w.rest(4_s);
    CHECK(w.tx->health());
    CHECK(w.rx->health());
    w.oob->cut = false;
    REQUIRE(w.command("up all"));
    REQUIRE(w.transfer(
        120, [] {}, 5_s));
    exact(w, 120);
}

TEST_CASE("Every lane and the out-of-band channel are gone for longer than the peer's grace: the peer counts as lost") {
    ordinary w;
    start(w);
    REQUIRE_FALSE(w.transfer(80, at_chunk(w, 40, "down all"), 100_ms));
    w.oob->cut = true;
    const nanoseconds cut = w.fabric.now();
    w.pass_time = 100_us;
    REQUIRE(w.until([&] { return !w.tx->health() && !w.rx->health(); }, 7_s));
    CHECK(w.fabric.now() - cut >= 4900_ms);
    CHECK(w.fabric.now() - cut <= 5500_ms);
    CHECK(w.tx->health().code == errc::peer_lost);
    CHECK(w.rx->health().code == errc::peer_lost);
    CHECK(w.rx->handler().chunks.size() == w.rx->received().value);
}

TEST_CASE("The receiver's process is gone: the sender learns it within seconds") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.users(36, [&](std::uint64_t) { return w.o.chunk; });
    REQUIRE(w.command("down B"));
    w.oob->listener_gone = true;
    const nanoseconds gone = w.fabric.now();
    while (w.tx->health() && w.fabric.now() - gone < 5_s) {
        w.tx->progress();
        w.fabric.advance(50_us);
    }
    CHECK(w.tx->health().code == errc::peer_lost);
    CHECK(w.fabric.now() - gone < 1_s);
    CHECK(w.tx->handler().chunks.size() == w.tx->acknowledged().value);
}

TEST_CASE("An end's thread, or both, stands still for seconds in the middle of a transfer: nobody is blamed for it") {
    for (int which : {0, 1, 2}) {
        CAPTURE(which);
        ordinary w;
        start(w);
        REQUIRE_FALSE(w.transfer(
            200, [] {}, 1_ms));
        const nanoseconds end = w.fabric.now() + 10_s;
        while (w.fabric.now() < end) {  // 0: the sender stands still, 1: the receiver, 2: both
            if (which == 1) w.tx->progress();
            if (which == 0) w.rx->progress();
            w.fabric.advance(100_us);
        }
        CHECK(w.tx->health());
        CHECK(w.rx->health());
        REQUIRE(w.transfer(
            200, [] {}, 5_s));
        exact(w, 200);
        CHECK(w.tx->handler().count(event::lane_failed) + w.rx->handler().count(event::lane_failed) == 0);
    }
}

TEST_CASE("Messages of another connection, version or kind are dropped") {
    ordinary w;
    start(w);
    auto both = [&](control_message m) {
        w.tell_sender(m);
        w.tell_receiver(m);
    };
    const control_kind ending[] = {control_kind::abort, control_kind::goodbye, control_kind::sync, control_kind::notify,
                                   control_kind::restore};
    REQUIRE(w.transfer(100, [&, n = 0u]() mutable {
        control_message m = w.forged(ending[n++ % std::size(ending)], 0);
        m.epoch = 99;
        m.generation = 1;
        m.end.generation = 1;
        m.cause = 3;
        control_message other = m;
        other.connection ^= 1;
        both(other);
        other = m;
        other.version ^= 1;
        both(other);
        other = m;
        other.magic ^= 1u << 31;
        both(other);
        other = m;
        other.kind = static_cast<control_kind>(200);
        both(other);
    }));
    w.rest(5_ms);  // the transfer is over before the out-of-band channel is looked at
    exact(w, 100);
    CHECK(w.tx->handler().events.size() == 1);
    CHECK(w.rx->handler().events.size() == 1);
}

TEST_CASE("A message cut short is dropped") {
    ordinary w;
    start(w);
    control_message m = w.forged(control_kind::abort, 0);
    for (std::size_t n = 1; n < m.size(); ++n) {
        w.oob->to_caller.push_back(w.bytes_of(m, n));
        w.oob->to_listener.push_back(w.bytes_of(m, n));
    }
    m = w.forged(control_kind::sync, 0);
    m.epoch = 7;
    m.count = 5;
    for (std::size_t n = 1; n < m.size(); ++n) w.oob->to_caller.push_back(w.bytes_of(m, n));
    m = w.forged(control_kind::restore, 0);
    m.generation = m.end.generation = 7;
    for (std::size_t n = 1; n < m.size(); ++n) w.oob->to_caller.push_back(w.bytes_of(m, n));
    REQUIRE(w.transfer(100));
    w.rest(1_s, 200_us);  // a look takes 16 of them
    REQUIRE(w.oob->to_caller.empty());
    exact(w, 100);
    CHECK(w.tx->handler().events.size() == 1);
}

TEST_CASE("A sync of an older epoch, a notice of a dead generation and an old lane's handshake change nothing") {
    ordinary w;
    start(w);
    for (int round = 0; round < 2; ++round) {
        REQUIRE(w.transfer(w.checked + 60, at_chunk(w, w.checked + 20, "down A.nic0.p0")));
        REQUIRE(w.command("up A.nic0.p0"));
        REQUIRE(w.until([&] { return w.rx->active_lane() == primary; }, 2_s));
    }
    REQUIRE(w.transfer(w.checked + 10));
    const std::uint32_t epoch = w.rx->epoch().value, generation = w.rx->lane_health(primary).generation;
    REQUIRE(epoch >= 3);
    REQUIRE(generation >= 3);
    const auto events_tx = w.tx->handler().events.size(), events_rx = w.rx->handler().events.size();

    for (std::uint32_t old = 0; old < epoch; ++old) {
        control_message m = w.forged(control_kind::sync, 1);
        m.epoch = old;
        m.sequence = 0;
        for (auto& d : m.dead_generation) d = generation;
        w.tell_sender(m);
        w.tell_receiver(m);
        m = w.forged(control_kind::sync_ack, 1);
        m.epoch = old;
        w.tell_receiver(m);
    }
    for (std::uint32_t old = 0; old < generation; ++old)
        for (auto k : {control_kind::notify, control_kind::notify_ack, control_kind::restore, control_kind::restore_ack,
                       control_kind::restore_nak, control_kind::probe_ack}) {
            control_message m = w.forged(k, 0);
            m.epoch = epoch;
            m.generation = old;
            m.end.generation = old;
            w.tell_sender(m);
            w.tell_receiver(m);
        }
    REQUIRE(w.transfer(w.checked + 100));
    w.rest(20_ms);
    exact(w, w.checked);
    CHECK(w.tx->handler().events.size() == events_tx);
    CHECK(w.rx->handler().events.size() == events_rx);
    CHECK(w.rx->epoch().value == epoch);
    CHECK(w.rx->active_lane() == primary);
}

TEST_CASE("A notice of a generation that is not born yet is answered and otherwise ignored") {
    ordinary w;
    start(w);
    control_message m = w.forged(control_kind::notify, 0);
    for (std::uint32_t g : {2u, 3u, 0xffffffffu}) {
        m.generation = g;
        w.tell_receiver(m);
    }
    REQUIRE(w.transfer(50));
    CHECK(w.rx->handler().events.size() == 1);
    exact(w, 50);
}

TEST_CASE("Closing in order: both ends are told, and nothing that was sent is missing") {
    for (bool lossy : {false, true}) {
        CAPTURE(lossy);
        ordinary w;
        start(w);
        REQUIRE(w.transfer(60));
        if (lossy) w.oob->lost_percent = 80;
        control_message m = w.forged(control_kind::goodbye, 0);
        w.tell_receiver(m);
        REQUIRE(w.until([&] { return w.rx->state() == channel_state::closed; }, 1_s));
        CHECK(w.rx->handler().count(event::closed) == 1);
        CHECK(w.rx->wait_closed(1_s));
        CHECK(w.rx->recv(w.in_memory.view(0, 8)).error().code == errc::closed);
        exact(w, 60);
    }
}

TEST_CASE("A peer that gives up ends the other side in time, with its reason") {
    ordinary w;
    start(w);
    REQUIRE_FALSE(w.transfer(
        80, [] {}, 200_us));
    w.tx->abort();
    REQUIRE(w.until([&] { return !w.rx->health(); }, 50_ms));
    CHECK(w.rx->health().code == errc::aborted);
    CHECK(w.tx->health().code == errc::aborted);
    const auto received = w.rx->received();
    w.rest(50_ms);
    CHECK(w.rx->received() == received);
    CHECK(w.in_memory.release());
    CHECK(w.out_memory.release());
}

TEST_CASE("An abort that nobody heard is repeated until the peer has acknowledged it") {
    for (bool by_sender : {true, false}) {
        CAPTURE(by_sender);
        ordinary w;
        start(w);
        REQUIRE_FALSE(w.transfer(
            80, [] {}, 200_us));
        REQUIRE(w.command("down all"));
        w.oob->cut = true;
        const auto deaf_end_ended = [&] { return by_sender ? !w.rx->health() : !w.tx->health(); };
        if (by_sender)
            w.tx->abort();
        else
            w.rx->abort();
        w.rest(1_s);
        CHECK_FALSE(deaf_end_ended());
        w.oob->cut = false;
        REQUIRE(w.until(deaf_end_ended, 200_ms));
        CHECK((by_sender ? w.rx->health() : w.tx->health()).code == errc::aborted);
        w.rest(200_ms);
        CHECK(w.oob->to_listener.empty());
        CHECK(w.oob->to_caller.empty());
    }
}

TEST_CASE("An abort goes over the lanes, too, when the out-of-band channel is cut") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.oob->cut = true;
    w.rest(10_ms);
    w.tx->abort();
    REQUIRE(w.until([&] { return !w.rx->health(); }, 100_ms));
    CHECK(w.rx->health().code == errc::aborted);
}

TEST_CASE("An abort that nobody can hear is repeated for the peer's grace and no longer") {
    ordinary w;
    start(w);
    REQUIRE(w.command("down all"));
    w.rest(10_ms);
    w.oob->lost_percent = 0;
    w.tx->abort();
    std::size_t said = 0;
    for (const nanoseconds end = w.fabric.now() + 6_s; w.fabric.now() < end; w.fabric.advance(1_ms)) {
        w.tx->progress();  // the receiver stands still
        said = w.oob->to_listener.size();
    }
    CHECK(said > 10);
    CHECK(said < 200);
    for (int i = 0; i < 1000; ++i) {
        w.tx->progress();
        w.fabric.advance(1_ms);
    }
    CHECK(w.oob->to_listener.size() == said);
}

TEST_CASE("The sender's process is gone: the receiver learns it within a second, although it cannot call back") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.users(36, [&](std::uint64_t) { return w.o.chunk; });
    REQUIRE(w.command("down A"));
    w.oob->caller_gone = true;
    const nanoseconds gone = w.fabric.now();
    while (w.rx->health() && w.fabric.now() - gone < 7_s) {
        w.rx->progress();
        w.fabric.advance(50_us);
    }
    CHECK(w.rx->health().code == errc::peer_lost);
    CHECK(w.fabric.now() - gone < 1_s);
    CHECK(w.rx->handler().chunks.size() == w.rx->received().value);
}

TEST_CASE("A connection that the sender's kernel closed is no death while the idle lanes answer") {
    ordinary w;
    start(w);
    REQUIRE(w.transfer(20));
    w.oob->caller_gone = true;
    w.rest(10_s);
    CHECK(w.rx->health());
    w.oob->caller_gone = false;
    REQUIRE(w.transfer(40));
    exact(w, 40);
}
