#pragma once
/// \file
/// The connection blob: what one end tells the other before they connect, over any way that the user has. It comes from
/// outside: every field is checked before it is used, and each refusal says why. Set-up thread.

#include <vccl/host/oob.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/policy/lanes.hpp>

#include <cstring>
#include <span>
#include <vector>

namespace vccl::inline v0 {

enum class endpoint_role : std::uint8_t { sender = 1, receiver = 2 };

struct blob_lane {
    port_name port;
    lane_end end;
    std::uint32_t ring_rkey;   ///< sender: key of its CTS ring on this port
    std::uint16_t rail;
    std::uint8_t up;           ///< the port was ACTIVE when the blob was made
    std::uint8_t link;         ///< link_layer
};
static_assert(sizeof(blob_lane) == 156);

struct connection_blob {
    static constexpr std::uint32_t magic_value = 0x62636376;  // "vccb"

    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t bytes;           ///< of the whole blob
    endpoint_role role;
    std::uint8_t lanes;
    std::uint8_t group;            ///< QPs a lane
    std::uint8_t can_replay;       ///< sender
    std::uint32_t channel;
    std::uint64_t session;         ///< of the user: both ends' must agree
    std::uint64_t nonce;           ///< of this endpoint: fresh for each
    std::uint64_t ring_addr;       ///< sender: its ack line, followed by the CTS ring
    std::uint32_t ring_depth;      ///< sender
    std::uint32_t max_chunk;
    oob_secret secret;             ///< receiver
    oob_address oob;               ///< receiver
    fixed_name<48> host;
    std::uint64_t checksum;        ///< over everything but itself
    blob_lane lane[max_lanes];
};
static_assert(offsetof(connection_blob, lane) % 4 == 0);

/// FNV-1a, 64 bits: recognises damage, not malice; the secret and the checks of every field are for that.
VCCL_COLD inline std::uint64_t blob_checksum(const connection_blob& b, std::size_t bytes) noexcept {
    connection_blob copy = b;
    copy.checksum = 0;
    const auto* p = reinterpret_cast<const unsigned char*>(&copy);
    std::uint64_t h = 0xcbf29ce484222325u;
    for (std::size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}
constexpr std::size_t blob_size(unsigned lanes) noexcept { return offsetof(connection_blob, lane) + lanes * sizeof(blob_lane); }

VCCL_COLD inline std::vector<std::byte> encode_blob(connection_blob b) {
    b.magic = connection_blob::magic_value;
    b.version = wire_version;
    b.bytes = static_cast<std::uint16_t>(blob_size(b.lanes));
    b.checksum = blob_checksum(b, b.bytes);
    std::vector<std::byte> out(b.bytes);
    std::memcpy(out.data(), &b, b.bytes);
    return out;
}

VCCL_COLD inline status other_session(std::uint64_t own, std::uint64_t peer) noexcept {
    const auto low = [](std::uint64_t n) { return static_cast<std::uint32_t>(n); };
    if (low(own) != low(peer)) return {errc::wrong_peer, subject::session_low, low(own), low(peer)};
    return {errc::wrong_peer, subject::session_high, low(own >> 32), low(peer >> 32)};
}

/// Magic and version lie at the start of a blob of any version; all else, its size too, is the version's own. Returns: bad_blob
/// if it is none, version_mismatch if it is another version's.
VCCL_COLD inline status check_blob_version(std::span<const std::byte> raw) noexcept {
    std::uint32_t magic = 0;
    std::uint16_t version = 0;
    static_assert(offsetof(connection_blob, magic) == 0 && offsetof(connection_blob, version) == sizeof magic);
    if (raw.size() < sizeof magic + sizeof version) return status{errc::bad_blob, static_cast<std::uint32_t>(raw.size())};
    std::memcpy(&magic, raw.data(), sizeof magic);
    std::memcpy(&version, raw.data() + sizeof magic, sizeof version);
    if (magic != connection_blob::magic_value) return errc::bad_blob;
    if (version != wire_version) return status{errc::version_mismatch, subject::wire_version, wire_version, version};
    return {};
}

/// Returns: the peer's blob, if it is whole, of this version, and fits `own`. The refusals, in this order: those of
/// check_blob_version, bad_blob, wrong_peer (role, session or channel), policy_mismatch (QPs, lanes or link layer),
/// rail_mismatch; in `detail` what this end has, in `extra` what the peer has.
VCCL_COLD inline result<connection_blob> decode_blob(std::span<const std::byte> raw, const connection_blob& own) noexcept {
    if (status s = check_blob_version(raw); !s) return s;
    connection_blob b{};
    if (raw.size() < offsetof(connection_blob, lane) || raw.size() > sizeof b)
        return status{errc::bad_blob, static_cast<std::uint32_t>(raw.size())};
    std::memcpy(static_cast<void*>(&b), raw.data(), raw.size());
    if (b.lanes == 0 || b.lanes > max_lanes || b.bytes != raw.size() || b.bytes != blob_size(b.lanes) ||
        b.checksum != blob_checksum(b, b.bytes))
        return errc::bad_blob;
    if (b.role == own.role || (b.role != endpoint_role::sender && b.role != endpoint_role::receiver))
        return status{errc::wrong_peer, subject::role, static_cast<std::uint32_t>(own.role), static_cast<std::uint32_t>(b.role)};
    if (b.session != own.session) return other_session(own.session, b.session);
    if (b.channel != own.channel) return status{errc::wrong_peer, subject::channel, own.channel, b.channel};
    if (b.group != own.group) return status{errc::policy_mismatch, subject::qps, own.group, b.group};
    if (b.role == endpoint_role::sender &&
        (b.ring_depth == 0 || b.ring_depth > max_window || (b.ring_depth & (b.ring_depth - 1)) != 0 || b.ring_addr % 64 != 0))
        return errc::bad_blob;
    rail_list ours, theirs;
    for (unsigned l = 0; l < own.lanes; ++l) ours.rails[ours.size++] = rail_id{own.lane[l].rail};
    for (unsigned l = 0; l < b.lanes; ++l) theirs.rails[theirs.size++] = rail_id{b.lane[l].rail};
    if (status s = match_rails(ours, theirs); !s) return s;
    for (unsigned l = 0; l < b.lanes; ++l)
        if (b.lane[l].link != own.lane[l].link) {
            status s{errc::policy_mismatch, subject::link, own.lane[l].link, b.lane[l].link};
            s.lane = static_cast<std::uint8_t>(l);
            return s;
        }
    return b;
}

}  // namespace vccl::inline v0
