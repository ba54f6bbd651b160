#pragma once
/// \file
/// The connection blob of a striped channel: a head, and for each stripe what its lanes can carry and its own blob. It comes
/// from outside: every length is checked, and each stripe's blob is checked again by its endpoint. Set-up thread.

#include <vccl/host/blob.hpp>
#include <vccl/stripe/cut.hpp>

#include <cstring>
#include <span>
#include <vector>

namespace vccl::inline v0 {

struct stripe_blob_head {
    static constexpr std::uint32_t magic_value = 0x73636376;  // "vccs"

    std::uint32_t magic;
    std::uint16_t version;
    std::uint8_t stripes;
    std::uint8_t homes;        ///< sender: stripes that take chunks which are not cut, a bit each
    std::uint32_t bytes;       ///< of the whole
    std::uint32_t split_from;  ///< receiver: receives of so many bytes and more are granted on every stripe
    std::uint64_t checksum;    ///< over everything but itself
};
static_assert(sizeof(stripe_blob_head) == 24);

/// Before each stripe's blob: its lanes, as seen from the end that made it.
struct stripe_blob_part {
    std::uint32_t bytes;             ///< of the blob that follows
    std::uint32_t far[max_lanes];    ///< distance from the GPU to the lane's NIC; 0 without a GPU
    std::uint32_t reserved;
    std::uint64_t rate[max_lanes];   ///< bytes per second of the lane's port
};
static_assert(sizeof(stripe_blob_part) == 200);

/// What a blob said.
struct stripe_blob {
    stripe_blob_head head{};
    stripe_blob_part part[max_stripes]{};
    std::span<const std::byte> blob[max_stripes];
};

VCCL_COLD inline std::uint64_t stripe_checksum(std::span<const std::byte> raw) noexcept {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (std::size_t i = 0; i < raw.size(); ++i) {
        const bool own = i >= offsetof(stripe_blob_head, checksum) && i < sizeof(stripe_blob_head);
        h = (h ^ (own ? 0u : static_cast<unsigned char>(raw[i]))) * 0x100000001b3u;
    }
    return h;
}

VCCL_COLD inline std::vector<std::byte> encode_stripes(stripe_blob_head head, const stripe_blob_part* parts,
                                                       const std::vector<std::byte>* blobs) {
    std::vector<std::byte> out(sizeof head);
    const auto append = [&](const void* p, std::size_t n) {
        const auto* b = static_cast<const std::byte*>(p);
        out.insert(out.end(), b, b + n);
    };
    for (unsigned i = 0; i < head.stripes; ++i) {
        stripe_blob_part part = parts[i];
        part.bytes = static_cast<std::uint32_t>(blobs[i].size());
        append(&part, sizeof part);
        append(blobs[i].data(), blobs[i].size());
    }
    head.magic = stripe_blob_head::magic_value;
    head.version = wire_version;
    head.bytes = static_cast<std::uint32_t>(out.size());
    std::memcpy(out.data(), &head, sizeof head);
    head.checksum = stripe_checksum(out);
    std::memcpy(out.data(), &head, sizeof head);
    return out;
}

/// Returns: its parts, which point into `raw`. The refusals: bad_blob, version_mismatch, policy_mismatch (the ends have
/// different numbers of stripes).
VCCL_COLD inline result<stripe_blob> decode_stripes(std::span<const std::byte> raw, unsigned stripes) noexcept {
    stripe_blob out;
    if (raw.size() < sizeof out.head) return status{errc::bad_blob, static_cast<std::uint32_t>(raw.size())};
    std::memcpy(&out.head, raw.data(), sizeof out.head);
    if (out.head.magic != stripe_blob_head::magic_value) return errc::bad_blob;
    if (out.head.version != wire_version)
        return status{errc::version_mismatch, subject::wire_version, wire_version, out.head.version};
    if (out.head.bytes != raw.size() || out.head.checksum != stripe_checksum(raw)) return errc::bad_blob;
    if (out.head.stripes != stripes) return status{errc::policy_mismatch, subject::stripes, stripes, out.head.stripes};
    std::span<const std::byte> rest = raw.subspan(sizeof out.head);
    for (unsigned i = 0; i < stripes; ++i) {
        if (rest.size() < sizeof out.part[i]) return errc::bad_blob;
        std::memcpy(&out.part[i], rest.data(), sizeof out.part[i]);
        rest = rest.subspan(sizeof out.part[i]);
        if (out.part[i].bytes > rest.size()) return errc::bad_blob;
        out.blob[i] = rest.first(out.part[i].bytes);
        rest = rest.subspan(out.part[i].bytes);
    }
    if (!rest.empty()) return errc::bad_blob;
    return out;
}

}  // namespace vccl::inline v0
