#pragma once
// Bytes from anywhere as the contents of a ring: the entry for random tests and for libFuzzer (fuzz.cpp). The first byte says
// how much of each WQE is made good again, so that the bytes get past the first checks; REQUIREs hold for any bytes.

#include "world.hpp"

namespace ring_test {

inline void feed(const unsigned char* data, std::size_t size) {
    if (size == 0) return;
    const unsigned repair = data[0];
    ++data, --size;
    world_options o;
    o.bytes = 4096;
    o.limits = {8, 8};
    o.index = 0xfffd;
    auto w = make_world(o);
    // What lies around registered memory: a canary on both sides would be the allocator's; ASan guards those.
    unsigned posted = 0;
    for (; posted < 8 && size != 0; ++posted) {
        wqe_block b{};
        const std::size_t n = size < sizeof b ? size : sizeof b;
        std::memcpy(static_cast<void*>(&b), data, n);
        data += n, size -= n;
        if ((repair & 1) != 0) {  // index and QP number
            b.word[0] = (b.word[0] & 0xff000000ff0000ffull) | (write(w.post.head(), {}, {}).word[0] & 0x00ffffff00ffff00ull);
        }
        if ((repair & 2) != 0) b.word[0] = (b.word[0] & 0x00ffffffffffffffull) | std::uint64_t{b.word[7] % 6} << 56;  // ds
        if ((repair & 4) != 0) b.word[3] = big_endian_pair(w.there(0).rkey, 0);
        if ((repair & 8) != 0) b.word[2] = big_endian(w.there(b.word[2] % 5000).addr);
        if ((repair & 16) != 0) {
            constexpr std::uint8_t known[] = {0x00, 0x08, 0x09, 0x10, 0x11, 0x12, 0x14, 0x15};
            b.word[0] = (b.word[0] & ~(0xffull << 24)) | std::uint64_t{known[b.word[6] % 8]} << 24;
        }
        if ((repair & 32) != 0) b.word[4] = (b.word[4] & 0x80) | big_endian_pair(b.word[7] % 5000, w.here(0, 0).lkey);
        if ((repair & 64) != 0) b.word[5] = big_endian(w.here(b.word[5] % 5000, 0).addr);
        w.post.put(b);
    }
    w.post.ring_it();
    w.pass_time(10_s);
    const auto cqes = w.post.poll();
    REQUIRE(cqes.size() <= posted);
    bool failed = false;
    for (const seen& c : cqes) {
        if (failed) REQUIRE(c.why == syndrome::flushed);
        failed |= c.why != syndrome::none;
    }
    REQUIRE(failed == (take(w.qp.state()) == qp_state::error));
    REQUIRE(w.qp.to_error());
}

}  // namespace ring_test
