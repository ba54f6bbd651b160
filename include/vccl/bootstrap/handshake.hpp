#pragma once
/// \file
/// How a rank and the root convince each other that both know the job's secret, as values: no I/O. Three messages of fixed
/// size, so nothing that a stranger sends is larger than one of them.
///
///     rank -> root   hello {rank, ranks, nonce}
///     root -> rank   challenge {nonce, code over both nonces and the place: the root knows the secret}
///     rank -> root   proof {code over the same, for the other direction: the rank knows it, too}
///
/// Both then derive a key of this connection from secret and nonces; every later frame carries a code under it.

#include <vccl/bootstrap/secret.hpp>

#include <cstdint>
#include <cstring>

namespace vccl::inline v0 {

struct bootstrap_nonce {
    unsigned char bytes[16]{};
};

/// Integers are little endian, as on every machine that the library knows.
struct bootstrap_hello {
    static constexpr std::uint32_t magic_value = 0x62636376 + 1;
    static constexpr std::uint32_t current_version = 2;
    std::uint32_t magic{magic_value}, version{current_version}, rank{}, ranks{};
    bootstrap_nonce nonce;
};
struct bootstrap_challenge {
    std::uint32_t magic{bootstrap_hello::magic_value}, version{bootstrap_hello::current_version};
    bootstrap_nonce nonce;
    message_code code;
};
struct bootstrap_proof {
    message_code code;
};
static_assert(sizeof(bootstrap_hello) == 32 && sizeof(bootstrap_challenge) == 56 && sizeof(bootstrap_proof) == 32);

enum class handshake_role : unsigned char { root_knows = 1, rank_knows = 2, key = 3 };

/// What only who knows the secret can compute, another for each role, connection and place.
inline message_code handshake_code(const job_secret& secret, handshake_role role, const bootstrap_hello& hello,
                                   const bootstrap_nonce& root_nonce) noexcept {
    unsigned char text[1 + sizeof hello + sizeof root_nonce];
    text[0] = static_cast<unsigned char>(role);
    std::memcpy(text + 1, &hello, sizeof hello);
    std::memcpy(text + 1 + sizeof hello, &root_nonce, sizeof root_nonce);
    return hmac_sha256(secret.bytes, text);
}

namespace detail {
inline status version_fault(std::uint32_t own, std::uint32_t peers) noexcept {
    return status{errc::version_mismatch, subject::wire_version, own, peers};
}
}  // namespace detail

/// Returns: whether it is a hello of this version and of a job of this size; what is wrong, for the caller's ears: version_mismatch
/// (`subject::wire_version`), bad_blob, wrong_peer (`subject::ranks` where the numbers differ, else `subject::rank`).
inline status check_hello(const bootstrap_hello& h, std::uint32_t ranks) noexcept {
    if (h.magic != bootstrap_hello::magic_value) return errc::bad_blob;
    if (h.version != bootstrap_hello::current_version) return detail::version_fault(h.version, bootstrap_hello::current_version);
    if (h.ranks != ranks) return status{errc::wrong_peer, subject::ranks, h.ranks, ranks};
    if (h.rank == 0 || h.rank >= ranks) return status{errc::wrong_peer, subject::rank, h.rank};
    return {};
}

}  // namespace vccl::inline v0
