// The formats as values: what is encoded is decoded again, at compile time too; rewriting changes what it names and nothing
// else; bytes from anywhere do no harm.

#include <vccl/device/cqe.hpp>
#include <vccl/device/ring.hpp>
#include <vccl/device/wqe_decode.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>

namespace {

using namespace vccl::device;
using vccl::wc_status;

constexpr wqe_head head{0xabcdef, 0xfffe, wqe_flag::completion | wqe_flag::fence};
constexpr wqe_remote remote{0x1122334455667788, 0x99aabbcc};
constexpr wqe_local local{0x8877665544332211, 0xddeeff00, 0x7fffffff};
constexpr wqe_fields fields(wqe_opcode op, std::uint8_t segments, std::uint8_t opmod = 0) {
    wqe_fields f;
    f.head = head;
    f.opcode = static_cast<std::uint8_t>(op);
    f.opmod = opmod;
    f.segments = segments;
    if (op != wqe_opcode::nop) f.remote = remote, f.local = local;
    return f;
}
constexpr wqe_fields with(wqe_fields f, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0, std::uint64_t d = 0) {
    f.operand[0] = a, f.operand[1] = b, f.operand[2] = c, f.operand[3] = d;
    return f;
}
constexpr wqe_fields decoded(const wqe_block& b) { return decode(b, wqe_block{}); }
constexpr wqe_fields decoded(const wqe_pair& p) { return decode(p.block[0], p.block[1]); }

// All fields of all kinds, in constant expressions.
static_assert(decoded(nop(head)) == fields(wqe_opcode::nop, 1));
static_assert(decoded(write(head, remote, local)) == fields(wqe_opcode::write, 3));
static_assert(decoded(read(head, remote, local)) == fields(wqe_opcode::read, 3));
static_assert([] {
    wqe_fields f = fields(wqe_opcode::write_imm, 3);
    f.immediate = 0xcafe1234;
    return decoded(write_imm(head, remote, local, 0xcafe1234)) == f;
}());
static_assert(decoded(fetch_add(head, remote, local, 5)) == with(fields(wqe_opcode::fetch_add, 4), 5));
static_assert(decoded(compare_swap(head, remote, local, 5, 6)) == with(fields(wqe_opcode::compare_swap, 4), 5, 6));
static_assert(decoded(masked_fetch_add_32(head, remote, local, 1, 2)) == with(fields(wqe_opcode::masked_fetch_add, 4, 8), 1, 2));
static_assert(decoded(masked_fetch_add_64(head, remote, local, 1, 2)) == with(fields(wqe_opcode::masked_fetch_add, 4, 9), 1, 2));
static_assert(decoded(masked_compare_swap_32(head, remote, local, {1, 2, 3, 4})) ==
              with(fields(wqe_opcode::masked_compare_swap, 4, 8), 1, 2, 3, 4));
static_assert(decoded(masked_compare_swap_64(head, remote, local, {1, 2, 3, 4})) ==
              with(fields(wqe_opcode::masked_compare_swap, 5, 9), 1, 2, 3, 4));
static_assert(slots_of(nop(head)) == 1 && slots_of(fetch_add(head, remote, local, 5)) == 1);
static_assert(slots_of(masked_compare_swap_64(head, remote, local, {}).block[0]) == 2);
static_assert(slots_of(wqe_block{}) == 1);

TEST_CASE("An inline WRITE of any length is read back byte for byte") {
    unsigned char bytes[max_long_inline_bytes];
    for (unsigned i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 1);
    for (unsigned length = 0; length <= max_long_inline_bytes; ++length) {
        wqe_pair p = long_inline_write(head, remote, bytes, length);
        if (length <= max_inline_bytes) {
            REQUIRE(inline_write(head, remote, bytes, length) == p.block[0]);
            REQUIRE(p.block[1] == wqe_block{});
        }
        REQUIRE(slots_of(p.block[0]) == (length <= max_inline_bytes ? 1 : 2));
        const wqe_fields f = decoded(p);
        REQUIRE(f.inlined);
        REQUIRE(f.local == wqe_local{0, 0, length});
        REQUIRE(f.remote == remote);
        for (unsigned i = 0; i < length; ++i) REQUIRE(inline_byte(p.block[0], p.block[1], i) == bytes[i]);
    }
}

constexpr wqe_pair alone(const wqe_block& b) {
    wqe_pair p{};
    p.block[0] = b;
    p.block[1].word[0] = p.block[1].word[7] = 0x5555;  // belongs to the next WQE: must stay
    return p;
}

TEST_CASE("Rewriting for another lane changes QP number, slot and keys, of every kind of WQE") {
    constexpr wqe_head to{0x123456, 7, head.flags};
    constexpr wqe_remote there{remote.addr, 0x22};
    constexpr wqe_local here{local.addr, 0x11, local.length};
    constexpr wqe_target target{0x123456, 7, 0x11, 0x22};
    const auto rewritten = [&](const wqe_pair& was) {
        wqe_pair p = was;
        reencode(p.block[0], p.block[1], target);
        return p;
    };
    unsigned char bytes[max_long_inline_bytes];
    std::memset(bytes, 0xa5, sizeof bytes);
    CHECK(rewritten(alone(nop(head))) == alone(nop(to)));
    CHECK(rewritten(alone(write(head, remote, local))) == alone(write(to, there, here)));
    CHECK(rewritten(alone(write_imm(head, remote, local, 9))) == alone(write_imm(to, there, here, 9)));
    CHECK(rewritten(alone(read(head, remote, local))) == alone(read(to, there, here)));
    CHECK(rewritten(alone(inline_write(head, remote, bytes, 28))) == alone(inline_write(to, there, bytes, 28)));
    CHECK(rewritten(alone(inline_write(head, remote, 0x1234))) == alone(inline_write(to, there, 0x1234)));
    CHECK(rewritten(long_inline_write(head, remote, bytes, 92)) == long_inline_write(to, there, bytes, 92));
    CHECK(rewritten(alone(fetch_add(head, remote, local, 3))) == alone(fetch_add(to, there, here, 3)));
    CHECK(rewritten(alone(compare_swap(head, remote, local, 3, 4))) == alone(compare_swap(to, there, here, 3, 4)));
    CHECK(rewritten(alone(masked_fetch_add_32(head, remote, local, 3, 4))) == alone(masked_fetch_add_32(to, there, here, 3, 4)));
    CHECK(rewritten(alone(masked_fetch_add_64(head, remote, local, 3, 4))) == alone(masked_fetch_add_64(to, there, here, 3, 4)));
    CHECK(rewritten(alone(masked_compare_swap_32(head, remote, local, {1, 2, 3, 4}))) ==
          alone(masked_compare_swap_32(to, there, here, {1, 2, 3, 4})));
    CHECK(rewritten(masked_compare_swap_64(head, remote, local, {1, 2, 3, 4})) ==
          masked_compare_swap_64(to, there, here, {1, 2, 3, 4}));
}

TEST_CASE("Random bytes are decoded and rewritten without harm, and keep their fields") {
    std::mt19937_64 random(3);
    for (int i = 0; i < 20000; ++i) {
        wqe_pair p{};
        for (auto& block : p.block)
            for (auto& word : block.word) word = random();
        const wqe_fields before = decoded(p);
        REQUIRE(slots_of(p.block[0]) >= 1);
        REQUIRE(slots_of(p.block[0]) <= 64);
        reencode(p.block[0], p.block[1], {1, 2, 3, 4});
        const wqe_fields after = decoded(p);
        REQUIRE(after.opcode == before.opcode);
        REQUIRE(after.segments == before.segments);
        REQUIRE(after.inlined == before.inlined);
        REQUIRE(after.local.length == before.local.length);
        REQUIRE(after.head == wqe_head{1, 2, before.head.flags});
    }
}

TEST_CASE("A CQE counts as written only in its own lap") {
    for (const std::uint32_t log : {0u, 2u, 15u}) {
        for (const std::uint64_t n : {0ull, 3ull, 4ull, 0xffffull, 0x10000ull, 0xffffffffull, 0x100000000ull}) {
            CHECK_FALSE(is_written(tail_of(empty_cqe().word[15]), n, log));
            const cqe_tail now{0, 0, owner_of(n, log)};
            CHECK(is_written(now, n, log));
            CHECK_FALSE(is_written(now, n + (1ull << log), log));
            if (n >= 1ull << log) CHECK_FALSE(is_written({0, 0, owner_of(n - (1ull << log), log)}, n, log));
        }
    }
}

TEST_CASE("Each syndrome has its work completion status and its words") {
    for (int code = 0; code < 256; ++code) {
        const auto s = static_cast<syndrome>(code);
        const wc_status wc = wc_status_of(s);
        if (std::string(text(s)) == "unknown syndrome")
            CHECK(wc == wc_status::general_err);
        else
            CHECK(syndrome_of(wc) == s);
    }
    CHECK(syndrome_of(wc_status::general_err) == syndrome::local_qp_operation);
    CHECK(syndrome_of(wc_status::retry_exc_err) == syndrome::transport_retry);
}

TEST_CASE("A ring finds slots and entries by counts beyond 2^32") {
    wqe_block slots[4];
    cqe64 entries[8];
    ring r;
    r.wq = slots, r.depth_log = 2, r.cq = entries, r.cq_depth_log = 3;
    CHECK(&r.slot(0x100000003) == &slots[3]);
    CHECK(&r.slot(65536) == &slots[0]);
    CHECK(&r.entry(0xffffffff) == &entries[7]);
}

}  // namespace
