// CQEs against rdma-core's mlx5_cqe64 and mlx5_err_cqe: what we write it reads, what it writes we read.

#include <vccl/device/cqe.hpp>

#include <doctest/doctest.h>
#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstring>
#include <random>

namespace {

using namespace vccl::device;
using vccl::wc_status;

static_assert(offsetof(mlx5_cqe64, wqe_counter) == 60 && offsetof(mlx5_err_cqe, wqe_counter) == 60);
static_assert(offsetof(mlx5_err_cqe, syndrome) / 4 == cqe_syndrome_word && sizeof(mlx5_cqe64) == sizeof(cqe64));

TEST_CASE("A CQE of success that we write is one for rdma-core") {
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        const bool received = (random() & 1) != 0;
        const cqe_body body{.qpn = static_cast<std::uint32_t>(random() & 0xffffff),
                            .wqe_opcode = static_cast<std::uint8_t>(random()),
                            .byte_count = static_cast<std::uint32_t>(random()),
                            .immediate = static_cast<std::uint32_t>(random())};
        const cqe_tail tail{static_cast<std::uint16_t>(random()),
                            static_cast<std::uint8_t>(received ? cqe_opcode::received_imm : cqe_opcode::request),
                            static_cast<std::uint8_t>(random() & 1)};
        const cqe64 ours = encode(body, tail);
        mlx5_cqe64 theirs;
        std::memcpy(&theirs, &ours, 64);
        REQUIRE(mlx5dv_get_cqe_opcode(&theirs) == (received ? MLX5_CQE_RESP_WR_IMM : MLX5_CQE_REQ));
        REQUIRE(be32toh(theirs.imm_inval_pkey) == body.immediate);
        REQUIRE(mlx5dv_get_cqe_owner(&theirs) == tail.owner);
        REQUIRE(be16toh(theirs.wqe_counter) == tail.wqe_index);
        REQUIRE(be32toh(theirs.sop_drop_qpn) == (std::uint32_t{body.wqe_opcode} << 24 | body.qpn));
        REQUIRE(be32toh(theirs.byte_cnt) == body.byte_count);
        REQUIRE(decode(ours) == body);
        REQUIRE(tail_of(ours.word[15]) == tail);
    }
}

TEST_CASE("A CQE with an error that rdma-core lays out is read whole, and ours is the same") {
    std::mt19937 random(2);
    for (int i = 0; i < 2000; ++i) {
        const auto opcode = static_cast<std::uint8_t>(random() & 1 ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR);
        const auto owner = static_cast<std::uint8_t>(random() & 1);
        mlx5_err_cqe theirs{};
        theirs.vendor_err_synd = static_cast<std::uint8_t>(random());
        theirs.syndrome = static_cast<std::uint8_t>(random());
        theirs.s_wqe_opcode_qpn = htobe32(static_cast<std::uint32_t>(random()));
        theirs.wqe_counter = htobe16(static_cast<std::uint16_t>(random()));
        theirs.op_own = static_cast<std::uint8_t>(opcode << 4 | owner);
        cqe64 ours;
        std::memcpy(&ours, &theirs, 64);

        const cqe_tail tail = tail_of(ours.word[15]);
        REQUIRE(tail == cqe_tail{be16toh(theirs.wqe_counter), opcode, owner});
        REQUIRE(is_error(tail));
        const cqe_body body = decode(ours);
        REQUIRE(body.qpn == (be32toh(theirs.s_wqe_opcode_qpn) & 0xffffff));
        REQUIRE(body.wqe_opcode == be32toh(theirs.s_wqe_opcode_qpn) >> 24);
        REQUIRE(static_cast<std::uint8_t>(body.why) == theirs.syndrome);
        REQUIRE(body.vendor == theirs.vendor_err_synd);
        REQUIRE(encode(body, tail) == ours);
    }
}

TEST_CASE("Syndromes and CQE opcodes have rdma-core's numbers") {
    CHECK(static_cast<int>(syndrome::local_length) == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    CHECK(static_cast<int>(syndrome::local_qp_operation) == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    CHECK(static_cast<int>(syndrome::local_protection) == MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    CHECK(static_cast<int>(syndrome::flushed) == MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    CHECK(static_cast<int>(syndrome::memory_window_bind) == MLX5_CQE_SYNDROME_MW_BIND_ERR);
    CHECK(static_cast<int>(syndrome::bad_response) == MLX5_CQE_SYNDROME_BAD_RESP_ERR);
    CHECK(static_cast<int>(syndrome::local_access) == MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
    CHECK(static_cast<int>(syndrome::remote_invalid_request) == MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    CHECK(static_cast<int>(syndrome::remote_access) == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    CHECK(static_cast<int>(syndrome::remote_operation) == MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    CHECK(static_cast<int>(syndrome::transport_retry) == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK(static_cast<int>(syndrome::rnr_retry) == MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
    CHECK(static_cast<int>(syndrome::remote_aborted) == MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);
    CHECK(static_cast<int>(cqe_opcode::request) == MLX5_CQE_REQ);
    CHECK(static_cast<int>(cqe_opcode::request_error) == MLX5_CQE_REQ_ERR);
    CHECK(static_cast<int>(cqe_opcode::response_error) == MLX5_CQE_RESP_ERR);
    CHECK(static_cast<int>(cqe_opcode::invalid) == MLX5_CQE_INVALID);
}

}  // namespace
