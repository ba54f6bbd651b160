/// \file
/// Bandwidth on real verbs in the guest: a vccl channel against a plain verbs loop (RDMA WRITE, 8 outstanding, as
/// ib_write_bw does), in turns, with failover on. Last line: BENCH guest_bw ratio_64k=… ratio_1m=…

#include "../ends/two_ends.hpp"

#include <vccl/verbs/ibv.hpp>

using namespace ends;

namespace {

constexpr unsigned depth = 8, rounds = 5;

/// One round of a channel; its rate, at the receiver.
double channel_rate(board& b, std::uint32_t size, std::uint64_t total) {
    const verbs::ibv host[2] = {{.path = {}, .devices = "rxe_a"}, {.path = {}, .devices = "rxe_b"}};
    const std::uint64_t count = total / size;
    family f;
    f.start([&] {
        host_context<verbs::ibv> context(host[0], take(host[0].discover(), "discover"));
        sender_of<verbs::ibv> tx(context, port_id{0}, channel_id{0}, {}, {}, to_board{&b.side[0]});
        connect(tx, b, 0);
        std::vector<std::byte> bytes(std::size_t{size} * depth);
        const memory m = take(context.register_memory(bytes.data(), bytes.size()), "register_memory");
        patience idle{true};
        while (tx.acknowledged().value < count) {
            while (tx.next().value < count && tx.next().value - tx.acknowledged().value < 4 * depth)
                (void)take(tx.send(m.view(tx.next().value % depth * size, size)), "send");
            tx.progress() ? idle.something() : idle.nothing();
            check(tx.health(), "sender");
        }
        check(tx.close(20_s), "close");
    });
    f.start([&] {
        host_context<verbs::ibv> context(host[1], take(host[1].discover(), "discover"));
        endpoint_options o;
        o.ack_delay = 5_ms;  // acknowledgements ride on grants
        receiver_of<verbs::ibv> rx(context, port_id{0}, channel_id{0}, o, {}, to_board{&b.side[1]});
        connect(rx, b, 1);
        std::vector<std::byte> bytes(std::size_t{size} * depth);
        const memory m = take(context.register_memory(bytes.data(), bytes.size()), "register_memory");
        patience idle{true};
        const nanoseconds start = now();
        while (rx.received().value < count) {
            while (rx.next().value < count && rx.next().value - rx.received().value < depth)
                (void)take(rx.recv(m.view(rx.next().value % depth * size, size)), "recv");
            rx.progress() ? idle.something() : idle.nothing();
            check(rx.health(), "receiver");
        }
        b.figure[0] = static_cast<double>(count * size) * 1e9 / static_cast<double>((now() - start).count);
        check(rx.wait_closed(20_s), "wait_closed");
    });
    f.join();
    b.side[0].blob_bytes = b.side[1].blob_bytes = 0;
    return b.figure[0];
}

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
            ours.push_back(channel_rate(b, sizes[i], total));
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
