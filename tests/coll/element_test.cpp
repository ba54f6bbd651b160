/// \file
/// The 16-bit floats and the CPU's combining, against arithmetic in double precision.

#include <vccl/coll/reduce.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace vccl;

namespace {

/// A 16-bit float with `fraction` bits of fraction and the rest of exponent, by the definition of the format.
double value_of(std::uint16_t bits, int fraction) {
    const int exponent_bits = 15 - fraction, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = bits >> fraction & ((1 << exponent_bits) - 1), mantissa = bits & ((1 << fraction) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - fraction);
    return sign * std::ldexp((1 << fraction) + mantissa, exponent - bias - fraction);
}

/// The nearest one to `f`, of two the even one, found by trying all of that sign.
template <class Half>
void check_narrow(float f, int fraction) {
    const std::uint16_t got = Half::narrow(f);
    if (std::isnan(f)) {
        CHECK(std::isnan(value_of(got, fraction)));
        return;
    }
    CHECK((got >> 15) == (std::signbit(f) ? 1 : 0));
    const std::uint16_t magnitude = got & 0x7fff, infinity = static_cast<std::uint16_t>(0x7fff >> fraction << fraction);
    // What is beyond the largest number rounds as if there were one more.
    const double beyond = std::ldexp(1, infinity >> fraction) / std::ldexp(1, (1 << (14 - fraction)) - 1);
    const auto at = [&](std::uint16_t m) { return m == infinity ? beyond : value_of(m, fraction); };
    const double wanted = std::fabs(static_cast<double>(f)), own = std::fabs(wanted - at(magnitude));
    if (std::isinf(wanted)) {
        CHECK(magnitude == infinity);
        return;
    }
    if (magnitude != 0) {
        const double below = std::fabs(wanted - at(static_cast<std::uint16_t>(magnitude - 1)));
        CHECK((own < below || (own == below && magnitude % 2 == 0)));
    }
    if (magnitude < infinity) {
        const double above = std::fabs(wanted - at(static_cast<std::uint16_t>(magnitude + 1)));
        CHECK((own < above || (own == above && magnitude % 2 == 0)));
    } else {
        CHECK(magnitude == infinity);
    }
}

template <class Half>
void check_format(int fraction) {
    for (std::uint32_t b = 0; b < 65536; ++b) {
        const auto bits = static_cast<std::uint16_t>(b);
        const double wanted = value_of(bits, fraction), got = static_cast<double>(Half::widen(bits));
        const bool same = std::isnan(wanted) ? std::isnan(got) : wanted == got && std::signbit(wanted) == std::signbit(got);
        if (!same) FAIL_CHECK("widen ", b);
        if (!std::isnan(wanted) && Half::narrow(Half::widen(bits)) != bits) FAIL_CHECK("narrow of widen ", b);
    }
    std::mt19937_64 random(fraction);
    for (int i = 0; i < 100'000; ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        float f = 0;
        std::memcpy(&f, &bits, 4);
        check_narrow<Half>(f, fraction);
    }
    // Half-way between neighbours, and a little to each side.
    for (std::uint32_t b = 0; b < 0x7fff; b += 3) {
        const auto low = Half::widen(static_cast<std::uint16_t>(b)), high = Half::widen(static_cast<std::uint16_t>(b + 1));
        if (!std::isfinite(low) || !std::isfinite(high)) continue;
        const auto middle = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
        check_narrow<Half>(middle, fraction);
        check_narrow<Half>(-std::nextafter(middle, 0.0f), fraction);
        check_narrow<Half>(std::nextafter(middle, INFINITY), fraction);
    }
}

template <class T>
void check_integers(element_type t) {
    std::mt19937_64 random(9);
    for (const std::size_t n : {1u, 3u, 4u, 17u, 1000u}) {
        std::vector<T> a(n), b(n), out(n);
        for (std::size_t i = 0; i < n; ++i) {
            a[i] = static_cast<T>(random());
            b[i] = static_cast<T>(random());
        }
        using wide = std::make_unsigned_t<T>;
        for (const reduce_op op : {reduce_op::sum, reduce_op::max, reduce_op::min}) {
            reduce(t, op, out.data(), a.data(), b.data(), n);
            for (std::size_t i = 0; i < n; ++i)
                CHECK(out[i] == (op == reduce_op::sum   ? static_cast<T>(static_cast<wide>(a[i]) + static_cast<wide>(b[i]))
                                 : op == reduce_op::max ? std::max(a[i], b[i])
                                                        : std::min(a[i], b[i])));
        }
    }
}

}  // namespace

TEST_CASE("Half precision is widened exactly and narrowed to nearest even") { check_format<float16>(10); }
TEST_CASE("bfloat16 is widened exactly and narrowed to nearest even") { check_format<bfloat16>(7); }

TEST_CASE("Integers wrap when they are added, and compare as signed") {
    check_integers<std::int32_t>(element_type::int32);
    check_integers<std::int64_t>(element_type::int64);
}

TEST_CASE("Floats are combined one by one, 16-bit ones with one rounding, wherever the result lies") {
    std::mt19937_64 random(4);
    constexpr std::size_t n = 1003;
    std::vector<float> a(n), b(n);
    std::vector<std::uint16_t> x(n), y(n);
    for (std::size_t i = 0; i < n; ++i) {
        a[i] = std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())), static_cast<int>(random() % 20) - 40);
        b[i] = std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())), static_cast<int>(random() % 20) - 40);
        x[i] = float16::narrow(a[i]);
        y[i] = float16::narrow(b[i]);
    }
    std::vector<float> sum(n);
    reduce(element_type::float32, reduce_op::sum, sum.data(), a.data(), b.data(), n);
    for (std::size_t i = 0; i < n; ++i) CHECK(sum[i] == a[i] + b[i]);

    std::vector<std::uint16_t> out(n), first = x, second = y;
    reduce(element_type::float16, reduce_op::sum, out.data(), x.data(), y.data(), n);
    reduce(element_type::float16, reduce_op::sum, first.data(), first.data(), y.data(), n);
    reduce(element_type::float16, reduce_op::sum, second.data(), x.data(), second.data(), n);
    for (std::size_t i = 0; i < n; ++i) CHECK(out[i] == float16::narrow(float16::widen(x[i]) + float16::widen(y[i])));
    CHECK(out == first);
    CHECK(out == second);
}
