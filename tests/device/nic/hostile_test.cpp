// WQEs and doorbells that no encoder makes. Whatever the bytes: an error CQE for the first bad WQE, flush errors behind it, no
// byte outside registered memory touched, no crash.

#include "feed.hpp"
#include "world.hpp"

#include <random>

namespace {

using namespace ring_test;

struct bad_wqe {
    const char* what;
    void (*spoil)(wqe_block&);
    syndrome why;
    wqe_fault fault;
};
void set_ds(wqe_block& b, unsigned ds) { b.word[0] = (b.word[0] & ~(0xffull << 56)) | std::uint64_t{ds} << 56; }
void set_opcode(wqe_block& b, unsigned op) { b.word[0] = (b.word[0] & ~(0xffull << 24)) | std::uint64_t{op} << 24; }
void set_opmod(wqe_block& b, unsigned m) { b.word[0] = (b.word[0] & ~0xffull) | m; }

constexpr syndrome op_error = syndrome::local_qp_operation;
const bad_wqe bad_writes[] = {
    {"index", [](wqe_block& b) { b.word[0] ^= 1ull << 16; }, op_error, wqe_fault::wrong_index},
    {"qpn", [](wqe_block& b) { b.word[0] ^= 1ull << 40; }, op_error, wqe_fault::wrong_qpn},
    {"opcode SEND", [](wqe_block& b) { set_opcode(b, 0x0a); }, op_error, wqe_fault::unknown_opcode},
    {"opcode ff", [](wqe_block& b) { set_opcode(b, 0xff); }, op_error, wqe_fault::unknown_opcode},
    {"opmod", [](wqe_block& b) { set_opmod(b, 9); }, op_error, wqe_fault::wrong_opmod},
    {"ds 0", [](wqe_block& b) { set_ds(b, 0); }, op_error, wqe_fault::wrong_segments},
    {"ds 2", [](wqe_block& b) { set_ds(b, 2); }, op_error, wqe_fault::wrong_segments},
    {"ds 4", [](wqe_block& b) { set_ds(b, 4); }, op_error, wqe_fault::wrong_segments},
    {"ds 255", [](wqe_block& b) { set_ds(b, 255); }, op_error, wqe_fault::wrong_segments},
    {"20 bytes inline in 3 segments", [](wqe_block& b) { b.word[4] = big_endian_pair(0x80000014, 0); }, op_error,
     wqe_fault::wrong_segments},
    {"inline READ", [](wqe_block& b) { set_opcode(b, 0x10), b.word[4] |= 0x80; }, op_error, wqe_fault::inline_misused},
    {"inline of 1 MiB", [](wqe_block& b) { b.word[4] = big_endian_pair(0x80100000, 0); }, op_error, wqe_fault::inline_misused},
    {"2 GiB", [](wqe_block& b) { b.word[4] = big_endian_pair(0x7fffffff, 0); }, syndrome::local_length, wqe_fault::wrong_length},
    {"atomic of 3 segments", [](wqe_block& b) { set_opcode(b, 0x12); }, op_error, wqe_fault::wrong_segments},
    {"atomic of a wrong length", [](wqe_block& b) { set_opcode(b, 0x12), set_ds(b, 4); }, syndrome::local_length,
     wqe_fault::wrong_length},
    {"masked atomic without a size", [](wqe_block& b) { set_opcode(b, 0x15), set_ds(b, 4); }, op_error, wqe_fault::wrong_opmod},
    {"NOP of 5 segments", [](wqe_block& b) { set_opcode(b, 0), set_ds(b, 5); }, op_error, wqe_fault::wrong_segments},
};

TEST_CASE("Each field that is wrong is named; what came before succeeds, what comes after is flushed") {
    for (const bad_wqe& bad : bad_writes) {
        CAPTURE(bad.what);
        auto w = make_world();
        w.near_words[1] = 42;
        w.post.put(inline_write(w.post.head(), w.there(0), 1));
        wqe_block b = write(w.post.head(0), w.there(8), w.here(8, 8));
        bad.spoil(b);
        w.post.put(b);
        w.post.put(inline_write(w.post.head(0), w.there(16), 3));
        w.post.put(nop(w.post.head()));
        w.post.ring_it();
        w.settle();
        const auto cqes = w.post.poll();
        REQUIRE(cqes.size() >= 2);
        CHECK(cqes[0].why == syndrome::none);
        CHECK(cqes[1].index == 1);
        CHECK(cqes[1].why == bad.why);
        CHECK(cqes[1].vendor == static_cast<int>(bad.fault));
        for (std::size_t i = 2; i < cqes.size(); ++i) CHECK(cqes[i].why == syndrome::flushed);
        CHECK(take(w.qp.state()) == qp_state::error);
        CHECK(w.far_words[0] == 1);
        CHECK(w.far_words[1] == 0);
        CHECK(w.far_words[2] == 0);
    }
}

TEST_CASE("A WQE that reaches past what was posted is bad") {
    auto w = make_world();
    unsigned char bytes[60]{};
    const wqe_pair p = long_inline_write(w.post.head(), w.there(0), bytes, 60);
    w.post.put(p.block[0]);
    w.post.ring_it();  // for its first slot only
    w.settle();
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 1);
    CHECK(cqes[0].vendor == static_cast<int>(wqe_fault::wrong_segments));
}

TEST_CASE("A doorbell for more WQEs than the queue holds ends the QP with an error CQE") {
    auto w = make_world();
    w.post.put(inline_write(w.post.head(), w.there(0), 5));
    w.post.ring_it();
    w.settle();
    w.post.knock(encode_doorbell(w.post.next() + w.qp.memory().depth() + 1, w.qp.number().value));
    w.settle();
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 2);
    CHECK(cqes[0].why == syndrome::none);
    CHECK(cqes[1].why == syndrome::local_qp_operation);
    CHECK(cqes[1].vendor == static_cast<int>(wqe_fault::wrong_doorbell));
    w.settle();
    CHECK(w.post.poll().empty());
}

TEST_CASE("The same with the queue full of WQEs in flight") {
    world_options o;
    o.limits = {4, 8};
    auto w = make_world(o);
    for (int i = 0; i < 4; ++i) w.post.put(inline_write(w.post.head(), w.there(0), 5));
    w.post.ring_it();
    REQUIRE(w.nic.progress());
    w.post.knock(encode_doorbell(w.post.next() + 1, w.qp.number().value));
    w.settle();
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() == 5);
    CHECK(cqes[3].why == syndrome::none);
    CHECK(cqes[4].vendor == static_cast<int>(wqe_fault::wrong_doorbell));
}

TEST_CASE("Doorbells that go back or name another QP change nothing") {
    auto w = make_world();
    for (int i = 0; i < 3; ++i) w.post.put(inline_write(w.post.head(), w.there(0), 5));
    w.post.ring_it();
    w.settle();
    CHECK(w.post.poll().size() == 3);
    for (const std::uint64_t value : {encode_doorbell(2, w.qp.number().value), encode_doorbell(3, w.qp.number().value),
                                      encode_doorbell(0, w.qp.number().value), encode_doorbell(4, w.qp.number().value + 1),
                                      std::uint64_t{0}, ~std::uint64_t{0}}) {
        w.post.knock(value);
        w.settle();
    }
    CHECK(w.post.poll().empty());
    CHECK(take(w.qp.state()) == qp_state::ready_to_send);
    w.post.put(inline_write(w.post.head(), w.there(0), 6));
    w.post.ring_it();
    w.settle();
    CHECK(w.post.poll().size() == 1);
}

TEST_CASE("Random bytes in the ring never do harm and always end in error CQEs") {
    std::mt19937_64 random(11);
    for (int i = 0; i < 3000; ++i) {
        std::vector<unsigned char> bytes(1 + random() % 600);
        for (auto& b : bytes) b = static_cast<unsigned char>(random());
        feed(bytes.data(), bytes.size());
    }
}

}  // namespace
