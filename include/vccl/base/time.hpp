#pragma once
/// \file
/// Durations and points in time as one 64-bit count, and the clock concept.
/// `<chrono>` costs 400 ms a translation unit and is not used in the library.

#include <vccl/base/config.hpp>

#include <compare>
#include <concepts>
#include <cstdint>

namespace vccl::inline v0 {

/// A span of time, or a point on a clock that started at zero.
struct nanoseconds {
    std::int64_t count{};  ///< signed, so that differences need no care; 292 years in either direction
    friend constexpr auto operator<=>(const nanoseconds&, const nanoseconds&) noexcept = default;
    /// Plain arithmetic on counts; nothing checks for overflow.
    /// @{
    friend constexpr nanoseconds operator+(nanoseconds a, nanoseconds b) noexcept { return {a.count + b.count}; }
    friend constexpr nanoseconds operator-(nanoseconds a, nanoseconds b) noexcept { return {a.count - b.count}; }
    friend constexpr nanoseconds operator*(nanoseconds a, std::int64_t n) noexcept { return {a.count * n}; }
    friend constexpr nanoseconds operator/(nanoseconds a, std::int64_t n) noexcept { return {a.count / n}; }
    constexpr nanoseconds& operator+=(nanoseconds b) noexcept {
        count += b.count;
        return *this;
    }
    /// @}
    /// Far enough away to mean "never", near enough not to overflow when added to.
    static constexpr nanoseconds never() noexcept { return {INT64_MAX / 4}; }
};

/// `10_s`, `5_ms`, ... after `using namespace vccl::literals`.
namespace literals {
/// Whole numbers only: there is no 0.5_s.
/// @{
constexpr nanoseconds operator""_ns(unsigned long long n) noexcept { return {static_cast<std::int64_t>(n)}; }
constexpr nanoseconds operator""_us(unsigned long long n) noexcept { return {static_cast<std::int64_t>(n) * 1000}; }
constexpr nanoseconds operator""_ms(unsigned long long n) noexcept { return {static_cast<std::int64_t>(n) * 1000000}; }
constexpr nanoseconds operator""_s(unsigned long long n) noexcept { return {static_cast<std::int64_t>(n) * 1000000000}; }
/// @}
}  // namespace literals

/// Tags by which a type says which policy axis it models; nothing matches by accident.
namespace axis {
struct verbs {};
struct port {};
struct group {};
struct completion {};
struct replay {};
struct failback {};
struct detect {};
struct progress {};
struct clock {};
struct oob {};
}  // namespace axis

template <class P, class Axis>
concept on_axis = std::same_as<typename P::policy_axis, Axis>;

/// Reads a monotonic time. `now()` may be called from the data path.
template <class C>
concept clock_source = on_axis<C, axis::clock> && requires(const C c) {
    { c.now() } noexcept -> std::same_as<nanoseconds>;
};

}  // namespace vccl::inline v0
