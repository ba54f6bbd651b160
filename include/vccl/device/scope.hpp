#pragma once
/// \file
/// Who calls a device operation together: one thread, a warp, a block. All threads of the scope call it with equal arguments
/// and get equal results. In a host build each scope is the one thread that runs it.

#include <vccl/base/config.hpp>

#include <cstdint>

namespace vccl::inline v0 {

/// One thread for itself. Threads of a warp that post on one queue at the same time share a reservation and a doorbell.
struct thread_scope {
    /// One thread: the first, in step with itself.
    /// @{
    VCCL_HOST_DEVICE static constexpr unsigned rank() noexcept { return 0; }
    VCCL_HOST_DEVICE static constexpr void sync() noexcept {}
    VCCL_HOST_DEVICE static constexpr std::uint64_t broadcast(std::uint64_t w) noexcept { return w; }
    /// @}
    /// Effects: `act()`. Returns its result.
    template <class Act>
    VCCL_HOST_DEVICE static std::uint64_t lead(Act&& act) {
        return act();
    }
};

/// The 32 threads of a warp. Its first thread posts.
struct warp_scope {
    /// Effects: `act()` by the first thread, after what all did before the call. Returns its result, to all.
    template <class Act>
    VCCL_HOST_DEVICE static std::uint64_t lead(Act&& act) {
        sync();
        std::uint64_t w = 0;
        if (rank() == 0) w = act();
        return broadcast(w);
    }
#if defined(__CUDA_ARCH__)
    __device__ static unsigned rank() noexcept {
        unsigned lane;
        asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        return lane;
    }
    __device__ static void sync() noexcept { __syncwarp(); }
    __device__ static std::uint64_t broadcast(std::uint64_t w) noexcept { return __shfl_sync(0xffffffff, w, 0); }
#else
    /// In a host build: one thread.
    /// @{
    VCCL_HOST_DEVICE static constexpr unsigned rank() noexcept { return 0; }
    VCCL_HOST_DEVICE static constexpr void sync() noexcept {}
    VCCL_HOST_DEVICE static constexpr std::uint64_t broadcast(std::uint64_t w) noexcept { return w; }
    /// @}
#endif
};

/// All threads of a block. Its first thread posts.
struct block_scope {
#if defined(__CUDA_ARCH__)
    __device__ static unsigned rank() noexcept { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    __device__ static void sync() noexcept { __syncthreads(); }
    __device__ static std::uint64_t broadcast(std::uint64_t w) noexcept {
        __shared__ std::uint64_t word;
        __syncthreads();  // nobody still reads what an earlier broadcast left
        if (rank() == 0) word = w;
        __syncthreads();
        return word;
    }
    template <class Act>
    __device__ static std::uint64_t lead(Act&& act) {
        __shared__ std::uint64_t word;
        __syncthreads();  // also: nobody still reads what an earlier call left
        if (rank() == 0) word = act();
        __syncthreads();
        return word;
    }
#else
    /// As warp_scope::lead.
    template <class Act>
    VCCL_HOST_DEVICE static std::uint64_t lead(Act&& act) {
        return act();
    }
    /// In a host build: one thread.
    /// @{
    VCCL_HOST_DEVICE static constexpr unsigned rank() noexcept { return 0; }
    VCCL_HOST_DEVICE static constexpr void sync() noexcept {}
    VCCL_HOST_DEVICE static constexpr std::uint64_t broadcast(std::uint64_t w) noexcept { return w; }
    /// @}
#endif
};

namespace device {

/// The threads of a warp that have come to one place with one and the same queue, `limit` of them at most: they reserve, write
/// and ring together. The others come again.
class coalesced {
public:
#if defined(__CUDA_ARCH__)
    __device__ coalesced(const void* queue, unsigned limit) noexcept
        : mask_(__match_any_sync(__activemask(), reinterpret_cast<std::uint64_t>(queue))) {
        unsigned below;
        asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
        rank_ = __popc(mask_ & below);
        size_ = __popc(mask_);
        takes_part_ = rank_ < limit;
        if (size_ > limit) [[unlikely]] {
            mask_ = __ballot_sync(mask_, takes_part_);
            size_ = limit;
        }
    }
    __device__ bool takes_part() const noexcept { return takes_part_; }
    __device__ unsigned rank() const noexcept { return rank_; }
    __device__ unsigned size() const noexcept { return size_; }
    __device__ void sync() const noexcept { __syncwarp(mask_); }
    __device__ std::uint64_t broadcast(std::uint64_t w) const noexcept { return __shfl_sync(mask_, w, __ffs(mask_) - 1); }

private:
    unsigned mask_, rank_, size_;
    bool takes_part_;
#else
    /// A host build has no warps to look through.
    VCCL_HOST_DEVICE coalesced(const void*, unsigned) noexcept {}
    /// In a host build: one thread.
    /// @{
    VCCL_HOST_DEVICE static constexpr bool takes_part() noexcept { return true; }
    VCCL_HOST_DEVICE static constexpr unsigned rank() noexcept { return 0; }
    VCCL_HOST_DEVICE static constexpr unsigned size() noexcept { return 1; }
    VCCL_HOST_DEVICE static constexpr void sync() noexcept {}
    VCCL_HOST_DEVICE static constexpr std::uint64_t broadcast(std::uint64_t w) noexcept { return w; }
    /// @}
#endif
};

/// One thread, alone.
struct single {
    /// One thread: the first of one, in step with itself.
    /// @{
    VCCL_HOST_DEVICE static constexpr unsigned rank() noexcept { return 0; }
    VCCL_HOST_DEVICE static constexpr unsigned size() noexcept { return 1; }
    VCCL_HOST_DEVICE static constexpr void sync() noexcept {}
    VCCL_HOST_DEVICE static constexpr std::uint64_t broadcast(std::uint64_t w) noexcept { return w; }
    /// @}
};

}  // namespace device

}  // namespace vccl::inline v0
