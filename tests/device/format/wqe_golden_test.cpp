// Every WQE byte for byte as rdma-core's helpers and structs make it. Masked atomics have no struct there: theirs is spelled
// out in big-endian words.

#include <vccl/device/doorbell.hpp>
#include <vccl/device/wqe_decode.hpp>

#include <doctest/doctest.h>
#include <infiniband/mlx5dv.h>

#include <cstring>
#include <random>

namespace {

using namespace vccl::device;

/// One WQE, built segment by segment with rdma-core's helpers.
class golden {
public:
    golden(const wqe_head& h, std::uint8_t opcode, std::uint8_t opmod, std::uint8_t ds, std::uint32_t immediate = 0) {
        mlx5_wqe_ctrl_seg c{};
        mlx5dv_set_ctrl_seg(&c, h.index, opcode, opmod, h.qpn, h.flags, ds, 0, htobe32(immediate));
        append(c);
    }
    golden& remote(const wqe_remote& r) {
        mlx5_wqe_raddr_seg s{};
        s.raddr = htobe64(r.addr);
        s.rkey = htobe32(r.rkey);
        return append(s);
    }
    golden& local(const wqe_local& l) {
        mlx5_wqe_data_seg s{};
        mlx5dv_set_data_seg(&s, l.length, l.lkey, l.addr);
        return append(s);
    }
    golden& atomic(std::uint64_t swap_add, std::uint64_t compare) {
        mlx5_wqe_atomic_seg s{};
        s.swap_add = htobe64(swap_add);
        s.compare = htobe64(compare);
        return append(s);
    }
    golden& words(std::initializer_list<std::uint32_t> host_order) {
        for (const std::uint32_t w : host_order) append(htobe32(w));
        return *this;
    }
    golden& inlined(const unsigned char* data, unsigned length) {
        mlx5_wqe_inl_data_seg s{};
        s.byte_count = htobe32(length | MLX5_INLINE_SEG);
        append(s);
        std::memcpy(bytes_ + used_, data, length);
        used_ += length;
        return *this;
    }
    bool operator==(const wqe_block& b) const { return used_ <= 64 && std::memcmp(bytes_, &b, 64) == 0; }
    bool operator==(const wqe_pair& p) const { return used_ <= 128 && std::memcmp(bytes_, &p, 128) == 0; }

private:
    template <class Segment>
    golden& append(const Segment& s) {
        std::memcpy(bytes_ + used_, &s, sizeof s);
        used_ += sizeof s;
        return *this;
    }
    unsigned char bytes_[128]{};
    std::size_t used_{};
};

/// Random arguments that a caller may pass; each round also the extremes.
struct arguments {
    wqe_head head;
    wqe_remote remote;
    wqe_local local;
    std::uint64_t a, b, c, d;
    std::uint32_t immediate;
    unsigned char bytes[max_long_inline_bytes];
};
template <class Test>
void for_many(Test test) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 2000; ++round) {
        const std::uint64_t ones = round == 0 ? ~0ull : 0;
        const auto next = [&] { return round == 1 ? 0 : random() | ones; };
        arguments x{};
        constexpr std::uint8_t flags[] = {0, wqe_flag::completion, wqe_flag::completion | wqe_flag::fence, wqe_flag::small_fence};
        x.head = {static_cast<std::uint32_t>(next() & 0xffffff), static_cast<std::uint16_t>(next()), flags[next() % 4]};
        x.remote = {next(), static_cast<std::uint32_t>(next())};
        x.local = {next(), static_cast<std::uint32_t>(next()), static_cast<std::uint32_t>(next() & max_wqe_length)};
        x.a = next(), x.b = next(), x.c = next(), x.d = next();
        x.immediate = static_cast<std::uint32_t>(next());
        for (auto& byte : x.bytes) byte = static_cast<unsigned char>(next());
        test(x);
    }
}
constexpr std::uint32_t low(std::uint64_t v) { return static_cast<std::uint32_t>(v); }
constexpr std::uint32_t high(std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); }

TEST_CASE("NOP, WRITE, WRITE with immediate and READ are rdma-core's bytes") {
    for_many([](const arguments& x) {
        REQUIRE(golden(x.head, MLX5_OPCODE_NOP, 0, 1) == nop(x.head));
        REQUIRE(golden(x.head, MLX5_OPCODE_RDMA_WRITE, 0, 3).remote(x.remote).local(x.local) == write(x.head, x.remote, x.local));
        REQUIRE(golden(x.head, MLX5_OPCODE_RDMA_WRITE_IMM, 0, 3, x.immediate).remote(x.remote).local(x.local) ==
                write_imm(x.head, x.remote, x.local, x.immediate));
        REQUIRE(golden(x.head, MLX5_OPCODE_RDMA_READ, 0, 3).remote(x.remote).local(x.local) == read(x.head, x.remote, x.local));
    });
}

TEST_CASE("An inline WRITE of any length is rdma-core's bytes") {
    for_many([](const arguments& x) {
        const unsigned length = static_cast<unsigned>(x.a % (max_long_inline_bytes + 1));
        const auto ds = static_cast<std::uint8_t>((16 + 16 + 4 + length + 15) / 16);
        golden expected(x.head, MLX5_OPCODE_RDMA_WRITE, 0, ds);
        expected.remote(x.remote).inlined(x.bytes, length);
        if (length <= max_inline_bytes)
            REQUIRE(expected == inline_write(x.head, x.remote, x.bytes, length));
        else
            REQUIRE(expected == long_inline_write(x.head, x.remote, x.bytes, length));
    });
}

TEST_CASE("An inline WRITE of a word carries it as it lies in memory") {
    for_many([](const arguments& x) {
        unsigned char bytes[8];
        std::memcpy(bytes, &x.a, 8);
        REQUIRE(golden(x.head, MLX5_OPCODE_RDMA_WRITE, 0, 3).remote(x.remote).inlined(bytes, 8) ==
                inline_write(x.head, x.remote, x.a));
    });
}

TEST_CASE("FETCH_ADD and COMPARE_SWAP are rdma-core's bytes") {
    for_many([](const arguments& x) {
        REQUIRE(golden(x.head, MLX5_OPCODE_ATOMIC_FA, 0, 4).remote(x.remote).atomic(x.a, 0).local(x.local) ==
                fetch_add(x.head, x.remote, x.local, x.a));
        REQUIRE(golden(x.head, MLX5_OPCODE_ATOMIC_CS, 0, 4).remote(x.remote).atomic(x.a, x.b).local(x.local) ==
                compare_swap(x.head, x.remote, x.local, x.a, x.b));
    });
}

TEST_CASE("Masked atomics have operand sizes in opmod and their masks behind the operands") {
    for_many([](const arguments& x) {
        REQUIRE(golden(x.head, MLX5_OPCODE_ATOMIC_MASKED_FA, 8, 4)
                    .remote(x.remote)
                    .words({low(x.a), low(x.b), 0, 0})
                    .local(x.local) == masked_fetch_add_32(x.head, x.remote, x.local, low(x.a), low(x.b)));
        REQUIRE(golden(x.head, MLX5_OPCODE_ATOMIC_MASKED_FA, 9, 4)
                    .remote(x.remote)
                    .words({high(x.a), low(x.a), high(x.b), low(x.b)})
                    .local(x.local) == masked_fetch_add_64(x.head, x.remote, x.local, x.a, x.b));
        REQUIRE(golden(x.head, MLX5_OPCODE_ATOMIC_MASKED_CS, 8, 4)
                    .remote(x.remote)
                    .words({low(x.a), low(x.b), low(x.c), low(x.d)})
                    .local(x.local) ==
                masked_compare_swap_32(x.head, x.remote, x.local, {low(x.a), low(x.b), low(x.c), low(x.d)}));
        REQUIRE(golden(x.head, MLX5_OPCODE_ATOMIC_MASKED_CS, 9, 5)
                    .remote(x.remote)
                    .atomic(x.a, x.b)
                    .atomic(x.c, x.d)
                    .local(x.local) == masked_compare_swap_64(x.head, x.remote, x.local, {x.a, x.b, x.c, x.d}));
    });
}

TEST_CASE("Opcodes, flags and the doorbell record's words have rdma-core's numbers") {
    CHECK(static_cast<int>(wqe_opcode::nop) == MLX5_OPCODE_NOP);
    CHECK(static_cast<int>(wqe_opcode::write) == MLX5_OPCODE_RDMA_WRITE);
    CHECK(static_cast<int>(wqe_opcode::write_imm) == MLX5_OPCODE_RDMA_WRITE_IMM);
    CHECK(static_cast<int>(wqe_opcode::read) == MLX5_OPCODE_RDMA_READ);
    CHECK(static_cast<int>(wqe_opcode::compare_swap) == MLX5_OPCODE_ATOMIC_CS);
    CHECK(static_cast<int>(wqe_opcode::fetch_add) == MLX5_OPCODE_ATOMIC_FA);
    CHECK(static_cast<int>(wqe_opcode::masked_compare_swap) == MLX5_OPCODE_ATOMIC_MASKED_CS);
    CHECK(static_cast<int>(wqe_opcode::masked_fetch_add) == MLX5_OPCODE_ATOMIC_MASKED_FA);
    CHECK(wqe_flag::solicited == MLX5_WQE_CTRL_SOLICITED);
    CHECK(wqe_flag::completion == MLX5_WQE_CTRL_CQ_UPDATE);
    CHECK(wqe_flag::fence == MLX5_WQE_CTRL_FENCE);
    CHECK(wqe_flag::small_fence == MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
    CHECK(int{receive_record} == MLX5_RCV_DBR);
    CHECK(int{send_record} == MLX5_SND_DBR);
    CHECK(sizeof(wqe_block) == MLX5_SEND_WQE_BB);
}

TEST_CASE("Doorbells and records keep the low bits of 64-bit indices") {
    for (const std::uint64_t next : {0ull, 1ull, 65535ull, 65536ull, 65537ull, 0x100000000ull, 0xffffffffffffffffull}) {
        CHECK(encode_record(next) == htobe32(static_cast<std::uint32_t>(next & 0xffff)));
        CHECK(decode_record(encode_record(next)) == static_cast<std::uint16_t>(next));
        CHECK(encode_cq_record(next) == htobe32(static_cast<std::uint32_t>(next & 0xffffff)));
        CHECK(decode_cq_record(encode_cq_record(next)) == (next & 0xffffff));
        for (const std::uint32_t qpn : {0u, 1u, 0x123456u, 0xffffffu}) {
            const std::uint32_t words[2] = {htobe32(static_cast<std::uint32_t>((next & 0xffff) << 8)), htobe32(qpn << 8)};
            const std::uint64_t value = encode_doorbell(next, qpn);
            CHECK(std::memcmp(&value, words, 8) == 0);
            CHECK(decode_doorbell(value) == doorbell_fields{static_cast<std::uint16_t>(next), qpn});
        }
    }
}

}  // namespace
