#pragma once
/// \file
/// What the tests of a whole channel check again and again.

#include "world.hpp"

#include <doctest/doctest.h>

#include <set>

namespace vccl_test {

using event = channel_event::kind;

/// Everything arrived: once, in order, whole, told once at each end, and nothing was written after it was consumed.
template <class World>
void exact(const World& w, std::uint64_t chunks) {
    CHECK(w.wrong == 0);
    CHECK(w.late + w.touched_since() == 0);
    CHECK(w.checked == chunks);
    for (const auto* told : {&w.rx->handler().chunks, &w.tx->handler().chunks}) {
        std::uint64_t in_order = 0;
        for (const auto& c : *told) in_order += c.sequence.value == in_order && c.outcome;
        CHECK(told->size() == chunks);
        CHECK(in_order == chunks);
    }
}

/// How many parts came in more than once. Requires: fewer chunks than sequence numbers in an immediate.
template <class World>
std::uint64_t repeated_parts(const World& w) {
    std::set<std::pair<std::uint32_t, unsigned>> seen;
    std::uint64_t n = 0;
    for (const immediate i : w.rx->handler().arrivals) n += !seen.emplace(i.sequence(), i.part()).second;
    return n;
}

/// To be run at every pass: gives `text` to the fabric once chunk `n` has been consumed, with later ones under way.
template <class World>
std::function<void()> at_chunk(World& w, std::uint64_t n, std::string text) {
    return [&w, n, text = std::move(text), done = false]() mutable {
        if (done || w.checked < n) return;
        done = true;
        REQUIRE(w.command(text));
    };
}

template <class World>
void start(World& w) {
    REQUIRE(w.connect());
    REQUIRE(w.run());
}

inline constexpr verbs::port_down_behaviour behaviours[] = {
    verbs::port_down_behaviour::retry, verbs::port_down_behaviour::op_error, verbs::port_down_behaviour::flush,
    verbs::port_down_behaviour::silent};

}  // namespace vccl_test
