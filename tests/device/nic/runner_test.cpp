// The state machine of the NIC in a kernel, run by hand: the bytes are moved by the test, the clock is a number.

#include "world.hpp"

#include <vccl/device/gpu_nic/atomics.hpp>
#include <vccl/device/gpu_nic/runner.hpp>

#include <random>

namespace {

using namespace ring_test;
using namespace vccl::device::gpu_nic_detail;

static_assert(add_in_fields(0xff, 1, 0) == 0x100);
static_assert(add_in_fields(0x00ff00ff, 0x00010001, 0x80008000) == 0x01000100);
static_assert(add_in_fields(0xffff0001, 0x00010001, 0x80008000) == 0x00000002);  // the upper half wraps, the lower adds
static_assert(add_in_fields(0b1100, 0b1010, ~0ull) == 0b0110);

struct bench {
    queue_entry queue{};
    end_entry end{};
    end_progress progress{};
    queue_report report{};
    std::uint32_t port_up[2]{1, 1}, count{1}, region_count{max_regions}, stop{};
    pass_count passes{};
    std::uint32_t pace{};
    std::uint64_t port_free[2]{};
    region regions[max_regions]{};
    tables t;
    ring_memory<heap_memory> memory{take(ring_memory<heap_memory>::make(8, 8))}, receives;
    std::vector<std::uint64_t> near_words, far_words;
    runner nic;
    poster post{ring{}};
    std::uint64_t now{1000};

    bench() : near_words(131072), far_words(131072) {
        memory.view().qpn = 0x123;
        queue.memory = memory.view();
        queue.retry_time = 500;
        queue.port = 0;
        queue.state = queue_state::running;
        queue.generation = 1;
        queue.rnr_retry = 2;
        queue.peer_qpn = 0x456;
        end = {.accepts = 0x123, .port = 1, .qpn = 0x456};
        regions[3] = {reinterpret_cast<std::uintptr_t>(near_words.data()), near_words.size() * 8, 0x11, 0x22, 0, 1};
        regions[9] = {reinterpret_cast<std::uintptr_t>(far_words.data()), far_words.size() * 8, 0x33, 0x44, 1, 1};
        t = {&queue, &end, &report, port_up, &passes, &count, &stop, &region_count, regions, &pace, &progress, port_free};
        post = poster(memory.view());
    }
    wqe_local here(std::size_t at, std::uint32_t n) const {
        return {reinterpret_cast<std::uintptr_t>(near_words.data()) + at, 0x11, n};
    }
    wqe_remote there(std::size_t at) const { return {reinterpret_cast<std::uintptr_t>(far_words.data()) + at, 0x44}; }

    /// The peer gets a receive queue of four.
    receive_poster add_receives() {
        receives = take(ring_memory<heap_memory>::make(4, 4));
        receives.view().qpn = 0x456;
        end.receives = receives.view();
        end.rnr_wait = 100;
        end.generation = 1;
        return receive_poster(receives.view());
    }

    bool pass() {
        const step s = nic.decide(t, 0, now);
        if (s.what == step::kind::none) return false;
        auto* const to = reinterpret_cast<unsigned char*>(s.to);
        const fetched_wqe& w = nic.current();
        if (s.what == step::kind::copy) std::memcpy(to, reinterpret_cast<const void*>(s.from), s.bytes);
        if (s.what == step::kind::inlined)
            for (unsigned i = 0; i < s.bytes; ++i) to[i] = inline_byte(w.block[0], w.block[1], i);
        if (s.what == step::kind::atomic) {
            std::uint64_t old = 0;
            std::memcpy(&old, to, s.bytes);
            const std::uint64_t made = vccl::device::gpu_nic_detail::apply(w.fields, old);
            std::memcpy(to, &made, s.bytes);
            std::memcpy(reinterpret_cast<void*>(s.from), &old, s.bytes);
        }
        nic.finish(s);
        return true;
    }
    std::vector<seen> run() {
        for (int idle = 0; idle < 20;) idle = pass() ? 0 : idle + 1;
        return post.poll();
    }
};

TEST_CASE("The runner carries out every operation, in pieces where they are long") {
    bench b;
    for (std::size_t i = 0; i < b.near_words.size(); ++i) b.near_words[i] = i * 3 + 1;
    b.far_words[100000] = 40, b.far_words[100001] = 7;
    b.post.put(write(b.post.head(0), b.there(8), b.here(16, 700000)));
    b.post.put(inline_write(b.post.head(), b.there(0), 99));
    b.post.put(nop(b.post.head()));
    b.post.put(fetch_add(b.post.head(), b.there(800000), b.here(800000, 8), 2));
    b.post.put(masked_compare_swap_64(b.post.head(), b.there(800008), b.here(800008, 8), {0xf0, 7, 0xf0, 0x0f}));
    b.post.put(read(b.post.head(), b.there(800000), b.here(900000, 16)));
    b.post.ring_it();
    const auto cqes = b.run();
    REQUIRE(cqes.size() == 5);
    for (const auto& c : cqes) CHECK(c.why == syndrome::none);
    CHECK(cqes[4].bytes == 16);
    CHECK(std::memcmp(&b.far_words[1], &b.near_words[2], 700000) == 0);
    CHECK(b.far_words[0] == 99);
    CHECK(b.far_words[100000] == 42);
    CHECK(b.near_words[100000] == 40);
    CHECK(b.far_words[100001] == 0xf7);
    CHECK(b.near_words[112500] == 42);
}

TEST_CASE("A peer out of reach gives transport retries exceeded after the retry time, and flush errors behind it") {
    bench b;
    // Last: the peer was connected to another QP, as one is that has its place after it; and the QP there is another one.
    struct fault {
        std::uint32_t* word;
        std::uint32_t bad;
    };
    for (const auto [word, bad] :
         {fault{&b.port_up[0], 0}, {&b.port_up[1], 0}, {&b.end.accepts, 0}, {&b.end.accepts, 0x124}, {&b.end.qpn, 0x457}}) {
        const std::uint32_t good = std::exchange(*word, bad);
        b.post.put(inline_write(b.post.head(), b.there(0), 1));
        b.post.put(inline_write(b.post.head(0), b.there(8), 2));
        b.post.ring_it();
        CHECK(b.run().empty());
        b.now += 499;
        CHECK(b.run().empty());
        b.now += 1;
        const auto cqes = b.run();
        REQUIRE(cqes.size() == 2);
        CHECK(cqes[0].why == syndrome::transport_retry);
        CHECK(cqes[1].why == syndrome::flushed);
        CHECK(b.report.failed == b.queue.generation);
        CHECK(b.far_words[0] == 0);
        *word = good;
        b.memory.clear();
        ++b.queue.generation;
        b.post = poster(b.memory.view());
    }
    b.post.put(inline_write(b.post.head(), b.there(0), 5));
    b.post.ring_it();
    CHECK(b.run().size() == 1);
    CHECK(b.far_words[0] == 5);
}

TEST_CASE("A port that comes back within the retry time costs nothing, also in the middle of a message") {
    bench b;
    b.near_words[130000] = 77;
    b.post.put(write(b.post.head(), b.there(0), b.here(0, 131072 * 8)));
    b.post.ring_it();
    CHECK(b.pass());
    b.port_up[1] = 0;
    CHECK_FALSE(b.pass());
    b.now += 499;
    CHECK_FALSE(b.pass());
    b.port_up[1] = 1;
    CHECK(b.run().size() == 1);
    CHECK(b.far_words[130000] == 77);
}

TEST_CASE("A fenced peer is written no more: what was under way fails, with a prefix written") {
    bench b;
    for (auto& w : b.near_words) w = 1;
    b.post.put(write(b.post.head(), b.there(0), b.here(0, 131072 * 8)));
    b.post.ring_it();
    CHECK(b.pass());
    b.end.accepts = 0;
    CHECK(b.run().empty());
    CHECK(b.far_words[0] == 1);
    CHECK(b.far_words[131071] == 0);
    b.queue.state = queue_state::error;
    const auto cqes = b.run();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].why == syndrome::flushed);
}

TEST_CASE("Keys, ranges, ports and alignment are checked before a byte is moved") {
    struct wrong {
        wqe_block wqe;
        syndrome why;
    };
    const auto with_lkey = [](wqe_local l, std::uint32_t k) {
        l.lkey = k;
        return l;
    };
    const auto with_rkey = [](wqe_remote r, std::uint32_t k) {
        r.rkey = k;
        return r;
    };
    const wqe_head h{0x123, 0, wqe_flag::completion};
    for (int i = 0; i < 8; ++i) {
        bench b;
        const wrong cases[] = {
            {write(h, with_rkey(b.there(0), 0x33), b.here(0, 8)), syndrome::remote_access},   // an lkey
            {write(h, with_rkey(b.there(0), 0x22), b.here(0, 8)), syndrome::remote_access},   // of another port
            {write(h, b.there(131072 * 8 - 4), b.here(0, 8)), syndrome::remote_access},
            {write(h, b.there(0), with_lkey(b.here(0, 8), 0x33)), syndrome::local_protection},
            {write(h, b.there(0), b.here(131072 * 8 - 4, 8)), syndrome::local_protection},
            {fetch_add(h, b.there(4), b.here(0, 8), 1), syndrome::remote_invalid_request},
            {write_imm(h, b.there(8), b.here(131072 * 8, 8), 1), syndrome::local_protection},
            {write({0x124, 0, 8}, b.there(0), b.here(0, 8)), syndrome::local_qp_operation},
        };
        b.near_words[0] = 1;
        b.post.put(cases[i].wqe);
        b.post.ring_it();
        const auto cqes = b.run();
        REQUIRE(cqes.size() == 1);
        CHECK(cqes[0].why == cases[i].why);
        for (const auto w : b.far_words) REQUIRE(w == 0);
    }
}

TEST_CASE("A WRITE_WITH_IMM takes a receive at its end and brings the immediate and the length, its bytes before it") {
    bench b;
    receive_poster far = b.add_receives();
    CHECK(far.post(9) == 4);
    for (auto& w : b.near_words) w = 9;
    b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 700000), 0xabcdef01));
    b.post.put(write_imm(b.post.head(0), b.there(0), b.here(0, 0), 2));
    b.post.put(write_imm(b.post.head(), b.there(800000), b.here(0, 8), 3));
    b.post.ring_it();
    arrival a;
    CHECK(b.pass());
    CHECK(b.pass());
    CHECK_FALSE(far.poll(a));  // a part of the bytes is there
    const auto cqes = b.run();
    REQUIRE(cqes.size() == 2);
    for (const auto& c : cqes) {
        CHECK(c.why == syndrome::none);
        CHECK(c.opcode == static_cast<std::uint8_t>(wqe_opcode::write_imm));
        CHECK(c.bytes == 0);
    }
    const cqe64& first = b.receives.view().entry(0);
    CHECK(tail_of(first.word[15]) == cqe_tail{0, static_cast<std::uint8_t>(cqe_opcode::received_imm), 0});
    CHECK(decode(first).qpn == 0x456);
    for (const arrival want : {arrival{0xabcdef01, 700000}, {2, 0}, {3, 8}}) {
        REQUIRE(far.poll(a));
        CHECK(a == want);
    }
    CHECK_FALSE(far.poll(a));
    CHECK(b.far_words[87499] == 9);
    CHECK(b.far_words[100000] == 9);
}

TEST_CASE("Receives go round: as many as there are places, again and again") {
    bench b;
    receive_poster far = b.add_receives();
    std::uint32_t n = 0;
    arrival a;
    for (unsigned lap = 0; lap < 20'000; ++lap) {  // beyond 2^16 receives
        far.post(4);
        for (int i = 0; i < 4; ++i) b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 8), ++n));
        b.post.ring_it();
        for (int i = 0; i < 4; ++i) (void)b.pass();
        REQUIRE(b.post.poll().size() == 4);
        for (std::uint32_t i = n - 3; i <= n; ++i) REQUIRE((far.poll(a) && a == arrival{i, 8}));
    }
    CHECK_FALSE(far.poll(a));
}

TEST_CASE("Without a receive the peer is asked again after its time, as often as the timers say, then it is an RNR error") {
    bench b;
    receive_poster far = b.add_receives();
    b.near_words[0] = 5;
    const auto send = [&] {
        b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 8), 1));
        b.post.ring_it();
    };
    arrival a;
    send();
    for (int wait = 0; wait < 2; ++wait) {
        CHECK(b.run().empty());
        b.now += 99;
        CHECK(b.run().empty());
        far.post(wait);  // in time for the last question
        b.now += 1;
    }
    CHECK(b.run().size() == 1);
    CHECK(far.poll(a));
    CHECK(b.far_words[0] == 5);

    b.far_words[0] = 0;
    send();
    for (int wait = 0; wait < 2; ++wait) {
        CHECK(b.run().empty());
        b.now += 100;
    }
    const auto cqes = b.run();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].why == syndrome::rnr_retry);
    CHECK(b.report.failed == b.queue.generation);
    CHECK(b.far_words[0] == 0);
    CHECK_FALSE(far.poll(a));
}

TEST_CASE("A peer without a receive queue is never ready; 7 retries are for ever") {
    bench b;
    b.queue.rnr_retry = 7;
    b.end.rnr_wait = 100;
    b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 8), 1));
    b.post.ring_it();
    for (int wait = 0; wait < 1000; ++wait, b.now += 100) REQUIRE(b.run().empty());
    b.queue.rnr_retry = 0;
    CHECK(b.run().front().why == syndrome::rnr_retry);
}

TEST_CASE("A receive queue that nobody polls, or whose record is nonsense, costs the sender its queue and nothing else") {
    bench b;
    receive_poster far = b.add_receives();
    far.post(4);
    for (int i = 0; i < 4; ++i) b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 8), 1));
    b.post.ring_it();
    CHECK(b.run().size() == 4);
    store<order::release, scope::system>(&b.receives.view().doorbell_record[receive_record], encode_record(6));  // and no poll
    b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 8), 1));
    b.post.ring_it();
    CHECK(b.run().front().why == syndrome::remote_operation);

    bench c;
    (void)c.add_receives();
    store<order::release, scope::system>(&c.receives.view().doorbell_record[receive_record], encode_record(5));
    c.queue.rnr_retry = 0;
    c.post.put(write_imm(c.post.head(), c.there(0), c.here(0, 8), 1));
    c.post.ring_it();
    CHECK(c.run().front().why == syndrome::rnr_retry);
}

TEST_CASE("A QP that goes to ERR flushes its receives, and has all of them again as new") {
    bench b;  // connected to itself
    receive_poster far = b.add_receives();
    far.post(3);
    b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 8), 1));
    b.post.ring_it();
    CHECK(b.run().size() == 1);
    b.end.accepts = 0;
    b.queue.state = queue_state::error;
    CHECK(b.run().empty());
    far.post(1);  // posted in ERR
    CHECK(b.run().empty());
    arrival a;
    for (const arrival want : {arrival{1, 8}, {0, 0, syndrome::flushed}, {0, 0, syndrome::flushed}, {0, 0, syndrome::flushed}}) {
        REQUIRE(far.poll(a));
        CHECK(a == want);
    }
    CHECK_FALSE(far.poll(a));

    b.memory.clear();
    b.receives.clear();
    far = receive_poster(b.receives.view());
    b.post = poster(b.memory.view());
    ++b.queue.generation, ++b.end.generation;
    b.end.accepts = 0x123;
    b.queue.state = queue_state::running;
    far.post(1);
    b.post.put(write_imm(b.post.head(), b.there(0), b.here(0, 8), 7));
    b.post.ring_it();
    CHECK(b.run().size() == 1);
    CHECK(far.poll(a));
    CHECK(a == arrival{7, 8});
}

TEST_CASE("A region that is gone is refused") {
    bench b;
    b.regions[9].live = 0;
    b.post.put(inline_write(b.post.head(), b.there(0), 1));
    b.post.ring_it();
    const auto cqes = b.run();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].why == syndrome::remote_access);
}

TEST_CASE("A bad doorbell ends the queue, an overrun silences it") {
    bench b;
    b.post.knock(encode_doorbell(9, 0x123));
    const auto cqes = b.run();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].vendor == static_cast<int>(wqe_fault::wrong_doorbell));

    bench c;
    for (int lap = 0; lap < 3; ++lap) {
        for (int i = 0; i < 4; ++i) c.post.put(nop(c.post.head()));
        c.post.ring_it();
        for (int i = 0; i < 20; ++i) (void)c.pass();  // and nobody polls
    }
    CHECK(c.report.overrun == 1);
    CHECK(c.post.poll().size() == 8);
}

TEST_CASE("Random bytes in the ring never make the runner ask for memory outside regions") {
    std::mt19937_64 random(5);
    bench b;
    const auto inside = [&](std::uint64_t at, std::uint64_t n, const std::vector<std::uint64_t>& v) {
        const auto base = reinterpret_cast<std::uintptr_t>(v.data());
        return at >= base && at + n <= base + v.size() * 8;
    };
    for (int round = 0; round < 20000; ++round) {
        b.memory.clear();
        ++b.queue.generation;
        b.post = poster(b.memory.view());
        for (int i = 0; i < 4; ++i) {
            wqe_block w;
            for (auto& word : w.word) word = random();
            const std::uint64_t good = write(b.post.head(), {}, {}).word[0];
            if (random() % 8) w.word[0] = (w.word[0] & 0xff000000ff0000ffull) | (good & 0x00ffffff00ffff00ull);
            if (random() % 8) w.word[0] = (w.word[0] & 0x00ffffffffffff00ull) | std::uint64_t{random() % 6} << 56;
            if (random() % 8) w.word[0] = (w.word[0] & ~(0xffull << 24)) | std::uint64_t{8 + random() % 14} << 24;
            if (random() % 8) w.word[2] = big_endian(b.there(random() % (131072 * 8)).addr), w.word[3] = big_endian_pair(0x44, 0);
            if (random() % 8) w.word[4] = big_endian_pair(static_cast<std::uint32_t>(random() % 100000), 0x11);
            if (random() % 8) w.word[5] = big_endian(b.here(random() % (131072 * 8), 0).addr);
            b.post.put(w);
        }
        b.post.ring_it();
        for (int i = 0; i < 40; ++i) {
            const step s = b.nic.decide(b.t, 0, b.now += 100);
            if (s.what == step::kind::none) continue;
            const bool to_far = inside(s.to, s.bytes, b.far_words), to_near = inside(s.to, s.bytes, b.near_words);
            REQUIRE((to_far || to_near));
            if (s.what == step::kind::copy)
                REQUIRE((to_far ? inside(s.from, s.bytes, b.near_words) : inside(s.from, s.bytes, b.far_words)));
            if (s.what == step::kind::atomic) REQUIRE(inside(s.from, s.bytes, b.near_words));
            b.nic.finish(s);
        }
        for (const auto& c : b.post.poll()) CHECK(c.qpn == 0x123);
    }
}

TEST_CASE("A rate holds for all rings of a port, also for messages of a few bytes") {
    bench b;
    b.pace = 80;  // 12.5 GB/s
    b.post.put(write(b.post.head(0), b.there(0), b.here(0, 500000)));
    b.post.put(write(b.post.head(0), b.there(0), b.here(0, 8)));
    b.post.put(write(b.post.head(wqe_flag::completion), b.there(0), b.here(0, 8)));
    b.post.ring_it();
    const std::uint64_t begun = b.now;
    std::vector<seen> got;
    while (got.empty() && b.now < begun + 1'000'000) {
        while (b.pass()) {}
        got = b.post.poll();
        ++b.now;
    }
    CHECK(got.size() == 1);
    CHECK(b.now - begun >= 40'000);
    CHECK(b.now - begun <= 40'010);
    // Another ring has given the port work for a microsecond.
    b.port_free[0] = (b.now + 1000) * link_ticks;
    b.post.put(write(b.post.head(wqe_flag::completion), b.there(0), b.here(0, 8)));
    b.post.ring_it();
    CHECK_FALSE(b.pass());
    b.now += 999;
    CHECK_FALSE(b.pass());
    b.now += 2;
    CHECK(b.pass());
}

}  // namespace
