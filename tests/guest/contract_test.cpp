// verbs::ibv passes the contract suite of backends, on real ports that really fail.

#include "endpoints.hpp"

#include <vccl/testing/contracts.hpp>

namespace {

/// Host a's first port and host b's.
struct two_hosts {
    using backend = vccl::verbs::ibv;
    using fault = vccl::testing::fault;

    backend::port a = guest::must(backend{}.open("rxe_a0"));
    backend::port b = guest::must(backend{}.open("rxe_b0"));
    guest::network_faults network;

    backend::port& local() { return a; }
    backend::port& remote() { return b; }
    void drive() { ::usleep(20); }
    vccl::nanoseconds now() { return vccl::steady_clock{}.now(); }

    bool can(fault) { return true; }
    vccl::status inflict(fault what) { return run(what, true); }
    vccl::status mend(fault what) { return run(what, false); }

private:
    vccl::status run(fault what, bool down) {
        struct words {
            const char *down, *up;
        };
        static constexpr words of[] = {
            {"port-down a0", "port-up a0"},   {"port-down b0", "port-up b0"},           {"cable-down a0", "cable-up a0"},
            {"cable-down b0", "cable-up b0"}, {"switch-down rail0", "switch-up rail0"}, {"loss sw_b0 100%", "clear sw_b0"},
            {"loss sw_b0 2%", "clear sw_b0"},
        };
        const words& w = of[static_cast<unsigned>(what)];
        return network.fault(down ? w.down : w.up) ? vccl::status{} : vccl::status{vccl::errc::system};
    }
};

}  // namespace

TYPE_TO_STRING(two_hosts);
VCCL_BACKEND_CONTRACTS(two_hosts);
