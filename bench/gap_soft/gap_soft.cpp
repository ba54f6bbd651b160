/// \file
/// The failover gap on the software RNIC between two processes, per cause: with chunks of 64 KiB, whose own bytes take most
/// of it, and of 4 KiB, which are near to the first byte. Last line: BENCH gap_soft rtt=… us=… rtts=… us_4k=… rtts_4k=…

#include "../ends/gap.hpp"

#include <vccl/verbs/soft.hpp>

using namespace ends;

namespace {

struct summary {
    double gap{}, slowest_back{}, worst_rate{2};
};

class rig {
public:
    rig()
        : name_("gap-" + std::to_string(::getpid())), fabric_(take(verbs::soft_fabric::create_shared(name_, shape_), "create")) {}

    /// Microseconds of an 8-byte round trip.
    double ping() {
        board& b = *shared_board();
        family pings;
        pings.start([&] { b.figure[0] = 2 * raw_end<verbs::soft>(host("A"), "A.nic0.p0", 4096, b, 0).ping(20'000, true); });
        pings.start([&] { raw_end<verbs::soft>(host("B"), "B.nic0.p0", 4096, b, 1).ping(20'000, false); });
        pings.join();
        return b.figure[0];
    }

    summary gaps(traffic how, unsigned times, double rtt) {
        std::printf("%u KiB chunks, %u outstanding\n", how.chunk / 1024, gap_window);
        board& b = *shared_board();
        family f;
        f.start([&] { stream_sender<verbs::soft>(host("A"), shape_, port_id{0}, b, how); });
        f.start([&] { stream_receiver<verbs::soft>(host("B"), shape_, port_id{2}, b, how); });
        wait_for([&] { return b.side[1].chunks > 1000 || !f.well(); }, 30_s, "traffic", true);
        const cause causes[] = {{"own port", "down A.nic0.p0", "up A.nic0.p0"},
                                {"peer's port", "down B.nic0.p0", "up B.nic0.p0"},
                                {"cable", "cable-down A.nic0.p0", "cable-up A.nic0.p0"},
                                {"switch", "switch-down rail0", "switch-up rail0"}};
        print_head();
        std::vector<double> all;
        summary s;
        for (const cause& c : causes) {
            const gap_figures g =
                measure(b, f, c, times, 20_ms, [&](const std::string& what) { check(fabric_.command(what), what.c_str()); });
            print_row(c, g, rtt);
            all.insert(all.end(), g.gaps.begin(), g.gaps.end());
            s.slowest_back = std::max(s.slowest_back, largest(g.failbacks));
            s.worst_rate = std::min(s.worst_rate, median(g.rates));
        }
        b.order = 1;
        wait_for([&] { return b.done[0] && b.done[1]; }, 30_s, "the end", true);
        f.join();
        s.gap = median(all);
        return s;
    }

private:
    /// In the child process that uses it.
    verbs::soft host(const char* h) {
        static auto attached = take(verbs::soft_fabric::attach(name_), "attach");
        return take(attached.host(h), "host");
    }

    std::string name_;
    topology shape_{verbs::soft_topology(2, 1, 2, 0)};
    verbs::soft_fabric fabric_;
};

}  // namespace

int main(int argc, char** argv) {
    const unsigned times = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 50;
    rig r;
    const double rtt = r.ping();
    std::printf("software RNIC, two processes; 8-byte round trip %.2f us\n", rtt);
    const summary large = r.gaps({.chunk = 64 * 1024}, times, rtt), small = r.gaps({.chunk = 4 * 1024}, times, rtt);
    std::printf("BENCH gap_soft rtt=%.2f us=%.1f rtts=%.1f us_4k=%.1f rtts_4k=%.1f back_ms=%.1f rate_after=%.2f\n", rtt,
                large.gap, large.gap / rtt, small.gap, small.gap / rtt, std::max(large.slowest_back, small.slowest_back),
                std::min(large.worst_rate, small.worst_rate));
    return 0;
}
