#include <vccl/base/clock.hpp>
#include <vccl/base/time.hpp>

#include <doctest/doctest.h>

using vccl::nanoseconds;
using namespace vccl::literals;

TEST_CASE("durations add, subtract, scale and compare") {
    static_assert((1_ms + 5_us).count == 1'005'000);
    static_assert((1_s - 1_ns).count == 999'999'999);
    static_assert((3_us * 4) == 12_us);
    static_assert((1_s / 4) == 250_ms);
    static_assert(999_us < 1_ms);
    nanoseconds t = 1_us;
    t += 500_ns;
    CHECK(t.count == 1500);
}

TEST_CASE("`never` lies after every time of day and can be added to without overflow") {
    const nanoseconds century = 1_s * 3600 * 24 * 366 * 50;
    CHECK(nanoseconds::never() > century);
    CHECK(nanoseconds::never() + century > nanoseconds::never());
    CHECK(nanoseconds::never() + nanoseconds::never() > nanoseconds::never());
}

TEST_CASE("the steady clock never goes backwards and does move") {
    const vccl::steady_clock clock{};
    const nanoseconds start = clock.now();
    nanoseconds last = start;
    // Bounded by the clock itself: a resolution coarser than a million readings would be a broken clock.
    for (int i = 0; i < 1'000'000 && last == start; ++i) {
        const nanoseconds t = clock.now();
        REQUIRE(t >= last);
        last = t;
    }
    CHECK(last > start);
}

TEST_CASE("copies of a manual clock show the time that their source holds") {
    nanoseconds source = 5_us;
    const vccl::manual_clock a{&source};
    const vccl::manual_clock b = a;
    CHECK(a.now() == 5_us);
    source += 1_us;
    CHECK(a.now() == 6_us);
    CHECK(b.now() == 6_us);
}

namespace {
struct untagged {
    nanoseconds now() const noexcept { return {}; }
};
struct throwing {
    using policy_axis = vccl::axis::clock;
    nanoseconds now() const { return {}; }
};
}  // namespace

TEST_CASE("a clock must say that it is one and must not throw") {
    static_assert(!vccl::clock_source<untagged>);
    static_assert(!vccl::clock_source<throwing>);
    static_assert(vccl::clock_source<vccl::manual_clock>);
    CHECK(vccl::clock_source<vccl::steady_clock>);
}
