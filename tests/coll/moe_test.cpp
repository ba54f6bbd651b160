/// \file
/// Dispatch and combine of a mixture of experts: every token reaches the ranks of its experts once, and comes back as the sum
/// of what they made of it; also while ports fail.

#include "cluster.hpp"

#include <vccl/coll/moe.hpp>

#include <doctest/doctest.h>

#include <random>

using namespace coll_test;

namespace {

using world = soft_cluster<>;
using moe = moe_exchange<world::communicator_type>;

constexpr moe_shape shape{.experts = 24, .top_k = 4, .tokens = 40, .token_bytes = 448};

/// The numbers of token t of rank r; expert e multiplies by e + 1.
std::int32_t number(std::uint32_t r, std::uint32_t t, std::uint32_t i) {
    return static_cast<std::int32_t>(r * 1000 + t * 10 + i % 7);
}

struct party {
    std::vector<std::byte> scratch;
    memory registered;
    std::vector<std::int32_t> tokens, out;
    std::vector<std::uint32_t> experts;
    std::unique_ptr<moe> exchange;
    std::uint32_t count{};
};

void play(std::uint64_t seed, bool faults) {
    cluster_options o;
    o.hosts = 3;
    o.gpus = o.nics = 2;
    o.pairs = true;
    o.ends.seed = seed;
    o.fabric.seed = seed;
    world w(o);
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    std::mt19937_64 random(seed);
    constexpr std::uint32_t width = shape.token_bytes / 4;
    std::vector<party> all(n);
    for (std::uint32_t r = 0; r < n; ++r) {
        party& p = all[r];
        p.scratch.resize(moe::scratch_bytes(shape, n) + 16);
        auto m = w.ranks[r].context->register_memory(p.scratch.data(), p.scratch.size());
        REQUIRE(m);
        p.registered = std::move(*m);
        const std::uint64_t skew = (16 - reinterpret_cast<std::uintptr_t>(p.scratch.data()) % 16) % 16;
        p.exchange = std::make_unique<moe>(*w.ranks[r].comm, shape, p.registered.view(skew, moe::scratch_bytes(shape, n)));
        REQUIRE(p.exchange->health());
    }
    const auto until_done = [&] {
        return w.until([&] {
            bool done = true;
            for (party& p : all) {
                p.exchange->progress();
                done &= p.exchange->done() || !p.exchange->health();
            }
            return done;
        });
    };
    for (int round = 0; round < 4; ++round) {
        for (std::uint32_t r = 0; r < n; ++r) {
            party& p = all[r];
            p.count = round == 0 && r == 1 ? 0 : static_cast<std::uint32_t>(random() % (shape.tokens + 1));
            p.tokens.assign(std::size_t{p.count} * width, 0);
            p.out.assign(std::size_t{p.count} * width, -1);
            p.experts.clear();
            for (std::uint32_t t = 0; t < p.count; ++t) {
                for (std::uint32_t i = 0; i < width; ++i) p.tokens[t * width + i] = number(r, t, i);
                for (std::uint32_t k = 0; k < shape.top_k; ++k)
                    p.experts.push_back(random() % 5 == 0 ? moe_shape::no_expert
                                                          : static_cast<std::uint32_t>(random() % shape.experts));
            }
            CHECK(p.exchange->dispatch(p.tokens.data(), p.count, p.experts));
            CHECK(p.exchange->dispatch(p.tokens.data(), p.count, p.experts).code == errc::busy);
        }
        if (faults) CHECK(w.command(round % 2 == 0 ? "down A.nic0.p0" : "up A.nic0.p0"));
        REQUIRE(until_done());
        std::uint64_t rows = 0, wanted_rows = 0, wrong = 0;
        for (std::uint32_t r = 0; r < n; ++r) {
            REQUIRE(all[r].exchange->health());
            for (std::uint32_t i = 0; i < all[r].exchange->rows(); ++i) {
                const moe_row row = all[r].exchange->row(i);
                ++rows;
                std::int32_t factor = 0;
                for (const std::uint32_t e : row.experts)
                    if (e != moe_shape::no_expert) factor += static_cast<std::int32_t>(e) + 1;
                for (std::uint32_t k = 0; k < width; ++k) {
                    std::int32_t v = 0;
                    std::memcpy(&v, &row.bytes[4 * k], 4);
                    wrong += v != number(row.source, row.token, k);
                    v *= factor;
                    std::memcpy(&row.bytes[4 * k], &v, 4);
                }
            }
            for (std::uint32_t t = 0; t < all[r].count; ++t) {
                std::uint32_t ranks = 0;  // a bit each
                for (std::uint32_t k = 0; k < shape.top_k; ++k)
                    if (const std::uint32_t e = all[r].experts[t * shape.top_k + k]; e != moe_shape::no_expert)
                        ranks |= 1u << e / 4;
                wanted_rows += static_cast<std::uint64_t>(std::popcount(ranks));
            }
        }
        CHECK(rows == wanted_rows);
        CHECK(wrong == 0);
        for (party& p : all) CHECK(p.exchange->combine(p.out.data(), element_type::int32));
        REQUIRE(until_done());
        for (std::uint32_t r = 0; r < n; ++r)
            for (std::uint32_t t = 0; t < all[r].count; ++t) {
                std::int32_t factor = 0;
                for (std::uint32_t k = 0; k < shape.top_k; ++k)
                    if (const std::uint32_t e = all[r].experts[t * shape.top_k + k]; e != moe_shape::no_expert)
                        factor += static_cast<std::int32_t>(e) + 1;
                for (std::uint32_t i = 0; i < width; ++i) wrong += all[r].out[t * width + i] != factor * number(r, t, i);
            }
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("Every token reaches the ranks of its experts once, and comes back as the sum of what they made of it") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) play(seed, false);
}

TEST_CASE("The same while a port goes down and comes back") {
    for (std::uint64_t seed = 6; seed <= 12; ++seed) play(seed, true);
}

TEST_CASE("What a mixture of experts is made with is checked") {
    cluster_options o;
    o.pairs = true;
    world w(o);
    w.buffers(1 << 20, 64);
    const memory_view scratch = w.ranks[0].in_memory.view();
    moe_shape odd = shape;
    odd.experts = 3;
    CHECK(moe(*w.ranks[0].comm, odd, scratch).health().code == errc::invalid_argument);
    CHECK(moe(*w.ranks[0].comm, shape, scratch.part(0, 16)).health().code == errc::invalid_argument);
    moe m(*w.ranks[0].comm, shape, scratch.part(0, moe::scratch_bytes(shape, 2)));
    const std::vector<std::int32_t> tokens(41 * 112);
    std::vector<std::uint32_t> experts(41 * 4);
    CHECK(m.dispatch(tokens.data(), 41, experts).code == errc::invalid_argument);
    CHECK(m.dispatch(tokens.data(), 1, experts).code == errc::invalid_argument);
    experts.assign(4, 24);
    CHECK(m.dispatch(tokens.data(), 1, experts).code == errc::invalid_argument);
    CHECK(m.combine(nullptr, element_type::int32).code == errc::busy);
}
