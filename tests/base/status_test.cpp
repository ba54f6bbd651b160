#include <vccl/base/status.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>

using vccl::errc;
using vccl::result;
using vccl::status;
using vccl::wc_status;

TEST_CASE("a status is true exactly when nothing went wrong") {
    CHECK(status{});
    CHECK(status{errc::ok});
    CHECK_FALSE(status{errc::timeout});
    CHECK_FALSE(status{errc::system, 13});
}

TEST_CASE("a status carries its code and its number, and knows no lane unless told") {
    const status s{errc::system, 13};
    CHECK(s.code == errc::system);
    CHECK(s.detail == 13);
    CHECK(s.wc == wc_status::success);
    CHECK(s.lane == status::no_lane);
    CHECK(s.epoch == 0);
}

TEST_CASE("statuses are equal only when every field is") {
    status a{errc::lane_failed, 7};
    status b = a;
    CHECK(a == b);
    b.lane = 1;
    CHECK(a != b);
    b = a;
    b.wc = wc_status::retry_exc_err;
    CHECK(a != b);
    b = a;
    b.epoch = 2;
    CHECK(a != b);
}

TEST_CASE("completion statuses have libibverbs' numbers") {
    CHECK(static_cast<int>(wc_status::wr_flush_err) == 5);
    CHECK(static_cast<int>(wc_status::rem_access_err) == 10);
    CHECK(static_cast<int>(wc_status::retry_exc_err) == 12);
    CHECK(static_cast<int>(wc_status::rnr_retry_exc_err) == 13);
    CHECK(static_cast<int>(wc_status::general_err) == 21);
}

namespace {
constexpr result<int> half(int n) {
    if (n % 2 != 0) return status{errc::invalid_argument, static_cast<std::uint32_t>(n)};
    return n / 2;
}
}  // namespace

TEST_CASE("a result of a small type is a value or a reason, also in constant expressions") {
    static_assert(half(8).has_value() && *half(8) == 4);
    static_assert(!half(3));
    CHECK(half(8).error() == status{});
    CHECK(half(3).error() == status{errc::invalid_argument, 3});
    CHECK(half(3).value_or(-1) == -1);
    CHECK(half(8).value_or(-1) == 4);
    static_assert(std::is_trivially_copyable_v<result<int>>);
}

TEST_CASE("a result from a bare errc is an error") {
    const result<int> small = errc::busy;
    const result<std::string> large = errc::busy;
    CHECK_FALSE(small);
    CHECK_FALSE(large);
    CHECK(small.error().code == errc::busy);
    CHECK(large.error().code == errc::busy);
}

TEST_CASE("a result of a move-only value hands the value over once") {
    using owner = std::unique_ptr<int>;
    static_assert(!std::is_copy_constructible_v<result<owner>>);
    result<owner> r{std::make_unique<int>(5)};
    REQUIRE(r.has_value());
    result<owner> moved{std::move(r)};
    REQUIRE(moved);
    CHECK(**moved == 5);
    const owner taken = std::move(*moved);
    CHECK(*taken == 5);
    const owner also = result<owner>{std::make_unique<int>(6)}.value();
    CHECK(*also == 6);
}

namespace {
struct counted {
    static inline int alive = 0;
    int tag{};
    explicit counted(int t) noexcept : tag(t) { ++alive; }
    counted(counted&& o) noexcept : tag(o.tag) { ++alive; }
    counted(const counted& o) noexcept : tag(o.tag) { ++alive; }
    counted& operator=(const counted&) = delete;
    ~counted() { --alive; }
};
}  // namespace

TEST_CASE("a result destroys its value exactly once, through copies, moves and assignments") {
    counted::alive = 0;
    {
        result<counted> a{counted{1}};
        CHECK(counted::alive == 1);
        result<counted> copy{a};
        CHECK(counted::alive == 2);
        CHECK(copy->tag == 1);
        copy = result<counted>{errc::timeout};
        CHECK(counted::alive == 1);
        CHECK_FALSE(copy);
        CHECK(copy.error().code == errc::timeout);
        copy = result<counted>{counted{2}};
        CHECK(counted::alive == 2);
        REQUIRE(copy);
        CHECK(copy->tag == 2);
        copy = std::move(a);
        REQUIRE(copy);
        CHECK(copy->tag == 1);
    }
    CHECK(counted::alive == 0);
}

TEST_CASE("a result that holds a value has no reason, and value_or leaves a value alone") {
    const result<std::string> good{std::string{"yes"}};
    const result<std::string> bad{errc::not_found};
    CHECK(good.error() == status{});
    CHECK(good.value_or("no") == "yes");
    CHECK(bad.value_or("no") == "no");
    CHECK(good->size() == 3);
}
