// The dispatch pattern of expert-parallel models: many channels, each puts tokens and then counts up its tail, over every port of
// a NIC and several queues a port. Channel c takes port c mod ports and queue (c / ports) mod queues; its data and its tail share
// one QP, so a tail that has arrived means that the tokens have.
//
//     device_dispatch [CHANNELS [TOKENS A CHANNEL]]
#include "../device_common/arguments.hpp"
#include "../device_common/launch.hpp"
#include "../device_common/pair.hpp"

#include <vccl/device/ports.hpp>
#include <vccl/device/receiver_ref.hpp>

namespace {

constexpr unsigned ports = 2, queues = 4;
constexpr std::uint64_t token = 7168;  // bytes: a hidden state of 7168 in FP8
using tx_refs = vccl::device::port_refs<example::sender<queues>::ref_type, ports>;

struct shape {
    std::uint64_t share;  ///< bytes of a port's windows
    std::uint64_t tokens;  ///< of a channel
    unsigned window;  ///< tokens of a channel at the receiver at a time
    std::uint64_t* failed;

    /// Where slot `i` of a channel lies in its port's windows.
    VCCL_HOST_DEVICE std::uint64_t at(unsigned channel, std::uint64_t i) const {
        return (channel / ports * window + i % window) * token;
    }
};
VCCL_HOST_DEVICE inline void note(std::uint64_t* failed, const vccl::device::device_result& r) {
    if (!r) vccl::device::store<vccl::device::order::relaxed, vccl::device::scope::system>(failed, std::uint64_t{1});
}

/// A warp for each channel: puts a few tokens, then the tail.
struct dispatch {
    tx_refs all;
    shape s;
    VCCL_HOST_DEVICE void operator()(unsigned channel, unsigned) const {
        const vccl::warp_scope who{};
        const auto tx = all.channel(channel);
        constexpr unsigned together = 4;
        for (std::uint64_t i = 0; i < s.tokens; ++i) {
            const std::uint64_t at = s.at(channel, i);
            if (i % together == together - 1 || i + 1 == s.tokens)
                note(s.failed, tx.put_signal(who, at, at, token, channel / ports, i + 1));
            else
                note(s.failed, tx.put(who, at, at, token));
        }
        note(s.failed, tx.flush(who));
    }
};
/// The receiving side waits for the tails.
struct collect {
    vccl::device::receiver_ref rx[ports];
    shape s;
    VCCL_HOST_DEVICE void operator()(unsigned channel, unsigned) const {
        note(s.failed, rx[channel % ports].wait_signal(vccl::warp_scope{}, channel / ports, s.tokens));
    }
};

}  // namespace

int main(int argc, char** argv) {
    example::arguments words(argc, argv, "device_dispatch [CHANNELS 1-32 [TOKENS a channel, 1-1000000000]]");
    const auto channels = words.number<unsigned>(16, 1, 32);
    const auto tokens = words.number<std::uint64_t>(64, 1, 1'000'000'000);
    if (words.done()) return words.status();
    shape s{};
    s.tokens = tokens;
    s.window = tokens < 64 ? static_cast<unsigned>(tokens) : 64;
    s.share = (channels + ports - 1) / ports * std::uint64_t{s.window} * token;
    example::pair<queues> hosts(ports, ports, s.share);
    example::window failed(8);
    s.failed = reinterpret_cast<std::uint64_t*>(failed.bytes);
    for (std::size_t i = 0; i < hosts.out.size; ++i) hosts.out.bytes[i] = static_cast<unsigned char>(i * 89 + i / 7168);
    tx_refs tx{};
    collect c{};
    c.s = s;
    for (unsigned p = 0; p < ports; ++p) {
        tx.port[p] = hosts.tx[p]->ref();
        c.rx[p] = hosts.rx[p]->ref();
    }
    example::prepare<collect>();
    example::prepare<dispatch>();
    const double begin = example::seconds();
    {
        example::launched receive(channels, 1, c), send(channels, 1, dispatch{tx, s});
        example::need(send.wait() && receive.wait(), "a kernel failed");
    }
    const double took = example::seconds() - begin;
    example::need(*s.failed == 0, "a device operation failed");
    for (unsigned channel = 0; channel < channels; ++channel)
        for (unsigned i = 0; i < s.window; ++i) {
            const std::size_t at = channel % ports * s.share + s.at(channel, i);
            example::need(std::memcmp(hosts.in.bytes + at, hosts.out.bytes + at, token) == 0, "tokens differ from what was sent");
        }
    std::uint64_t bytes[ports]{};
    for (const auto& row : hosts.fabric.status()) {
        if (row.name.view() == "A.nic0.p0") bytes[0] = row.bytes_out;
        if (row.name.view() == "A.nic0.p1") bytes[1] = row.bytes_out;
    }
    std::printf("%u channels over %u ports, %u queues each: %llu tokens of %llu bytes in %.1f ms\n", channels, ports, queues,
                static_cast<unsigned long long>(channels * tokens), static_cast<unsigned long long>(token), took * 1e3);
    std::printf("RESULT ok tokens=%llu port0_bytes=%llu port1_bytes=%llu\n", static_cast<unsigned long long>(channels * tokens),
                static_cast<unsigned long long>(bytes[0]), static_cast<unsigned long long>(bytes[1]));
}
