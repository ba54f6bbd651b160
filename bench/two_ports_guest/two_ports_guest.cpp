/// \file
/// Both ports at once on real verbs (soft-RoCE in a guest kernel) over wires of 100 Mbit/s: a channel of two stripes against
/// one of one; then a port dies, and comes back. Both hosts in one process, a thread each; run inside the guest.
/// Last line: BENCH two_ports_guest ratio=… after_loss=… after_return=…: the least over the numbers of QPs.

#include "../ends/two_ends.hpp"

#include <vccl/stripe/compose.hpp>
#include <vccl/verbs/ibv.hpp>

#include <thread>

namespace {

using namespace ends;

constexpr std::uint32_t chunk = 128 * 1024;
constexpr unsigned buffers = 8;
constexpr nanoseconds warm_up = 1_s, patience = 120_s;

void fault(const std::string& what) {
    const char* const tool = std::getenv("VCCL_GUEST_FAULT");
    if (!tool) give_up("two_ports_guest runs in the guest: bench/run two_ports_guest");
    if (std::system((std::string(tool) + " " + what).c_str()) != 0) give_up("fault " + what);
}

/// A channel from A to B that is kept full from its construction on. A's thread is its own; B's is the caller's.
template <unsigned Stripes, unsigned Qps>
class stream {
public:
    stream() {
        const auto of_tx = take(tx_.local_info(), "sender"), of_rx = take(rx_.local_info(), "receiver");
        check(rx_.begin_connect(of_tx), "connect");
        check(tx_.begin_connect(of_rx), "connect");
        sender_ = std::thread([this] { send(); });
        pass_until("connected", [&] { return rx_.connected(); });
    }
    ~stream() {
        over_.store(true);
        sender_.join();
    }
    /// Bytes per second received for `span` from now on.
    double rate(nanoseconds span) {
        const nanoseconds start = now();
        const std::uint64_t before = rx_.received().value;
        while (now() - start < span) receive();
        return double(rx_.received().value - before) * chunk * 1e9 / double((now() - start).count);
    }
    template <class Done>
    void pass_until(const char* what, Done&& done) {
        for (const nanoseconds end = now() + patience; !done(); receive())
            if (now() > end) give_up(std::string("waited in vain: ") + what);
    }
    std::uint64_t failovers() const { return rx_.handler().failovers; }
    std::uint64_t failbacks() const { return rx_.handler().failbacks; }

private:
    using sender = striped_sender<verbs::ibv, stripes<Stripes>, no_backup, qp_group<Qps>, counters>;
    using receiver = striped_receiver<verbs::ibv, stripes<Stripes>, no_backup, qp_group<Qps>, counters, hold_down<5>>;

    static endpoint_options options() {
        endpoint_options o;
        o.timers.timeout = 18;  // an early retransmission ends in REM_INV_REQ_ERR on 6.1 under load; see tests/guest/README.md
        o.window = buffers;
        return o;
    }
    static void nap() { (void)::usleep(20); }

    void send() {
        while (!over_.load()) {
            while (tx_.connected() && tx_.next().value - tx_.acknowledged().value < buffers)
                if (!tx_.send(out_memory_.view(tx_.next().value % buffers * chunk, chunk))) break;
            if (!tx_.progress()) nap();
            check(tx_.health(), "sender");
        }
    }
    void receive() {
        while (rx_.connected() && rx_.next().value - rx_.received().value < buffers)
            if (!rx_.recv(in_memory_.view(rx_.next().value % buffers * chunk, chunk))) break;
        if (!rx_.progress()) nap();
        check(rx_.health(), "receiver");
    }
    static host_context<verbs::ibv> host(const char* devices) {
        const verbs::ibv backend{.path = {}, .devices = devices};
        return {backend, take(backend.discover(), "discover")};
    }

    host_context<verbs::ibv> a_{host("rxe_a")}, b_{host("rxe_b")};
    std::vector<std::byte> out_ = std::vector<std::byte>(std::size_t{chunk} * buffers), in_ = out_;
    memory out_memory_{take(a_.register_memory(out_.data(), out_.size()), "memory")};
    memory in_memory_{take(b_.register_memory(in_.data(), in_.size()), "memory")};
    sender tx_{a_, port_id{0}, channel_id{1}, options()};
    receiver rx_{b_, port_id{0}, channel_id{1}, options()};
    std::atomic<bool> over_{};
    std::thread sender_;
};

struct ratios {
    double both{9}, lost{9}, back{9};
};

template <unsigned Qps>
void measure(nanoseconds span, ratios& least) {
    double one = 0;
    {
        stream<1, Qps> plain;
        plain.rate(warm_up);
        one = plain.rate(span);
    }
    stream<2, Qps> two;
    two.rate(warm_up);
    const double both = two.rate(span) / one;
    fault("port-down a0");
    two.pass_until("failover", [&] { return two.failovers() >= 1; });
    two.rate(warm_up);
    const double lost = two.rate(span) / one;
    fault("port-up a0");
    two.pass_until("failback", [&] { return two.failbacks() >= 1; });
    two.rate(warm_up);
    const double back = two.rate(span) / one;
    std::printf("%5u %11.2f %8.2f %12.2f %14.2f\n", Qps, one / 1e6, both, lost, back);
    std::fflush(stdout);
    least = {std::min(least.both, both), std::min(least.lost, lost), std::min(least.back, back)};
}

}  // namespace

int main(int argc, char** argv) {
    const nanoseconds span{(argc > 1 ? std::max(1, std::atoi(argv[1])) : 8) * 1'000'000'000ll};
    for (const char* wire : {"rate sw_b0 100mbit", "rate sw_b1 100mbit"}) fault(wire);
    std::puts("  QPs  one, MB/s     both   after loss   after return   (to one port)");
    ratios least;
    measure<1>(span, least);
    measure<4>(span, least);
    fault("mend");
    std::printf("BENCH two_ports_guest ratio=%.3f after_loss=%.3f after_return=%.3f\n", least.both, least.lost, least.back);
}
