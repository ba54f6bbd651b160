/// \file
/// Connection blobs from a stranger: as the bytes are, and with their frame repaired, so that the checks behind it are reached.

#include <vccl/host/blob.hpp>

#include <cstdlib>
#include <vector>

using namespace vccl;

namespace {

connection_blob own_blob() {
    connection_blob own{};
    own.role = endpoint_role::receiver;
    own.lanes = 2;
    own.group = 4;
    for (unsigned l = 0; l < 2; ++l) {
        own.lane[l].rail = static_cast<std::uint16_t>(l);
        own.lane[l].link = 1;
    }
    return own;
}

void decode(std::span<const std::byte> raw) {
    static const connection_blob own = own_blob();
    const auto got = decode_blob(raw, own);
    if (!got) return;
    const bool good = got->lanes == own.lanes && got->group == own.group && got->channel == own.channel &&
                      got->role == endpoint_role::sender && got->ring_depth != 0 && got->ring_depth <= max_window;
    if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    decode({bytes, size});
    connection_blob b{};
    std::memcpy(static_cast<void*>(&b), data, size < sizeof b ? size : sizeof b);
    b.lanes = static_cast<std::uint8_t>(1 + b.lanes % max_lanes);
    decode(encode_blob(b));
    return 0;
}
