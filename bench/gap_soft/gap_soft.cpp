/// \file
/// The failover gap on the software RNIC between two processes, per cause. Last line: BENCH gap_soft rtt=… us=… rtts=…

#include "../ends/gap.hpp"

#include <vccl/verbs/soft.hpp>

using namespace ends;

int main(int argc, char** argv) {
    const unsigned times = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 50;
    const std::string name = "gap-" + std::to_string(::getpid());
    const topology shape = verbs::soft_topology(2, 1, 2, 0);
    auto fabric = take(verbs::soft_fabric::create_shared(name, shape), "create_shared");
    board& b = *shared_board();
    auto end = [&](const char* host) {
        static auto attached = take(verbs::soft_fabric::attach(name), "attach");
        return take(attached.host(host), "host");
    };
    {
        family pings;
        pings.start([&] { b.figure[0] = 2 * raw_end<verbs::soft>(end("A"), "A.nic0.p0", 4096, b, 0).ping(20'000, true); });
        pings.start([&] { raw_end<verbs::soft>(end("B"), "B.nic0.p0", 4096, b, 1).ping(20'000, false); });
        pings.join();
    }
    const double rtt = b.figure[0];
    std::printf("software RNIC, two processes, 64 KiB chunks, %u outstanding; 8-byte round trip %.2f us\n", gap_window, rtt);
    family f;
    f.start([&] { stream_sender<verbs::soft>(end("A"), shape, port_id{0}, b); });
    f.start([&] { stream_receiver<verbs::soft>(end("B"), shape, port_id{2}, b); });
    wait_for([&] { return b.side[1].chunks > 1000 || !f.well(); }, 30_s, "traffic", true);
    const cause causes[] = {{"own port", "down A.nic0.p0", "up A.nic0.p0"},
                            {"peer's port", "down B.nic0.p0", "up B.nic0.p0"},
                            {"cable", "cable-down A.nic0.p0", "cable-up A.nic0.p0"},
                            {"switch", "switch-down rail0", "switch-up rail0"}};
    print_head();
    std::vector<double> all;
    double slowest_back = 0, worst_rate = 2;
    for (const cause& c : causes) {
        const gap_figures g =
            measure(b, f, c, times, 20_ms, [&](const std::string& what) { check(fabric.command(what), what.c_str()); });
        print_row(c, g, rtt);
        all.insert(all.end(), g.gaps.begin(), g.gaps.end());
        slowest_back = std::max(slowest_back, largest(g.failbacks));
        worst_rate = std::min(worst_rate, g.rate_after / g.rate_before);
    }
    b.order = 1;
    wait_for([&] { return b.done[0] && b.done[1]; }, 30_s, "the end", true);
    std::printf("BENCH gap_soft rtt=%.2f us=%.1f rtts=%.1f back_ms=%.1f rate_after=%.2f\n", rtt, median(all), median(all) / rtt,
                slowest_back, worst_rate);
    return 0;
}
