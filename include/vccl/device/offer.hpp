#pragma once
/// \file
/// What a device endpoint says beyond a connection blob: where its window and its signal words lie, and their keys. Travels
/// behind the blob, comes from outside, and is checked field by field. Set-up thread.

#include <vccl/device/words.hpp>
#include <vccl/host/blob.hpp>

#include <vector>

namespace vccl::inline v0::device {

/// In `sequence` of a sender's notice: its queues are on the lane that it speaks of.
inline constexpr std::uint64_t in_use = 1;

/// Little-endian; of a sender all but the head is 0.
struct device_offer {
    static constexpr std::uint32_t magic_value = 0x64636376;  // "vccd"

    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t bytes;
    std::uint64_t window_addr;
    std::uint64_t window_bytes;
    std::uint64_t signals_addr;
    std::uint32_t signal_count;
    std::uint32_t window_rkey[max_queue_lanes];
    std::uint32_t signal_rkey[max_queue_lanes];
    std::uint32_t reserved;
};
static_assert(sizeof(device_offer) == 8 + 3 * 8 + 4 + 2 * 4 * max_queue_lanes + 4);

VCCL_COLD inline void append_offer(std::vector<std::byte>& blob, device_offer o) {
    o.magic = device_offer::magic_value;
    o.version = wire_version;
    o.bytes = sizeof o;
    const auto raw = std::as_bytes(std::span(&o, 1));
    blob.insert(blob.end(), raw.begin(), raw.end());
}

/// Effects: takes the offer off the end of `blob`. Errors: as check_blob_version; bad_blob, also that of a host endpoint.
VCCL_COLD inline result<device_offer> take_offer(std::span<const std::byte>& blob, bool of_receiver) noexcept {
    if (status s = check_blob_version(blob); !s) return s;
    device_offer o{};
    if (blob.size() < sizeof o) return status{errc::bad_blob, static_cast<std::uint32_t>(blob.size())};
    std::memcpy(&o, blob.data() + blob.size() - sizeof o, sizeof o);
    if (o.magic != device_offer::magic_value || o.bytes != sizeof o) return errc::bad_blob;
    if (o.version != wire_version) return status{errc::version_mismatch, subject::wire_version, wire_version, o.version};
    if (of_receiver && (o.signal_count == 0 || o.signal_count > max_signal_words || o.signals_addr % 8 != 0 ||
                        o.window_addr + o.window_bytes < o.window_addr))
        return errc::bad_blob;
    blob = blob.first(blob.size() - sizeof o);
    return o;
}

}  // namespace vccl::inline v0::device
