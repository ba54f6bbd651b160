/// \file
/// Grouped sends and receives, all-to-all in its forms, and what floats add up to in a ring.

#include "cluster.hpp"
#include "expected.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace coll_test;

namespace {

using world = soft_cluster<>;

cluster_options options_of(unsigned hosts, unsigned gpus) {
    cluster_options o;
    o.hosts = hosts;
    o.gpus = o.nics = gpus;
    o.pairs = true;
    return o;
}

/// Byte `i` of what `from` sends to `to`.
std::byte byte_of(std::uint32_t from, std::uint32_t to, std::uint64_t i) {
    return static_cast<std::byte>((from * 31 + to * 17 + i * 7 + i / 251) & 0xff);
}

}  // namespace

TEST_CASE("All-to-all gives block p of every rank to rank p, in and out of place") {
    constexpr unsigned shapes[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}, {2, 3}, {2, 8}};
    for (const auto& shape : shapes) {
        CAPTURE(shape[0] * shape[1]);
        world w(options_of(shape[0], shape[1]));
        const auto n = static_cast<std::uint32_t>(w.ranks.size());
        for (const std::uint64_t count : {0u, 1u, 77u, 5000u})
            for (const bool in_place : {false, true}) {
                const std::uint64_t block = count * 4;
                w.buffers(n * block, n * block);
                for (std::uint32_t r = 0; r < n; ++r)
                    for (std::uint64_t i = 0; i < n * block; ++i)
                        (in_place ? w.ranks[r].out : w.ranks[r].in)[i] =
                            byte_of(r, static_cast<std::uint32_t>(i / block), i % block);
                const status s = w.run([&](world::rank& r, std::uint32_t) {
                    return r.comm->all_to_all((in_place ? r.out_memory : r.in_memory).view(), r.out_memory.view(), count,
                                              element_type::float32);
                });
                CHECK_MESSAGE(s, "errc ", int(s.code));
                std::uint64_t wrong = 0;
                for (std::uint32_t r = 0; r < n; ++r)
                    for (std::uint64_t i = 0; i < n * block; ++i)
                        wrong += w.ranks[r].out[i] != byte_of(static_cast<std::uint32_t>(i / block), r, i % block);
                CHECK(wrong == 0);
            }
    }
}

TEST_CASE("All-to-all-v moves as much between each pair as that pair agrees on, nothing too") {
    world w(options_of(5, 1));
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    const auto count = [](std::uint32_t from, std::uint32_t to) -> std::uint64_t { return (from * 3 + to) % 4 * 999; };
    w.buffers(8 * 999 * 4 * n, 8 * 999 * 4 * n);
    std::vector<std::vector<element_range>> to(n), from(n);
    for (std::uint32_t r = 0; r < n; ++r) {
        std::uint64_t out = 0, in = 0;
        for (std::uint32_t p = 0; p < n; ++p) {
            to[r].push_back({out, count(r, p)});
            for (std::uint64_t i = 0; i < 8 * count(r, p); ++i) w.ranks[r].in[8 * out + i] = byte_of(r, p, i);
            out += count(r, p);
            from[r].push_back({in, count(p, r)});
            in += count(p, r) + 3;
        }
    }
    const status s = w.run([&](world::rank& r, std::uint32_t me) {
        return r.comm->all_to_all_v(r.in_memory.view(), to[me], r.out_memory.view(), from[me], element_type::int64);
    });
    CHECK_MESSAGE(s, "errc ", int(s.code));
    std::uint64_t wrong = 0;
    for (std::uint32_t r = 0; r < n; ++r)
        for (std::uint32_t p = 0; p < n; ++p) {
            const element_range f = from[r][p];
            for (std::uint64_t i = 0; i < 8 * f.count; ++i) wrong += w.ranks[r].out[8 * f.begin + i] != byte_of(p, r, i);
            for (std::uint64_t i = 0; i < 24; ++i) wrong += w.ranks[r].out[8 * (f.begin + f.count) + i] != std::byte{0x5a};
        }
    CHECK(wrong == 0);
}

TEST_CASE("Grouped sends and receives meet in order, several to one peer and to oneself, too") {
    world w(options_of(3, 1));
    w.buffers(60'000, 60'000);
    // Everybody sends three pieces of different sizes to everybody, out of order of the peers.
    constexpr std::uint64_t sizes[] = {10, 5000, 0};
    std::vector<std::vector<transfer>> sends(3), receives(3);
    for (std::uint32_t r = 0; r < 3; ++r)
        for (std::uint32_t k = 0; k < 3; ++k)
            for (std::uint32_t p = 0; p < 3; ++p) {
                const std::uint64_t at = (k * 3 + p) * 6000;
                for (std::uint64_t i = 0; i < sizes[k]; ++i) w.ranks[r].in[at + i] = byte_of(r + 8 * k, p, i);
                sends[r].push_back({p, w.ranks[r].in_memory.view(at, sizes[k])});
                receives[r].push_back({p, w.ranks[r].out_memory.view(at, sizes[k])});
            }
    const status s = w.run([&](world::rank& r, std::uint32_t me) { return r.comm->exchange(sends[me], receives[me]); });
    CHECK_MESSAGE(s, "errc ", int(s.code));
    std::uint64_t wrong = 0;
    for (std::uint32_t r = 0; r < 3; ++r)
        for (std::uint32_t k = 0; k < 3; ++k)
            for (std::uint32_t p = 0; p < 3; ++p)
                for (std::uint64_t i = 0; i < 6000; ++i)
                    wrong +=
                        w.ranks[r].out[(k * 3 + p) * 6000 + i] != (i < sizes[k] ? byte_of(p + 8 * k, r, i) : std::byte{0x5a});
    CHECK(wrong == 0);
}

TEST_CASE("What floats add up to depends on the ring alone: every rank has the same bits, run after run") {
    for (const unsigned n : {2u, 3u, 6u}) {
        constexpr std::uint64_t count = 3001;
        const auto value = [](std::uint32_t rank, std::uint64_t i) {
            return std::sin(static_cast<float>(rank * 7919 + i)) * std::ldexp(1.0f, static_cast<int>((i + rank) % 24) - 12);
        };
        std::vector<std::byte> first;
        for (int run = 0; run < 3; ++run) {
            cluster_options o = options_of(n, 1);
            o.fabric.latency = nanoseconds{1000 + 4000 * run};
            world w(o);
            w.pass_time = nanoseconds{1500 + 700 * run};
            w.buffers(count * 4, count * 4);
            for (std::uint32_t r = 0; r < n; ++r)
                for (std::uint64_t i = 0; i < count; ++i) {
                    const float f = value(r, i);
                    std::memcpy(&w.ranks[r].in[i * 4], &f, 4);
                }
            const status s = w.run([&](world::rank& r, std::uint32_t) {
                return r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), count, element_type::float32, reduce_op::sum);
            });
            CHECK_MESSAGE(s, "errc ", int(s.code));
            if (run == 0) first = w.ranks[0].out;
            for (std::uint32_t r = 0; r < n; ++r) CHECK(w.ranks[r].out == first);  // what is beyond is the same, too
        }
        // A block is added up beginning at the rank behind its owner, all round to the owner.
        for (std::uint32_t b = 0; b < n; ++b) {
            const element_range block = split({0, count}, n, b, 16);
            for (std::uint64_t i = block.begin; i < block.begin + block.count; ++i) {
                float wanted = value((b + 1) % n, i), got = 0;
                for (std::uint32_t k = 2; k <= n; ++k) wanted += value((b + k) % n, i);
                std::memcpy(&got, &first[i * 4], 4);
                CHECK(std::memcmp(&wanted, &got, 4) == 0);
            }
        }
    }
}
