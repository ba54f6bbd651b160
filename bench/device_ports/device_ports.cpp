// The dispatch pattern over {1, 2} ports and {1, 4} queues a port, in simulated time on ports of 5 GB/s: 16 channels each put
// tokens of 7168 bytes and count up their tail after every fourth. Every token is compared when its tail has arrived. Compared
// with: the same over one port.
#include <vccl/device/compose.hpp>
#include <vccl/device/ports.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/verbs/soft.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr unsigned channels = 16, tokens = 200;
constexpr std::uint64_t token = 7168, port_rate = 5'000'000'000;

void need(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "device_ports: %s\n", what);
    std::exit(1);
}

/// Bytes a second, of tokens.
template <unsigned Ports, unsigned Queues>
double rate() {
    using sender =
        device_sender<verbs::soft, channel_parity, qp_group<Queues>, rollback_fifo<64>, manual_clock, testing::memory_oob>;
    using receiver = device_receiver<verbs::soft, channel_parity, qp_group<Queues>, manual_clock, testing::memory_oob>;
    verbs::soft_options f;
    f.manual_time = true;
    f.latency = 2_us;
    f.bytes_per_second = port_rate;
    auto fabric = verbs::soft_fabric::create(make_cluster(2, 1, 2, 2), f);
    need(static_cast<bool>(fabric), "no fabric");
    host_context<verbs::soft> a(*fabric->host("A"), fabric->shape()), b(*fabric->host("B"), fabric->shape());
    typename sender::policies::source nic(fabric->clock());
    std::vector<unsigned char> out(channels * tokens * token), in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(i * 31 + i / 7168 + 1);
    auto from = a.register_memory(out.data(), out.size()), to = b.register_memory(in.data(), in.size());
    std::unique_ptr<sender> tx[Ports];
    std::unique_ptr<receiver> rx[Ports];
    device_options o;
    o.signals = channels;
    for (unsigned p = 0; p < Ports; ++p) {
        tx[p] = std::make_unique<sender>(a, nic, gpu_id{0}, channel_id{p}, from->view(), o, channel_parity{}, on_completion<>{},
                                         detect{}, fabric->clock());
        rx[p] = std::make_unique<receiver>(b, gpu_id{2}, channel_id{p}, to->view(), o, channel_parity{}, on_completion<>{},
                                           hold_down<>{}, detect{}, fabric->clock());
        const auto of_tx = tx[p]->local_info(), of_rx = rx[p]->local_info();
        need(of_tx && of_rx && tx[p]->begin_connect(*of_rx) && rx[p]->begin_connect(*of_tx), "no connection");
    }
    const auto pass = [&] {
        for (unsigned p = 0; p < Ports; ++p) {
            tx[p]->progress();
            rx[p]->progress();
        }
        nic.progress();
        fabric->advance(500_ns);
    };
    const auto connected = [&] {
        for (unsigned p = 0; p < Ports; ++p)
            if (!tx[p]->connected() || !rx[p]->connected()) return false;
        return true;
    };
    for (int i = 0; i < 1'000'000 && !connected(); ++i) pass();
    need(connected(), "the channels did not connect");

    device::port_refs<typename sender::ref_type, Ports> refs{};
    for (unsigned p = 0; p < Ports; ++p) refs.port[p] = tx[p]->ref().within(0);  // who has no credit comes back later
    unsigned put[channels]{}, told[channels]{}, seen[channels]{};
    const nanoseconds begin = fabric->now();
    for (unsigned done = 0; done < channels;) {
        for (bool any = true; any;) {
            any = false;
            for (unsigned c = 0; c < channels; ++c) {
                const std::uint64_t at = (c * tokens + put[c]) * token;
                if (put[c] < tokens && refs.channel(c).put(warp_scope{}, at, at, token)) {
                    ++put[c];
                    any = true;
                }
                const unsigned due = put[c] - told[c];
                if ((due >= 4 || (due != 0 && put[c] == tokens)) && refs.channel(c).signal(warp_scope{}, c, put[c]))
                    told[c] = put[c];
            }
        }
        pass();
        done = 0;
        for (unsigned c = 0; c < channels; ++c) {
            for (const std::uint64_t tail = rx[c % Ports]->ref().peek(c); seen[c] < tail; ++seen[c]) {
                const std::uint64_t at = (c * tokens + seen[c]) * token;
                need(std::memcmp(&in[at], &out[at], token) == 0, "a tail came before its tokens");
            }
            done += seen[c] == tokens;
        }
        need(fabric->now() - begin < 10_s, "the tokens did not arrive within 10 s");
    }
    const double r = static_cast<double>(channels * tokens * token) / (static_cast<double>((fabric->now() - begin).count) * 1e-9);
    std::printf("%u port(s), %u queue(s) each: %8.1f MB/s\n", Ports, Queues, r / 1e6);
    return r;
}

}  // namespace

int main() {
    const double one_1 = rate<1, 1>(), one_4 = rate<1, 4>(), two_1 = rate<2, 1>(), two_4 = rate<2, 4>();
    const double ratio_1 = two_1 / one_1, ratio_4 = two_4 / one_4;
    std::printf("BENCH device_ports ratio=%.3f ratio_1=%.3f ratio_4=%.3f one_port_mb=%.0f two_ports_mb=%.0f\n",
                ratio_1 < ratio_4 ? ratio_1 : ratio_4, ratio_1, ratio_4, one_4 / 1e6, two_4 / 1e6);
}
