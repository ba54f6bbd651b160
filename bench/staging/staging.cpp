/// GPU memory of one process to GPU memory of another through staging, over the software RNIC, against two opponents of the
/// same run: the copies alone (GPU to page-locked memory and on to the GPU, pipelined slice by slice, no network), and the
/// same channel from host memory to host memory (no GPU). Medians over rounds.

#include "../ends/two_ends.hpp"

#include <vccl/staging/cuda_engine.hpp>
#include <vccl/staging/receiver.hpp>
#include <vccl/staging/sender.hpp>
#include <vccl/verbs/soft.hpp>

namespace {

using namespace ends;
using tx_type = host_sender<verbs::soft, no_backup>;
using rx_type = host_receiver<verbs::soft, no_backup>;

constexpr unsigned rounds = 7;
constexpr std::uint32_t slice = 1u << 20;
constexpr unsigned slots = 8;
const std::vector<std::uint64_t> sizes{16u << 20, 64u << 20, 256u << 20};

void good(cudaError_t e, const char* what) {
    if (e != cudaSuccess) give_up(std::string(what) + ": " + cudaGetErrorString(e));
}
std::byte* device_memory_of(std::uint64_t bytes) {
    void* p = nullptr;
    good(cudaMalloc(&p, bytes), "cudaMalloc");
    return static_cast<std::byte*>(p);
}
double rate(std::uint64_t bytes, nanoseconds took) { return double(bytes) / double(took.count); }

/// GB/s of the copies alone.
double copies_alone(std::uint64_t bytes) {
    std::byte *from = device_memory_of(bytes), *to = device_memory_of(bytes);
    auto down = take(cuda_engine::create(0), "engine"), up = take(cuda_engine::create(0), "engine");
    auto ring = take(down.allocate(std::size_t{slice} * slots), "ring");
    std::vector<double> each;
    std::uint64_t first = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        const nanoseconds start = now();
        const std::uint64_t n = bytes / slice;
        std::uint64_t read = 0, written = 0, freed = 0;
        while (freed != n) {
            if (read != n && read - freed < slots) {
                (void)take(down.read(ring.data() + read % slots * slice, from + read * slice, slice), "copy");
                ++read;
            }
            if (written != read && take(down.done(first + written), "copy")) {
                (void)take(up.write(to + written * slice, ring.data() + written % slots * slice, slice), "copy");
                ++written;
            }
            if (freed != written && take(up.done(first + freed), "copy")) ++freed;
        }
        first += n;
        each.push_back(rate(bytes, now() - start));
    }
    good(cudaFree(from), "cudaFree");
    good(cudaFree(to), "cudaFree");
    return median(each);
}

/// Waits for the peer between rounds; `end` goes on meanwhile: an acknowledgement may still be due.
template <class End>
void meet(End& end, board& b, unsigned me, unsigned n) {
    b.done[me] = n;
    wait_for([&] { return end.progress(), b.done[1 - me] >= n; }, 60_s, "the peer");
}
/// The receiver's times, GB/s for each size: staged in figure[0 ..], host to host in figure[8 ..].
void send_all(verbs::soft backend, topology t, board& b) {
    host_context<verbs::soft> context(backend, t);
    tx_type tx(context, *t.find_port("A.nic0.p0"), channel_id{1});
    connect(tx, b, 0);
    const std::uint64_t most = sizes.back();
    std::byte* device = device_memory_of(most);
    std::vector<std::byte> host(most);
    const memory m = take(context.register_memory(host.data(), most), "memory");
    unsigned step = 0;
    for (const std::uint64_t bytes : sizes)
        for (unsigned round = 0; round < rounds; ++round) {
            meet(tx, b, 0, ++step);
            sequence last{};
            for (std::uint64_t at = 0; at < bytes;) {
                if (const auto s = tx.send(m.view(at, slice))) {
                    last = *s;
                    at += slice;
                } else {
                    tx.progress();
                }
            }
            check(tx.wait(last, 60_s), "send");
        }
    staged_sender<tx_type, cuda_engine> s(context, tx, take(cuda_engine::create(0), "engine"), {slice, slots});
    check(s.open(), "open");
    for (const std::uint64_t bytes : sizes)
        for (unsigned round = 0; round < rounds; ++round) {
            meet(s, b, 0, ++step);
            check(s.wait(take(s.send(device, bytes), "send"), 60_s), "send");
        }
    meet(s, b, 0, ++step);
}

void receive_all(verbs::soft backend, topology t, board& b) {
    host_context<verbs::soft> context(backend, t);
    rx_type rx(context, *t.find_port("B.nic0.p0"), channel_id{1});
    connect(rx, b, 1);
    const std::uint64_t most = sizes.back();
    std::byte* device = device_memory_of(most);
    std::vector<std::byte> host(most);
    const memory m = take(context.register_memory(host.data(), most), "memory");
    unsigned step = 0;
    for (unsigned i = 0; i < sizes.size(); ++i) {
        std::vector<double> each;
        for (unsigned round = 0; round < rounds; ++round) {
            meet(rx, b, 1, ++step);
            const nanoseconds start = now();
            for (std::uint64_t at = 0, end = rx.next().value + sizes[i] / slice; rx.received().value < end;) {
                if (rx.next().value < end && rx.next().value - rx.received().value < slots) {
                    (void)take(rx.recv(m.view(at, slice)), "recv");
                    at += slice;
                }
                rx.progress();
                check(rx.health(), "receiver");
            }
            each.push_back(rate(sizes[i], now() - start));
        }
        b.figure[8 + i] = median(each);
    }
    staged_receiver<rx_type, cuda_engine> r(context, rx, take(cuda_engine::create(0), "engine"), {slice, slots});
    check(r.open(), "open");
    for (unsigned i = 0; i < sizes.size(); ++i) {
        std::vector<double> each;
        for (unsigned round = 0; round < rounds; ++round) {
            const sequence got = take(r.recv(device, sizes[i]), "recv");
            for (unsigned n = 0; n < 1000; ++n) r.progress();  // the slots are posted
            meet(r, b, 1, ++step);
            const nanoseconds start = now();
            check(r.wait(got, 60_s), "receive");
            each.push_back(rate(sizes[i], now() - start));
        }
        b.figure[i] = median(each);
    }
    meet(r, b, 1, ++step);
}

}  // namespace

int main() {
    // Everything of CUDA happens in children: a process that has used it must not fork.
    board& b = *shared_board();
    family f;
    const std::string name = "bench-staging-" + std::to_string(::getpid());
    verbs::soft_options options;
    options.ring_bytes = 8u << 20;
    auto fabric = take(verbs::soft_fabric::create_shared(name, verbs::soft_topology(2, 1, 1, 1), options), "fabric");
    f.start([&] {
        int n = 0;
        const bool some = cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
        b.figure[15] = some ? 1 : 2;
        for (unsigned i = 0; some && i < sizes.size(); ++i) b.figure[4 + i] = copies_alone(sizes[i]);
    });
    f.join();
    if (b.figure[15] != 1) {
        std::puts("BENCH staging skipped=1 why=no_GPU");
        return 0;
    }
    const auto side = [&](const char* host, auto run) {
        auto attached = take(verbs::soft_fabric::attach(name), "attach");
        run(take(attached.host(host), host), attached.shape(), b);
    };
    f.start([&] { side("A", send_all); });
    f.start([&] { side("B", receive_all); });
    f.join();
    std::printf("%8s | %12s %12s %12s | %9s %9s\n", "MiB", "copies GB/s", "host GB/s", "staged GB/s", "/ copies", "/ host");
    double floor = 9, host = 9;
    for (unsigned i = 0; i < sizes.size(); ++i) {
        const double staged = b.figure[i], alone = b.figure[4 + i], plain = b.figure[8 + i];
        std::printf("%8llu | %12.2f %12.2f %12.2f | %9.3f %9.3f\n", static_cast<unsigned long long>(sizes[i] >> 20), alone, plain,
                    staged, staged / alone, staged / plain);
        floor = std::min(floor, staged / alone);
        host = std::min(host, staged / plain);
    }
    std::printf("BENCH staging ratio_copies=%.3f ratio_host=%.3f\n", floor, host);
}
