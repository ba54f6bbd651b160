#include "striped_world.hpp"

#include <vccl/base/status_text.hpp>

using namespace vccl_test;

namespace {

world_options dual() {
    world_options o;
    o.nics = 2;
    o.ports = 2;
    o.chunk = 128 * 1024;
    return o;
}
using two = striped_world<2>;

/// Gives the receiver's blob, as changed, to the sender.
template <class Change>
status given(Change&& change) {
    two w(dual());
    auto of_rx = w.rx->local_info();
    REQUIRE(of_rx);
    change(*of_rx);
    return w.tx->begin_connect(*of_rx);
}
/// Makes a changed blob whole again, as a liar would.
void seal(std::vector<std::byte>& raw) {
    const std::uint64_t sum = stripe_checksum(raw);
    std::memcpy(raw.data() + offsetof(stripe_blob_head, checksum), &sum, sizeof sum);
}

}  // namespace

TEST_CASE("A blob of stripes that is short, damaged, foreign or lies about its lengths is refused") {
    CHECK(given([](auto&) {}));
    CHECK(given([](auto& b) { b.clear(); }).code == errc::bad_blob);
    CHECK(given([](auto& b) { b.resize(sizeof(stripe_blob_head)); }).code == errc::bad_blob);
    CHECK(given([](auto& b) { b.pop_back(); }).code == errc::bad_blob);
    CHECK(given([](auto& b) { b.push_back(std::byte{}); }).code == errc::bad_blob);
    CHECK(given([](auto& b) { b[b.size() / 2] ^= std::byte{1}; }).code == errc::bad_blob);
    CHECK(given([](auto& b) {
              b[4] = std::byte{99};
              seal(b);
          }).code == errc::version_mismatch);
    for (std::uint32_t lie : {0u, 1u, 0xffffffffu}) {
        const status s = given([lie](auto& b) {
            std::memcpy(b.data() + sizeof(stripe_blob_head), &lie, sizeof lie);
            seal(b);
        });
        CHECK(s.code == errc::bad_blob);
    }
}

TEST_CASE("Every cut and every flipped byte of a blob is refused or harmless, never a crash") {
    two w(dual());
    const auto whole = w.rx->local_info();
    REQUIRE(whole);
    for (std::size_t n = 0; n < whole->size(); n += 7) {
        std::vector<std::byte> raw(whole->begin(), whole->begin() + static_cast<std::ptrdiff_t>(n));
        CHECK(!decode_stripes(raw, 2));
        raw = *whole;
        raw[n] ^= std::byte{0x40};
        CHECK(!decode_stripes(raw, 2));
        seal(raw);
        (void)decode_stripes(raw, 2);
    }
}

TEST_CASE("Ends with different numbers of stripes say so with both numbers") {
    two w(dual());
    striped_world<3> v(dual());
    const auto of_rx = v.rx->local_info();
    REQUIRE(of_rx);
    const status s = w.tx->begin_connect(*of_rx);
    CHECK(s.code == errc::policy_mismatch);
    CHECK(describe(s).find("(stripes: 2 here, 3 at the peer)") != std::string::npos);
}

TEST_CASE("Stripes that were swapped on the way are refused") {
    const status s = given([](auto& b) {
        const std::size_t head = sizeof(stripe_blob_head), one = (b.size() - head) / 2;
        std::swap_ranges(b.begin() + static_cast<std::ptrdiff_t>(head), b.begin() + static_cast<std::ptrdiff_t>(head + one),
                         b.begin() + static_cast<std::ptrdiff_t>(head + one));
        seal(b);
    });
    CHECK(s.code == errc::wrong_peer);
}

TEST_CASE("A sender that names no home stripe, or one that does not exist, is refused by the receiver") {
    for (unsigned homes : {0u, 4u, 0xffu}) {
        two w(dual());
        auto of_tx = w.tx->local_info();
        REQUIRE(of_tx);
        (*of_tx)[offsetof(stripe_blob_head, homes)] = static_cast<std::byte>(homes);
        seal(*of_tx);
        CHECK(w.rx->begin_connect(*of_tx).code == errc::bad_blob);
    }
}

TEST_CASE("More stripes than ports: an error that says how many there are") {
    world_options o = dual();
    o.nics = 1;
    striped_world<3> w(o);
    const auto blob = w.tx->local_info();
    REQUIRE(!blob);
    CHECK(blob.error() == status{errc::no_port, 2});
}

TEST_CASE("Before connecting, and with bad buffers, send and recv say why") {
    two w(dual());
    CHECK(w.tx->send({}).error().code == errc::not_connected);
    CHECK(w.rx->recv({}).error().code == errc::not_connected);
    start(w);
    CHECK(w.tx->send(memory_view{w.out_memory.region(), 0, 0, 8}).error().code == errc::out_of_range);
    CHECK(w.tx->send(w.in_memory.view(0, 8)).error().code == errc::not_registered);  // of the other host's context
    CHECK(w.rx->recv({}).error().code == errc::not_registered);
    for (unsigned i = 0; i < w.o.rx.window; ++i) REQUIRE(w.rx->recv(w.in_memory.view(0, w.o.chunk)));
    CHECK(w.rx->recv(w.in_memory.view(0, w.o.chunk)).error().code == errc::would_block);
    for (unsigned i = 0; i < 64; ++i) REQUIRE(w.tx->send(w.out_memory.view(0, 8)));
    CHECK(w.tx->send(w.out_memory.view(0, 8)).error().code == errc::would_block);
    REQUIRE(w.until([&] { return w.rx->received().value == 64; }));
}

TEST_CASE("Memory let go of while a chunk waits for its grant stays valid until the chunk has ended") {
    two w(dual());
    start(w);
    const auto s = w.tx->send(w.out_memory.view(0, w.o.chunk));
    REQUIRE(s);
    CHECK(w.out_memory.release().code == errc::busy);
    w.out_memory = memory{};
    REQUIRE(w.rx->recv(w.in_memory.view(0, w.o.chunk)));
    REQUIRE(w.until([&] { return w.tx->ended(*s); }));
    CHECK(w.rx->outcome(sequence{0}).value() == w.o.chunk);
}
