/// \file
/// vccl's side of the comparison with its peers in the guest; bench/peers_guest/measure runs it between the others.
///
///   peers_guest rate SIZE COUNT DEPTH    prints MiB a second
///   peers_guest ping TIMES               prints half a round trip of 8 bytes, in microseconds
///   peers_guest stream SECONDS           64 KiB chunks, 8 outstanding; a line for each event, a count twice a second

#include "../ends/gap.hpp"
#include "../ends/guest_channel.hpp"

#include <vccl/telemetry/event_text.hpp>

using namespace ends;

namespace {

int stream(board& b, unsigned seconds) {
    const verbs::ibv host_a{.path = {}, .devices = "rxe_a"}, host_b{.path = {}, .devices = "rxe_b"};
    family f;
    f.start([&] { stream_sender<verbs::ibv>(host_a, take(host_a.discover(), "discover"), port_id{0}, b, {.naps = true}); });
    f.start([&] { stream_receiver<verbs::ibv>(host_b, take(host_b.discover(), "discover"), port_id{0}, b, {.naps = true}); });
    const nanoseconds start = now();
    unsigned told[2]{};
    const auto tell = [&] {
        for (unsigned side = 0; side < 2; ++side)
            for (; told[side] < b.side[side].events.load(std::memory_order_acquire) && told[side] < max_events; ++told[side]) {
                const channel_event& e = b.side[side].event[told[side]];
                std::printf("%.3f %s %s\n", static_cast<double>((e.at - start).count) * 1e-9, side == 0 ? "sender" : "receiver",
                            describe(e, {}).c_str());
            }
        std::printf("%.3f chunks %llu\n", static_cast<double>((now() - start).count) * 1e-9,
                    static_cast<unsigned long long>(b.side[1].chunks.load()));
        std::fflush(stdout);
    };
    for (unsigned half = 0; half < 2 * seconds; ++half) {
        ::usleep(500'000);
        tell();
        if (!f.well()) return 1;
    }
    b.order = 1;
    wait_for([&] { return b.done[0] && b.done[1]; }, 60_s, "the end", true);
    std::uint64_t replayed = 0;
    for (unsigned i = 0; const channel_event* e = nth(b.side[0], channel_event::kind::failed_over, i); ++i)
        replayed += e->replayed;
    tell();
    std::printf("replayed %llu bytes at most\n", static_cast<unsigned long long>(replayed * traffic{}.chunk));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const auto number = [&](int i) { return static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10)); };
    board& b = *shared_board();
    if (what == "rate" && argc == 5 && number(2) != 0 && number(4) != 0)
        return std::printf("%.3f\n", channel_rate(b, number(2), number(3), number(4)) / (1 << 20)) < 0;
    if (what == "ping" && argc == 3) return std::printf("%.2f\n", channel_ping(b, *shared_board(), number(2))) < 0;
    if (what == "stream" && argc == 3) return stream(b, number(2));
    std::fprintf(stderr, "peers_guest rate SIZE COUNT DEPTH | ping TIMES | stream SECONDS\n");
    return 2;
}
