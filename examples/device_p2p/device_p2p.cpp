// A client and its servers: the client's warps each put their chunk of a buffer and count up a flag of their own; each server's
// warps wait for their flags; then the client reads back the server's acknowledgement. One block a server. Prints latency and
// bandwidth by size.
//
//     device_p2p [SERVERS [WARPS [LARGEST SIZE IN BYTES]]]
#include "../device_common/arguments.hpp"
#include "../device_common/launch.hpp"
#include "../device_common/pair.hpp"

#include <vccl/device/receiver_ref.hpp>

namespace {

using tx_ref = example::sender<4>::ref_type;
constexpr unsigned max_servers = 8;

struct views {
    tx_ref tx[max_servers];
    vccl::device::receiver_ref rx[max_servers];
    unsigned char* in[max_servers];   ///< the servers' windows
    unsigned char* out[max_servers];  ///< the client's windows
    std::uint64_t* failed{};
    std::uint64_t size{}, ack{};  ///< bytes of data; where the acknowledgement lies behind them
    std::uint64_t iteration{};
    unsigned warps{};
};

VCCL_HOST_DEVICE inline void note(const views& v, const vccl::device::device_result& r) {
    if (!r)
        vccl::device::store<vccl::device::order::relaxed, vccl::device::scope::system>(v.failed,
                                                                                       pack(r) | std::uint64_t{1} << 63);
}

/// A block of the client serves one server.
struct client {
    views v;
    VCCL_HOST_DEVICE void operator()(unsigned server, unsigned warp) const {
        const vccl::warp_scope all{};
        const auto tx = v.tx[server].channel(warp);
        const std::uint64_t chunk = (v.size + v.warps - 1) / v.warps, at = warp * chunk;
        if (at < v.size)
            note(v, tx.put_signal(all, at, at, chunk < v.size - at ? chunk : v.size - at, warp, v.iteration));
        else
            note(v, tx.signal(all, warp, v.iteration));
        note(v, tx.flush(all));
        if (warp != 0) return;
        // The seed's loop, with an end: read the server's word until it has this iteration.
        vccl::device::deadline until(nullptr, 10'000'000'000);
        const auto* const word = reinterpret_cast<const std::uint64_t*>(v.out[server] + v.ack);
        // All threads of the warp must come to the same answer, so one asks for all.
        const auto word_now = [&] {
            return all.broadcast(vccl::device::load<vccl::device::order::acquire, vccl::device::scope::system>(word));
        };
        while (word_now() != v.iteration) {
            vccl::device::device_result r = tx.get(all, v.ack, v.ack, 8);
            if (r) r = tx.flush(all);
            if (r && all.broadcast(until.passed()) != 0) r.what = vccl::device::outcome::timeout;
            note(v, r);
            if (!r) return;
        }
    }
};
/// A block of a server waits for all flags; its first warp acknowledges. (Each server has one block; here they share a launch.)
struct server {
    views v;
    VCCL_HOST_DEVICE void operator()(unsigned server, unsigned warp) const {
        if (warp != 0) return;
        for (unsigned w = 0; w < v.warps; ++w) note(v, v.rx[server].wait_signal(vccl::warp_scope{}, w, v.iteration));
        vccl::device::store<vccl::device::order::release, vccl::device::scope::system>(
            reinterpret_cast<std::uint64_t*>(v.in[server] + v.ack), v.iteration);
    }
};

}  // namespace

int main(int argc, char** argv) {
    example::arguments words(argc, argv, "device_p2p [SERVERS 1-8 [WARPS 1-32 [LARGEST, in bytes, 4-4294967296]]]");
    const auto servers = words.number<unsigned>(1, 1, max_servers), warps = words.number<unsigned>(8, 1, 32);
    const auto largest = words.number<std::uint64_t>(256u << 20, 4, std::uint64_t{1} << 32);
    if (words.done()) return words.status();
    const std::size_t share = (largest + 4095) / 4096 * 4096 + 4096;
    example::pair<4> hosts(servers, 2, share);
    example::window failed(8);
    views v;
    for (unsigned s = 0; s < servers; ++s) {
        v.tx[s] = hosts.tx[s]->ref();
        v.rx[s] = hosts.rx[s]->ref();
        v.in[s] = hosts.in.bytes + s * share;
        v.out[s] = hosts.out.bytes + s * share;
    }
    v.failed = reinterpret_cast<std::uint64_t*>(failed.bytes);
    v.ack = share - 4096;
    v.warps = warps;
    for (std::size_t i = 0; i < hosts.out.size; ++i) hosts.out.bytes[i] = static_cast<unsigned char>(i * 31 + i / 4096);
    example::prepare<client>();
    example::prepare<server>();
    std::printf("%u server(s), %u warps each\n%14s %14s %14s\n", servers, warps, "bytes", "latency us", "MB/s");
    for (v.size = 4; v.size <= largest; v.size *= 4) {
        const unsigned rounds = v.size < 1 << 20 ? 20 : 3;
        double best = 1e9;
        for (unsigned i = 0; i < rounds; ++i) {
            ++v.iteration;
            const double begin = example::seconds();
            example::launched s(servers, warps, server{v}), c(servers, warps, client{v});
            example::need(c.wait() && s.wait(), "a kernel failed");
            best = std::min(best, example::seconds() - begin);
        }
        if (*v.failed != 0) {
            std::fprintf(stderr, "a device operation ended with: %s\n",
                         text(vccl::device::unpack(*v.failed & ~(1ull << 63)).what));
            return 1;
        }
        for (unsigned s = 0; s < servers; ++s)
            example::need(std::memcmp(v.in[s], v.out[s], v.size) == 0, "bytes at a server differ from what was sent");
        std::printf("%14llu %14.1f %14.1f\n", static_cast<unsigned long long>(v.size), best * 1e6,
                    static_cast<double>(v.size) * servers / best / 1e6);
    }
    std::printf("RESULT ok servers=%u warps=%u\n", servers, warps);
}
