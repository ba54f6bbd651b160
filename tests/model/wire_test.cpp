#include <vccl/model/wire.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <random>

using namespace vccl;

namespace {

cts_words sealed(std::uint64_t sequence, std::uint64_t addr, std::uint32_t length, std::uint32_t rkey, std::uint64_t binding,
                 std::uint64_t acked) {
    cts_words w{sequence, addr, cts_words::make_room(length, rkey), binding, acked, 0};
    w.check = check_of(w);
    return w;
}
/// The slot as it looks when only the words in `mask` of `fresh` have landed on `old`.
cts_words torn(const cts_words& old, const cts_words& fresh, unsigned mask) {
    std::uint64_t a[6], b[6];
    std::memcpy(a, &old, sizeof a);
    std::memcpy(b, &fresh, sizeof b);
    for (unsigned i = 0; i < 6; ++i)
        if (mask >> i & 1) a[i] = b[i];
    cts_words w{};
    std::memcpy(&w, a, sizeof w);
    return w;
}
bool same(const cts_words& a, const cts_words& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("A slot of which only some words have landed does not match its check") {
    std::mt19937_64 random(1);
    unsigned mixtures = 0;
    for (unsigned round = 0; round < 2000; ++round) {
        // Neighbouring laps as they are in practice: few bits differ, and often the same ones in several words.
        const std::uint64_t sequence = random() % 3 == 0 ? random() % 1024 : random(), lap = max_window;
        const std::uint64_t base = (random() >> 20) & ~std::uint64_t{0xfff}, stride = std::uint64_t{1} << random() % 33;
        const auto rkey = static_cast<std::uint32_t>(random()), length = static_cast<std::uint32_t>(1u << random() % 30);
        const std::uint32_t next_key = rkey + static_cast<std::uint32_t>(random() % 3 == 0 ? lap : random() % 4);
        const auto epoch = static_cast<std::uint32_t>(random() % 5 + 1),
                   generation = static_cast<std::uint32_t>(random() % 3 + 1);
        const unsigned lane = static_cast<unsigned>(random() % 2);
        const cts_words old = sealed(sequence, base, length, rkey, cts_words::make_binding(epoch, generation, lane), sequence);
        const cts_words fresh =
            sealed(sequence + lap, base + lap * stride, random() % 2 == 0 ? length : length - 1, next_key,
                   cts_words::make_binding(epoch + random() % 2, generation, lane), sequence + lap - random() % 3);
        REQUIRE(check_of(old) == old.check);
        REQUIRE(check_of(fresh) == fresh.check);
        for (unsigned mask = 0; mask < 64; ++mask) {
            const cts_words w = torn(old, fresh, mask);
            if (same(w, old) || same(w, fresh)) continue;
            ++mixtures;
            CHECK(check_of(w) != w.check);
        }
    }
    CHECK(mixtures > 50'000);
}

TEST_CASE("Memory that was never written is no grant") {
    const cts_words nothing{};
    CHECK(check_of(nothing) != nothing.check);
}

TEST_CASE("Words that neighbours share are taken over without touching the others") {
    const cts_words from = sealed(1, 2, 3, 4, 5, 6);
    cts_words to = sealed(7, 8, 9, 10, 11, 12);
    const cts_words before = to;
    to.share(from);
    CHECK(to.binding == from.binding);
    CHECK(to.acked == from.acked);
    CHECK(to.sequence == before.sequence);
    CHECK(to.addr == before.addr);
    CHECK(to.room == before.room);
    CHECK(to.check == before.check);
}

TEST_CASE("An immediate gives back what it was made of, and counts on to the next chunk") {
    for (const std::uint64_t sequence : {std::uint64_t{0}, std::uint64_t{16383}, std::uint64_t{16384}, ~std::uint64_t{0}})
        for (unsigned parts = 1; parts <= max_group; ++parts)
            for (unsigned part = 0; part < parts; ++part) {
                const auto i = immediate::make(1027, sequence, part, parts, part == 0);
                CHECK(i.epoch() == 3);
                CHECK(i.sequence() == (sequence & immediate::sequence_mask));
                CHECK(i.part() == part);
                CHECK(i.parts() == parts);
                CHECK(i.too_long() == (part == 0));
                const immediate next{i.raw + immediate::one_sequence};
                CHECK(next.raw == immediate::make(1027, sequence + 1, part, parts, part == 0).raw);
            }
}
