/// \file
/// Half the round trip of 8 bytes on real verbs in the guest: two vccl channels (there and back) against a plain verbs
/// loop (inlined WRITE, memory polled, as ib_write_lat does), in turns. Last line: BENCH guest_lat ratio_8=…

#include "../ends/two_ends.hpp"

#include <vccl/verbs/ibv.hpp>

using namespace ends;

namespace {

constexpr unsigned rounds = 5, window = 64;

/// There and back over one channel each way; receives are posted well ahead, half a window at a time.
double channel_ping(board& there, board& back, unsigned times) {
    const verbs::ibv host[2] = {{.path = {}, .devices = "rxe_a"}, {.path = {}, .devices = "rxe_b"}};
    family f;
    for (unsigned me = 0; me < 2; ++me)
        f.start([&, me] {
            host_context<verbs::ibv> context(host[me], take(host[me].discover(), "discover"));
            endpoint_options o;
            o.window = window;
            o.ack_delay = 5_ms;  // acknowledgements ride on grants
            sender_of<verbs::ibv> tx(context, port_id{0}, channel_id{me}, o, {}, to_board{&there.side[0]});
            receiver_of<verbs::ibv> rx(context, port_id{0}, channel_id{1 - me}, o, {}, to_board{&there.side[1]});
            board& out = me == 0 ? there : back;
            board& in = me == 0 ? back : there;
            if (me == 0) {
                connect(tx, out, 0);
                connect(rx, in, 1);
            } else {
                connect(rx, in, 1);
                connect(tx, out, 0);
            }
            std::uint64_t words[2]{};
            const memory m = take(context.register_memory(words, sizeof words), "register_memory");
            auto refill = [&] {
                if (rx.next().value - rx.received().value <= window / 2)
                    while (rx.next().value - rx.received().value < window) (void)take(rx.recv(m.view(8, 8)), "recv");
            };
            std::vector<double> each;
            refill();
            for (unsigned i = 0; i < times; ++i) {
                const nanoseconds start = now();
                auto put = [&] {
                    patience idle;
                    result<sequence> s = errc::would_block;
                    while (!(s = tx.send(m.view(0, 8)))) {
                        if (s.error().code != errc::would_block) give_up("send", s.error());
                        tx.progress();
                        rx.progress();
                        idle.nothing();
                    }
                    tx.progress();
                };
                auto get = [&] {
                    patience idle;
                    while (rx.received().value <= i) {
                        if (!rx.progress()) {
                            tx.progress();
                            idle.nothing();
                        }
                        check(rx.health(), "receiver");
                    }
                };
                if (me == 0) {
                    put();
                    get();
                    each.push_back(static_cast<double>((now() - start).count) / 2000.0);
                    refill();
                } else {
                    get();
                    put();
                    refill();
                }
            }
            if (me == 0) there.figure[0] = median(each);
            there.done[me] = 1;
            while (!there.done[1 - me]) {
                tx.progress();
                rx.progress();
            }
        });
    f.join();
    for (board* b : {&there, &back}) b->side[0].blob_bytes = b->side[1].blob_bytes = 0;
    there.done[0] = there.done[1] = 0;
    return there.figure[0];
}

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
