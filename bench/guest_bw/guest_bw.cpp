/// \file
/// Bandwidth on real verbs in the guest: a vccl channel against a plain verbs loop (RDMA WRITE, 8 outstanding, as
/// ib_write_bw does), in turns, with failover on. Last line: BENCH guest_bw ratio_64k=… ratio_1m=…

#include "../ends/guest_channel.hpp"

using namespace ends;

namespace {

constexpr unsigned depth = 8, rounds = 5;

double raw_rate(board& b, std::uint32_t size, std::uint64_t total) {
    family f;
    f.start([&] {
        raw_end<verbs::ibv> e({}, "rxe_a0", std::size_t{size} * depth, b, 0);
        b.figure[0] = e.stream(size, depth, total);
        b.order = 1;
    });
    f.start([&] {
        raw_end<verbs::ibv> e({}, "rxe_b0", std::size_t{size} * depth, b, 1);
        while (b.order == 0) ::usleep(1000);
    });
    f.join();
    b.order = 0;
    b.side[0].raw_ready = b.side[1].raw_ready = 0;
    return b.figure[0];
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t total = (argc > 1 ? static_cast<std::uint64_t>(std::atoi(argv[1])) : 48) << 20;
    board& b = *shared_board();
    std::printf("%-8s | %12s %12s | %s\n", "chunk", "vccl MiB/s", "plain MiB/s", "ratio");
    double ratio[2];
    const std::uint32_t sizes[] = {64 << 10, 1 << 20};
    for (int i = 0; i < 2; ++i) {
        std::vector<double> ours, plain, ratios;
        for (unsigned r = 0; r < rounds; ++r) {
            plain.push_back(raw_rate(b, sizes[i], total));
            ours.push_back(channel_rate(b, sizes[i], total / sizes[i], depth));
            ratios.push_back(ours.back() / plain.back());
        }
        ratio[i] = median(ratios);
        std::printf("%-8u | %12.1f %12.1f | %.3f\n", sizes[i] >> 10, median(ours) / (1 << 20), median(plain) / (1 << 20),
                    ratio[i]);
        std::fflush(stdout);
    }
    std::printf("BENCH guest_bw ratio_64k=%.3f ratio_1m=%.3f\n", ratio[0], ratio[1]);
    return 0;
}
