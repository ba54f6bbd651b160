// How fast kernels post puts, by scope, warps and queues: ours, and models of two other systems on the same rings with the same
// consumer, a CPU thread that completes whatever a doorbell names and moves no bytes. Also: with and without replay, the latency
// of one put and its flush, and a host ring against one with a model of NVSHMEM's. Figures of one run, medians of several.
#include "host_rings.cuh"
#include "median.cuh"
#include "models.cuh"

#include <vccl/device/gpu_space.cuh>
#include <vccl/device/queues.hpp>
#include <vccl/device/sender_ref.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace bench;
using vccl::block_scope;
using vccl::thread_scope;
using vccl::warp_scope;

namespace {

constexpr unsigned max_queues = 8;
constexpr std::uint32_t depth = 1024;

/// Completes what the doorbells name: one CQE for each WQE that asks for one, or the one entry of a collapsed queue, for which it
/// need not look at the WQEs.
struct consumer {
    static constexpr std::size_t most = 8;  ///< threads: one alone is slower than the kernels
    std::vector<ring> rings;
    bool collapsed{};
    std::atomic<bool> stop{};
    std::vector<std::thread> threads;

    consumer(std::vector<ring> r, bool c) : rings(std::move(r)), collapsed(c) {
        const std::size_t n = std::min(rings.size(), most);
        for (std::size_t t = 0; t < n; ++t) threads.emplace_back([this, t, n] { run(t, n); });
    }
    ~consumer() {
        stop = true;
        for (std::thread& t : threads) t.join();
    }
    void run(std::size_t first, std::size_t step) {
        std::vector<std::uint64_t> done(rings.size()), entries(rings.size());
        while (!stop)
            for (std::size_t i = first; i < rings.size(); i += step) {
                const ring& r = rings[i];
                const std::uint16_t upto = decode_doorbell(load<order::acquire, scope::system>(r.doorbell)).next;
                const std::uint16_t n = static_cast<std::uint16_t>(upto - static_cast<std::uint16_t>(done[i]));
                if (n == 0 || n > depth) continue;
                if (collapsed) {
                    done[i] += n;
                    store<order::release, scope::system>(&r.cq[0].word[15],
                                                         encode(cqe_tail{static_cast<std::uint16_t>(done[i] - 1), 0, 0}));
                    continue;
                }
                for (std::uint16_t k = 0; k < n; ++k, ++done[i]) {
                    if ((r.slot(done[i]).word[1] >> 24 & wqe_flag::completion) == 0) continue;
                    const std::uint64_t e = entries[i]++;
                    store<order::release, scope::system>(
                        &r.entry(e).word[15],
                        encode(cqe_tail{static_cast<std::uint16_t>(done[i]), 0, owner_of(e, r.cq_depth_log)}));
                }
            }
    }
};

struct rings {
    std::vector<ring_memory<mapped_memory>> memory;
    std::vector<ring> views;
    explicit rings(unsigned n) {
        for (unsigned i = 0; i < n; ++i) {
            auto m = ring_memory<mapped_memory>::make(depth, 2 * depth);
            need(static_cast<bool>(m), "ring");
            m->view().qpn = 100 + i;
            memory.push_back(std::move(*m));
            views.push_back(memory.back().view());
        }
    }
};

template <class Policy>
struct ours {
    sender_ref<Policy> all;
    template <class Scope>
    __device__ bool put(Scope who, unsigned channel, std::uint64_t at) const {
        return static_cast<bool>(all.channel(channel).put(who, at, at, 8));
    }
    __device__ bool flush(unsigned channel) const { return static_cast<bool>(all.channel(channel).flush(thread_scope{})); }
};
template <class Model>
struct theirs {
    Model model;
    template <class Scope>
    __device__ bool put(Scope who, unsigned channel, std::uint64_t at) const {
        if constexpr (std::is_same_v<Scope, thread_scope>) {
            model.put(channel, at, at, 8);
        } else {
            who.sync();
            if (who.rank() == 0) model.put(channel, at, at, 8);
            who.sync();
        }
        return true;
    }
    __device__ bool flush(unsigned channel) const {
        model.flush(channel);
        return true;
    }
};

/// `puts` of each caller of the scope; queue by warp (by block at block scope).
template <class System, class Scope>
__global__ void post(System s, Scope who, unsigned puts, std::uint64_t* bad) {
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const unsigned channel = std::is_same_v<Scope, block_scope> ? blockIdx.x : warp;
    bool good = true;
    for (unsigned i = 0; i < puts; ++i) {
        good &= s.put(who, channel, 8 * i);
        // Who checks no credit must not have more under way than the ring holds.
        if (i % 16 == 15 && threadIdx.x % 32 == 0) good &= s.flush(channel);
        if constexpr (!std::is_same_v<Scope, block_scope>) __syncwarp();
    }
    if constexpr (std::is_same_v<Scope, block_scope>) __syncthreads();
    if (who.rank() == 0) good &= s.flush(channel);
    if (!good) *bad = 1;
}
template <class System>
__global__ void ping(System s, unsigned rounds, std::uint64_t* bad) {
    for (unsigned i = 0; i < rounds; ++i)
        if (!s.put(thread_scope{}, 0, 0) || !s.flush(0)) *bad = 1;
}

void row(const char* name, const char* scope, unsigned warps, unsigned queues, double puts, double ms) {
    std::printf("%-22s %-7s %2u warps %u queues  %8.3f M puts/s\n", name, scope, warps, queues, puts / ms / 1000);
}
/// What one poster alone can do.
template <class System>
void measure_one(const char* name, const System& s, unsigned queues, std::uint64_t* bad) {
    const unsigned n = 2000;
    row(name, "warp", 1, queues, n, median_ms([&] { post<<<1, 32>>>(s, warp_scope{}, n, bad); }));
    std::printf("%-22s put + flush, one thread: %.2f us\n", name, median_ms([&] { ping<<<1, 1>>>(s, n, bad); }) * 1000 / n);
}
template <class System>
void measure(const char* name, const System& s, unsigned queues, bool checks_credit, std::uint64_t* bad) {
    measure_one(name, s, queues, bad);
    for (const unsigned warps : {2u, 4u, 8u, 16u, 32u}) {
        const unsigned n = 2000;
        row(name, "warp", warps, queues, double(n) * warps, median_ms([&] { post<<<warps, 32>>>(s, warp_scope{}, n, bad); }));
    }
    // Without credit more threads would be under way than the ring has slots; DeepEP posts from one thread of a warp only.
    for (const unsigned warps : checks_credit ? std::vector{1u, 8u, 32u} : std::vector<unsigned>{}) {
        const unsigned n = 300;
        row(name, "thread", warps, queues, double(n) * warps * 32,
            median_ms([&] { post<<<warps, 32>>>(s, thread_scope{}, n, bad); }));
    }
    for (const unsigned blocks : {1u, 8u}) {
        const unsigned n = 1000;
        row(name, "block", blocks * 4, queues, double(n) * blocks,
            median_ms([&] { post<<<blocks, 128>>>(s, block_scope{}, n, bad); }));
    }
    if (*bad) std::printf("%-22s BAD RESULT\n", name);
    *bad = 0;
}

template <class Policy>
void measure_ours(const char* name, gpu_link& link, unsigned n, std::uint64_t* bad) {
    rings r(n);
    queues<gpu_space, max_queues> all(gpu_space{&link});
    need(static_cast<bool>(all.make(depth, nullptr)), "queues");
    for (unsigned q = 0; q < n; ++q) {
        all.view[q].rings[0] = {r.views[q], 1, 2, 3, 4};
        all.view[q].signal_count = 1;
        all.service[q].open(0, 1, r.views[q].qpn);
    }
    all.publish();
    consumer c(r.views, false);
    const ours<Policy> system{{all.published(), n, 10'000'000'000}};
    if constexpr (Policy::alone)
        measure_one(name, system, n, bad);
    else
        measure(name, system, n, true, bad);
}
template <class Model>
void measure_theirs(const char* name, unsigned n, std::uint64_t* bad) {
    rings r(n);
    std::vector<peer_queue> host(n);
    for (unsigned q = 0; q < n; ++q) {
        host[q] = peer_queue{r.views[q], 0, 0, 0, 0, 0, 1, 2, 0, 0};
        r.views[q].cq[0].word[15] = encode(cqe_tail{0xffff, 0, 0});
    }
    peer_queue* on_gpu = nullptr;
    need(cudaMalloc(&on_gpu, n * sizeof(peer_queue)) == cudaSuccess, "memory");
    cudaMemcpy(on_gpu, host.data(), n * sizeof(peer_queue), cudaMemcpyHostToDevice);
    consumer c(r.views, true);
    measure(name, theirs<Model>{{on_gpu, n}}, n, Model::checks_credit, bad);
    cudaFree(on_gpu);
}

}  // namespace

int main() {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
        std::puts("BENCH device_post skipped=no_gpu");
        return 77;
    }
    auto link = gpu_link::open(0);
    need(static_cast<bool>(link), "link");
    auto* const bad = static_cast<std::uint64_t*>(mapped_memory::allocate(8));
    for (const unsigned n : {1u, max_queues}) {
        measure_ours<queue_policy<>>("vccl", **link, n, bad);
        measure_ours<queue_policy<vccl::shared_by_gpu, vccl::ring_every<>, false>>("vccl, no replay", **link, n, bad);
        measure_ours<queue_policy<vccl::exclusive_queue>>("vccl, exclusive", **link, n, bad);
        measure_theirs<nvshmem_model>("NVSHMEM (model)", n, bad);
        measure_theirs<deepep_model>("DeepEP (model)", n, bad);
    }
    measure_host_rings(**link);
    mapped_memory::free(bad);
}
