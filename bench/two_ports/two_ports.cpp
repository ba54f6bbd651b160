/// Both ports of a NIC at once: a channel of two stripes against one of one, on a software fabric with rate-limited ports
/// under manual time, so that every figure is simulated and the same on every machine. Then one of the two ports dies, and
/// comes back. Rates are of chunks received; one port's rate is that of the plain host channel.

#include <vccl/base/status_text.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/stripe/compose.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/verbs/soft.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr std::uint32_t chunk_bytes = 256 * 1024;
constexpr unsigned buffers = 32;
constexpr std::uint64_t port_rate = 5'000'000'000;
constexpr nanoseconds one_way = 5'000_ns, pass_time = 500_ns, warm_up = 5_ms, span = 20_ms;

[[noreturn]] void give_up(const char* what, status s) {
    std::fprintf(stderr, "%s: %s\n", what, describe(s).c_str());
    std::exit(1);
}
template <class R>
auto take(R&& r, const char* what) {
    if (!r) give_up(what, r.error());
    return std::move(*r);
}
void check(status s, const char* what) {
    if (!s) give_up(what, s);
}

/// When the first end gave a lane up, and when the last stripe went back.
struct watch {
    using policy_axis = axis::completion;
    nanoseconds failed{nanoseconds::never()}, back{nanoseconds::never()};
    void on_event(const channel_event& e) noexcept {
        if (e.what == channel_event::kind::lane_failed && e.at < failed) failed = e.at;
        if (e.what == channel_event::kind::failed_back) back = e.at;
    }
};

template <unsigned Stripes, unsigned Qps>
struct channel {
    using handler = on_completion<watch>;
    using sender =
        striped_sender<verbs::soft, stripes<Stripes>, sibling_port, qp_group<Qps>, handler, manual_clock, testing::memory_oob>;
    using receiver = striped_receiver<verbs::soft, stripes<Stripes>, sibling_port, qp_group<Qps>, handler, manual_clock,
                                      testing::memory_oob, hold_down<1>>;

    verbs::soft_fabric fabric;
    host_context<verbs::soft> a, b;
    sender tx;
    receiver rx;
    std::vector<std::byte> out, in;
    memory source, target;

    static verbs::soft_fabric make() {
        verbs::soft_options o;
        o.manual_time = true;
        o.latency = one_way;
        o.bytes_per_second = port_rate;
        return take(verbs::soft_fabric::create(make_cluster(2, 1, 2, 1), o), "fabric");
    }
    static endpoint_options with_seed(std::uint64_t seed) {
        endpoint_options o;
        o.seed = seed;
        return o;
    }

    channel()
        : fabric(make()),
          a(take(fabric.host("A"), "host A"), fabric.shape()),
          b(take(fabric.host("B"), "host B"), fabric.shape()),
          tx(a, gpu_id{0}, channel_id{1}, with_seed(1), {}, {}, {}, {}, fabric.clock()),
          rx(b, gpu_id{1}, channel_id{1}, with_seed(2), {}, {}, {}, {}, fabric.clock()),
          out(std::size_t{chunk_bytes} * buffers),
          in(out.size()) {
        const auto of_tx = take(tx.local_info(), "sender"), of_rx = take(rx.local_info(), "receiver");
        check(tx.begin_connect(of_rx), "connect");
        check(rx.begin_connect(of_tx), "connect");
        source = take(a.register_memory(out.data(), out.size()), "memory");
        target = take(b.register_memory(in.data(), in.size()), "memory");
        while (!tx.connected() || !rx.connected()) pass();
    }

    void pass() {
        tx.progress();
        rx.progress();
        fabric.advance(pass_time);
        check(tx.health(), "sender");
        check(rx.health(), "receiver");
    }
    void feed() {
        while (rx.next().value - rx.received().value < buffers)
            take(rx.recv(target.view(rx.next().value % buffers * chunk_bytes, chunk_bytes)), "recv");
        while (tx.next().value - tx.acknowledged().value < buffers)
            take(tx.send(source.view(tx.next().value % buffers * chunk_bytes, chunk_bytes)), "send");
        pass();
    }
    void feed_until(nanoseconds end) {
        while (fabric.now() < end) feed();
    }
    /// Bytes per second received from now on.
    double rate() {
        const nanoseconds start = fabric.now();
        const std::uint64_t before = rx.received().value;
        feed_until(start + span);
        return double(rx.received().value - before) * chunk_bytes * 1e9 / double((fabric.now() - start).count);
    }
    /// From send() to its acknowledgement, of a chunk of 8 bytes on an idle channel.
    nanoseconds round_trip() {
        take(rx.recv(target.view(0, 8)), "recv");
        for (const nanoseconds end = fabric.now() + 1_ms; fabric.now() < end;) pass();
        const nanoseconds start = fabric.now();
        const sequence s = take(tx.send(source.view(0, 8)), "send");
        while (!rx.ended(s)) pass();
        return (fabric.now() - start) * 2;
    }
    static watch& of(auto& end) { return end.handler().template get<watch>(); }
};

struct figures {
    double ratio, after_loss, after_return;
};

template <unsigned Qps>
figures measure() {
    nanoseconds rtt;
    double one;
    {
        channel<1, Qps> plain;
        rtt = plain.round_trip();
        plain.feed_until(plain.fabric.now() + warm_up);
        one = plain.rate();
    }
    channel<2, Qps> both;
    both.feed_until(both.fabric.now() + warm_up);
    const double two = both.rate();

    check(both.fabric.command("down A.nic0.p0"), "down");
    watch &at_tx = both.of(both.tx), &at_rx = both.of(both.rx);
    while (at_tx.failed == nanoseconds::never() && at_rx.failed == nanoseconds::never()) both.feed();
    const nanoseconds verdict = at_tx.failed < at_rx.failed ? at_tx.failed : at_rx.failed;
    both.feed_until(verdict + rtt * 20);
    const double lost = both.rate();

    check(both.fabric.command("up A.nic0.p0"), "up");
    while (at_rx.back == nanoseconds::never()) both.feed();
    both.feed_until(both.fabric.now() + warm_up);
    const double returned = both.rate();
    std::printf("%3u | %7.2f %7.2f %6.3f | %10.2f %6.3f | %10.2f %6.3f | %6.1f\n", Qps, one * 1e-9, two * 1e-9, two / one,
                lost * 1e-9, lost / one, returned * 1e-9, returned / one, double(rtt.count) * 1e-3);
    std::fflush(stdout);
    return {two / one, lost / one, returned / one};
}

}  // namespace

int main() {
    std::printf("GB/s simulated; ports of %.1f GB/s, %.0f us one way, chunks of %u KiB\n", double(port_rate) * 1e-9,
                double(one_way.count) * 1e-3, chunk_bytes / 1024);
    std::printf("%3s | %7s %7s %6s | %10s %6s | %10s %6s | %6s\n", "QPs", "1 port", "2 ports", "ratio", "one lost", "ratio",
                "returned", "ratio", "RTT us");
    figures least{9, 9, 9};
    for (const figures& f : {measure<1>(), measure<2>(), measure<4>(), measure<8>()}) {
        if (f.ratio < least.ratio) least.ratio = f.ratio;
        if (f.after_loss < least.after_loss) least.after_loss = f.after_loss;
        if (f.after_return < least.after_return) least.after_return = f.after_return;
    }
    std::printf("BENCH two_ports ratio=%.3f after_loss=%.3f after_return=%.3f\n", least.ratio, least.after_loss,
                least.after_return);
}
