#pragma once
/// \file
/// Completion-queue entries (CQEs) of mlx5, 64 bytes each: how a consumer knows a new one and reads it, and how a software
/// NIC writes one. Pure functions on values, any thread, also in kernels; the loads and stores are the caller's.
/// Source of layout and numbers: rdma-core, providers/mlx5/mlx5dv.h.

#include <vccl/base/byte_order.hpp>
#include <vccl/base/status.hpp>
#include <vccl/device/wqe.hpp>

#include <cstdint>

namespace vccl::inline v0::device {

/// An entry as it lies in memory. `word[15]` ends with the byte that hands it over: written last, with release; read first,
/// with acquire.
struct alignas(64) cqe64 {
    std::uint32_t word[16];  ///< big-endian, as the NIC writes them
    friend constexpr bool operator==(const cqe64&, const cqe64&) noexcept = default;
};
static_assert(sizeof(cqe64) == 64);

/// What a CQE says in a word; `invalid` marks an entry that no NIC has written yet.
enum class cqe_opcode : std::uint8_t { request = 0, received_imm = 1, request_error = 13, response_error = 14, invalid = 15 };

/// Why a WQE failed.
enum class syndrome : std::uint8_t {
    none = 0x00,
    local_length = 0x01,
    local_qp_operation = 0x02,
    local_protection = 0x04,
    flushed = 0x05,  ///< the QP was in ERR already: not the cause, and whether the WQE took effect is unknown
    memory_window_bind = 0x06,
    bad_response = 0x10,
    local_access = 0x11,
    remote_invalid_request = 0x12,
    remote_access = 0x13,
    remote_operation = 0x14,
    transport_retry = 0x15,
    rnr_retry = 0x16,
    remote_aborted = 0x22,
};

/// The name, for messages; "unknown" for numbers that the header above does not list.
VCCL_HOST_DEVICE constexpr const char* text(syndrome s) noexcept {
    switch (s) {
        case syndrome::none: return "none";
        case syndrome::local_length: return "local length error";
        case syndrome::local_qp_operation: return "local QP operation error";
        case syndrome::local_protection: return "local protection error";
        case syndrome::flushed: return "flushed";
        case syndrome::memory_window_bind: return "memory window bind error";
        case syndrome::bad_response: return "bad response";
        case syndrome::local_access: return "local access error";
        case syndrome::remote_invalid_request: return "remote invalid request";
        case syndrome::remote_access: return "remote access error";
        case syndrome::remote_operation: return "remote operation error";
        case syndrome::transport_retry: return "transport retries exceeded";
        case syndrome::rnr_retry: return "RNR retries exceeded";
        case syndrome::remote_aborted: return "remote aborted";
    }
    return "unknown syndrome";
}

namespace cqe_detail {
struct same {
    syndrome cqe;
    wc_status wc;
};
inline constexpr same table[] = {
    {syndrome::none, wc_status::success},
    {syndrome::local_length, wc_status::loc_len_err},
    {syndrome::local_qp_operation, wc_status::loc_qp_op_err},
    {syndrome::local_protection, wc_status::loc_prot_err},
    {syndrome::flushed, wc_status::wr_flush_err},
    {syndrome::memory_window_bind, wc_status::mw_bind_err},
    {syndrome::bad_response, wc_status::bad_resp_err},
    {syndrome::local_access, wc_status::loc_access_err},
    {syndrome::remote_invalid_request, wc_status::rem_inv_req_err},
    {syndrome::remote_access, wc_status::rem_access_err},
    {syndrome::remote_operation, wc_status::rem_op_err},
    {syndrome::transport_retry, wc_status::retry_exc_err},
    {syndrome::rnr_retry, wc_status::rnr_retry_exc_err},
    {syndrome::remote_aborted, wc_status::rem_abort_err},
};
}  // namespace cqe_detail

/// The syndrome that libibverbs shows as this work completion status. One without a syndrome of its own is `local_qp_operation`.
constexpr syndrome syndrome_of(wc_status s) noexcept {
    for (const auto& pair : cqe_detail::table)
        if (pair.wc == s) return pair.cqe;
    return syndrome::local_qp_operation;
}
/// The other way round; an unknown syndrome is `general_err`, as in libibverbs.
constexpr wc_status wc_status_of(syndrome s) noexcept {
    for (const auto& pair : cqe_detail::table)
        if (pair.cqe == s) return pair.wc;
    return wc_status::general_err;
}

/// The last 4 bytes of a CQE, from one load: what it is, of which WQE, and whose it is.
struct cqe_tail {
    std::uint16_t wqe_index{};  ///< `wqe_head::index` of the WQE
    std::uint8_t opcode{};      ///< of `cqe_opcode`
    std::uint8_t owner{};       ///< lap parity
    friend constexpr bool operator==(const cqe_tail&, const cqe_tail&) noexcept = default;
};
/// Reads what the last word says.
VCCL_HOST_DEVICE constexpr cqe_tail tail_of(std::uint32_t word15) noexcept {
    return {big_endian(static_cast<std::uint16_t>(word15)), static_cast<std::uint8_t>(word15 >> 28),
            static_cast<std::uint8_t>(word15 >> 24 & 1)};
}
/// Makes the last word.
VCCL_HOST_DEVICE constexpr std::uint32_t encode(const cqe_tail& t) noexcept {
    return big_endian(t.wqe_index) | std::uint32_t{t.opcode} << 28 | std::uint32_t{t.owner} << 24;
}
/// The owner bit of entry `n` (counted from 0, never wrapped) in a queue of 2^depth_log entries.
VCCL_HOST_DEVICE constexpr std::uint8_t owner_of(std::uint64_t n, std::uint32_t depth_log) noexcept {
    return static_cast<std::uint8_t>(n >> depth_log & 1);
}
/// Whether the slot of entry `n`, whose last word this is, holds that entry already, and not the one of a lap before.
VCCL_HOST_DEVICE constexpr bool is_written(const cqe_tail& t, std::uint64_t n, std::uint32_t depth_log) noexcept {
    return t.opcode != static_cast<std::uint8_t>(cqe_opcode::invalid) && t.owner == owner_of(n, depth_log);
}
/// Of either kind: the syndrome says more.
VCCL_HOST_DEVICE constexpr bool is_error(const cqe_tail& t) noexcept {
    return t.opcode == static_cast<std::uint8_t>(cqe_opcode::request_error) ||
           t.opcode == static_cast<std::uint8_t>(cqe_opcode::response_error);
}

/// What a slot must hold before its first use.
VCCL_HOST_DEVICE constexpr cqe64 empty_cqe() noexcept {
    cqe64 c{};
    c.word[15] = encode(cqe_tail{0, static_cast<std::uint8_t>(cqe_opcode::invalid), 1});
    return c;
}

/// The parts of a CQE beside its tail.
struct cqe_body {
    std::uint32_t qpn{};                  ///< whose WQE it completes; 24 bits
    std::uint8_t wqe_opcode{};            ///< of the WQE, as it was posted; 0 for a receive
    std::uint32_t byte_count{};           ///< success: bytes read, of READs and atomics, or received
    syndrome why{syndrome::none};         ///< error only
    std::uint8_t vendor{};                ///< error only
    std::uint32_t immediate{};            ///< of what was received with one; host byte order
    friend constexpr bool operator==(const cqe_body&, const cqe_body&) noexcept = default;
};

/// Where syndrome and vendor code lie: the word that a poller loads after a tail with an error.
inline constexpr unsigned cqe_syndrome_word = 13;
/// Requires: the tail says that it is an error.
/// @{
VCCL_HOST_DEVICE constexpr syndrome syndrome_in(std::uint32_t word13) noexcept { return static_cast<syndrome>(word13 >> 24); }
VCCL_HOST_DEVICE constexpr std::uint8_t vendor_in(std::uint32_t word13) noexcept {
    return static_cast<std::uint8_t>(word13 >> 16);
}
/// @}

/// The whole entry, as a NIC writes it; the last word must be stored last.
VCCL_HOST_DEVICE constexpr cqe64 encode(const cqe_body& b, const cqe_tail& t) noexcept {
    cqe64 c{};
    if (is_error(t)) {
        c.word[cqe_syndrome_word] = std::uint32_t{b.vendor} << 16 | static_cast<std::uint32_t>(b.why) << 24;
    } else {
        c.word[9] = big_endian(b.immediate);
        c.word[11] = big_endian(b.byte_count);
    }
    c.word[14] = big_endian(std::uint32_t{b.wqe_opcode} << 24 | (b.qpn & 0xffffff));
    c.word[15] = encode(t);
    return c;
}
/// What lies in it, whether it makes sense or not.
VCCL_HOST_DEVICE constexpr cqe_body decode(const cqe64& c) noexcept {
    const std::uint32_t whose = big_endian(c.word[14]);
    cqe_body b;
    b.qpn = whose & 0xffffff;
    b.wqe_opcode = static_cast<std::uint8_t>(whose >> 24);
    if (is_error(tail_of(c.word[15]))) {
        b.why = syndrome_in(c.word[cqe_syndrome_word]);
        b.vendor = vendor_in(c.word[cqe_syndrome_word]);
    } else {
        b.byte_count = big_endian(c.word[11]);
        b.immediate = big_endian(c.word[9]);
    }
    return b;
}

}  // namespace vccl::inline v0::device
