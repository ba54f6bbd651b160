#pragma once
/// \file
/// What the ranks of a job share and nobody else: the secret, and HMAC-SHA256 under it. Link OpenSSL (libcrypto). Any thread.

#include <vccl/base/status.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace vccl::inline v0 {

/// 32 bytes. Never sent, never printed.
struct job_secret {
    static constexpr std::size_t least_text = 16;  ///< characters of a text; fewer would be guessed

    unsigned char bytes[32]{};  ///< filled by `from_text`; all zero is no secret

    /// From a text that all ranks were given, such as the output of `openssl rand -hex 32`. invalid_argument: it is shorter than
    /// `least_text` characters, so it could be guessed.
    static result<job_secret> from_text(std::string_view text) noexcept {
        if (text.size() < least_text) return errc::invalid_argument;
        job_secret s;
        ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), s.bytes);
        return s;
    }
    /// A new one; carry it to the other ranks by a way that you trust.
    static result<job_secret> random() noexcept {
        job_secret s;
        if (::getrandom(s.bytes, sizeof s.bytes, 0) != static_cast<ssize_t>(sizeof s.bytes))
            return status{errc::system, subject::system_error, static_cast<std::uint32_t>(errno)};
        return s;
    }
};

/// What proves that a message comes from one who knows the secret.
struct message_code {
    unsigned char bytes[32]{};  ///< the whole HMAC, not cut
    /// In a time that does not depend on where they differ.
    friend bool operator==(const message_code& a, const message_code& b) noexcept {
        return ::CRYPTO_memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
    }
};

/// The code of `message` under `key`, which may have any length.
inline message_code hmac_sha256(std::span<const unsigned char> key, std::span<const unsigned char> message) noexcept {
    message_code out;
    unsigned length = sizeof out.bytes;
    ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), message.data(), message.size(), out.bytes, &length);
    return out;
}

}  // namespace vccl::inline v0
