#pragma once
/// \file
/// Kernels that go on sending while a port dies and comes back, at times that a seed decides: no byte lost, no signal lost or
/// doubled, nobody stuck.

#include "world.cuh"

namespace vccl_gpu_test::storm {

inline constexpr unsigned warps = 8, piece = 256;

/// Each warp counts up its own signal word, from where the last kernel left it, and all of a queue add to the queue's sum, until
/// the host says stop. `counts`: how far each warp has got.
template <class Ref>
__global__ void keep_sending(Ref all, std::uint64_t* out, std::uint64_t* counts, const std::uint64_t* stop, unsigned piece) {
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const auto tx = all.channel(warp);
    const std::uint64_t base = std::uint64_t{warp} * 64 * piece;
    device_result worst{};
    std::uint64_t old = 0, least = 0;
    const auto keep = [&worst](device_result r) {
        if (!r) worst = r;
    };
    std::uint64_t i = counts[warp];
    for (bool over = false; !over;) {
        ++i;
        const std::uint64_t at = base + i % 64 * piece;
        keep(tx.put_signal(warp_scope{}, at, at, piece, warp, i));
        keep(tx.fetch_add(warp_scope{}, 24 + warp % all.channels(), i, old));
        if (old < least) worst = {outcome::error};  // others add in between, and nobody takes away
        least = old + i;
        if (i % 32 == 0) {
            keep(tx.flush(warp_scope{}));
            over = warp_scope::broadcast(device::load<device::order::relaxed, device::scope::system>(stop)) != 0 || !worst;
        }
    }
    keep(tx.flush(warp_scope{}));
    if (threadIdx.x % 32 == 0) {
        out[warp] = device::pack(worst);
        counts[warp] = i;
    }
}

/// A port dies in the middle of a running kernel, and comes back or not, at times that a seed decides.
template <class World, class Ref>
void run(World& w, const Ref& ref, unsigned schedules) {
    std::uint64_t random = 0x9e3779b97f4a7c15u, begun[warps]{};
    results counts(warps);  // never begins anew: signal words only grow
    const auto roll = [&](unsigned below) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<unsigned>((random >> 11) % below);
    };
    unsigned moved_schedules = 0;
    std::uint64_t sent = 0;
    for (unsigned s = 0; s < schedules; ++s) {
        std::memset(w.in.bytes, 0, w.in.size);
        const unsigned before = w.failed_over;
        results r(warps), stop(1);
        for (unsigned i = 0; i < warps; ++i) begun[i] = counts.word[i];
        keep_sending<<<4, 64>>>(ref, r.word, counts.word, stop.word, piece);
        static const char* const ports[] = {"A.nic0.p0", "A.nic0.p1", "B.nic0.p0", "B.nic0.p1"};
        const std::string port = ports[roll(4)];
        sleep_us(100 + roll(2000));
        GPU_CHECK(w.command("down " + port));
        sleep_us(roll(8000));
        GPU_CHECK(w.command("up " + port));
        sleep_us(roll(70000));  // often enough for the lane to be rebuilt, settled and returned to
        __atomic_store_n(stop.word, std::uint64_t{1}, __ATOMIC_RELEASE);
        GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        moved_schedules += w.failed_over != before;
        GPU_REQUIRE(r.bad() == 0);
        std::uint64_t sums[2]{};
        for (unsigned i = 0; i < warps; ++i) {
            const std::uint64_t n = counts.word[i];
            sent += n - begun[i];
            sums[i % 2] += n * (n + 1) / 2;
            GPU_REQUIRE_EQUAL(w.signal(i), n);
        }
        GPU_REQUIRE_EQUAL(w.signal(24), sums[0]);
        GPU_REQUIRE_EQUAL(w.signal(25), sums[1]);
        std::size_t wrong = 0;
        for (unsigned i = 0; i < warps; ++i)
            for (std::uint64_t k = begun[i] + 1; k <= counts.word[i] && k <= begun[i] + 64; ++k) {
                const std::size_t at = (i * 64 + k % 64) * piece;
                wrong += std::memcmp(w.in.bytes + at, w.out.bytes + at, piece) != 0;
            }
        GPU_REQUIRE(wrong == 0);
    }
    std::printf(
        "    %u schedules, in %u of them the queues moved while the kernel ran; %u failovers, %u fail-backs, %llu rounds\n",
        schedules, moved_schedules, w.failed_over.load(), w.failed_back.load(), static_cast<unsigned long long>(sent));
    GPU_CHECK(moved_schedules * 4 > schedules);
}

}  // namespace vccl_gpu_test::storm
