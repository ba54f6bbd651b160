#pragma once
/// \file
/// Host memory that every GPU of the process can use under the same address: rings and words that kernels share with the CPU or
/// a NIC. Needs the CUDA runtime. Any thread.

#include <vccl/device/ring_memory.hpp>

#include <cuda_runtime_api.h>

namespace vccl::inline v0::device {

/// For rings and words; not for payload in quantity.
struct mapped_memory {
    /// Zeroed; null: none is left.
    static void* allocate(std::size_t bytes) noexcept {
        void* p = nullptr;
        if (cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
            (void)cudaGetLastError();  // it would stick to the next call that asks
            return nullptr;
        }
        std::memset(p, 0, bytes);
        return p;
    }
    /// Waits for the device, as cudaFreeHost does: not under a running kernel.
    static void free(void* p) noexcept { (void)cudaFreeHost(p); }
};
static_assert(ring_memory_kind<mapped_memory>);

}  // namespace vccl::inline v0::device
