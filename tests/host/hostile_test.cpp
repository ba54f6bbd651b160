/// \file
/// A peer that lies: grants, immediates and control messages that no honest peer would send. Its own channel ends with
/// protocol_violation or drops the lie; nothing else happens, and nothing crashes. Manual clock; worth most under the
/// address and undefined-behaviour sanitizers.

#include "checks.hpp"
#include "puppet.hpp"

#include <random>

using namespace vccl_test;

namespace {

using ordinary = soft_world<>;

/// A sender that waits for its grant, and the memory in which the grant is to appear.
struct waiting {
    ordinary w;
    cts_slot* slots{};
    ack_line* ack{};
    explicit waiting(unsigned chunks = 1) {
        start(w);
        for (unsigned i = 0; i < chunks; ++i) REQUIRE(w.tx->send(w.out_memory.view(std::uint64_t{i} * 4096, 4096)));
        for (int i = 0; i < 50; ++i) w.pass();
        ack = reinterpret_cast<ack_line*>(ordinary::read_blob(w.sender_blob).ring_addr);
        slots = reinterpret_cast<cts_slot*>(ack + 1);
    }
    void forge(std::uint64_t s, cts_words words, bool good_check = true) {
        words.check = good_check ? check_of(words) : check_of(words) ^ 1;
        slots[s % max_window].words = words;
    }
    /// A grant as the receiver would give it, of memory that it has registered.
    cts_words honest(std::uint64_t s) const {
        return {s,
                w.in_memory.view(0, 4096).addr(),
                cts_words::make_room(4096, w.in_memory.region()->remote[0].value),
                cts_words::make_binding(1, 1, 0),
                0,
                0};
    }
    void passes(int n) {
        while (n-- > 0) w.pass();
    }
    /// It did no harm: the real grants come, and the chunks arrive.
    void harmless() {
        passes(200);
        CHECK(w.tx->health());
        CHECK(w.tx->acknowledged().value == 0);
        const std::uint64_t n = w.tx->next().value;
        for (std::uint64_t i = 0; i < n; ++i) REQUIRE(w.rx->recv(w.in_memory.view(i * 4096, 4096)));
        REQUIRE(w.until([&] { return w.tx->acknowledged().value == n; }, 1_s));
        CHECK(w.rx->handler().chunks.size() == n);
        CHECK(w.tx->handler().count(event::failed_over) == 0);
    }
    void violation(errc code = errc::protocol_violation) {
        passes(200);
        CHECK(w.tx->health().code == code);
        CHECK(w.tx->handler().chunks.empty());
        passes(2000);
        CHECK(w.rx->health().code == errc::aborted);
        CHECK(w.rx->handler().chunks.empty());
        CHECK(w.out_memory.release());
    }
};

using four = puppet<4>;
immediate part_of(std::uint64_t s, unsigned part, unsigned parts, std::uint32_t epoch = 1) {
    return immediate::make(epoch, s, part, parts, false);
}

/// Four receives are posted and granted.
void granted(four& p) {
    REQUIRE(p.start());
    for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(p.rx->recv(p.room_memory.view(i * 65536, 65536)));
    p.passes(50);
    REQUIRE(p.grant(3).sequence == 3);
}
void caught(four& p, errc code = errc::protocol_violation) {
    p.passes(2000);
    CHECK(p.rx->health().code == code);
    CHECK(p.rx->handler().chunks.empty());
    CHECK(p.rx->received().value == 0);
    CHECK(p.room_memory.release());
}

/// A control message with plausible and absurd values in its fields.
control_message absurd(control_message m, unsigned lanes, std::mt19937_64& random) {
    auto one_of = [&](auto... v) {
        const std::uint64_t all[] = {static_cast<std::uint64_t>(v)...};
        return all[random() % std::size(all)];
    };
    m.kind = static_cast<control_kind>(random() % 18);
    if (m.kind == control_kind::abort || m.kind == control_kind::goodbye || m.kind == control_kind::goodbye_ack)
        if (random() % 128 != 0) m.kind = control_kind::sync;
    m.lane = static_cast<std::uint8_t>(random() % 400 == 0 ? one_of(2, 7, 8, 255) : one_of(0, 0, 0, lanes - 1));
    m.epoch = static_cast<std::uint32_t>(one_of(0, 1, 2, 3, 4, 7, 1000, 0x7fffffff, 0xffffffff));
    m.number = static_cast<std::uint32_t>(one_of(0, 1, 2, 3, 4, 0xffffffff));
    m.generation = static_cast<std::uint32_t>(one_of(0, 1, 1, 2, 2, 3, 4, 0xffff, 0x10001, 0xffffffff));
    m.cause = static_cast<std::uint8_t>(random());
    m.wc = static_cast<std::uint8_t>(random());
    m.count = static_cast<std::uint16_t>(one_of(0, 0, 1, 1, 2, 5, 8, 9, 255, 256, 257, 0xfffe, 0xffff));
    m.sequence = one_of(0, 0, 1, 2, 3, 5, 16, 17, 300, std::uint64_t{1} << 40, ~std::uint64_t{0}, ~std::uint64_t{0} - 5);
    for (auto& d : m.dead_generation) d = static_cast<std::uint32_t>(one_of(0, 0, 1, 2, 3, 0xffffffff));
    auto* raw = m.arrived;
    for (unsigned i = 0; i < sizeof m.arrived; ++i) raw[i] = static_cast<std::uint8_t>(random() % 2 ? 0 : random());
    if (m.kind == control_kind::restore || m.kind == control_kind::restore_ack) {
        m.end.generation = static_cast<std::uint32_t>(one_of(m.generation, m.generation, 0, 1));
        m.end.mtu = static_cast<std::uint32_t>(one_of(0, 256, 1024, 4096, 77, 0xffffffff));
    }
    return m;
}

}  // namespace

TEST_CASE("A grant that names a lane that does not exist is a violation") {
    for (unsigned l : {2u, 7u, 8u, 200u, 255u}) {
        waiting s;
        cts_words g = s.honest(0);
        g.binding = cts_words::make_binding(1, 1, l);
        s.forge(0, g);
        s.violation();
    }
}

TEST_CASE("Grants that are torn, of another lap, epoch or generation are not there") {
    for (int what = 0; what < 7; ++what) {
        CAPTURE(what);
        waiting s;
        cts_words g = s.honest(0);
        if (what == 1) g.sequence = max_window;
        if (what == 2) g.sequence = ~std::uint64_t{0};
        if (what == 3) g.binding = cts_words::make_binding(2, 1, 0);
        if (what == 4) g.binding = cts_words::make_binding(0xffffffff, 1, 0);
        if (what == 5) g.binding = cts_words::make_binding(1, 2, 0);
        if (what == 6) g.binding = cts_words::make_binding(1, 0, 1);
        s.forge(0, g, what != 0);
        s.harmless();
    }
}

TEST_CASE("Noise in the whole ring of grants changes nothing") {
    waiting s(4);
    std::mt19937_64 random(3);
    for (int round = 0; round < 200; ++round) {
        for (unsigned i = 0; i < max_window; ++i) {
            std::uint64_t* w = reinterpret_cast<std::uint64_t*>(&s.slots[i]);
            for (unsigned k = 0; k < 8; ++k) w[k] = random();
            if (round % 2) s.slots[i].words.sequence = i;
        }
        s.w.pass();
    }
    s.harmless();
}

TEST_CASE("An acknowledgement of what was never sent is a violation, wherever it comes from") {
    for (std::uint64_t acked : {std::uint64_t{1}, std::uint64_t{5}, std::uint64_t{1} << 50, ~std::uint64_t{0}}) {
        CAPTURE(acked);
        waiting in_line;
        in_line.ack->acked = acked;
        in_line.violation();
        waiting in_grant;
        cts_words g = in_grant.honest(0);
        g.acked = acked + 1 == 0 ? acked : acked + 1;
        in_grant.forge(0, g);
        in_grant.passes(50);
        CHECK(in_grant.w.tx->health().code == errc::protocol_violation);
        CHECK(in_grant.w.tx->handler().chunks.empty());
    }
    waiting ahead;  // in the grant of a chunk that is not there yet, while another is under way
    ahead.forge(0, ahead.honest(0));
    cts_words g = ahead.honest(1);
    g.acked = 9;
    ahead.forge(1, g);
    ahead.passes(50);
    CHECK(ahead.w.tx->health().code == errc::protocol_violation);
    CHECK(ahead.w.tx->handler().chunks.empty());
}

TEST_CASE("A grant of memory that the receiver's NIC does not give away ends the channel with remote_access") {
    for (int what = 0; what < 3; ++what) {
        CAPTURE(what);
        waiting s;
        cts_words g = s.honest(0);
        if (what == 0) g.room = cts_words::make_room(4096, 0xdeadbeef);
        if (what == 1) g.addr = 64;
        if (what == 2) g.addr = s.w.in_memory.view().addr() + s.w.in_memory.size() - 100;
        s.forge(0, g);
        s.violation(errc::remote_access);
    }
}

TEST_CASE("The puppet is a sender: honest parts make a chunk") {
    four p;
    granted(p);
    for (unsigned i = 0; i < 4; ++i) REQUIRE(p.write(0, part_of(0, i, 4), 16384, i, i * 16384));
    REQUIRE(p.write(1, part_of(1, 0, 1), 100));
    p.passes(200);
    CHECK(p.rx->health());
    REQUIRE(p.rx->handler().chunks.size() == 2);
    CHECK(p.rx->handler().chunks[0].bytes == 65536);
    CHECK(p.rx->handler().chunks[1].bytes == 100);
}

TEST_CASE("Immediates that contradict each other or the receive are violations") {
    SUBCASE("a part beyond the number of parts") {
        four p;
        granted(p);
        REQUIRE(p.write(0, part_of(0, 5, 2), 64));
        caught(p);
    }
    SUBCASE("the same part twice") {
        four p;
        granted(p);
        REQUIRE(p.write(0, part_of(0, 0, 2), 64));
        REQUIRE(p.write(0, part_of(0, 0, 2), 64, 1));
        caught(p);
    }
    SUBCASE("two numbers of parts") {
        four p;
        granted(p);
        REQUIRE(p.write(0, part_of(0, 0, 2), 64));
        p.passes(20);
        REQUIRE(p.write(0, part_of(0, 1, 3), 64, 1));
        caught(p);
    }
    SUBCASE("more bytes than the receive has room for") {
        four p;
        granted(p);
        REQUIRE(p.write(0, part_of(0, 0, 1), 65537));
        caught(p);
    }
    SUBCASE("more bytes in all than the receive has room for") {
        four p;
        granted(p);
        REQUIRE(p.write(0, part_of(0, 0, 2), 40000));
        REQUIRE(p.write(0, part_of(0, 1, 2), 40000, 1, 20000));
        caught(p);
    }
}

TEST_CASE("Immediates of chunks that were not granted, not posted, or long ended, and of other epochs are old news") {
    four p;
    granted(p);
    REQUIRE(p.write(0, part_of(0, 0, 1), 64));
    p.passes(100);
    REQUIRE(p.rx->received().value == 1);
    const immediate old[] = {part_of(0, 0, 1),    part_of(4, 0, 1),       part_of(5, 7, 8),     part_of(1, 0, 1, 0),
                             part_of(1, 0, 1, 2), part_of(1, 0, 1, 1023), part_of(16383, 0, 1), part_of(8192, 3, 4)};
    for (const immediate i : old) {
        REQUIRE(p.write(1, i, 64));
        p.passes(20);
    }
    CHECK(p.rx->health());
    CHECK(p.rx->stale_arrivals() == std::size(old));
    CHECK(p.rx->received().value == 1);
    REQUIRE(p.write(1, part_of(1, 0, 1), 64));
    p.passes(100);
    CHECK(p.rx->received().value == 2);
}

TEST_CASE("Every immediate there is, in random order: violation or old news, and no chunk ends twice") {
    std::mt19937_64 random(7);
    unsigned violations = 0;
    for (int round = 0; round < 60; ++round) {
        four p;
        granted(p);
        for (int i = 0; i < 60 && p.rx->health(); ++i) {
            immediate imm{static_cast<std::uint32_t>(random())};
            if (i % 2)
                imm = immediate::make(1, random() % 5, static_cast<unsigned>(random() % 8),
                                      1 + static_cast<unsigned>(random() % 8), random() % 8 == 0);
            (void)p.write(random() % 4, imm, static_cast<std::uint32_t>(random() % 30000), static_cast<unsigned>(random() % 4));
            p.passes(4);
        }
        p.passes(100);
        const auto& told = p.rx->handler().chunks;
        for (std::uint64_t i = 0; i < told.size(); ++i) CHECK(told[i].sequence.value == i);
        CHECK(told.size() <= 4);
        violations += p.rx->health().code == errc::protocol_violation;
        if (p.rx->health().code != errc::ok) CHECK(p.rx->health().code == errc::protocol_violation);
    }
    CHECK(violations > 30);
}

TEST_CASE("SENDs where no SEND belongs, and WRITEs beyond the memory, end the lane or the channel in bounded time") {
    for (int what = 0; what < 4; ++what) {
        CAPTURE(what);
        endpoint_options o;
        o.give_up_after = 1_s;
        four p(o);
        granted(p);
        if (what == 0) REQUIRE(p.send(64, 0));
        if (what == 1) REQUIRE(p.send(0, 0));
        if (what == 2) REQUIRE(p.write(0, part_of(0, 0, 1), 64, 0, 4 << 20));
        if (what == 3) REQUIRE(p.write(0, part_of(0, 0, 1), 64, 0, -100));
        p.passes(200);
        CHECK(p.rx->received().value == 0);
        p.passes(40'000, 50_us);
        CHECK(p.rx->received().value == 0);
        if (what != 1) CHECK_FALSE(p.rx->health());
    }
}

TEST_CASE("Control messages of absurd size on the lane itself are dropped or end the lane") {
    endpoint_options o;
    o.give_up_after = 1_s;
    for (std::uint32_t bytes : {0u, 1u, 8u, 71u, 72u, 327u, 328u, 329u, 4000u}) {
        CAPTURE(bytes);
        four p(o);
        granted(p);
        (void)p.send(bytes, lane<verbs::soft>::control_index);
        p.passes(200);
        CHECK(p.rx->received().value == 0);
        if (bytes <= sizeof(control_message)) CHECK(p.rx->health());
        p.passes(40'000, 50_us);
        if (bytes > sizeof(control_message)) CHECK_FALSE(p.rx->health());
    }
}

TEST_CASE("A control message about a lane that does not exist is a violation") {
    for (unsigned l : {1u, 7u, 8u, 255u}) {
        for (auto k : {control_kind::notify, control_kind::probe, control_kind::restore_ack, control_kind::hello}) {
            four p;
            granted(p);
            control_message m = p.message(k);
            m.lane = static_cast<std::uint8_t>(l);
            p.tell(m);
            caught(p);
        }
        ordinary w;
        start(w);
        control_message m = w.forged(control_kind::probe, l == 1 ? 2 : l);
        w.tell_sender(m);
        for (int i = 0; i < 2000; ++i) w.pass();
        CHECK(w.tx->health().code == errc::protocol_violation);
        CHECK(w.rx->health().code == errc::aborted);
    }
}

TEST_CASE("A sync of what was never sent is a violation; one with an absurd count is dropped") {
    for (std::uint64_t s : {std::uint64_t{21}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
        CAPTURE(s);
        ordinary w;
        start(w);
        REQUIRE(w.transfer(20));
        control_message m = w.forged(control_kind::sync, 1);
        m.epoch = 2;
        m.sequence = s;
        w.tell_sender(m);
        for (int i = 0; i < 2000; ++i) w.pass();
        CHECK(w.tx->health().code == errc::protocol_violation);
        CHECK(w.tx->handler().chunks.size() == 20);
    }
    for (unsigned count : {257u, 300u, 65535u}) {
        CAPTURE(count);
        ordinary w;
        start(w);
        REQUIRE(w.transfer(20));
        control_message m = w.forged(control_kind::sync, 1);
        m.epoch = 2;
        m.sequence = 20;
        m.count = static_cast<std::uint16_t>(count);
        for (std::size_t bytes : {sizeof m, offsetof(control_message, end), std::size_t{1000}})
            w.oob->to_caller.push_back(w.bytes_of(m, bytes));
        REQUIRE(w.transfer(60));
        CHECK(w.tx->handler().events.size() == 1);
        exact(w, 60);
    }
}

TEST_CASE("A sender that answers restores with nonsense keeps the lane down, until the deadline") {
    endpoint_options o;
    o.give_up_after = 1_s;
    four p(o);
    granted(p);
    REQUIRE(p.fabric.command("error B.nic0.p0"));
    std::mt19937_64 random(5);
    unsigned asked = 0;
    (void)p.rx->recv(p.room_memory.view(0, 64));
    for (int i = 0; i < 60'000 && p.rx->health(); ++i) {
        control_message m;
        while (p.hear(m)) {
            if (m.kind != control_kind::restore) continue;
            ++asked;
            m.kind = control_kind::restore_ack;
            auto* raw = reinterpret_cast<unsigned char*>(&m.end);
            for (std::size_t k = sizeof m.end.generation; k < sizeof m.end; ++k) raw[k] = static_cast<unsigned char>(random());
            p.tell(m);
        }
        p.pass(50_us);
    }
    CHECK(asked > 0);
    CHECK_FALSE(p.rx->health());
    CHECK(p.rx->received().value == 0);
}

TEST_CASE("A receiver that is told nonsense lives or ends with an error, never crashes, never receives what was not sent") {
    unsigned ended = 0;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        endpoint_options o;
        o.give_up_after = 1_s;
        four p(o);
        granted(p);
        for (int i = 0; i < 150; ++i) {
            const control_message m = absurd(p.message(control_kind::hello), 1, random);
            if (random() % 4 == 0 && m.size() <= sizeof m)
                (void)p.lane0.send_control(m);
            else
                p.tell(m, random() % 8 == 0 ? 1 + random() % sizeof m : 0);
            p.passes(static_cast<int>(random() % 8), nanoseconds{static_cast<std::int64_t>(random() % 200'000)});
        }
        CHECK(p.rx->received().value == 0);
        ended += !p.rx->health();
    }
    CHECK(ended > 10);
    CHECK(ended < 140);
}

TEST_CASE("A sender that is told nonsense lives or ends with an error, and never crashes") {
    unsigned ended = 0;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        world_options o;
        o.chunk = 4096;
        o.tx.give_up_after = o.rx.give_up_after = 1_s;
        ordinary w(o);
        start(w);
        REQUIRE(w.transfer(10));
        for (int i = 0; i < 150; ++i) {
            const control_message m = absurd(w.forged(control_kind::hello, 0), 2, random);
            w.oob->to_caller.push_back(w.bytes_of(m, random() % 8 == 0 ? 1 + random() % sizeof m : m.size()));
            if (w.tx->health() && w.rx->health()) w.users(w.checked + 8, [](std::uint64_t) { return 4096u; });
            w.pass_time = nanoseconds{static_cast<std::int64_t>(random() % 200'000)};
            for (auto n = random() % 8; n != 0; --n) w.pass();
        }
        ended += !w.tx->health();
        CHECK(w.rx->handler().chunks.size() <= w.tx->next().value);
    }
    CHECK(ended > 10);
}

TEST_CASE("A sender that is told nonsense in its ring of grants lives or ends with an error, and never crashes") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        waiting s(8);
        for (int i = 0; i < 60; ++i) {
            const std::uint64_t n = random() % 10;
            cts_words g = s.honest(n);
            if (random() % 4 == 0) g.addr += random() % (s.w.in.size() * 2);
            if (random() % 4 == 0)
                g.room =
                    cts_words::make_room(static_cast<std::uint32_t>(random()), cts_words::rkey_of(g.room) ^ (random() % 4 == 0));
            if (random() % 8 == 0)
                g.binding = cts_words::make_binding(static_cast<std::uint32_t>(random() % 3), random() % 3, random() % 3);
            if (random() % 8 == 0) g.acked = random() % 12;
            s.forge(n, g, random() % 8 != 0);
            if (random() % 16 == 0) s.ack->acked = random() % 9;
            s.passes(static_cast<int>(random() % 20));
        }
        CHECK(s.w.tx->acknowledged().value <= 8);
        CHECK(s.w.tx->handler().chunks.size() == s.w.tx->acknowledged().value);
    }
}
