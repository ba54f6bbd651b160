/// \file
/// What many of a thing cost: channels 1 to 4,096, lanes 1 to 16 (the most a channel has), QPs of a lane 1 to 8. Processor time
/// for each chunk, memory for each channel and processor time for each connection, on the null backend, one thread for both
/// ends; times as ratios to the first row. Then the failover of 1,024 channels at once, when the port of all of them dies, on
/// the software RNIC in simulated time.
///
///   scale [CHANNELS]    at most so many channels; default 4096

#include <vccl/model/shapes.hpp>
#include <vccl/testing/loopback.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <malloc.h>
#include <time.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace scale {

using namespace vccl;
using namespace vccl::literals;

/// All other ports of the host, in order.
struct every_port {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology& t, port_id primary, channel_id c) const noexcept {
        const lane_list all = backups_for(t, primary, c);
        return all.empty() ? result<port_id>(errc::no_port) : all[0];
    }
    lane_list backups_for(const topology& t, port_id primary, channel_id) const noexcept {
        lane_list all;
        for (std::uint16_t i = 0; i < t.ports.size(); ++i)
            if (port_id{i} != primary && t.host_of(port_id{i}) == t.host_of(primary)) all.add(port_id{i});
        return all;
    }
};

constexpr std::uint32_t chunk_bytes = 65'536, failing_chunk_bytes = 4096;
constexpr unsigned outstanding = 8;
constexpr nanoseconds pass_time = 200_ns;  ///< of both ends of one channel

template <class B, unsigned Qps, class Clock, class... Ps>
struct pair_of {
    using sender = host_sender<B, every_port, qp_group<Qps>, Clock, testing::memory_oob, Ps...>;
    using receiver = host_receiver<B, every_port, qp_group<Qps>, Clock, testing::memory_oob, Ps...>;
    sender tx;
    receiver rx;
    pair_of(host_context<B>& a, host_context<B>& b, std::uint32_t id, unsigned lanes, Clock clock)
        : tx(a, gpu_id{0}, channel_id{id}, options(lanes), {}, {}, {}, {}, clock),
          rx(b, gpu_id{1}, channel_id{id}, options(lanes), {}, {}, {}, {}, clock) {}
    static endpoint_options options(unsigned lanes) {
        endpoint_options o;
        o.lanes = lanes;
        o.seed = 1;
        return o;
    }
    bool connect() {
        auto of_tx = tx.local_info(), of_rx = rx.local_info();
        return of_tx && of_rx && tx.begin_connect(*of_rx) && rx.begin_connect(*of_tx);
    }
    bool connected() const { return tx.connected() && rx.connected(); }
    void pass(const memory& from, const memory& to, std::uint64_t goal) {
        while (rx.next().value < goal && rx.next().value - rx.received().value < outstanding && rx.recv(to.view())) {}
        while (tx.next().value < goal && tx.next().value - tx.acknowledged().value < outstanding && tx.send(from.view())) {}
        tx.progress();
        rx.progress();
    }
    bool done(std::uint64_t goal) const { return rx.received().value >= goal && tx.acknowledged().value >= goal; }
};

double cpu_ns() {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}
double heap_bytes() {
    const struct mallinfo2 m = ::mallinfo2();
    return static_cast<double>(m.uordblks + m.hblkhd);
}

struct figures {
    double chunk_ns{}, set_up_us{}, heap_kib{}, object_kib{};
};

/// `channels` of `lanes` lanes each, with traffic on all of them in turn.
template <unsigned Qps>
figures measure(unsigned channels, unsigned lanes) {
    using B = testing::loopback<false>;
    using pair = pair_of<B, Qps, manual_clock>;
    nanoseconds now = 1_s;  // what a pass takes is said, not measured: how often timers are due does not depend on the machine
    const manual_clock clock{&now};
    B wire;
    host_context<B> a(wire, make_cluster(2, 8, 2, 1)), b(wire, make_cluster(2, 8, 2, 1));
    std::vector<std::byte> bytes(chunk_bytes);
    auto from = a.register_memory(bytes.data(), bytes.size()), to = b.register_memory(bytes.data(), bytes.size());
    if (!from || !to) std::exit(1);

    figures f;
    std::vector<std::unique_ptr<pair>> all;
    all.reserve(channels);
    const double heap = heap_bytes(), start = cpu_ns();
    for (unsigned i = 0; i < channels; ++i) {
        all.push_back(std::make_unique<pair>(a, b, i, lanes, clock));
        if (!all.back()->connect()) std::fprintf(stderr, "scale: channel %u does not connect\n", i), std::exit(1);
        for (unsigned n = 0; !all.back()->connected(); ++n) {
            if (n == 1'000'000) std::fprintf(stderr, "scale: channel %u waits in vain\n", i), std::exit(1);
            all.back()->pass(*from, *to, 0);
            now += pass_time;
        }
    }
    f.set_up_us = (cpu_ns() - start) * 1e-3 / channels;
    f.heap_kib = (heap_bytes() - heap) / 1024 / channels;
    f.object_kib = static_cast<double>(sizeof(pair)) / 1024;

    const std::uint64_t each = std::max<std::uint64_t>(64, 65'536 / channels);
    std::uint64_t goal = 0;
    const auto run = [&](std::uint64_t chunks) {
        goal += chunks;
        for (bool busy = true; busy;) {
            busy = false;
            for (auto& p : all)
                if (!p->done(goal)) {
                    p->pass(*from, *to, goal);
                    now += pass_time;
                    busy = true;
                    if (!p->tx.health() || !p->rx.health()) std::fprintf(stderr, "scale: a channel failed\n"), std::exit(1);
                }
        }
    };
    run(outstanding);
    const double before = cpu_ns();
    run(each);
    f.chunk_ns = (cpu_ns() - before) / static_cast<double>(each * channels);
    return f;
}

struct failover {
    double first_us{}, last_us{}, gap_us{}, cpu_us{};  ///< gap: the worst, from the first sign to the first byte
    unsigned failed_over{};
    bool whole{};
};

/// Sees when bytes came again.
struct resumption {
    using policy_axis = axis::completion;
    nanoseconds at{}, took{};
    unsigned times{};
    void on_event(const channel_event& e) noexcept {
        if (e.what == channel_event::kind::resumed) at = e.at, took = e.took, ++times;
    }
};

using failing_pair = pair_of<verbs::soft, 1, manual_clock, on_completion<resumption>>;

/// A fabric and its channels. One has room for 4,096 QPs: many channels are spread over several, which break at one time.
struct island {
    static constexpr unsigned most_channels = 128;
    verbs::soft_fabric fabric;
    host_context<verbs::soft> a{*fabric.host("A"), fabric.shape()}, b{*fabric.host("B"), fabric.shape()};
    std::vector<std::byte> out = std::vector<std::byte>(failing_chunk_bytes, std::byte{7}),
                           in = std::vector<std::byte>(failing_chunk_bytes);
    memory from, to;
    std::vector<std::unique_ptr<failing_pair>> pairs;

    explicit island(unsigned channels) : fabric(make()) {
        auto source = a.register_memory(out.data(), out.size()), target = b.register_memory(in.data(), in.size());
        if (!source || !target) std::exit(1);
        from = std::move(*source);
        to = std::move(*target);
        for (unsigned i = 0; i < channels; ++i) {
            pairs.push_back(std::make_unique<failing_pair>(a, b, i, 4, fabric.clock()));
            if (!pairs.back()->connect()) std::fprintf(stderr, "scale: channel %u does not connect\n", i), std::exit(1);
        }
    }
    static verbs::soft_fabric make() {
        verbs::soft_options o;
        o.manual_time = true;
        o.latency = 2_us;
        o.bytes_per_second = 25'000'000'000;
        auto made = verbs::soft_fabric::create(make_cluster(2, 2, 2, 1), o);
        if (!made) std::fprintf(stderr, "scale: no fabric\n"), std::exit(1);
        return std::move(*made);
    }
};

/// The primary port of all channels dies under way; one thread serves all of them in turn.
failover fail_together(unsigned channels) {
    std::vector<std::unique_ptr<island>> all;
    for (unsigned left = channels; left != 0; left -= std::min(left, island::most_channels))
        all.push_back(std::make_unique<island>(std::min(left, island::most_channels)));
    const auto each = [&](auto&& f) {
        for (auto& i : all)
            for (auto& p : i->pairs) f(*i, *p);
    };
    std::uint64_t goal = 0;
    const auto run = [&](auto&& done) {
        for (unsigned pass = 0; pass < 100'000; ++pass) {
            bool over = true;
            each([&](island&, failing_pair& p) { over = over && done(p); });
            if (over) return;
            each([&](island& i, failing_pair& p) {
                p.pass(i.from, i.to, goal);
                for (auto& one : all) one->fabric.advance(pass_time);
            });
        }
        std::fprintf(stderr, "scale: the channels stand still\n");
        std::exit(1);
    };
    run([](failing_pair& p) { return p.connected(); });
    goal = outstanding;
    run([&](failing_pair& p) { return p.done(goal); });
    goal = 3 * outstanding;
    each([&](island& i, failing_pair& p) { p.pass(i.from, i.to, goal); });
    for (auto& i : all)
        if (!i->fabric.command("down A.nic0.p0")) std::exit(1);
    const nanoseconds broken = all[0]->fabric.now();
    const double before = cpu_ns();
    run([&](failing_pair& p) { return p.done(goal); });
    failover f;
    f.cpu_us = (cpu_ns() - before) * 1e-3 / channels;
    f.whole = true;
    f.first_us = 1e18;
    each([&](island&, failing_pair& p) {
        const resumption& r = p.rx.handler().get<resumption>();
        f.failed_over += r.times != 0;
        f.whole = f.whole && p.rx.received().value == goal && p.rx.health() && p.tx.health();
        if (r.times == 0) return;
        const double us = static_cast<double>((r.at - broken).count) * 1e-3;
        f.first_us = std::min(f.first_us, us);
        f.last_us = std::max(f.last_us, us);
        f.gap_us = std::max(f.gap_us, static_cast<double>(r.took.count) * 1e-3);
    });
    return f;
}

figures row(const char* what, unsigned n, const figures& f, const figures& first) {
    std::printf("%-9s %5u | %8.0f %5.2f | %9.1f %5.2f | %10.1f %8.1f\n", what, n, f.chunk_ns, f.chunk_ns / first.chunk_ns,
                f.set_up_us, f.set_up_us / first.set_up_us, f.heap_kib, f.object_kib);
    std::fflush(stdout);
    return f;
}

int run(unsigned most) {
    std::printf("both ends of each channel on one thread, %u-byte chunks, %u outstanding; processor time\n", chunk_bytes,
                outstanding);
    std::printf("%-15s | %8s %5s | %9s %5s | %10s %8s\n", "", "ns/chunk", "ratio", "set-up us", "ratio", "heap KiB", "objects");
    (void)measure<1>(1, 2);  // warms up
    const figures one = measure<1>(1, 2);
    row("channels", 1, one, one);
    figures many = one;
    for (unsigned n : {16u, 256u, 1024u, 4096u})
        if (n <= most) many = row("channels", n, measure<1>(n, 2), one);
    const figures lane = row("lanes", 1, measure<1>(64, 1), one);
    figures lanes{};
    for (unsigned l : {2u, 4u, 8u, 16u}) lanes = row("lanes", l, measure<1>(64, l), lane);
    const figures qp = row("QPs", 1, measure<1>(64, 2), one);
    row("QPs", 2, measure<2>(64, 2), qp);
    row("QPs", 4, measure<4>(64, 2), qp);
    const figures qps = row("QPs", 8, measure<8>(64, 2), qp);

    std::printf("\nthe port of all channels dies; a pass of one channel takes %d ns of simulated time, round trip 4 us\n",
                int(pass_time.count));
    std::printf("%8s | %13s %9s | %12s | %14s | %s\n", "channels", "first byte us", "last us", "worst gap us", "cpu us/channel",
                "moved");
    failover together{};
    bool well = true;
    for (unsigned n : {1u, 64u, 1024u}) {
        if (n > most) continue;
        together = fail_together(n);
        well = well && together.whole && together.failed_over == n;
        std::printf("%8u | %13.1f %9.1f | %12.1f | %14.1f | %u, %s\n", n, together.first_us, together.last_us, together.gap_us,
                    together.cpu_us, together.failed_over, together.whole ? "all chunks arrived" : "NOT all chunks arrived");
        std::fflush(stdout);
    }
    std::printf(
        "BENCH scale channels_ratio=%.2f lanes_ratio=%.2f qps_ratio=%.2f kib_per_channel=%.0f set_up_us=%.1f "
        "failover_last_us=%.1f failover_gap_us=%.1f\n",
        many.chunk_ns / one.chunk_ns, lanes.chunk_ns / lane.chunk_ns, qps.chunk_ns / qp.chunk_ns, many.heap_kib + many.object_kib,
        many.set_up_us, together.last_us, together.gap_us);
    return well ? 0 : 1;
}

}  // namespace scale

int main(int argc, char** argv) {
    const int most = argc > 1 ? std::atoi(argv[1]) : 4096;
    if (argc > 2 || most < 1) {
        std::fprintf(stderr, "scale [CHANNELS]\n");
        return 2;
    }
    return scale::run(static_cast<unsigned>(most));
}
