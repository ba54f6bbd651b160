#pragma once
/// \file
/// Models of two other systems' put paths, on the same rings, for comparison: what they do to memory, in the order in which they
/// do it, written from their published device headers (NVSHMEM 3.4.5 ibgda_device.cuh; DeepEP V1 ibgda_device.cuh). Both poll a
/// collapsed completion queue: every CQE overwrites the first entry. Kernels only.

#include <vccl/device/doorbell.hpp>
#include <vccl/device/words.hpp>
#include <vccl/device/wqe.hpp>

namespace bench {

using namespace vccl::device;

/// Their management words, in GPU memory.
struct peer_queue {
    ring at;
    unsigned long long reserved, ready, produced, consumed;
    int lock;
    std::uint32_t local_key, remote_key;
    std::uint64_t window, remote;
};

__device__ inline std::uint16_t collapsed_counter(const peer_queue& q) {
    const auto* word = reinterpret_cast<const volatile std::uint32_t*>(&q.at.cq[0].word[15]);
    return tail_of(*word).wqe_index;
}

/// Waits until everything below `index` is done. `index` is a count, and the counter that of the last WQE done.
__device__ inline void peer_poll(peer_queue& q, unsigned long long index) {
    if (*reinterpret_cast<volatile unsigned long long*>(&q.consumed) >= index) return;
    while (*reinterpret_cast<volatile unsigned long long*>(&q.produced) < index) {}
    std::uint16_t counter;
    do counter = collapsed_counter(q);
    while (static_cast<std::uint16_t>(static_cast<std::uint16_t>(index) - counter - 2) < q.at.depth());
    atomicMax(&q.consumed, index);
    __threadfence_system();
}

__device__ inline void peer_write_wqe(peer_queue& q, unsigned long long index, std::uint64_t to, std::uint64_t from,
                                      std::uint32_t bytes) {
    const wqe_block b = write({q.at.qpn, static_cast<std::uint16_t>(index), wqe_flag::completion}, {q.remote + to, q.remote_key},
                              {q.window + from, q.local_key, bytes});
    auto* const slot = reinterpret_cast<uint4*>(&q.at.slot(index));
    const auto* const words = reinterpret_cast<const uint4*>(&b);
    for (int i = 0; i < 3; ++i) __stcs(slot + i, words[i]);  // they write the three segments that a WRITE has
}

/// Under the queue's lock: the record, then the doorbell.
__device__ inline void peer_ring(peer_queue& q, unsigned long long index) {
    while (atomicCAS(&q.lock, 0, 1) == 1) {}
    __threadfence();
    const unsigned long long before = atomicMax(&q.produced, index);
    if (index > before) {
        __threadfence_system();
        *reinterpret_cast<volatile std::uint32_t*>(&q.at.doorbell_record[send_record]) = encode_record(index);
        __threadfence_system();
        *reinterpret_cast<volatile std::uint64_t*>(q.at.doorbell) = encode_doorbell(index, q.at.qpn);
    }
    __threadfence();
    atomicExch(&q.lock, 0);
}

/// NVSHMEM: credit after the reservation; in-order publication by compare-and-swap; batches of 32.
struct nvshmem_model {
    peer_queue* queues;
    unsigned count;
    static constexpr bool checks_credit = true;

    __device__ void put(unsigned channel, std::uint64_t to, std::uint64_t from, std::uint32_t bytes) const {
        peer_queue& q = queues[channel % count];
        const unsigned active = __activemask(), same = __match_any_sync(active, reinterpret_cast<std::uint64_t>(&q));
        const int leader = __ffs(same) - 1, n = __popc(same);
        unsigned below;
        asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
        const int rank = __popc(same & below);
        unsigned long long base = 0;
        if (rank == 0) base = atomicAdd(&q.reserved, static_cast<unsigned long long>(n));
        base = __shfl_sync(same, base, leader);
        const unsigned long long index = base + rank;
        if (index + 1 > q.at.depth()) peer_poll(q, index + 1 - q.at.depth());
        peer_write_wqe(q, index, to, from, bytes);
        __syncwarp(same);
        if (rank == 0) {
            const unsigned long long end = base + n;
            __threadfence_system();
            while (atomicCAS(&q.ready, base, end) != base) {}
            __threadfence();
            const unsigned long long reserved = *reinterpret_cast<volatile unsigned long long*>(&q.reserved);
            if (reserved == end || n >= 32 || base / 32 != end / 32) peer_ring(q, end);
        }
        __syncwarp(same);
    }
    __device__ void flush(unsigned channel) const {
        peer_queue& q = queues[channel % count];
        peer_poll(q, *reinterpret_cast<volatile unsigned long long*>(&q.ready));
    }
};

/// DeepEP: no credit, one lane of a warp posts, and every message rings.
struct deepep_model {
    peer_queue* queues;
    unsigned count;
    static constexpr bool checks_credit = false;

    __device__ void put(unsigned channel, std::uint64_t to, std::uint64_t from, std::uint32_t bytes) const {
        peer_queue& q = queues[channel % count];
        const unsigned long long base = atomicAdd(&q.reserved, 1ull);
        peer_write_wqe(q, base, to, from, bytes);
        __threadfence_system();
        while (atomicCAS(&q.ready, base, base + 1) != base) {}
        peer_ring(q, base + 1);
    }
    __device__ void flush(unsigned channel) const {
        peer_queue& q = queues[channel % count];
        peer_poll(q, *reinterpret_cast<volatile unsigned long long*>(&q.ready));
    }
};

}  // namespace bench
