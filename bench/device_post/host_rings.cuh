#pragma once
/// \file
/// A host ring against a model of NVSHMEM's (proxy_device.cuh): both with a consumer that takes requests and completes them at
/// once.

#include "median.cuh"

#include <vccl/device/gpu_space.cuh>
#include <vccl/device/host_ring_ref.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace bench {

using namespace vccl::device;

/// NVSHMEM: one atomicAdd in GPU memory, credit by a cached `complete`, four 8-byte words for a put with the lap's flag in the
/// low byte of each.
struct proxy_model {
    unsigned long long* issue;     // GPU memory
    unsigned long long* cached;    // GPU memory
    std::uint64_t* ring;           // host memory
    volatile std::uint64_t* complete;  // host memory, by the proxy
    std::uint32_t size_log;        // of 8-byte words

    __device__ void put(std::uint64_t to, std::uint64_t from, std::uint32_t bytes, std::uint16_t channel) const {
        const unsigned long long at = atomicAdd(issue, 4ull), size = 1ull << size_log;
        if (at + 4 - *reinterpret_cast<volatile unsigned long long*>(cached) > size) {
            unsigned long long seen;
            do seen = *complete;
            while (at + 4 - seen > size);
            atomicMax(cached, seen);
        }
        const auto store_word = [&](unsigned i, std::uint64_t payload) {
            const unsigned long long index = at + i;
            *reinterpret_cast<volatile std::uint64_t*>(&ring[index & (size - 1)]) = payload << 8 | ((index >> size_log & 1) ^ 1);
        };
        __threadfence_system();
        store_word(0, to << 16 | 1);
        store_word(1, from);
        store_word(2, std::uint64_t{bytes} << 8);
        store_word(3, std::uint64_t{channel} << 16);
    }
    __device__ void flush() const {
        const unsigned long long upto = *reinterpret_cast<volatile unsigned long long*>(issue);
        while (*complete < upto) {}
        __threadfence_system();
    }
};

__global__ void post_requests(host_ring_ref<queue_policy<>> tx, unsigned puts) {
    for (unsigned i = 0; i < puts; ++i) (void)tx.put(vccl::warp_scope{}, 8 * i, 8 * i, 8);
    (void)tx.flush(vccl::warp_scope{});
}
__global__ void post_requests(proxy_model tx, unsigned puts) {
    for (unsigned i = 0; i < puts; ++i) {
        if (threadIdx.x % 32 == 0) tx.put(8 * i, 8 * i, 8, 0);
        __syncwarp();
    }
    if (threadIdx.x % 32 == 0) tx.flush();
}
template <class Ring>
__global__ void one_request(Ring tx, unsigned rounds) {
    for (unsigned i = 0; i < rounds; ++i) {
        if constexpr (std::is_same_v<Ring, proxy_model>) {
            tx.put(0, 0, 8, 0);
            tx.flush();
        } else {
            (void)tx.put(vccl::thread_scope{}, 0, 0, 8);
            (void)tx.flush(vccl::thread_scope{});
        }
    }
}

/// Takes words as they come, a flag at a time, and says so: in batches of what is there.
template <class Tell>
struct taker {
    const std::uint64_t* ring;
    std::uint32_t size_log;
    Tell tell;
    std::atomic<bool> stop{};
    std::thread thread{[this] {
        std::uint64_t head = 0;
        while (!stop) {
            const std::uint64_t before = head;
            while (head - before < 256 &&
                   (load<order::acquire, scope::system>(&ring[head & ((1u << size_log) - 1)]) & 1) == lap_flag(head, size_log))
                ++head;
            if (head != before) tell(head);
        }
    }};
    taker(const std::uint64_t* r, std::uint32_t log, Tell t) : ring(r), size_log(log), tell(t) {}
    ~taker() {
        stop = true;
        thread.join();
    }
};

template <class Ring>
void measure_requests(const char* name, const Ring& tx) {
    for (const unsigned warps : {1u, 8u, 32u}) {
        const unsigned n = 2000;
        const double ms = median_ms([&] { post_requests<<<warps, 32>>>(tx, n); });
        std::printf("%-22s host ring, warp scope, %2u warps  %8.3f M requests/s\n", name, warps, double(n) * warps / ms / 1000);
    }
    std::printf("%-22s host ring, put + flush, one thread: %.2f us\n", name, median_ms([&] { one_request<<<1, 1>>>(tx, 1000); }));
}

inline void measure_host_rings(gpu_link& link) {
    constexpr std::uint32_t log = 13;
    struct page {
        host_ring_head head;
        channel_words channel;
        host_words host;
    };
    {
        auto* const ring = static_cast<std::uint64_t*>(mapped_memory::allocate(8u << log));
        auto* const p = static_cast<page*>(mapped_memory::allocate(sizeof(page)));
        auto* const words = static_cast<host_ring_words*>(link.allocate(sizeof(host_ring_words)));
        const std::uint64_t cursor = ring_cursor{0, 1u << log}.pack();
        link.copy_in(&words->cursor, &cursor, 8);
        const host_ring_view v{words, ring, log, 1, &p->head, &p->channel, nullptr, &p->host, nullptr};
        {
            taker t(ring, log, [p](std::uint64_t head) {
                store<order::release, scope::system>(&p->channel.done, head);
                store<order::release, scope::system>(&p->head.consumed, head);
            });
            measure_requests("vccl", host_ring_ref<queue_policy<>>(v, 0, 10'000'000'000));
        }
        mapped_memory::free(ring);
        mapped_memory::free(p);
        (void)cudaFree(words);
    }
    auto* const ring = static_cast<std::uint64_t*>(mapped_memory::allocate(8u << log));
    auto* const complete = static_cast<std::uint64_t*>(mapped_memory::allocate(8));
    auto* const words = static_cast<unsigned long long*>(link.allocate(256));
    {
        taker t(ring, log, [complete](std::uint64_t head) { store<order::release, scope::system>(complete, head); });
        measure_requests("NVSHMEM (model)", proxy_model{words, words + 16, ring, complete, log});
    }
    mapped_memory::free(ring);
    mapped_memory::free(complete);
    (void)cudaFree(words);
}

}  // namespace bench
