/// \file
/// The failover gap on real verbs (soft-RoCE in a guest kernel) between two processes, per cause; run inside the guest.
/// Last line: BENCH gap_guest rtt=… us=… rtts=…

#include "../ends/gap.hpp"

#include <vccl/verbs/ibv.hpp>

using namespace ends;

int main(int argc, char** argv) {
    const unsigned times = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 50;
    const char* const fault = std::getenv("VCCL_GUEST_FAULT");
    if (!fault) give_up("gap_guest runs in the guest: bench/run gap_guest");
    board& b = *shared_board();
    auto act = [&](const std::string& what) {
        if (std::system((std::string(fault) + " " + what).c_str()) != 0) give_up("fault " + what);
    };
    {
        family pings;
        pings.start([&] { b.figure[0] = 2 * raw_end<verbs::ibv>({}, "rxe_a0", 4096, b, 0).ping(2'000, true); });
        pings.start([&] { raw_end<verbs::ibv>({}, "rxe_b0", 4096, b, 1).ping(2'000, false); });
        pings.join();
    }
    const double rtt = b.figure[0];
    std::printf("soft-RoCE, two processes, 64 KiB chunks, %u outstanding; 8-byte round trip %.1f us\n", gap_window, rtt);
    const verbs::ibv host_a{.path = {}, .devices = "rxe_a"}, host_b{.path = {}, .devices = "rxe_b"};
    family f;
    f.start([&] { stream_sender<verbs::ibv>(host_a, take(host_a.discover(), "discover"), port_id{0}, b, {.naps = true}); });
    f.start([&] { stream_receiver<verbs::ibv>(host_b, take(host_b.discover(), "discover"), port_id{0}, b, {.naps = true}); });
    wait_for([&] { return b.side[1].chunks > 50 || !f.well(); }, 60_s, "traffic", true);
    const cause causes[] = {{"own port", "port-down a0", "port-up a0"},
                            {"peer's port", "port-down b0", "port-up b0"},
                            {"cable", "cable-down a0", "cable-up a0"},
                            {"switch", "switch-down rail0", "switch-up rail0"}};
    print_head();
    std::vector<double> all;
    double slowest_back = 0;
    for (const cause& c : causes) {
        const gap_figures g = measure(b, f, c, times, 100_ms, act);
        print_row(c, g, rtt);
        all.insert(all.end(), g.gaps.begin(), g.gaps.end());
        slowest_back = std::max(slowest_back, largest(g.failbacks));
    }
    b.order = 1;
    wait_for([&] { return b.done[0] && b.done[1]; }, 60_s, "the end", true);
    std::printf("BENCH gap_guest rtt=%.1f us=%.1f rtts=%.1f back_ms=%.1f\n", rtt, median(all), median(all) / rtt, slowest_back);
    return 0;
}
