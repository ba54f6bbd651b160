/// \file
/// Half the round trip of 8 bytes on real verbs in the guest: two vccl channels (there and back) against a plain verbs
/// loop (inlined WRITE, memory polled, as ib_write_lat does), in turns. Last line: BENCH guest_lat ratio_8=…

#include "../ends/guest_channel.hpp"

using namespace ends;

namespace {

constexpr unsigned rounds = 5;

double raw_ping(board& b, unsigned times) {
    family f;
    f.start([&] { b.figure[0] = raw_end<verbs::ibv>({}, "rxe_a0", 4096, b, 0).ping(times, true); });
    f.start([&] { raw_end<verbs::ibv>({}, "rxe_b0", 4096, b, 1).ping(times, false); });
    f.join();
    b.side[0].raw_ready = b.side[1].raw_ready = 0;
    return b.figure[0];
}

}  // namespace

int main(int argc, char** argv) {
    const unsigned times = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2000;
    board &there = *shared_board(), &back = *shared_board();
    std::vector<double> ours, plain, ratios;
    for (unsigned r = 0; r < rounds; ++r) {
        plain.push_back(raw_ping(there, times));
        ours.push_back(channel_ping(there, back, times));
        ratios.push_back(ours.back() / plain.back());
        std::printf("round %u: vccl %.1f us, plain %.1f us\n", r, ours.back(), plain.back());
        std::fflush(stdout);
    }
    std::printf("BENCH guest_lat ratio_8=%.3f us=%.1f plain_us=%.1f\n", median(ratios), median(ours), median(plain));
    return 0;
}
