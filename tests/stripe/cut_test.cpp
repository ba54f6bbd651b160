#include <vccl/stripe/cut.hpp>
#include <vccl/stripe/meter.hpp>
#include <vccl/stripe/share.hpp>

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

using namespace vccl;

namespace {

constexpr std::uint64_t mib = 1 << 20;

std::vector<std::uint64_t> cut(std::uint64_t bytes, const std::vector<stripe_load>& load) {
    std::vector<std::uint64_t> share(load.size());
    cut_over_stripes(bytes, load.data(), static_cast<unsigned>(load.size()), share.data());
    CHECK(std::accumulate(share.begin(), share.end(), std::uint64_t{0}) == bytes);
    return share;
}

}  // namespace

TEST_CASE("Equal stripes get equal shares, unequal ones what their rates are") {
    CHECK(cut(mib, {{1, 0}, {1, 0}}) == std::vector<std::uint64_t>{mib / 2, mib / 2});
    const auto s = cut(mib, {{300, 0}, {100, 0}});
    CHECK(s == std::vector<std::uint64_t>{3 * mib / 4, mib / 4});
}

TEST_CASE("A stripe that is behind gets less, one that is far behind nothing, until all are level") {
    CHECK(cut(mib, {{1, mib / 2}, {1, 0}}) == std::vector<std::uint64_t>{mib / 4, 3 * mib / 4});
    CHECK(cut(mib, {{1, 4 * mib}, {1, 0}, {1, 0}}) == std::vector<std::uint64_t>{0, mib / 2, mib / 2});
    // Level: the time to finish is the same for those that got something.
    const std::vector<stripe_load> load{{10, 3 * mib}, {25, mib}, {5, mib / 8}};
    const auto s = cut(16 * mib, load);
    for (std::size_t i = 1; i < load.size(); ++i) {
        const double a = double(load[0].backlog + s[0]) / double(load[0].rate),
                     b = double(load[i].backlog + s[i]) / double(load[i].rate);
        CHECK(a == doctest::Approx(b).epsilon(0.01));
    }
}

TEST_CASE("A rate of nothing gets nothing, but if all have none the chunk is shared out all the same") {
    CHECK(cut(mib, {{0, 0}, {7, 0}}) == std::vector<std::uint64_t>{0, mib});
    CHECK(cut(mib, {{0, 0}, {0, 0}}) == std::vector<std::uint64_t>{mib / 2, mib / 2});
}

TEST_CASE("Shares add up, are worth a message, and only one of them is no multiple of the grain") {
    std::uint64_t random = 88172645463325252u;
    const auto next = [&] {
        random ^= random << 13;
        random ^= random >> 7;
        return random ^= random << 17;
    };
    for (unsigned round = 0; round < 20'000; ++round) {
        std::vector<stripe_load> load(1 + next() % max_stripes);
        for (auto& l : load) l = {next() % 4 == 0 ? 0 : next() % 50'000'000'000, next() % 3 == 0 ? 0 : next() % (64 * mib)};
        const std::uint64_t bytes = next() % 5 == 0 ? next() % 40'000 : next() % (1u << 30);
        const auto s = cut(bytes, load);
        unsigned odd = 0, some = 0;
        for (std::uint64_t share : s) {
            odd += share % share_grain_bytes != 0;
            some += share != 0;
            if (some > 1) CHECK((share == 0 || share >= min_share_bytes - share_grain_bytes));
        }
        CHECK(odd <= 1);
    }
}

TEST_CASE("Share policies: level, fixed, and far NICs left alone") {
    const stripe_view near{100, 100, 0, path::nearest, 1}, shared{100, 100, 0, path::nearest, 2};
    const stripe_view far{100, 100, 0, path::other_numa, 1}, slow{100, 100, 30, path::nearest, 1};
    CHECK(equal_finish{}.rate(near) == 100);
    CHECK(equal_finish{}.rate(shared) == 50);
    CHECK(equal_finish{}.rate(slow) == 30);
    CHECK(own_share{}.rate(shared) == 100);
    CHECK(far_at_most<>{}.rate(near) == 100);
    CHECK(far_at_most<>{}.rate(far) == 0);
    CHECK(far_at_most<25>{}.rate(far) == 25);
}

TEST_CASE("A meter measures what is carried while there is always something to carry") {
    stripe_meter m;
    nanoseconds now{1'000'000'000};
    m.load(8 * mib, now);
    CHECK(m.rate() == 0);
    for (unsigned i = 0; i < 4; ++i) m.unload(mib, now = now + nanoseconds{1 << 20});  // one byte a nanosecond
    CHECK(m.rate() == 1'000'000'000);
    CHECK(m.backlog() == 4 * mib);
    m.unload(mib, now = now + nanoseconds{2 << 20});
    CHECK(m.rate() == 750'000'000);
    m.unload(stripe_meter::least_bytes, now = now + stripe_meter::sample_time);  // slow: no megabyte is waited for
    CHECK(m.rate() < 400'000'000);
    m.forget();
    CHECK(m.rate() == 0);
}

TEST_CASE("A stripe that runs out of work is taken to carry more and more: a bad moment does not stick") {
    stripe_meter m;
    nanoseconds now{};
    m.load(2 * mib, now);
    m.unload(mib, now = nanoseconds{1'000'000'000});  // an outage lies in it
    const std::uint64_t slow = m.rate();
    CHECK(slow == mib);
    m.unload(mib, now);
    for (unsigned i = 0; i < 40; ++i) {
        m.load(16384, now);
        m.unload(16384, now = now + nanoseconds{1000});
        now = now + nanoseconds{500'000};
    }
    CHECK(m.rate() > 50 * slow);
}

TEST_CASE("Chunks that are not cut take the named stripes in turn") {
    std::vector<unsigned> seen(4);
    for (std::uint64_t s = 0; s < 30; ++s) ++seen[home_of(s, 0b1101)];
    CHECK(seen == std::vector<unsigned>{10, 0, 10, 10});
}
