/// \file
/// What a user or a broken exchange can get wrong: blobs, sizes, memory, order of calls, options. Each is refused with its
/// own error and nothing else happens. Manual clock.

#include "checks.hpp"

#include <sys/mman.h>

#include <optional>

using namespace vccl_test;

namespace {

using ordinary = soft_world<>;

/// Both ends of a channel, not connected.
struct blobs {
    ordinary w;
    std::vector<std::byte> tx, rx;
    connection_blob of_tx, of_rx;
    blobs() : blobs(world_options{}) {}
    explicit blobs(const world_options& o) : w(o) {
        tx = *w.tx->local_info();
        rx = *w.rx->local_info();
        of_tx = ordinary::read_blob(tx);
        of_rx = ordinary::read_blob(rx);
    }
    /// Both refuse what they are given, and a proper exchange works afterwards.
    void still_fine() {
        CHECK_FALSE(w.tx->connected());
        CHECK_FALSE(w.rx->connected());
        CHECK_FALSE(w.tx->progress());
        CHECK(w.tx->health());
        start(w);
        REQUIRE(w.transfer(20));
        exact(w, 20);
    }
};

errc at_sender(blobs& b, const std::vector<std::byte>& raw) { return b.w.tx->begin_connect(raw).code; }
errc at_receiver(blobs& b, const std::vector<std::byte>& raw) { return b.w.rx->begin_connect(raw).code; }

/// The receiver is given the sender's blob with one thing changed and a new checksum.
template <class Change>
status changed(blobs& b, Change change) {
    connection_blob c = b.of_tx;
    change(c);
    return b.w.rx->begin_connect(encode_blob(c));
}

}  // namespace

TEST_CASE("A blob cut at any length, or longer than it says, is a bad blob") {
    blobs b;
    for (std::size_t n = 0; n < b.tx.size(); ++n) {
        REQUIRE(at_receiver(b, {b.tx.begin(), b.tx.begin() + static_cast<std::ptrdiff_t>(n)}) == errc::bad_blob);
        if (n < b.rx.size())
            REQUIRE(at_sender(b, {b.rx.begin(), b.rx.begin() + static_cast<std::ptrdiff_t>(n)}) == errc::bad_blob);
    }
    for (std::size_t more : {1u, 7u, 4096u}) {
        auto longer = b.tx;
        longer.resize(longer.size() + more);
        CHECK(at_receiver(b, longer) == errc::bad_blob);
    }
    b.still_fine();
}

TEST_CASE("A blob with any bit of any byte flipped is refused") {
    blobs b;
    for (std::size_t i = 0; i < b.tx.size(); ++i)
        for (unsigned mask : {0x01u, 0x80u, 0xffu}) {
            auto damaged = b.tx;
            damaged[i] ^= static_cast<std::byte>(mask);
            const bool version = i == offsetof(connection_blob, version) || i == offsetof(connection_blob, version) + 1;
            REQUIRE(at_receiver(b, damaged) == (version ? errc::version_mismatch : errc::bad_blob));
            damaged = b.rx;
            damaged[i] ^= static_cast<std::byte>(mask);
            REQUIRE(at_sender(b, damaged) == (version ? errc::version_mismatch : errc::bad_blob));
        }
    b.still_fine();
}

TEST_CASE("A blob of another version is refused by its version, whatever follows") {
    blobs b;
    std::vector<std::byte> other = b.tx;
    const std::uint16_t version = wire_version + 1;
    std::memcpy(other.data() + offsetof(connection_blob, version), &version, sizeof version);
    std::fill(other.begin() + 8, other.end(), std::byte{0x5a});
    const status s = b.w.rx->begin_connect(other);
    CHECK(s.code == errc::version_mismatch);
    CHECK(s == status{errc::version_mismatch, subject::wire_version, wire_version, version});
    for (const std::size_t bytes : {std::size_t{8}, sizeof(connection_blob) + 1000}) {  // another version, another size
        other.resize(bytes);
        CHECK(b.w.rx->begin_connect(other) == s);
    }
    b.still_fine();
}

TEST_CASE("A blob of another role, session or channel is another peer's") {
    blobs b;
    CHECK(b.w.tx->begin_connect(b.tx) == status{errc::wrong_peer, subject::role, 1, 1});
    CHECK(b.w.rx->begin_connect(b.rx) == status{errc::wrong_peer, subject::role, 2, 2});
    CHECK(changed(b, [](auto& c) { c.role = static_cast<endpoint_role>(0); }) == status{errc::wrong_peer, subject::role, 2, 0});
    CHECK(changed(b, [](auto& c) { c.role = static_cast<endpoint_role>(77); }) == status{errc::wrong_peer, subject::role, 2, 77});
    CHECK(changed(b, [](auto& c) { c.session ^= 1; }) == status{errc::wrong_peer, subject::session_low, 0, 1});
    CHECK(changed(b, [](auto& c) { c.session = std::uint64_t{9} << 32; }) ==
          status{errc::wrong_peer, subject::session_high, 0, 9});
    CHECK(changed(b, [](auto& c) { c.channel ^= 1; }) == status{errc::wrong_peer, subject::channel, 7, 6});
    b.still_fine();
}

TEST_CASE("Ends with different numbers of QPs or lanes, or other rails, do not fit") {
    blobs b;
    status s = changed(b, [](auto& c) { c.group = 4; });
    CHECK(s == status{errc::policy_mismatch, subject::qps, 1, 4});
    s = changed(b, [](auto& c) { c.lanes = 1; });
    CHECK(s == status{errc::policy_mismatch, subject::lanes, 2, 1});
    s = changed(b, [](auto& c) { c.lane[1].rail = 3; });
    CHECK(s.code == errc::rail_mismatch);
    CHECK(s.lane == 1);
    CHECK(s.detail == 1);
    CHECK(s.extra == 3);
    CHECK(changed(b, [](auto& c) { c.lane[0].link ^= 1; }).about == subject::link);
    CHECK(changed(b, [](auto& c) { c.lanes = 0; }).code == errc::bad_blob);
    b.still_fine();
}

TEST_CASE("A sender's ring that cannot be one makes a bad blob") {
    blobs b;
    CHECK(changed(b, [](auto& c) { c.ring_depth = 0; }).code == errc::bad_blob);
    CHECK(changed(b, [](auto& c) { c.ring_depth = 3; }).code == errc::bad_blob);
    CHECK(changed(b, [](auto& c) { c.ring_depth = 2 * max_window; }).code == errc::bad_blob);
    CHECK(changed(b, [](auto& c) { c.ring_depth = 0x80000000; }).code == errc::bad_blob);
    CHECK(changed(b, [](auto& c) { c.ring_addr += 8; }).code == errc::bad_blob);
    b.still_fine();
}

TEST_CASE("Real ends that do not fit each other refuse each other") {
    blobs b;
    soft_world<4> four;
    CHECK(four.rx->begin_connect(b.tx).code == errc::policy_mismatch);
    CHECK(four.tx->begin_connect(b.rx).code == errc::policy_mismatch);
    world_options o;
    o.tx.lanes = o.rx.lanes = 1;
    blobs one(o);
    CHECK(one.w.rx->begin_connect(b.tx).code == errc::policy_mismatch);
    CHECK(b.w.tx->begin_connect(one.rx).code == errc::policy_mismatch);
    o = {};
    o.tx.session = o.rx.session = 5;
    blobs job(o);
    CHECK(job.w.rx->begin_connect(b.tx) == status{errc::wrong_peer, subject::session_low, 5, 0});
    b.still_fine();
}

TEST_CASE("An out-of-band address that leads nowhere is refused; the right one works afterwards") {
    blobs b;
    connection_blob c = b.of_rx;
    c.oob = std::string_view("memory:no such");
    CHECK(b.w.tx->begin_connect(encode_blob(c)).code == errc::not_found);
    for (int i = 0; i < 100; ++i) CHECK_FALSE(b.w.tx->progress());
    CHECK(b.w.tx->send(memory_view{}).error().code == errc::not_connected);
    b.still_fine();
}

TEST_CASE("Blobs that a liar sealed properly end in an error or nowhere, never in a crash") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        blobs b;
        std::uint64_t random = seed * 0x9e3779b97f4a7c15u;
        auto pick = [&](std::uint64_t n) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            return random % n;
        };
        auto lie = [&](connection_blob c) {
            // Anything behind the header fields, which other tests cover one by one.
            auto* raw = reinterpret_cast<unsigned char*>(&c);
            for (std::uint64_t n = 1 + pick(3); n != 0; --n) {
                const std::size_t from = offsetof(connection_blob, nonce);
                raw[from + pick(blob_size(c.lanes) - from)] = static_cast<unsigned char>(random >> 32);
            }
            return encode_blob(c);
        };
        const bool both = pick(2) != 0;
        const status r = b.w.rx->begin_connect(lie(b.of_tx)), t = b.w.tx->begin_connect(both ? lie(b.of_rx) : b.rx);
        auto m = b.w.b.register_memory(b.w.in.data(), b.w.in.size());
        auto n = b.w.a.register_memory(b.w.out.data(), b.w.out.size());
        REQUIRE(m);
        REQUIRE(n);
        for (int i = 0; i < 400; ++i) {
            if (i == 100 && r) (void)b.w.rx->recv(m->view(0, 4096));
            if (i == 100 && t) (void)b.w.tx->send(n->view(0, 4096));
            b.w.pass_time = 50_us;
            b.w.pass();
        }
        CHECK(b.w.tx->handler().chunks.size() <= 1);
    }
}

TEST_CASE("Calls before the connection say so; a second connection is refused") {
    ordinary w;
    CHECK_FALSE(w.tx->progress());
    CHECK_FALSE(w.rx->progress());
    CHECK(w.tx->send(memory_view{}).error().code == errc::not_connected);
    CHECK(w.rx->recv(memory_view{}).error().code == errc::not_connected);
    CHECK(w.tx->wait(sequence{0}, 1_s).code == errc::not_connected);
    CHECK(w.rx->wait(sequence{0}, 1_s).error().code == errc::not_connected);
    CHECK(w.tx->close(1_s).code == errc::not_connected);
    CHECK(w.rx->wait_closed(1_s).code == errc::not_connected);
    CHECK(w.tx->wait_all(1_s));
    CHECK(w.tx->state() == channel_state::connecting);
    CHECK(w.rx->outcome(sequence{0}).error().code == errc::invalid_argument);
    w.tx->abort();
    w.rx->abort();
    start(w);
    CHECK(w.tx->begin_connect(w.receiver_blob).code == errc::already_connected);
    CHECK(w.rx->begin_connect(w.sender_blob).code == errc::already_connected);
    CHECK(w.tx->wait(sequence{0}, 1_s).code == errc::invalid_argument);
    REQUIRE(w.transfer(20));
    exact(w, 20);
}

TEST_CASE("Options out of their range are refused before anything is opened") {
    auto refused = [](auto change) {
        world_options o;
        change(o.tx);
        change(o.rx);
        ordinary w(o);
        const status t = w.tx->local_info().error(), r = w.rx->local_info().error();
        CHECK(t.code == r.code);
        CHECK(w.a.open_ports() + w.b.open_ports() == 0);
        return t.code;
    };
    CHECK(refused([](auto& e) { e.lanes = 0; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.lanes = max_lanes + 1; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.first_lane = 8; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.first_lane = 2; }) == errc::no_port);
    CHECK(refused([](auto& e) { e.window = 0; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.window = 48; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.window = 512; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.max_chunk = 0; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.max_chunk = (1u << 30) + 1; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.timers.timeout = 32; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.timers.retry_count = 8; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.timers.rnr_retry = 8; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.timers.min_rnr_timer = 32; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.give_up_after = nanoseconds{-1}; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.peer_grace = nanoseconds{-1}; }) == errc::invalid_argument);
    CHECK(refused([](auto& e) { e.ack_delay = nanoseconds{-1}; }) == errc::invalid_argument);
}

TEST_CASE("GPUs and ports that do not exist are refused") {
    ordinary w;
    using tx = std::remove_reference_t<decltype(*w.tx)>;
    auto made = [&](auto place) {
        return tx(w.a, place, channel_id{1}, {}, {}, journal{}, {}, detect{}, w.fabric.clock()).local_info().error().code;
    };
    CHECK(made(gpu_id{77}) == errc::invalid_argument);
    CHECK(made(port_id{77}) == errc::no_port);
    CHECK(made(port_id{0}) == errc::ok);
    CHECK(made(gpu_id{2}) != errc::ok);  // B's GPU, on A
}

TEST_CASE("A send larger than its receive: both ends are told, and the stream goes on") {
    for (bool fault : {false, true}) {
        CAPTURE(fault);
        ordinary w;
        start(w);
        const std::uint32_t room = 1000;
        std::vector<std::uint64_t> sent;
        for (std::uint64_t i = 0; i < 30; ++i) {
            REQUIRE(w.rx->recv(w.in_memory.view(i * 2000, room)));
            const std::uint64_t n = i % 3 == 1 ? room + 1 + i * 30 : i % 3 == 2 ? room : 100;
            std::fill_n(w.out.begin() + static_cast<std::ptrdiff_t>(i * 2000), n, std::byte{static_cast<unsigned char>(i + 1)});
            REQUIRE(w.tx->send(w.out_memory.view(i * 2000, n)));
            sent.push_back(n);
        }
        if (fault) REQUIRE(w.until([&] { return w.rx->received().value >= 5; }));
        if (fault) REQUIRE(w.command("down A.nic0.p0"));
        REQUIRE(w.until([&] { return w.tx->acknowledged().value == 30; }, 2_s));
        for (std::uint64_t i = 0; i < 30; ++i) {
            CAPTURE(i);
            const bool long_one = sent[i] > room;
            CHECK(w.rx->outcome(sequence{i}).error().code == (long_one ? errc::message_too_long : errc::ok));
            CHECK(w.tx->wait(sequence{i}, 1_s).code == (long_one ? errc::message_too_long : errc::ok));
            CHECK(w.tx->outcome(sequence{i}).code == (long_one ? errc::message_too_long : errc::ok));
            CHECK(w.rx->handler().chunks[i].outcome.code == (long_one ? errc::message_too_long : errc::ok));
            CHECK(w.tx->handler().chunks[i].outcome.code == (long_one ? errc::message_too_long : errc::ok));
            const std::byte* p = w.in.data() + i * 2000;
            const std::uint64_t arrived = long_one ? 0 : sent[i];
            CHECK(std::all_of(p, p + arrived, [&](std::byte b) { return b == std::byte{static_cast<unsigned char>(i + 1)}; }));
            CHECK(std::all_of(p + arrived, p + 2000, [](std::byte b) { return b == std::byte{0}; }));
        }
        CHECK(w.tx->health());
        CHECK(w.rx->health());
    }
}

TEST_CASE("Chunks above the configured maximum, up to beyond 4 GiB, are too large") {
    world_options o;
    o.tx.max_chunk = o.rx.max_chunk = 5000;
    ordinary w(o);
    start(w);
    CHECK(w.tx->send(w.out_memory.view(0, 5001)).error() == status{errc::too_large, subject::bytes, 5000, 5001});
    CHECK(w.rx->recv(w.in_memory.view(0, 5001)).error() == status{errc::too_large, subject::bytes, 5000, 5001});
    CHECK(w.tx->send(w.out_memory.view(0, 5000)));
    CHECK(w.rx->recv(w.in_memory.view(0, 5000)));
    REQUIRE(w.until([&] { return w.tx->acknowledged().value == 1; }));

    ordinary large;
    start(large);
    const std::size_t bytes = (std::size_t{4} << 30) + 4096;  // an address range; never touched
    void* range = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(range != MAP_FAILED);
    {
        auto m = large.a.register_memory(range, bytes);
        auto n = large.b.register_memory(range, bytes);
        REQUIRE(m);
        REQUIRE(n);
        for (std::uint64_t size : {(std::uint64_t{1} << 30) + 1, std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 1}) {
            CHECK(large.tx->send(m->view(0, size)).error().code == errc::too_large);
            CHECK(large.rx->recv(n->view(0, size)).error().code == errc::too_large);
        }
        CHECK(m->release());
        CHECK(n->release());
    }
    ::munmap(range, bytes);
    REQUIRE(large.transfer(20));
    exact(large, 20);
}

TEST_CASE("Memory that is not registered, no longer registered, or reached beyond is refused") {
    ordinary w;
    start(w);
    std::vector<std::byte> bytes(4096);
    CHECK(w.rx->recv(memory_view{}).error().code == errc::not_registered);
    CHECK(w.a.register_memory(nullptr, 10).error().code == errc::invalid_argument);
    CHECK(w.a.register_memory(bytes.data(), 0).error().code == errc::invalid_argument);

    auto m = w.a.register_memory(bytes.data(), bytes.size());
    REQUIRE(m);
    const std::uint64_t most = ~std::uint64_t{0};
    const struct {
        std::uint64_t offset, size;
    } beyond[] = {{0, 4097}, {1, 4096}, {4096, 1}, {4097, 0}, {most, 1}, {most, 2}, {most - 4095, 8192}, {8, most}, {most, most}};
    for (const auto& piece : beyond) {
        CAPTURE(piece.offset);
        CAPTURE(piece.size);
        const errc c = w.tx->send(m->view(piece.offset, piece.size)).error().code;
        CHECK((c == errc::out_of_range || (c == errc::too_large && piece.size > w.o.tx.max_chunk)));
    }
    CHECK(w.tx->send(m->view(4096, 0)));  // the end of it, no byte
    const memory_view old = m->view(0, 100), old_small = m->view(0, 1), old_none = m->view(0, 0);
    REQUIRE(w.rx->recv(w.in_memory.view(0, 100)));
    REQUIRE(w.until([&] { return w.tx->acknowledged().value == 1; }));
    REQUIRE(m->release());
    CHECK(m->release().code == errc::not_registered);
    CHECK(w.tx->send(old).error().code == errc::not_registered);
    CHECK(w.tx->send(old_small).error().code == errc::not_registered);
    CHECK(w.tx->send(old_none).error().code == errc::not_registered);
    // Something else is registered meanwhile, at another place or at the same.
    std::vector<std::byte> other(4096);
    auto later = w.a.register_memory(other.data(), other.size());
    REQUIRE(later);
    CHECK(w.tx->send(old).error().code == errc::not_registered);
    CHECK(m->view(0, 100).check().code == errc::not_registered);
    CHECK(w.tx->next().value == 1);
    REQUIRE(w.tx->send(memory_view{}));  // no bytes of nothing are a chunk, too
    REQUIRE(w.rx->recv(w.in_memory.view(0, 100)));
    REQUIRE(w.until([&] { return w.tx->acknowledged().value == 2; }));
    CHECK(w.rx->outcome(sequence{1}).value_or(99) == 0);
}

TEST_CASE("More outstanding than the FIFO or the window holds would block, and nothing is lost") {
    soft_world<1, hold_down<1>, sibling_port, rollback_fifo<8>> w;
    start(w);
    w.o.rx.window = 64;
    for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(w.tx->send(w.out_memory.view(i * 64, 64)).value_or(sequence{99}).value == i);
    for (int i = 0; i < 5; ++i)
        CHECK(w.tx->send(w.out_memory.view(0, 64)).error() == status{errc::would_block, subject::room, 8});
    for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(w.rx->recv(w.in_memory.view(i * 64, 64)).value_or(sequence{99}).value == i);
    for (int i = 0; i < 5; ++i)
        CHECK(w.rx->recv(w.in_memory.view(0, 64)).error() == status{errc::would_block, subject::room, 64});
    REQUIRE(w.until([&] { return w.tx->acknowledged().value == 8; }));
    for (std::uint64_t i = 8; i < 64; ++i) {
        while (!w.tx->send(w.out_memory.view(i * 64, 64))) w.pass();
    }
    REQUIRE(w.until([&] { return w.rx->received().value == 64; }));
    CHECK(w.rx->handler().chunks.size() == 64);
    CHECK(w.in_memory.release());
    REQUIRE(w.until([&] { return w.tx->acknowledged().value == 64; }));
    CHECK(w.out_memory.release());
}

TEST_CASE("Memory registered with another context is not registered here, and naming it harms nothing") {
    ordinary w;
    start(w);
    std::vector<std::byte> more(4096);
    auto in_a = w.a.register_memory(more.data(), more.size());
    REQUIRE(in_a);
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{64}, std::uint64_t{w.o.chunk}}) {
        CHECK(w.tx->send(w.in_memory.view(0, bytes)).error().code == errc::not_registered);
        CHECK(w.rx->recv(w.out_memory.view(0, bytes)).error().code == errc::not_registered);
    }
    CHECK(w.rx->recv(in_a->view()).error().code == errc::not_registered);
    CHECK(w.in_memory.view().check());
    REQUIRE(w.transfer(40));
    exact(w, 40);
}

TEST_CASE("Memory with work in flight is busy; let go of all the same, it serves until the work has ended") {
    for (bool fault : {false, true}) {
        CAPTURE(fault);
        ordinary w;
        start(w);
        w.users(16, [&](std::uint64_t) { return w.o.chunk; });
        for (int i = 0; i < 8; ++i) w.pass();
        if (fault) REQUIRE(w.command("down A.nic0.p0"));
        status s = w.out_memory.release();
        const auto flying = [](sequence from, sequence to) { return static_cast<std::uint32_t>(to.value - from.value); };
        CHECK(s == status{errc::busy, subject::in_flight, flying(w.tx->acknowledged(), w.tx->next())});
        s = w.in_memory.release();
        CHECK(s == status{errc::busy, subject::in_flight, flying(w.rx->received(), w.rx->next())});
        w.out_memory = {};
        w.in_memory = {};
        while (w.tx->acknowledged().value < 16 && w.fabric.now() < 5_s) w.pass();
        w.users(16, [&](std::uint64_t) { return w.o.chunk; });
        exact(w, 16);
    }
}

namespace {

/// A chunk's memory goes as soon as it is acknowledged, while the NIC still repeats the WRITE, its own acknowledgement being
/// lost; `behind` further chunks are in flight then, as the receiver stands still.
template <unsigned Qps>
void memory_goes(const std::string& port, std::uint32_t bytes, unsigned behind) {
    CAPTURE(Qps);
    CAPTURE(port);
    CAPTURE(bytes);
    CAPTURE(behind);
    world_options o;
    o.chunk = bytes;
    soft_world<Qps> w(o);
    start(w);
    REQUIRE(w.transfer(20));
    std::vector<std::byte> once(2 * bytes, std::byte{42}), taken(once.size());
    auto from = w.a.register_memory(once.data(), once.size());
    auto to = w.b.register_memory(taken.data(), taken.size());
    REQUIRE((from && to));
    REQUIRE(w.command("drop-acks " + port));
    REQUIRE(w.rx->recv(to->view()));
    REQUIRE(w.tx->send(from->view()));
    REQUIRE(w.until([&] { return w.tx->acknowledged().value == 21 && w.rx->received().value == 21; }, 2_s));
    CHECK(taken == once);
    CHECK(from->release());
    CHECK(to->release());
    w.sent = w.checked = 21;
    w.sizes.push_back(0);
    w.users(21 + behind, [&](std::uint64_t) { return bytes; });
    for (int i = 0; i < 20; ++i) w.rx->progress();
    for (int i = 0; i < 4000; ++i) {
        w.tx->progress();
        w.fabric.advance(100_us);
    }
    w.rest(2_s);
    CHECK(w.tx->health());
    CHECK(w.rx->health());
    REQUIRE(w.command("clear " + port));
    REQUIRE(w.transfer(60));
    CHECK(w.wrong == 0);
}

}  // namespace

TEST_CASE("Memory goes as soon as its chunk is acknowledged, while the NIC still repeats the WRITE: only the lane suffers") {
    for (const std::string port : {"A.nic0.p0", "B.nic0.p0"})
        for (const unsigned behind : {0u, 1u, 3u, 7u})
            for (const std::uint32_t bytes : {4096u, 64 * 1024u}) {
                memory_goes<1>(port, bytes, behind);
                memory_goes<2>(port, bytes, behind);
                memory_goes<4>(port, bytes, behind);
                memory_goes<8>(port, bytes, behind);
            }
}

namespace {
struct severe : journal {
    static verdict on_error(const completion&) noexcept { return verdict::abort; }
};
}  // namespace

TEST_CASE("A handler that judges an error is the judge, also of a WRITE whose chunk was acknowledged") {
    using sender = host_sender<verbs::soft, sibling_port, severe, manual_clock, testing::memory_oob>;
    using receiver = host_receiver<verbs::soft, sibling_port, severe, manual_clock, testing::memory_oob>;
    soft_world<> shape;
    sender tx(shape.a, gpu_id{0}, channel_id{9}, {}, {}, {}, {}, {}, shape.fabric.clock());
    receiver rx(shape.b, gpu_id{2}, channel_id{9}, {}, {}, {}, {}, {}, shape.fabric.clock());
    auto there = tx.local_info(), back = rx.local_info();
    REQUIRE((there && back && tx.begin_connect(*back) && rx.begin_connect(*there)));
    const auto pass = [&](int times) {
        for (int i = 0; i < times; ++i) {
            tx.progress();
            rx.progress();
            shape.fabric.advance(10_us);
        }
    };
    pass(200);
    auto from = shape.a.register_memory(shape.out.data(), 4096), to = shape.b.register_memory(shape.in.data(), 4096);
    REQUIRE((from && to && shape.command("drop-acks A.nic0.p0") && rx.recv(to->view()) && tx.send(from->view())));
    pass(200);
    REQUIRE(tx.acknowledged().value == 1);
    pass(40'000);
    CHECK(tx.health().code != errc::ok);
}

TEST_CASE("What was said last gets through, though its end is not looked at again") {
    for (const std::string breaks : {"down all", "loss all 100%"}) {
        CAPTURE(breaks);
        {
            soft_world<> w;
            start(w);
            REQUIRE(w.transfer(20));
            REQUIRE(w.command(breaks));
            status closed = errc::timeout;
            for (int i = 0; i < 200'000 && w.rx->state() != channel_state::closed; ++i) {
                if (closed.code == errc::timeout) closed = w.tx->close(nanoseconds{0});
                w.pass();
            }
            REQUIRE(w.rx->state() == channel_state::closed);
            for (int i = 0; i < 20'000 && closed.code == errc::timeout; ++i) {
                closed = w.tx->close(nanoseconds{0});
                w.tx->progress();
                w.fabric.advance(w.pass_time);
            }
            CHECK(closed);
        }
        {
            soft_world<> w;
            start(w);
            REQUIRE(w.transfer(20));
            REQUIRE(w.command(breaks));
            w.rest(1_s);
            w.rx->abort();
            for (int i = 0; i < 20'000 && w.tx->health(); ++i) {
                w.tx->progress();
                w.fabric.advance(w.pass_time);
            }
            CHECK(w.tx->health().code == errc::aborted);
        }
    }
}

TEST_CASE("Endpoints go with work in flight and faults pending, in any order") {
    for (const std::string fault : {"", "down A.nic0.p0", "down B.nic0.p0", "down all", "hang A", "loss all 50%",
                                    "error A.nic0.p0", "gid-change B.nic0.p0"})
        for (int order = 0; order < 4; ++order)
            for (int passes : {0, 1, 600, 20'000}) {
                CAPTURE(fault);
                CAPTURE(order);
                CAPTURE(passes);
                ordinary w;
                start(w);
                REQUIRE_FALSE(w.transfer(
                    200, [] {}, 100_us));
                if (!fault.empty()) REQUIRE(w.command(fault));
                for (int i = 0; i < passes; ++i) w.pass();
                auto rest = [&] {
                    for (int i = 0; i < 200; ++i) {
                        if (w.tx) w.tx->progress();
                        if (w.rx) w.rx->progress();
                        w.fabric.advance(20_us);
                    }
                };
                if (order & 2) {
                    w.out_memory = {};
                    w.in_memory = {};
                }
                if (order & 1)
                    w.tx.reset();
                else
                    w.rx.reset();
                rest();
                CHECK((w.tx ? w.tx->health() : w.rx->health()).code == errc::aborted);
                w.tx.reset();
                w.rx.reset();
                if (!(order & 2)) {
                    CHECK(w.out_memory.release());
                    CHECK(w.in_memory.release());
                }
                w.fabric.advance(1_s);
            }
}

TEST_CASE("The same context carries a new channel after the old one has gone with a fault pending") {
    ordinary w;
    start(w);
    REQUIRE_FALSE(w.transfer(200, at_chunk(w, 20, "down A.nic0.p0"), 1_ms));
    w.tx.reset();
    w.rx.reset();
    w.sent = w.checked = 0;
    w.sizes.clear();
    using sender = std::remove_reference_t<decltype(*w.tx)>;
    using receiver = std::remove_reference_t<decltype(*w.rx)>;
    w.tx = std::make_unique<sender>(w.a, gpu_id{0}, channel_id{8}, endpoint_options{}, sibling_port{}, journal{},
                                    rollback_fifo<64>{}, detect{}, w.fabric.clock());
    w.rx = std::make_unique<receiver>(w.b, gpu_id{2}, channel_id{8}, endpoint_options{}, sibling_port{}, journal{},
                                      hold_down<1>{}, detect{}, w.fabric.clock());
    std::fill(w.in.begin(), w.in.end(), ordinary::consumed);
    start(w);
    CHECK(w.rx->active_lane() == lane_id{1});
    REQUIRE(w.transfer(60));
    exact(w, 60);
}
