#pragma once
// SHA-256 of a stream through OpenSSL, and a cheap check of one chunk, by which a damaged chunk is found and counted.
#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace p2p {

class sha256 {
public:
    sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
        if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
            throw std::runtime_error("OpenSSL has no SHA-256");
    }
    void add(std::span<const std::byte> bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

    /// Ends the stream. Returns: 64 hexadecimal digits.
    std::string hex() {
        unsigned char raw[EVP_MAX_MD_SIZE];
        unsigned size = 0;
        EVP_DigestFinal_ex(context_.get(), raw, &size);
        std::string out;
        for (unsigned i = 0; i < size; ++i) {
            constexpr char digits[] = "0123456789abcdef";
            out += digits[raw[i] >> 4];
            out += digits[raw[i] & 15];
        }
        return out;
    }

private:
    std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// 64 bits over the chunk's bytes; sees any change of a single word.
inline std::uint64_t chunk_check(std::span<const std::byte> bytes) noexcept {
    std::uint64_t lanes[4] = {1, 2, 3, 4};
    std::size_t at = 0;
    for (; at + sizeof lanes <= bytes.size(); at += sizeof lanes)
        for (std::size_t l = 0; l < 4; ++l) {
            std::uint64_t word;
            std::memcpy(&word, bytes.data() + at + 8 * l, sizeof word);
            lanes[l] = (lanes[l] ^ word) * 0x9e3779b97f4a7c15U;
            lanes[l] ^= lanes[l] >> 29;
        }
    std::uint64_t sum = bytes.size();
    for (std::uint64_t l : lanes) sum = (sum ^ l) * 0xbf58476d1ce4e5b9U;
    for (; at < bytes.size(); ++at) sum = (sum ^ static_cast<std::uint64_t>(bytes[at])) * 0x100000001b3U;
    return sum;
}

}  // namespace p2p
