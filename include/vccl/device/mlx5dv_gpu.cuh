#pragma once
/// \file
/// Rings of a ConnectX that kernels post into: queues in mapped host memory, the doorbell register mapped for the GPU. Needs the
/// CUDA runtime, and a driver that lets GPUs reach other devices' registers. Set-up only, owner thread. Not run on hardware.

#include <vccl/device/mapped_memory.cuh>
#include <vccl/device/mlx5dv_rings.hpp>

#include <unistd.h>

namespace vccl::inline v0::device {

/// Memory and doorbells for posters on the current GPU; models doorbell_poster.
struct mapped_posts : mapped_memory {
    /// Returns: where the current GPU finds the register. `unsupported` with a problem for `problem_of`.
    VCCL_COLD static result<std::uint64_t*> map_doorbell(void* reg) noexcept {
        constexpr unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory;
        if (cudaHostRegister(page_of(reg), page(), flags) != cudaSuccess) {
            (void)cudaGetLastError();
            return as_status(why_no_doorbell());
        }
        void* there = nullptr;
        if (cudaHostGetDevicePointer(&there, reg, 0) != cudaSuccess) {
            (void)cudaGetLastError();
            unmap_doorbell(reg);
            return as_status(mlx5dv_problem::no_doorbell_mapping);
        }
        return static_cast<std::uint64_t*>(there);
    }
    /// Requires: no kernel rings it any more.
    VCCL_COLD static void unmap_doorbell(void* reg) noexcept { (void)cudaHostUnregister(page_of(reg)); }

private:
    static std::size_t page() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
    static void* page_of(void* reg) noexcept {
        return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(reg) & ~(page() - 1));
    }
};
static_assert(doorbell_poster<mapped_posts> && ring_source<mlx5dv_rings<mapped_posts>>);

}  // namespace vccl::inline v0::device
