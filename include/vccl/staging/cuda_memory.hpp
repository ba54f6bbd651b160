#pragma once
/// \file
/// GPU memory registered directly, through a dma-buf, so that the NIC reads and writes it (GPUDirect RDMA) and nothing is
/// staged. Set-up thread. Not run on a NIC.

#include <vccl/host/context.hpp>
#include <vccl/staging/cuda_engine.hpp>

#include <unistd.h>

namespace vccl::inline v0 {

/// A registration of GPU memory, and the dma-buf behind it: ports that the context opens later need it, too.
class device_memory {
public:
    /// Made by register_device; `fd` is closed with it.
    device_memory(memory m, int fd) noexcept : memory_(std::move(m)), fd_(fd) {}
    /// `o` owns nothing afterwards.
    device_memory(device_memory&& o) noexcept : memory_(std::move(o.memory_)), fd_(std::exchange(o.fd_, -1)) {}
    device_memory(const device_memory&) = delete;
    ~device_memory() {
        memory_ = memory{};
        if (fd_ >= 0) (void)::close(fd_);
    }
    /// The registration: views are taken from it as from any other.
    /// @{
    memory& operator*() noexcept { return memory_; }
    memory* operator->() noexcept { return &memory_; }
    /// @}

private:
    memory memory_;
    int fd_;
};

namespace detail {
/// Where a piece of GPU memory lies in the dma-buf of its allocation.
struct exported_memory {
    int fd{-1};              ///< the caller's to close
    std::uint64_t offset{};
};
/// The dma-buf of the allocation in which [p, p + bytes) lies. Errors: as register_device.
VCCL_COLD inline result<exported_memory> export_dmabuf(void* p, std::uint64_t bytes) noexcept {
    using range_handle = CUresult (*)(void*, CUdeviceptr, std::size_t, CUmemRangeHandleType, unsigned long long);
    const auto range = driver_function<address_range>("cuMemGetAddressRange");
    const auto handle = driver_function<range_handle>("cuMemGetHandleForAddressRange");
    if (!range || !handle) return errc::unsupported;
    cudaPointerAttributes found{};
    if (const cudaError_t e = cudaPointerGetAttributes(&found, p); e != cudaSuccess)
        return cuda_status(e, errc::invalid_argument);
    if (found.type != cudaMemoryTypeDevice) return errc::invalid_argument;
    const current_device current(found.device);
    const auto at = reinterpret_cast<CUdeviceptr>(p);
    CUdeviceptr base{};
    std::size_t size{};
    if (range(&base, &size, at) != CUDA_SUCCESS) return errc::invalid_argument;
    if (bytes > size - (at - base)) return errc::out_of_range;
    exported_memory made{-1, at - base};
    if (handle(&made.fd, base, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS) return errc::unsupported;
    return made;
}
}  // namespace detail

/// Registers [p, p + bytes) of GPU memory with every port of the context; a receive there counts only once it is flushed.
/// Of any GPU, whichever is current. Errors: unsupported if the backend, the driver or the GPU has no dma-buf: use staging;
/// invalid_argument, out_of_range: no GPU memory, or beyond its allocation; otherwise as registering host memory.
template <verbs_backend B>
VCCL_COLD result<device_memory> register_device(host_context<B>& context, void* p, std::uint64_t bytes) {
    if constexpr (!B::capabilities.dmabuf) {
        return errc::unsupported;
    } else {
        const auto exported = detail::export_dmabuf(p, bytes);
        if (!exported) return exported.error();
        auto m = context.register_dmabuf(exported->fd, exported->offset, reinterpret_cast<std::uintptr_t>(p), bytes);
        if (m) return device_memory(std::move(*m), exported->fd);
        (void)::close(exported->fd);
        return m.error();
    }
}

}  // namespace vccl::inline v0
