#pragma once
/// \file
/// The failover gap: from the first sign of a fault at either end (the earlier end's verdict) to the first byte that
/// lands afterwards. A stream of chunks runs; the driver breaks something, waits for the resumption, mends it,
/// waits for the fail-back, and so on. Detection (from the break to the first sign) is another figure.

#include "two_ends.hpp"

namespace ends {

struct cause {
    const char* name;
    std::string down, up;
};

inline constexpr unsigned gap_window = 8;  ///< chunks outstanding

/// What the stream's ends do.
struct traffic {
    std::uint32_t chunk{64 * 1024};  ///< bytes
    bool naps{};  ///< a pass that found nothing: nap, so that a kernel that moves packets on the same processors gets them
};

template <class B>
void stream_sender(B backend, topology t, port_id primary, board& b, traffic how) {
    host_context<B> context(backend, t);
    endpoint_options o;
    o.timers.timeout = 14;
    o.timers.retry_count = 2;
    sender_of<B> tx(context, primary, channel_id{0}, o, {}, to_board{&b.side[0]});
    connect(tx, b, 0);
    std::vector<std::byte> bytes(std::size_t{how.chunk} * 2 * gap_window);
    const memory m = take(context.register_memory(bytes.data(), bytes.size()), "register_memory");
    patience idle{how.naps};
    while (b.order == 0) {
        bool moved = false;
        while (tx.next().value - tx.acknowledged().value < 2 * gap_window) {
            auto s = tx.send(m.view(tx.next().value % (2 * gap_window) * how.chunk, how.chunk));
            if (!s) give_up("send", s.error());
            moved = true;
        }
        moved |= tx.progress();
        moved ? idle.something() : idle.nothing();
    }
    if (status s = tx.close(20_s); !s) give_up("close", s);
    b.done[0] = 1;
}

template <class B>
void stream_receiver(B backend, topology t, port_id primary, board& b, traffic how) {
    host_context<B> context(backend, t);
    endpoint_options o;
    o.timers.timeout = 14;
    o.timers.retry_count = 2;
    receiver_of<B> rx(context, primary, channel_id{0}, o, {}, to_board{&b.side[1]});
    connect(rx, b, 1);
    std::vector<std::byte> bytes(std::size_t{how.chunk} * gap_window);
    const memory m = take(context.register_memory(bytes.data(), bytes.size()), "register_memory");
    patience idle{how.naps};
    while (rx.health()) {
        while (rx.next().value - rx.received().value < gap_window) {
            auto s = rx.recv(m.view(rx.next().value % gap_window * how.chunk, how.chunk));
            if (!s) break;
        }
        rx.progress() ? idle.something() : idle.nothing();
    }
    if (rx.health().code != errc::closed) give_up("receiver (" + std::to_string(rx.health().detail) + ")", rx.health());
    b.done[1] = 1;
}

/// The n-th event of a kind at one end, or null.
inline const channel_event* nth(const board_side& s, channel_event::kind k, unsigned n) {
    const unsigned seen = std::min(s.events.load(std::memory_order_acquire), max_events);
    for (unsigned i = 0; i < seen; ++i)
        if (s.event[i].what == k && n-- == 0) return &s.event[i];
    return nullptr;
}
inline unsigned count(const board_side& s, channel_event::kind k) {
    unsigned n = 0;
    while (nth(s, k, n)) ++n;
    return n;
}

struct gap_figures {
    std::vector<double> gaps, detections, failbacks;
    std::uint64_t replayed{}, replayed_by_failback{};
    std::vector<double> rates;  ///< throughput after a fail-back to that just before its fault
};

/// One cause, `times` times. `act` carries out a command of the cause.
inline gap_figures measure(board& b, family& f, const cause& c, unsigned times, nanoseconds settle,
                           const std::function<void(const std::string&)>& act) {
    using kind = channel_event::kind;
    gap_figures g;
    auto rate = [&](nanoseconds span) {
        const std::uint64_t before = b.side[1].chunks;
        const nanoseconds start = now();
        ::usleep(static_cast<unsigned>(span.count / 1000));
        return static_cast<double>(b.side[1].chunks - before) / static_cast<double>((now() - start).count);
    };
    for (unsigned i = 0; i < times; ++i) {
        if (!f.well()) give_up("an end failed");
        const unsigned resumed = count(b.side[1], kind::resumed), back = count(b.side[1], kind::failed_back);
        const unsigned failed[2] = {count(b.side[0], kind::lane_failed), count(b.side[1], kind::lane_failed)};
        const double before = rate(settle);
        const nanoseconds broken = now();
        act(c.down);
        wait_for([&] { return nth(b.side[1], kind::resumed, resumed) || !f.well(); }, 60_s, "the resumption", true);
        const channel_event* r = nth(b.side[1], kind::resumed, resumed);
        if (!r) give_up("an end failed");
        nanoseconds sign = nanoseconds::never();
        for (unsigned s = 0; s < 2; ++s)
            if (const channel_event* e = nth(b.side[s], kind::lane_failed, failed[s]); e && e->at < sign) sign = e->at;
        g.gaps.push_back(static_cast<double>((r->at - sign).count) * 1e-3);
        g.detections.push_back(static_cast<double>((sign - broken).count) * 1e-3);
        ::usleep(static_cast<unsigned>(settle.count / 1000));
        act(c.up);
        const nanoseconds mended = now();
        wait_for([&] { return nth(b.side[1], kind::failed_back, back) || !f.well(); }, 60_s, "the fail-back", true);
        const channel_event* w = nth(b.side[1], kind::failed_back, back);
        if (!w) give_up("an end failed");
        g.failbacks.push_back(static_cast<double>((w->at - mended).count) * 1e-6);
        g.rates.push_back(rate(settle) / before);
    }
    for (unsigned i = 0; const channel_event* e = nth(b.side[0], kind::failed_over, i); ++i) g.replayed += e->replayed;
    return g;
}

inline void print_head() {
    std::printf("%-12s %6s | %9s %9s | %12s | %9s | %9s %9s | %s\n", "cause", "times", "gap us", "worst", "detection us", "RTTs",
                "back ms", "worst", "rate after/before");
}
inline void print_row(const cause& c, const gap_figures& g, double rtt) {
    std::printf("%-12s %6zu | %9.1f %9.1f | %12.0f | %9.1f | %9.1f %9.1f | %.2f\n", c.name, g.gaps.size(), median(g.gaps),
                largest(g.gaps), median(g.detections), median(g.gaps) / rtt, median(g.failbacks), largest(g.failbacks),
                median(g.rates));
    std::fflush(stdout);
}

}  // namespace ends
