/// \file
/// The software RNIC in one process: 1 MiB writes against one memcpy stream over the same buffers, and an 8-byte round trip.
/// Last line: BENCH soft_inproc ratio=… memcpy_gbs=… soft_gbs=… rtt_us=…

#include "../soft_memcpy.hpp"

using namespace soft_bench;

namespace {

/// An 8-byte write there and one back, each seen in memory.
double round_trip_us(end& a, end& b, const end_info& to_a, const end_info& to_b) {
    constexpr int trips = 200'000;
    const auto one_way = [](end& from, const end_info& to, std::uint64_t value) {
        work w;
        w.flags = work_flags::signaled | work_flags::inlined;
        w.local_addr = reinterpret_cast<std::uintptr_t>(&value);
        w.remote_addr = to.address;
        w.length = 8;
        w.rkey = to.key;
        check(from.qp.post(w), "post");
    };
    const auto seen = [](end& e) { return __atomic_load_n(reinterpret_cast<std::uint64_t*>(e.memory.data()), __ATOMIC_ACQUIRE); };
    const auto start = steady_clock{}.now();
    for (std::uint64_t i = 1; i <= trips; ++i) {
        one_way(a, to_b, i);
        while (seen(b) != i) wait_for(b, 0);
        one_way(b, to_a, i);
        while (seen(a) != i) {}
        wait_for(a, 1);
        wait_for(b, 1);
    }
    return seconds_since(start) * 1e6 / trips;
}

}  // namespace

int main() {
    auto fabric = take(soft_fabric::create(verbs::soft_topology(2, 1, 1, 1)), "create");
    end a(take(fabric.host("A"), "host"), "A.nic0.p0"), b(take(fabric.host("B"), "host"), "B.nic0.p0");
    const auto to_a = describe(a), to_b = describe(b);
    connect(a, to_b);
    connect(b, to_a);

    std::vector<double> plain, soft;
    for (int i = 0; i < rounds; ++i) {
        plain.push_back(memcpy_rate(a.memory, b.memory));
        soft.push_back(write_rate(a, to_b, 8));
    }
    const double rtt = round_trip_us(a, b, to_a, to_b);
    std::printf("BENCH soft_inproc ratio=%.3f memcpy_gbs=%.2f soft_gbs=%.2f rtt_us=%.3f\n", median(soft) / median(plain),
                median(plain) * 1e-9, median(soft) * 1e-9, rtt);
    return 0;
}
