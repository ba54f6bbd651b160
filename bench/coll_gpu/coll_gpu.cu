/// \file
/// Combining on a GPU: the kernels alone, by type and size; then an all-reduce of GPU memory between ranks of this process over the
/// software RNIC, with the kernels, with none (everything else the same: what the wire and the copies take), and of host memory with
/// the CPU. How much of the kernels' time is seen in the whole says how far they overlap the wire. Medians over rounds.

#include <vccl/coll/cuda_compute.cuh>
#include <vccl/coll/host_mesh.hpp>
#include <vccl/coll/staged_ends.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using namespace vccl;
using namespace vccl::literals;
using tx_type = host_sender<verbs::soft, sibling_port>;
using rx_type = host_receiver<verbs::soft, sibling_port>;
using mesh_type = host_mesh<tx_type, rx_type>;
using staged_type = staged_ends<tx_type, rx_type, cuda_engine>;

constexpr std::uint32_t ranks = 2;
constexpr unsigned rounds = 5;
constexpr std::uint64_t largest = std::uint64_t{64} << 20;

void need(const status& s, const char* what) {
    if (s) return;
    std::fprintf(stderr, "%s: errc %d detail %u\n", what, static_cast<int>(s.code), s.detail);
    std::exit(1);
}
void need(cudaError_t e, const char* what) {
    if (e == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    std::exit(1);
}
/// The ranks take this machine's GPUs in turn.
int gpu_of(std::uint32_t rank) {
    int n = 1;
    need(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
    return static_cast<int>(rank) % n;
}
double now_us() { return static_cast<double>(steady_clock{}.now().count) * 1e-3; }
double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/// Like the GPU's, but combines nothing.
struct no_compute {
    std::uint64_t combine(const combine_work&) noexcept { return 0; }
    std::uint64_t copy(void*, const void*, std::uint64_t) noexcept { return 0; }
    bool done(std::uint64_t) const noexcept { return true; }
    status health() const noexcept { return {}; }
};

/// Memory of the GPU, zeroed.
struct buffer {
    explicit buffer(std::uint64_t bytes) {
        need(cudaMalloc(reinterpret_cast<void**>(&at), bytes), "cudaMalloc");
        need(cudaMemset(at, 0, bytes), "cudaMemset");
    }
    buffer(const buffer&) = delete;
    ~buffer() { cudaFree(at); }
    std::byte* at{};
};

void kernels() {
    constexpr struct {
        element_type type;
        const char* name;
    } types[] = {{element_type::float32, "float32"},
                 {element_type::float16, "float16"},
                 {element_type::bfloat16, "bfloat16"},
                 {element_type::int32, "int32"},
                 {element_type::int64, "int64"}};
    buffer a(largest), b(largest), to(largest);
    std::printf("sum, GB/s of result (three times as much is moved)\n%10s %12s %12s %12s\n", "type", "256 KiB", "4 MiB",
                "64 MiB");
    for (const auto& t : types) {
        std::printf("%10s", t.name);
        for (const std::uint64_t bytes : {std::uint64_t{256} << 10, std::uint64_t{4} << 20, largest}) {
            auto c = cuda_compute::create(0);
            need(c.error(), "cuda_compute");
            constexpr unsigned together = 32;
            std::vector<double> each;
            for (unsigned r = 0; r <= rounds; ++r) {
                const double begin = now_us();
                std::uint64_t ticket = 0;
                for (unsigned i = 0; i < together; ++i)
                    ticket = c->combine({to.at, a.at, b.at, bytes / size_of(t.type), t.type, reduce_op::sum});
                while (!c->done(ticket)) need(c->health(), "kernel");
                if (r != 0) each.push_back((now_us() - begin) / together);
            }
            const double us = median(each);
            std::printf(" %12.1f", static_cast<double>(bytes) / us * 1e-3);
        }
        std::printf("\n");
    }
}

/// A rank's whole life; `us` gets the slowest rank's time of each size, by rank 0.
template <class Run>
std::vector<double> on_ranks(const std::vector<std::uint64_t>& sizes, Run&& run) {
    auto fabric = verbs::soft_fabric::create(make_cluster(ranks, 1, 2, 1));
    need(fabric.error(), "fabric");
    std::vector<std::vector<parcel>> offers(ranks), answers(ranks);
    std::barrier meet(ranks);
    std::vector<double> us(sizes.size());
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            need(cudaSetDevice(gpu_of(rank)), "cudaSetDevice");
            host_context<verbs::soft> context(*fabric->host(fabric->shape().hosts[rank].name.view()), fabric->shape());
            mesh_type mesh(context, gpu_id{static_cast<std::uint16_t>(rank)}, rank, ranks, {});
            const auto carry = [&](std::vector<std::vector<parcel>>& boxes, result<std::vector<parcel>> list) {
                need(list.error(), "connect");
                for (std::uint32_t turn = 0; turn < ranks; ++turn) {  // one after the other
                    if (turn == rank)
                        for (parcel& p : *list) boxes[p.peer].push_back({rank, p.tag, std::move(p.bytes)});
                    meet.arrive_and_wait();
                }
                return boxes[rank];
            };
            const auto offered = carry(offers, mesh.offer());
            need(mesh.finish(carry(answers, mesh.answer(offered))), "connect");
            while (!mesh.connected()) mesh.progress();
            run(context, mesh, rank, [&](auto&& operation, auto&& progress) {
                for (std::size_t s = 0; s < sizes.size(); ++s) {
                    std::vector<double> each;
                    for (unsigned r = 0; r <= rounds; ++r) {
                        meet.arrive_and_wait();
                        const double begin = now_us();
                        operation(sizes[s]);
                        meet.arrive_and_wait();
                        if (r != 0) each.push_back(now_us() - begin);
                        for (unsigned i = 0; i < 64; ++i) progress();  // for what neighbours still need
                    }
                    if (rank == 0) us[s] = median(each);
                }
            });
            meet.arrive_and_wait();
        });
    for (auto& t : threads) t.join();
    return us;
}

template <class Communicator>
void sum(Communicator& comm, const memory_view& in, const memory_view& out, std::uint64_t bytes) {
    need(comm.all_reduce(in, out, bytes / 4, element_type::float32, reduce_op::sum), "all_reduce");
    need(comm.wait(60_s), "all_reduce");
}

template <class Compute, class Make>
std::vector<double> over_gpu(const std::vector<std::uint64_t>& sizes, Make&& make) {
    return on_ranks(sizes, [&](auto& context, mesh_type& mesh, std::uint32_t rank, auto&& measure) {
        using communicator_type = communicator<typename staged_type::sender, typename staged_type::receiver, Compute>;
        buffer in(largest), out(largest), scratch(mesh.limits().scratch_bytes());
        staged_memory in_views(in.at, largest), out_views(out.at, largest),
            scratch_views(scratch.at, mesh.limits().scratch_bytes());
        auto ends = staged_type::make(context, mesh.ends(), mesh.limits().piece_bytes, 16,
                                      [&] { return cuda_engine::create(gpu_of(rank)); });
        need(ends.error(), "staged ends");
        communicator_type comm(rank, ranks, (*ends)->links(), scratch_views.view(), mesh.limits(), make(gpu_of(rank)));
        measure([&](std::uint64_t bytes) { sum(comm, in_views.view(), out_views.view(), bytes); }, [&] { comm.progress(); });
    });
}
std::vector<double> over_host(const std::vector<std::uint64_t>& sizes) {
    return on_ranks(sizes, [&](auto& context, mesh_type& mesh, std::uint32_t, auto&& measure) {
        std::vector<std::byte> in(largest), out(largest);
        auto in_memory = context.register_memory(in.data(), largest), out_memory = context.register_memory(out.data(), largest);
        need(in_memory.error(), "register");
        need(out_memory.error(), "register");
        auto comm = mesh.make_communicator();
        measure([&](std::uint64_t bytes) { sum(comm, in_memory->view(), out_memory->view(), bytes); }, [&] { comm.progress(); });
    });
}

}  // namespace

int main() {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        std::printf("BENCH coll_gpu skipped=no_gpu\n");
        return 0;
    }
    kernels();
    const std::vector<std::uint64_t> sizes{std::uint64_t{64} << 10, std::uint64_t{1} << 20, std::uint64_t{8} << 20, largest};
    const auto gpu = over_gpu<cuda_compute>(sizes, [](int device) {
        auto c = cuda_compute::create(device);
        need(c.error(), "cuda_compute");
        return std::move(*c);
    });
    const auto idle = over_gpu<no_compute>(sizes, [](int) { return no_compute{}; });
    const auto host = over_host(sizes);
    std::printf("all-reduce, %u ranks of one process on %d GPUs, float32 sum, us\n%12s %12s %18s %14s %10s\n", ranks, n, "bytes",
                "GPU memory", "without kernels", "host memory", "busbw GB/s");
    for (std::size_t s = 0; s < sizes.size(); ++s)
        std::printf("%12llu %12.1f %18.1f %14.1f %10.2f\n", static_cast<unsigned long long>(sizes[s]), gpu[s], idle[s], host[s],
                    static_cast<double>(sizes[s]) / gpu[s] * 1e-3 * 2 * (ranks - 1) / ranks);
    std::printf("BENCH coll_gpu gpu_us=%.0f without_kernels_us=%.0f host_us=%.0f\n", gpu.back(), idle.back(), host.back());
}
