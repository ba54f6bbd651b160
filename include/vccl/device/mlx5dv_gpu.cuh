#pragma once
/// \file
/// Rings of a ConnectX that kernels post into: queues in mapped host memory or in the GPU's, the doorbell register mapped for the
/// GPU. Needs the CUDA runtime, and a driver that lets GPUs reach other devices' registers. Set-up only, owner thread. Not run on
/// hardware.

#include <vccl/device/devx_rings.hpp>
#include <vccl/device/mapped_memory.cuh>
#include <vccl/device/mlx5dv_rings.hpp>
#include <vccl/staging/cuda_memory.hpp>

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

/// Memory of the current GPU, and doorbells for posters on it; models devx_poster.
struct gpu_posts {
    /// Zeroed, on a page of its own; null: none is left.
    VCCL_COLD static void* allocate(std::size_t bytes) noexcept {
        void* p = nullptr;
        if (cudaMalloc(&p, bytes) == cudaSuccess && cudaMemset(p, 0, bytes) == cudaSuccess) return p;
        (void)cudaGetLastError();
        if (p != nullptr) (void)cudaFree(p);
        return nullptr;
    }
    /// Waits for the device, as cudaFree does: not under a running kernel.
    VCCL_COLD static void free(void* p) noexcept { (void)cudaFree(p); }
    /// The dma-buf of the allocation, if driver and GPU give one.
    VCCL_COLD static dmabuf_range share(void* p, std::size_t bytes) noexcept {
        const auto exported = vccl::detail::export_dmabuf(p, bytes);
        return exported ? dmabuf_range{exported->fd, exported->offset} : dmabuf_range{};
    }
    /// Past a running kernel; waits for the copy.
    VCCL_COLD static bool copy_in(void* to, const void* from, std::size_t bytes) noexcept {
        cudaStream_t stream{};
        if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return false;
        const bool good = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
                          cudaStreamSynchronize(stream) == cudaSuccess;
        (void)cudaStreamDestroy(stream);
        return good;
    }
    /// As mapped_posts'.
    /// @{
    VCCL_COLD static result<std::uint64_t*> map_doorbell(void* reg) noexcept { return mapped_posts::map_doorbell(reg); }
    VCCL_COLD static void unmap_doorbell(void* reg) noexcept { mapped_posts::unmap_doorbell(reg); }
    /// @}
};
static_assert(devx_poster<gpu_posts> && ring_source<devx_rings<gpu_posts>>);

}  // namespace vccl::inline v0::device
