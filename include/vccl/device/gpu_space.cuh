#pragma once
/// \file
/// Queues whose posters are kernels: their words in the memory of one GPU, all that the CPU shares with them in mapped host
/// memory. The service reads and writes GPU words by copies on a stream of its own, which pass a running kernel. Needs the CUDA
/// runtime. `gpu_link` is made by the set-up thread; after that the service thread uses it.

#include <vccl/base/owned.hpp>
#include <vccl/base/status.hpp>
#include <vccl/device/mapped_memory.cuh>
#include <vccl/device/space.hpp>

namespace vccl::inline v0::device {

/// A way for words into one GPU's memory and out of it.
class gpu_link {
public:
    /// Errors: no_device (no such GPU, or no driver), no_memory.
    VCCL_COLD static vccl::result<owned<gpu_link>> open(int device) noexcept {
        owned<gpu_link> made(new (std::nothrow) gpu_link);
        int before = 0;
        if (!made) return errc::no_memory;
        if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) return forget(errc::no_device);
        made->device_ = device;
        const bool good = cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking) == cudaSuccess &&
                          cudaHostAlloc(&made->staging_, line, cudaHostAllocPortable) == cudaSuccess;
        (void)cudaSetDevice(before);
        if (!good) return forget(errc::no_memory);
        return made;
    }
    gpu_link(const gpu_link&) = delete;
    ~gpu_link() {
        if (stream_) (void)cudaStreamDestroy(stream_);
        if (staging_) (void)cudaFreeHost(staging_);
    }

    /// Memory of the GPU that the link was made for, zeroed; null: none is left.
    VCCL_COLD void* allocate(std::size_t bytes) noexcept {
        int before = 0;
        void* p = nullptr;
        (void)cudaGetDevice(&before);
        (void)cudaSetDevice(device_);
        const bool good = cudaMalloc(&p, bytes) == cudaSuccess && cudaMemsetAsync(p, 0, bytes, stream_) == cudaSuccess &&
                          cudaStreamSynchronize(stream_) == cudaSuccess;
        (void)cudaSetDevice(before);
        if (good) return p;
        (void)cudaGetLastError();
        if (p) (void)cudaFree(p);
        return nullptr;
    }
    /// To the GPU, past a running kernel; waits for the copy.
    void copy_in(void* to, const void* from, std::size_t bytes) noexcept {
        for (std::size_t at = 0; at < bytes; at += line) {
            const std::size_t n = bytes - at < line ? bytes - at : line;
            std::memcpy(staging_, static_cast<const std::byte*>(from) + at, n);
            (void)cudaMemcpyAsync(static_cast<std::byte*>(to) + at, staging_, n, cudaMemcpyHostToDevice, stream_);
            (void)cudaStreamSynchronize(stream_);
        }
    }
    /// From the GPU, past a running kernel; waits for the copy.
    template <class Word>
    Word copy_out(const Word* from) noexcept {
        (void)cudaMemcpyAsync(staging_, from, sizeof(Word), cudaMemcpyDeviceToHost, stream_);
        (void)cudaStreamSynchronize(stream_);
        Word w{};
        std::memcpy(&w, staging_, sizeof w);
        return w;
    }

private:
    static constexpr std::size_t line = 4096;
    gpu_link() = default;
    VCCL_COLD static errc forget(errc e) noexcept {
        (void)cudaGetLastError();
        return e;
    }

    cudaStream_t stream_{};
    void* staging_{};
    int device_{};
};

/// A handle: copies go through the link, which must outlive the endpoint.
struct gpu_space {
    using policy_axis = axis::space;
    using shared = mapped_memory;  ///< what CPU and kernels share

    gpu_link* link{};  ///< null: allocate_local gives nothing, and set-up fails with no_memory

    /// As `queue_space` asks; each but the first two is a copy and its end.
    /// @{
    void* allocate_local(std::size_t bytes) noexcept { return link ? link->allocate(bytes) : nullptr; }
    static void free_local(void* p) noexcept { (void)cudaFree(p); }
    template <class Word>
    Word read(const Word* p) const noexcept {
        return link->copy_out(p);
    }
    void write(std::uint64_t* p, std::uint64_t value) const noexcept { link->copy_in(p, &value, sizeof value); }
    void upload(void* to, const void* from, std::size_t bytes) const noexcept { link->copy_in(to, from, bytes); }
    /// @}
};
static_assert(queue_space<gpu_space>);

/// The same where the rings lie in a GPU's memory, too: `gpu_nic<Backend, gpu_rings>`.
struct gpu_ring_space : gpu_space {
    static constexpr bool rings_are_local = true;  ///< the service reaches rings by copies
};
static_assert(queue_space<gpu_ring_space>);

}  // namespace vccl::inline v0::device
