#pragma once
/// \file
/// What a backend's author provides so that the contract suite can run on it: two opened ports that can reach each other, a
/// way to let time pass, and, if he has them, ways to break the path between the ports. One fixture lives per case; the
/// suite calls it from one thread.

#include <vccl/verbs/backend.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>

namespace vccl::inline v0::testing {

/// Which part of the path between the local and the remote port breaks, or is mended.
enum class fault : std::uint8_t {
    local_port,    ///< taken down by its host
    remote_port,
    local_cable,   ///< pulled: the port loses its carrier
    remote_cable,
    rail_switch,   ///< both ports keep their carrier and see nothing
    blackout,      ///< every packet is lost
    loss,          ///< some packets are lost, a few in a hundred
};

inline const char* name(fault f) noexcept {
    constexpr const char* names[] = {"local port", "remote port", "local cable", "remote cable", "switch", "blackout", "loss"};
    return names[static_cast<unsigned>(f)];
}

/// `local()` and `remote()` are opened ports of one rail, usually of two hosts. `drive()` lets a little time pass, at most a
/// millisecond: a step of a manual clock, or a yield. `now()` is the time in which waits are bounded.
template <class F>
concept contract_fixture = std::default_initializable<F> && verbs_backend<typename F::backend> && requires(F f) {
    { f.local() } -> std::same_as<typename F::backend::port&>;
    { f.remote() } -> std::same_as<typename F::backend::port&>;
    { f.drive() } -> std::same_as<void>;
    { f.now() } -> std::same_as<nanoseconds>;
};

/// Optional. A fixture says at run time which faults it can inflict (a test program may lack the right to).
template <class F>
concept fault_fixture = contract_fixture<F> && requires(F f, fault what) {
    { f.can(what) } -> std::same_as<bool>;
    { f.inflict(what) } -> std::same_as<status>;
    { f.mend(what) } -> std::same_as<status>;
};

template <class F>
bool can(F& fixture, fault what) {
    if constexpr (fault_fixture<F>) return fixture.can(what);
    return false;
}

/// How long a case waits for something that must happen: far longer than any of it takes.
inline constexpr nanoseconds patience{30'000'000'000};

/// Lets time pass until `done()` or until the time is up. Returns: done().
template <class F, class Done>
bool wait_until(F& fixture, Done done, nanoseconds limit = patience) {
    const nanoseconds end = fixture.now() + limit;
    nanoseconds last{};
    for (unsigned frozen = 0; frozen < 50'000'000; ++frozen) {  // a fixture whose clock stands still must not hang the suite
        if (done()) return true;
        const nanoseconds t = fixture.now();
        if (t >= end) return false;
        if (t != last) frozen = 0;
        last = t;
        fixture.drive();
    }
    return false;
}

/// Lets `span` pass.
template <class F>
void let_pass(F& fixture, nanoseconds span) {
    (void)wait_until(
        fixture, [] { return false; }, span);
}

/// Returns: whether `s` is one of them.
inline bool one_of(wc_status s, std::initializer_list<wc_status> these) noexcept {
    for (wc_status t : these)
        if (s == t) return true;
    return false;
}

}  // namespace vccl::inline v0::testing

/// Defines one contract: CONTRACT(identifier, "sentence", FixtureType) { body }
#define VCCL_CONTRACT(id, sentence, F) TEST_CASE_TEMPLATE_DEFINE(sentence, F, id)
/// Registers one contract for fixtures, from outside any namespace.
#define VCCL_RUN_CONTRACT(id, ...)              \
    namespace vccl::inline v0::testing {        \
    TEST_CASE_TEMPLATE_INVOKE(id, __VA_ARGS__); \
    }                                           \
    static_assert(true)
