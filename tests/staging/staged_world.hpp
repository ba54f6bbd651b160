#pragma once
/// \file
/// A channel under manual time with a staged end at each side of it, for whatever copies.

#include "../stripe/striped_world.hpp"

#include <vccl/staging/receiver.hpp>
#include <vccl/staging/sender.hpp>

namespace vccl_test {

inline constexpr std::uint32_t slice = 64 * 1024;

struct staged_options {
    staging_options tx{slice, 8}, rx{slice, 8};
};

template <class World, copy_engine Engine>
struct staged_ends {
    using tx_type = std::remove_reference_t<decltype(*World{}.tx)>;
    using rx_type = std::remove_reference_t<decltype(*World{}.rx)>;

    World& w;
    staged_sender<tx_type, Engine> s;
    staged_receiver<rx_type, Engine> r;

    static world_options shape() {
        world_options o;
        o.nics = 1;
        return o;
    }
    staged_ends(World& world, Engine of_tx, Engine of_rx, const staged_options& o)
        : w(world), s(w.a, *w.tx, std::move(of_tx), o.tx), r(w.b, *w.rx, std::move(of_rx), o.rx) {
        start(w);
        REQUIRE(s.open());
        REQUIRE(r.open());
    }
    void pass() {
        s.progress();
        r.progress();
        w.fabric.advance(w.pass_time);
    }
    /// Passes until `done`, with `every` before each, at most for `limit` of fabric time.
    template <class Done>
    bool until(
        Done&& done, const std::function<void()>& every = [] {}, nanoseconds limit = 60_s) {
        for (const nanoseconds end = w.fabric.now() + limit; !done();) {
            if (w.fabric.now() >= end) return false;
            every();
            pass();
        }
        return true;
    }
};

}  // namespace vccl_test
