#pragma once
/// \file
/// The fabric's random numbers: small, seeded, the same on every machine. Used by the engine under its lock.
/// Source: S. Vigna's SplitMix64 generator (public domain algorithm).

#include <cstdint>

namespace vccl::inline v0::verbs::soft_detail {

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

struct random_source {
    std::uint64_t state{};

    std::uint64_t next() noexcept { return mix(state += 0x9e3779b97f4a7c15ull); }
    std::uint64_t below(std::uint64_t bound) noexcept { return bound ? next() % bound : 0; }
    bool chance(std::uint32_t parts_per_million) noexcept {
        return parts_per_million != 0 && below(1'000'000) < parts_per_million;
    }
};

}  // namespace vccl::inline v0::verbs::soft_detail
