#include "pretend_engine.hpp"
#include "staged_world.hpp"

#include <vccl/base/status_text.hpp>

using namespace vccl_test;

namespace {

constexpr std::size_t device_bytes = 24 * std::size_t{slice};

/// Two GPUs of host memory, and what is known of each one's engine.
struct pretend_gpus {
    std::vector<std::byte> gpu_a, gpu_b;
    engine_bench engine_a, engine_b;
    pretend_gpus()
        : gpu_a(device_bytes), gpu_b(device_bytes), engine_a{gpu_a.data(), gpu_a.size()}, engine_b{gpu_b.data(), gpu_b.size()} {
        for (std::size_t i = 0; i < gpu_a.size(); ++i) gpu_a[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
    bool same(std::size_t from, std::size_t to, std::size_t bytes) const {
        return std::equal(gpu_a.begin() + std::ptrdiff_t(from), gpu_a.begin() + std::ptrdiff_t(from + bytes),
                          gpu_b.begin() + std::ptrdiff_t(to));
    }
};
template <class World>
struct channel {
    World w{staged_ends<World, pretend_engine>::shape()};
};

template <class World>
struct staged_world : pretend_gpus, channel<World>, staged_ends<World, pretend_engine> {
    using channel<World>::w;
    explicit staged_world(const staged_options& o = {})
        : staged_ends<World, pretend_engine>(w, pretend_engine(engine_a, w.fabric.clock()),
                                             pretend_engine(engine_b, w.fabric.clock()), o) {}
};

using plain = staged_world<soft_world<>>;

}  // namespace

TEST_CASE("Messages of every length arrive whole, in order, and end once, whatever the cut") {
    plain even, edged({{slice, 8, slice / 4}, {slice, 8}});
    const std::size_t lengths[] = {0, 1, 15, slice - 1, slice, slice + 1, 3 * slice, 3 * slice + 17, 20 * slice + 5};
    for (unsigned i = 0; i < 2 * std::size(lengths); ++i) {
        plain& x = i % 2 ? edged : even;
        const std::size_t n = lengths[i / 2];
        CAPTURE(n);
        std::fill(x.gpu_b.begin(), x.gpu_b.end(), std::byte{0xee});
        const auto m = x.s.send(x.gpu_a.data() + 3, n);
        const auto got = x.r.recv(x.gpu_b.data() + 5, device_bytes - 5);
        REQUIRE(m);
        REQUIRE(got);
        REQUIRE(x.until([&] { return x.r.ended(*got) && x.s.ended(*m); }));
        CHECK(x.r.outcome(*got).value() == n);
        CHECK(x.same(3, 5, n));
        CHECK(x.gpu_b[5 + n] == std::byte{0xee});
    }
}

TEST_CASE("Many messages at once, through rings of every size") {
    for (const unsigned slots : {1u, 2u, 8u, 64u}) {
        CAPTURE(slots);
        plain x({{slice, slots}, {slice, slots}});
        const std::size_t each = slice + slice / 3;
        for (unsigned i = 0; i < 16; ++i) {
            REQUIRE(x.s.send(x.gpu_a.data() + i * each, each));
            REQUIRE(x.r.recv(x.gpu_b.data() + i * each, each));
        }
        REQUIRE(x.until([&] { return x.r.ended(sequence{15}) && x.s.ended(sequence{15}); }));
        CHECK(x.same(0, 0, 16 * each));
    }
}

TEST_CASE("Copies and wire overlap: a long message takes hardly longer than its slowest step") {
    for (const unsigned slots : {1u, 8u}) {
        plain x({{slice, slots}, {slice, slots}});
        x.engine_a.bytes_per_second = x.engine_b.bytes_per_second = 10e9;  // as the port
        x.w.pass_time = 500_ns;
        const nanoseconds before = x.w.fabric.now();
        REQUIRE(x.s.send(x.gpu_a.data(), device_bytes));
        REQUIRE(x.r.recv(x.gpu_b.data(), device_bytes));
        REQUIRE(x.until([&] { return x.r.ended(sequence{0}); }));
        const double took = double((x.w.fabric.now() - before).count), least = double(device_bytes) / 10;
        if (slots == 1) CHECK(took > 2.5 * least);  // one after the other
        if (slots == 8) CHECK(took < 1.25 * least);
    }
}

TEST_CASE("A failover sends slices again from the ring: the GPU is read once, and may change as soon as it was read") {
    std::uint64_t replayed = 0;
    for (unsigned seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        plain x;
        x.engine_a.bytes_per_second = 20e9;
        const std::vector<std::byte> original = x.gpu_a;
        const std::size_t bytes = 20 * slice + 100;
        const auto m = x.s.send(x.gpu_a.data(), bytes);
        REQUIRE(x.r.recv(x.gpu_b.data(), bytes));
        const nanoseconds at = x.w.fabric.now() + nanoseconds{10'000 + 3'500 * std::int64_t{seed}};
        bool down = false;
        REQUIRE(x.until([&] { return x.r.ended(sequence{0}) && x.s.ended(sequence{0}); },
                        [&] {
                            if (x.s.read(*m)) std::fill(x.gpu_a.begin(), x.gpu_a.end(), std::byte{0});
                            if (down || x.w.fabric.now() < at) return;
                            down = true;
                            REQUIRE(x.w.command(seed % 2 ? "down A.nic0.p0" : "down B.nic0.p0"));
                        }));
        CHECK(std::equal(original.begin(), original.begin() + std::ptrdiff_t(bytes), x.gpu_b.begin()));
        CHECK(x.engine_a.begun == 21);
        CHECK(x.engine_b.begun == 21);
        if (const auto* e = x.w.tx->handler().first(event::failed_over)) replayed += e->replayed;
    }
    CHECK(replayed > 40);
}

TEST_CASE("Staged messages over stripes survive the loss of a port, too") {
    staged_world<striped_world<2>> x;
    bool down = false;
    REQUIRE(x.s.send(x.gpu_a.data(), device_bytes));
    REQUIRE(x.r.recv(x.gpu_b.data(), device_bytes));
    REQUIRE(x.until([&] { return x.r.ended(sequence{0}) && x.s.ended(sequence{0}); },
                    [&] {
                        if (!down && x.engine_b.begun == 8) REQUIRE(x.w.command("down A.nic0.p1"));
                        down = down || x.engine_b.begun >= 8;
                    }));
    CHECK(down);
    CHECK(x.same(0, 0, device_bytes));
}

TEST_CASE("On a stream: nothing is read before the stream's work is done, earlier messages do not wait for it") {
    plain x;
    pretend_stream stream;
    const auto first = x.s.send(x.gpu_a.data(), 3 * slice);
    const auto second = x.s.send_on(&stream, x.gpu_a.data(), 3 * slice);
    REQUIRE(second);
    CHECK(stream.held_until == 2);
    REQUIRE(x.r.recv(x.gpu_b.data(), device_bytes));
    REQUIRE(x.r.recv(x.gpu_b.data(), device_bytes));
    REQUIRE(x.until([&] { return x.r.ended(*first); }));
    CHECK(!x.until([&] { return x.r.ended(*second); }, [] {}, 2_ms));
    CHECK(x.engine_a.released == 1);
    std::fill(x.gpu_a.begin(), x.gpu_a.end(), std::byte{42});  // what the stream's work writes
    stream.reached = stream.given;
    REQUIRE(x.until([&] { return x.engine_a.released == 2; }));
    std::fill(x.gpu_a.begin(), x.gpu_a.end(), std::byte{0});  // what it writes after it was let go
    REQUIRE(x.until([&] { return x.r.ended(*second); }));
    CHECK(std::all_of(x.gpu_b.begin(), x.gpu_b.begin() + 3 * slice, [](std::byte b) { return b == std::byte{42}; }));
}

TEST_CASE("On a stream: what is received is not written before the stream's work is done, and lets it go when it is there") {
    plain x;
    pretend_stream stream;
    const auto got = x.r.recv_on(&stream, x.gpu_b.data(), 3 * slice);
    REQUIRE(got);
    CHECK(stream.held_until == 1);
    REQUIRE(x.s.send(x.gpu_a.data(), 3 * slice));
    CHECK(!x.until([&] { return x.r.ended(*got); }, [] {}, 2_ms));
    CHECK(std::all_of(x.gpu_b.begin(), x.gpu_b.end(), [](std::byte b) { return b == std::byte{}; }));
    stream.reached = stream.given;
    REQUIRE(x.until([&] { return x.engine_b.released == 1; }));
    CHECK(x.r.ended(*got));
    CHECK(x.same(0, 0, 3 * slice));
}

TEST_CASE("A stream that was destroyed is refused; nothing is queued, the channel goes on") {
    plain x;
    pretend_stream gone{.destroyed = true};
    CHECK(x.s.send_on(&gone, x.gpu_a.data(), slice).error().code == errc::invalid_argument);
    CHECK(x.r.recv_on(&gone, x.gpu_b.data(), slice).error().code == errc::invalid_argument);
    CHECK(x.s.next() == sequence{0});
    REQUIRE(x.s.send(x.gpu_a.data(), slice));
    REQUIRE(x.r.recv(x.gpu_b.data(), slice));
    REQUIRE(x.until([&] { return x.r.ended(sequence{0}); }));
}

TEST_CASE("A copy fails, as when its memory was freed in flight: the channel ends, nothing is called received, streams go on") {
    for (const bool at_sender : {true, false}) {
        plain x;
        pretend_stream stream_a{.reached = 9}, stream_b{.reached = 9};
        (at_sender ? x.engine_a : x.engine_b).fails_at = 3;
        REQUIRE(x.s.send_on(&stream_a, x.gpu_a.data(), 8 * slice));
        REQUIRE(x.r.recv_on(&stream_b, x.gpu_b.data(), 8 * slice));
        REQUIRE(x.until([&] { return !x.s.health() && !x.r.health(); }));
        const status own = at_sender ? x.s.health() : x.r.health(), other = at_sender ? x.r.health() : x.s.health();
        CHECK(own == status{errc::io_error, 700});
        CHECK(other.code == errc::aborted);
        CHECK(!x.r.ended(sequence{0}));
        CHECK(!x.r.outcome(sequence{0}));
        x.pass();
        CHECK(x.engine_a.released >= stream_a.held_until);
        CHECK(x.engine_b.released >= stream_b.held_until);
        CHECK(!x.s.send(x.gpu_a.data(), 1));
    }
}

TEST_CASE("A message larger than a slice begins and ends with small ones, and every byte is in one") {
    for (const std::uint32_t most : {1u, 4096u, 65536u, 1u << 20})
        for (const std::uint32_t least : {0u, 1u, 4096u, 16384u, 1u << 20})
            for (const std::uint64_t bytes : {0u, 1u, 4095u, 65536u, 65537u, 1u << 20, (1u << 20) + 1, 7u << 20, 33333333u}) {
                if (bytes / most > 100000) continue;
                CAPTURE(most);
                CAPTURE(least);
                CAPTURE(bytes);
                std::uint64_t done = 0, previous = 0;
                do {
                    const std::uint32_t n = next_slice(done, bytes - done, most, least);
                    REQUIRE((n != 0 || bytes == 0));
                    REQUIRE(n <= most);
                    if (least < most && bytes > most) {
                        if (done == 0 && least != 0) CHECK(n == least);
                        CHECK((n >= least || n == bytes - done));
                        if (n < previous && least != 0) CHECK(bytes - done <= std::uint64_t{2} * most);  // falls only at the end
                    }
                    previous = n;
                    done += n;
                } while (done < bytes);
                CHECK(done == bytes);
            }
    CHECK(next_slice(0, 1 << 20, 1 << 20, 1 << 16) == 1 << 20);  // fits one slice: one
    CHECK(next_slice(0, 16 << 20, 1 << 20, 1 << 18) == 1 << 18);  // the first
    CHECK(next_slice(1 << 18, 15 << 20, 1 << 20, 1 << 18) == 1 << 19);  // then twice as much
    CHECK(next_slice(8 << 20, 8 << 20, 1 << 20, 1 << 18) == 1 << 20);  // in between
    CHECK(next_slice(15 << 20, 1 << 20, 1 << 20, 1 << 18) == 1 << 19);  // half of what is left
    CHECK(next_slice(15 << 20, 1 << 18, 1 << 20, 1 << 18) == 1 << 18);  // the last
}

TEST_CASE("A message larger than its room fills it, says so, and the next one is whole") {
    plain x;
    REQUIRE(x.s.send(x.gpu_a.data(), 3 * slice + 9));
    REQUIRE(x.s.send(x.gpu_a.data() + 1, slice));
    REQUIRE(x.r.recv(x.gpu_b.data(), slice + 1));
    REQUIRE(x.r.recv(x.gpu_b.data() + 2 * slice, slice));
    REQUIRE(x.until([&] { return x.r.ended(sequence{1}); }));
    CHECK(x.r.outcome(sequence{0}).error().code == errc::message_too_long);
    CHECK(x.r.outcome(sequence{1}).value() == slice);
    CHECK(x.same(0, 0, slice + 1));
    CHECK(x.gpu_b[slice + 1] == std::byte{});
    CHECK(x.same(1, 2 * slice, slice));
}

TEST_CASE("Ends that cut differently find out before the first byte, with both numbers") {
    plain x({{slice, 4}, {slice / 2, 4}});
    REQUIRE(x.s.send(x.gpu_a.data(), slice));
    REQUIRE(x.r.recv(x.gpu_b.data(), slice));
    REQUIRE(x.until([&] { return !x.r.health() && !x.s.health(); }));
    CHECK(x.r.health().code == errc::policy_mismatch);
    CHECK(describe(x.r.health()).find("(bytes a slice: 32768 here, 65536 at the peer)") != std::string::npos);
}

TEST_CASE("A peer that sends no staged slices ends the channel; nothing of it is called received") {
    struct case_of {
        std::uint64_t magic;
        std::uint32_t version;
        std::byte end;
        std::uint32_t bytes;  // of the second chunk
        errc expected;
    };
    constexpr std::uint64_t magic = staging_greeting::magic_value;
    for (const case_of& c :
         {case_of{magic + 1, 1, {}, 9, errc::protocol_violation}, case_of{magic, 2, {}, 9, errc::version_mismatch},
          case_of{magic, 1, std::byte{2}, 9, errc::protocol_violation}, case_of{magic, 1, {}, 0, errc::protocol_violation}}) {
        plain x;
        std::vector<std::byte> bytes(64);
        auto registered = x.w.a.register_memory(bytes.data(), bytes.size());
        REQUIRE(registered);
        ::new (bytes.data()) staging_greeting{c.magic, slice, c.version};
        bytes[32 + 8] = c.end;
        REQUIRE(x.w.tx->send(registered->view(0, sizeof(staging_greeting))));
        REQUIRE(x.w.tx->send(registered->view(32, c.bytes)));
        REQUIRE(x.r.recv(x.gpu_b.data(), slice));
        const auto until_over = [&] { return !x.r.health(); };
        for (const nanoseconds end = x.w.fabric.now() + 1_s; !until_over() && x.w.fabric.now() < end;) {
            x.w.tx->progress();
            x.r.progress();
            x.w.fabric.advance(x.w.pass_time);
        }
        CHECK(x.r.health().code == c.expected);
        CHECK(!x.r.ended(sequence{0}));
    }
}

TEST_CASE("Bad arguments are refused at the call") {
    plain x;
    CHECK(x.s.send(x.gpu_b.data(), 8).error().code == errc::invalid_argument);  // another GPU's memory
    CHECK(x.r.recv(x.gpu_a.data(), 8).error().code == errc::invalid_argument);
    CHECK(x.s.send(x.gpu_a.data() + device_bytes - 4, 8).error().code == errc::invalid_argument);
    for (unsigned i = 0; i < copies_in_flight; ++i) REQUIRE(x.s.send(x.gpu_a.data(), 1));
    CHECK(x.s.send(x.gpu_a.data(), 1).error().code == errc::would_block);
    CHECK(x.r.outcome(sequence{0}).error().code == errc::invalid_argument);
}

TEST_CASE("The ring lies in the backend's own memory where there is enough of that, else in the engine's") {
    const std::uint64_t ring = 2 * (slice + 4096);
    struct case_of {
        std::uint64_t memory;
        unsigned pinned;
    };
    for (const auto& c : {case_of{ring, 1}, case_of{ring - 4096, 0}, case_of{0, 0}}) {
        CAPTURE(c.memory);
        verbs::soft_options o;
        o.memory_bytes = c.memory;
        const std::string name = "test-staging-" + std::to_string(::getpid());
        auto fabric = verbs::soft_fabric::create_shared(name, verbs::soft_topology(2, 1, 1, 1), o);
        REQUIRE(fabric);
        host_context<verbs::soft> context(*fabric->host("A"), fabric->shape());
        host_sender<verbs::soft> tx(context, gpu_id{0}, channel_id{1});
        engine_bench bench;
        const nanoseconds still{};
        staged_sender s(context, tx, pretend_engine(bench, manual_clock{&still}), {slice, 2});
        CHECK(s.open());
        CHECK(bench.pinned == c.pinned);
        CHECK(!context.backend().allocate(ring));  // taken, or not enough
    }
}

TEST_CASE("A ring that cannot be is refused when it is opened, and takes no messages") {
    for (const staging_options& o : {staging_options{slice, 0}, {slice, 3}, {slice, 128}, {0, 8}, {15, 8}}) {
        plain x;
        decltype(x.s) refused(x.w.a, *x.w.tx, pretend_engine(x.engine_a, x.w.fabric.clock()), o);
        CHECK(refused.open().code == errc::invalid_argument);
        CHECK(refused.send(x.gpu_a.data(), 1).error().code == errc::not_connected);
    }
}
