#pragma once
/// \file
/// Parcels as bytes: for each its peer, tag, length (32 bits each, little endian), then its bytes. What is unpacked comes from
/// outside and is checked. Any thread.

#include <vccl/coll/exchange.hpp>

#include <span>

namespace vccl::inline v0 {

namespace detail {

inline void put_word(std::vector<std::byte>& out, std::uint32_t w) {
    for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(w >> 8 * i));
}
inline std::uint32_t get_word(std::span<const std::byte> in) noexcept {
    std::uint32_t w = 0;
    for (unsigned i = 0; i < 4; ++i) w |= std::to_integer<std::uint32_t>(in[i]) << 8 * i;
    return w;
}

}  // namespace detail

/// Effects: appends the parcel to `out`, as of `peer`.
inline void pack_parcel(std::vector<std::byte>& out, std::uint32_t peer, const parcel& p) {
    detail::put_word(out, peer);
    detail::put_word(out, p.tag);
    detail::put_word(out, static_cast<std::uint32_t>(p.bytes.size()));
    out.insert(out.end(), p.bytes.begin(), p.bytes.end());
}

/// Returns: the parcels in `in`. protocol_violation: it is cut short, or names a peer that does not exist.
inline result<std::vector<parcel>> unpack_parcels(std::span<const std::byte> in, std::uint32_t ranks) {
    std::vector<parcel> out;
    while (!in.empty()) {
        if (in.size() < 12) return errc::protocol_violation;
        const std::uint32_t peer = detail::get_word(in), tag = detail::get_word(in.subspan(4)),
                            bytes = detail::get_word(in.subspan(8));
        in = in.subspan(12);
        if (peer >= ranks || bytes > in.size()) return errc::protocol_violation;
        out.push_back({peer, tag, {in.begin(), in.begin() + bytes}});
        in = in.subspan(bytes);
    }
    return out;
}

}  // namespace vccl::inline v0
