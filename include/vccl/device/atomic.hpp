#pragma once
/// \file
/// Atomic access to plain words that kernels, host threads and NICs share: `cuda::atomic_ref` in device code, the compiler's
/// atomics in host code. `scope` says who looks on: kernels only need as much as their sharing asks for, and `system` wherever
/// a CPU or a NIC takes part. On a CPU every scope is the whole system. Any thread.

#include <vccl/base/config.hpp>

#include <cstdint>
#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace vccl::inline v0::device {

/// Who looks at a word: threads of a block, of a GPU, or also CPUs and NICs.
enum class scope : std::uint8_t { block, gpu, system };
/// As std::memory_order names them, consume left out.
enum class order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

namespace detail {

#if defined(__CUDA_ARCH__)
template <scope S>
inline constexpr cuda::thread_scope cuda_scope = S == scope::block ? cuda::thread_scope_block
                                                 : S == scope::gpu ? cuda::thread_scope_device
                                                                   : cuda::thread_scope_system;
template <order O>
inline constexpr cuda::memory_order native_order = O == order::relaxed   ? cuda::memory_order_relaxed
                                                   : O == order::acquire ? cuda::memory_order_acquire
                                                   : O == order::release ? cuda::memory_order_release
                                                   : O == order::acq_rel ? cuda::memory_order_acq_rel
                                                                         : cuda::memory_order_seq_cst;
template <scope S, class T>
VCCL_DEVICE auto shared(T* p) noexcept {
    return cuda::atomic_ref<T, cuda_scope<S>>(*p);
}
#else
template <order O>
inline constexpr int native_order = O == order::relaxed   ? __ATOMIC_RELAXED
                                    : O == order::acquire ? __ATOMIC_ACQUIRE
                                    : O == order::release ? __ATOMIC_RELEASE
                                    : O == order::acq_rel ? __ATOMIC_ACQ_REL
                                                          : __ATOMIC_SEQ_CST;
#endif

}  // namespace detail

/// Requires: p is aligned to T's size; T has 4 or 8 bytes.
template <order O, scope S, class T>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE T load(const T* p) noexcept {
#if defined(__CUDA_ARCH__)
    return detail::shared<S>(const_cast<T*>(p)).load(detail::native_order<O>);
#else
    return __atomic_load_n(p, detail::native_order<O>);
#endif
}

/// Requires: p is aligned to T's size; T has 4 or 8 bytes.
template <order O, scope S, class T>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void store(T* p, T value) noexcept {
#if defined(__CUDA_ARCH__)
    detail::shared<S>(p).store(value, detail::native_order<O>);
#else
    __atomic_store_n(p, value, detail::native_order<O>);
#endif
}

/// Only on memory of the device that runs it: a GPU's read-modify-writes of host memory are not atomic with the CPU's.
template <order O, scope S, class T>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE T fetch_add(T* p, T value) noexcept {
#if defined(__CUDA_ARCH__)
    return detail::shared<S>(p).fetch_add(value, detail::native_order<O>);
#else
    return __atomic_fetch_add(p, value, detail::native_order<O>);
#endif
}

/// As fetch_add: sets bits.
template <order O, scope S, class T>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE T fetch_or(T* p, T bits) noexcept {
#if defined(__CUDA_ARCH__)
    return detail::shared<S>(p).fetch_or(bits, detail::native_order<O>);
#else
    return __atomic_fetch_or(p, bits, detail::native_order<O>);
#endif
}

/// As fetch_add: replaces.
template <order O, scope S, class T>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE T exchange(T* p, T value) noexcept {
#if defined(__CUDA_ARCH__)
    return detail::shared<S>(p).exchange(value, detail::native_order<O>);
#else
    return __atomic_exchange_n(p, value, detail::native_order<O>);
#endif
}

/// As fetch_add. False: `expected` has become what was found.
template <order O, scope S, class T>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE bool compare_exchange(T* p, T& expected, T desired) noexcept {
    constexpr order failure = O == order::release ? order::relaxed : O == order::acq_rel ? order::acquire : O;
#if defined(__CUDA_ARCH__)
    return detail::shared<S>(p).compare_exchange_strong(expected, desired, detail::native_order<O>,
                                                        detail::native_order<failure>);
#else
    return __atomic_compare_exchange_n(p, &expected, desired, false, detail::native_order<O>, detail::native_order<failure>);
#endif
}

/// A fence among accesses to different words; pairs with one like it, of the same scope or wider.
template <order O, scope S>
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void fence() noexcept {
#if defined(__CUDA_ARCH__)
    cuda::atomic_thread_fence(detail::native_order<O>, detail::cuda_scope<S>);
#else
    __atomic_thread_fence(detail::native_order<O>);
#endif
}

/// A store that follows a system-wide release of everything before it: one fence for several stores on a GPU, where it is
/// dear; on a CPU each store is a release itself, which costs nothing there.
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void release_to_system() noexcept {
#if defined(__CUDA_ARCH__)
    fence<order::acq_rel, scope::system>();
#endif
}
/// The same for stores to the posters' own memory.
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void release_to_gpu() noexcept {
#if defined(__CUDA_ARCH__)
    fence<order::acq_rel, scope::gpu>();
#endif
}
/// Ends a group of loads, each with order `acquired_later`: together they acquire. On a GPU they are under way at the same time.
VCCL_HOST_DEVICE VCCL_ALWAYS_INLINE void acquire_from_system() noexcept {
#if defined(__CUDA_ARCH__)
    fence<order::acquire, scope::system>();
#endif
}
/// Orders of a group's single stores and loads: on a GPU the fences of release_to_system and acquire_from_system do it all.
/// @{
/// `in_turn`: a read-modify-write after a fence, or after another one whose answer this thread has had. On a GPU both have been
/// carried out in the L2 cache by then, where all who look meet; a CPU has to be told to keep them in order.
#if defined(__CUDA_ARCH__)
inline constexpr order released = order::relaxed, acquired_later = order::relaxed;
inline constexpr order in_turn = order::relaxed;
#else
inline constexpr order released = order::release, acquired_later = order::acquire;
inline constexpr order in_turn = order::acq_rel;
#endif
/// @}

}  // namespace vccl::inline v0::device
