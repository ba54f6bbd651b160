// Kernels on two GPUs that post to each other, each on queues in its own GPU's memory; the NIC in a kernel carries the payload
// between them. Every byte is looked at by the kernels themselves, while ports die and return. With one GPU, both run there.
#include "duplex.cuh"

using namespace vccl_gpu_test;
using device::device_result;
using device::outcome;

namespace {

constexpr unsigned warps = 4, words = 64;  ///< each warp's message: so many words of 8 bytes
constexpr std::uint64_t bytes_of = words * 8;

__device__ std::uint64_t content(std::uint64_t round, unsigned warp, unsigned word) {
    return (round * warps + warp) * 0x9e3779b97f4a7c15u + word;
}
constexpr std::uint64_t mask = 0x5555aaaa5555aaaau;

/// Sends a message, waits for the answer, compares. `wrong` counts words.
template <class Tx>
__global__ void ask(Tx all, device::receiver_ref rx, unsigned char* out, const unsigned char* in, std::uint64_t first,
                    unsigned rounds, std::uint64_t* result, std::uint64_t* wrong) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto tx = all.channel(warp);
    auto* const to = reinterpret_cast<volatile std::uint64_t*>(out + warp * bytes_of);
    const auto* const from = reinterpret_cast<const volatile std::uint64_t*>(in + warp * bytes_of);
    device_result worst{};
    std::uint64_t bad = 0;
    for (std::uint64_t i = first; worst && i < first + rounds; ++i) {
        for (unsigned k = lane; k < words; k += 32) to[k] = content(i, warp, k);
        __threadfence_system();
        worst = tx.put_signal(warp_scope{}, warp * bytes_of, warp * bytes_of, bytes_of, warp, i);
        if (worst) worst = rx.wait_signal(warp_scope{}, warp, i);
        for (unsigned k = lane; worst && k < words; k += 32) bad += from[k] != (content(i, warp, k) ^ mask);
        if (worst) worst = tx.flush(warp_scope{});  // before the source is written again
    }
    atomicAdd(reinterpret_cast<unsigned long long*>(wrong), bad);
    if (lane == 0) result[warp] = device::pack(worst);
}
/// Waits for a message, answers with every bit of the mask turned.
template <class Tx>
__global__ void answer(Tx all, device::receiver_ref rx, unsigned char* out, const unsigned char* in, std::uint64_t first,
                       unsigned rounds, std::uint64_t* result) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto tx = all.channel(warp);
    auto* const to = reinterpret_cast<volatile std::uint64_t*>(out + warp * bytes_of);
    const auto* const from = reinterpret_cast<const volatile std::uint64_t*>(in + warp * bytes_of);
    device_result worst{};
    for (std::uint64_t i = first; worst && i < first + rounds; ++i) {
        worst = rx.wait_signal(warp_scope{}, warp, i);
        for (unsigned k = lane; worst && k < words; k += 32) to[k] = from[k] ^ mask;
        __threadfence_system();
        if (worst) worst = tx.put_signal(warp_scope{}, warp * bytes_of, warp * bytes_of, bytes_of, warp, i);
        if (worst) worst = tx.flush(warp_scope{});
    }
    if (lane == 0) result[warp] = device::pack(worst);
}

unsigned schedules = 200;
void between(int far) {
    duplex w(far, warps * bytes_of);
    GPU_REQUIRE(w.start());
    auto* const results = static_cast<std::uint64_t*>(device::mapped_memory::allocate(8 * (2 * warps)));  // freed by nobody:
    std::uint64_t* wrong = nullptr;  // freeing waits for the NIC's kernel; this one lies on GPU 0
    GPU_REQUIRE(cudaMallocAsync(&wrong, 8, w.a->stream) == cudaSuccess);
    GPU_REQUIRE(cudaMemsetAsync(wrong, 0, 8, w.a->stream) == cudaSuccess);
    std::uint64_t random = 0x9e3779b97f4a7c15u, first = 1;
    const auto roll = [&](unsigned below) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<unsigned>((random >> 11) % below);
    };
    for (unsigned s = 0; s < schedules; ++s) {
        const unsigned rounds = 50 + roll(100);
        (void)cudaSetDevice(far);
        answer<<<1, warps * 32, 0, w.b->stream>>>(w.b->tx->ref(), w.b->rx->ref(), w.b->out, w.b->in, first, rounds,
                                                  results + warps);
        (void)cudaSetDevice(0);
        ask<<<1, warps * 32, 0, w.a->stream>>>(w.a->tx->ref(), w.a->rx->ref(), w.a->out, w.a->in, first, rounds, results, wrong);
        if (s != 0) {  // the first one undisturbed
            static const char* const ports[] = {"A.nic0.p0", "A.nic0.p1", "B.nic0.p0", "B.nic0.p1"};
            const std::string port = ports[roll(4)];
            std::this_thread::sleep_for(std::chrono::microseconds(roll(3000)));
            GPU_CHECK(w.fabric.command("down " + port));
            std::this_thread::sleep_for(std::chrono::microseconds(roll(15000)));
            GPU_CHECK(w.fabric.command("up " + port));
        }
        GPU_REQUIRE(cudaStreamSynchronize(w.a->stream) == cudaSuccess);
        GPU_REQUIRE(cudaStreamSynchronize(w.b->stream) == cudaSuccess);
        for (unsigned i = 0; i < 2 * warps; ++i) GPU_REQUIRE(device::unpack(results[i]));
        first += rounds;
    }
    std::uint64_t bad = 1;
    GPU_REQUIRE(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, w.a->stream) == cudaSuccess);
    GPU_REQUIRE(cudaStreamSynchronize(w.a->stream) == cudaSuccess);
    GPU_CHECK(bad == 0);
    std::printf("    %u schedules, %llu messages each way, %u failovers and fail-backs\n", schedules,
                static_cast<unsigned long long>(first - 1) * warps, w.moves.load());
    GPU_CHECK(schedules < 10 || w.moves > 0);
}

/// The second GPU, if the two reach each other.
int other_gpu() {
    int n = 0, there = 0, back = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 2) return 0;
    if (cudaDeviceCanAccessPeer(&there, 0, 1) != cudaSuccess || cudaDeviceCanAccessPeer(&back, 1, 0) != cudaSuccess) return 0;
    (void)cudaSetDevice(1);
    if (back != 0) (void)cudaDeviceEnablePeerAccess(0, 0);
    (void)cudaSetDevice(0);
    return there != 0 && cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    (void)::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // a kernel that is loaded at its first launch would wait for the NIC's
    need_gpu();
    read_arguments(argc, argv, &schedules);
    run("kernels post to each other within one GPU", [] { between(0); });
    if (other_gpu() == 0) {
        std::puts("no second GPU that the first reaches: not run between two");
        return finish();
    }
    run("kernels on two GPUs post to each other", [] { between(1); });
    return finish();
}
