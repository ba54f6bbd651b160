#pragma once
/// \file
/// The kernel that is a NIC: block b serves the rings b, b + blocks, ... until it is told to stop. Its first thread decides, all
/// of them move bytes. What it moves is any memory that its GPU reaches: its own, another GPU's over NVLink, mapped host memory.

#include <vccl/device/gpu_nic/atomics.hpp>
#include <vccl/device/gpu_nic/runner.hpp>

namespace vccl::inline v0::device::gpu_nic_detail {

VCCL_DEVICE inline std::uint64_t global_time() noexcept {
    std::uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/// By all threads of the block. An aligned 8-byte transfer is one store, so that a signal word is never seen torn.
VCCL_DEVICE inline void copy(std::uint64_t to, std::uint64_t from, std::uint32_t bytes) noexcept {
    auto* const d = reinterpret_cast<volatile unsigned char*>(to);
    const auto* const s = reinterpret_cast<const volatile unsigned char*>(from);
    std::uint32_t at = 0;
    if ((to | from) % 16 == 0) {
        const std::uint32_t vectors = bytes / 16;
        for (std::uint32_t i = threadIdx.x; i < vectors; i += blockDim.x) {
            const uint4 v = __ldcv(reinterpret_cast<const uint4*>(from) + i);
            __stwt(reinterpret_cast<uint4*>(to) + i, v);
        }
        at = vectors * 16;
    }
    if ((to + at | from + at) % 8 == 0) {
        const std::uint32_t words = (bytes - at) / 8;
        for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x)
            reinterpret_cast<volatile std::uint64_t*>(to + at)[i] = reinterpret_cast<const volatile std::uint64_t*>(from + at)[i];
        at += words * 8;
    }
    for (std::uint32_t i = at + threadIdx.x; i < bytes; i += blockDim.x) d[i] = s[i];
}

/// By one thread.
VCCL_DEVICE inline void store_inlined(const fetched_wqe& w, std::uint64_t to, std::uint32_t bytes) noexcept {
    std::uint64_t word = 0;
    if (bytes == 8 && to % 8 == 0) {
        for (unsigned i = 0; i < 8; ++i) word |= std::uint64_t{inline_byte(w.block[0], w.block[1], i)} << (8 * i);
        *reinterpret_cast<volatile std::uint64_t*>(to) = word;
        return;
    }
    for (std::uint32_t i = 0; i < bytes; ++i)
        reinterpret_cast<volatile unsigned char*>(to)[i] = inline_byte(w.block[0], w.block[1], i);
}

/// By one thread. Atomic among the atomics of this NIC, as with verbs' IBV_ATOMIC_HCA: at the scope of its GPU, since those of the
/// system on host memory need a link that carries them (cudaDevAttrHostNativeAtomicSupported). Results of 4 bytes come
/// big-endian, those of 8 bytes in the host's order: what NVSHMEM expects of the NIC.
VCCL_DEVICE inline void carry_out(const fetched_wqe& w, const step& s) noexcept {
    if (s.bytes == 8) {
        auto* const p = reinterpret_cast<unsigned long long*>(s.to);
        unsigned long long old = *reinterpret_cast<volatile unsigned long long*>(p), seen;
        while ((seen = atomicCAS(p, old, apply(w.fields, old))) != old) old = seen;
        std::uint64_t result = old;
        for (unsigned i = 0; i < 8; ++i)
            reinterpret_cast<volatile unsigned char*>(s.from)[i] = static_cast<unsigned char>(result >> (8 * i));
        return;
    }
    auto* const p = reinterpret_cast<unsigned*>(s.to);
    unsigned old = *reinterpret_cast<volatile unsigned*>(p), seen;
    while ((seen = atomicCAS(p, old, static_cast<unsigned>(apply(w.fields, old)))) != old) old = seen;
    for (unsigned i = 0; i < 4; ++i)
        reinterpret_cast<volatile unsigned char*>(s.from)[i] = static_cast<unsigned char>(old >> (24 - 8 * i));
}

/// `runners`: one a queue, zeroed, in GPU memory.
template <unsigned Threads>  // a template, since a kernel cannot be inline
__global__ void __launch_bounds__(Threads) serve(tables t, runner* runners) {
    __shared__ step now;
    __shared__ bool go;
    for (std::uint64_t pass = 1;; ++pass) {
        if (threadIdx.x == 0) {
            go = load<order::relaxed, scope::system>(t.stop) == 0;
            // Whoever has changed a state and then sees this count rise twice knows that the change was seen.
            store<order::release, scope::system>(&t.blocks[blockIdx.x].passes, pass);
        }
        __syncthreads();
        if (!go) return;
        const std::uint32_t queues = load<order::acquire, scope::system>(t.queue_count);
        for (std::uint32_t q = blockIdx.x; q < queues; q += gridDim.x) {
            if (threadIdx.x == 0) now = runners[q].decide(t, q, global_time());
            __syncthreads();
            const step s = now;
            if (s.what == step::kind::none) {
                __syncthreads();
                continue;
            }
            if (s.what == step::kind::copy)
                copy(s.to, s.from, s.bytes);
            else if (threadIdx.x == 0 && s.what == step::kind::inlined)
                store_inlined(runners[q].current(), s.to, s.bytes);
            else if (threadIdx.x == 0)
                carry_out(runners[q].current(), s);
            __threadfence_system();  // every byte before the CQE, and before what the next WQE writes
            __syncthreads();
            if (threadIdx.x == 0) runners[q].finish(s);
            __syncthreads();
        }
        __syncthreads();
    }
}

}  // namespace vccl::inline v0::device::gpu_nic_detail
