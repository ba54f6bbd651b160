#pragma once
/// \file
/// vccl channels between the two hosts of a guest (tests/guest): their rate and their round trip, each end in a process of its own.

#include "two_ends.hpp"

#include <vccl/verbs/ibv.hpp>

namespace ends {

/// `count` chunks with `depth` receives posted; bytes a second, at the receiver.
inline double channel_rate(board& b, std::uint32_t size, std::uint64_t count, unsigned depth) {
    const verbs::ibv host[2] = {{.path = {}, .devices = "rxe_a"}, {.path = {}, .devices = "rxe_b"}};
    family f;
    f.start([&] {
        host_context<verbs::ibv> context(host[0], take(host[0].discover(), "discover"));
        sender_of<verbs::ibv> tx(context, port_id{0}, channel_id{0}, {}, {}, to_board{&b.side[0]});
        std::vector<std::byte> bytes(std::size_t{size} * depth);
        const memory m = take(context.register_memory(bytes.data(), bytes.size()), "register_memory");
        connect(tx, b, 0);  // so that both ends are ready when the receiver's clock starts, as perftest's are
        patience idle{true};
        while (tx.acknowledged().value < count) {
            while (tx.next().value < count && tx.next().value - tx.acknowledged().value < std::min(4 * depth, 64u))
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
        std::vector<std::byte> bytes(std::size_t{size} * depth);
        const memory m = take(context.register_memory(bytes.data(), bytes.size()), "register_memory");
        connect(rx, b, 1);
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

inline constexpr unsigned ping_window = 64;

/// There and back over one channel each way; receives are posted well ahead, half a window at a time.
inline double channel_ping(board& there, board& back, unsigned times) {
    const verbs::ibv host[2] = {{.path = {}, .devices = "rxe_a"}, {.path = {}, .devices = "rxe_b"}};
    family f;
    for (unsigned me = 0; me < 2; ++me)
        f.start([&, me] {
            host_context<verbs::ibv> context(host[me], take(host[me].discover(), "discover"));
            endpoint_options o;
            o.window = ping_window;
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
                if (rx.next().value - rx.received().value <= ping_window / 2)
                    while (rx.next().value - rx.received().value < ping_window) (void)take(rx.recv(m.view(8, 8)), "recv");
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

}  // namespace ends
