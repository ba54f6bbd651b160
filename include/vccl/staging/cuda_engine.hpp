#pragma once
/// \file
/// A copy engine of CUDA: cudaMemcpyAsync between GPU memory and page-locked host memory on a stream of its own, which the
/// GPU's copy engines carry out: no kernel runs. A held stream waits for a word in host memory (cuStreamWaitValue64).
/// Needs the CUDA runtime, not nvcc. Threads: see copy_engine.hpp.

#include <vccl/base/clock.hpp>
#include <vccl/base/owned.hpp>
#include <vccl/staging/copy_engine.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>

namespace vccl::inline v0 {

namespace detail {

/// CUDA's error as a status; the number is in `detail`. Clears it, unless it is one that stays.
inline status cuda_status(cudaError_t e, errc otherwise = errc::io_error) noexcept {
    if (e == cudaSuccess) return {};
    (void)cudaGetLastError();
    switch (e) {
        case cudaErrorMemoryAllocation: return status{errc::no_memory, static_cast<std::uint32_t>(e)};
        case cudaErrorNoDevice:
        case cudaErrorInvalidDevice:
        case cudaErrorInsufficientDriver: return status{errc::no_device, static_cast<std::uint32_t>(e)};
        default: return status{otherwise, static_cast<std::uint32_t>(e)};
    }
}

/// A function of the driver, found through the runtime so that nobody links the driver.
template <class F>
F driver_function(const char* name) noexcept {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found{};
    if (cudaGetDriverEntryPointByVersion(name, &f, 12000, cudaEnableDefault, &found) != cudaSuccess) (void)cudaGetLastError();
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<F>(f) : nullptr;
}
using stream_wait_value = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
using address_range = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);

/// Makes a device current, and the caller's own again. The driver's functions need that even where it is the same: a thread
/// that has called nothing yet has no context.
class current_device {
public:
    explicit current_device(int device) noexcept {
        if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
        set_ = cudaSetDevice(device);
    }
    current_device(const current_device&) = delete;
    ~current_device() {
        if (before_ >= 0) (void)cudaSetDevice(before_);
    }
    status ok() const noexcept { return cuda_status(set_, errc::no_device); }

private:
    int before_{-1};
    cudaError_t set_{};
};

}  // namespace detail

/// The copy engines of one GPU. Move-only.
class cuda_engine {
public:
    using stream = cudaStream_t;  ///< the user's streams that transfers can follow

    /// Errors: no_device; unsupported if the driver cannot hold streams; no_memory.
    static result<cuda_engine> create(int device) {
        const detail::current_device current(device);
        if (const status s = current.ok(); !s) return s;
        owned<state> made(new (std::nothrow) state);
        if (!made) return errc::no_memory;
        state& x = *made;
        x.device = device;
        x.wait_value = detail::driver_function<detail::stream_wait_value>("cuStreamWaitValue64");
        x.range = detail::driver_function<detail::address_range>("cuMemGetAddressRange");
        if (!x.wait_value || !x.range) return errc::unsupported;
        cudaError_t e = cudaStreamCreateWithFlags(&x.copies, cudaStreamNonBlocking);
        for (unsigned i = 0; e == cudaSuccess && i < copies_in_flight; ++i) {
            e = cudaEventCreateWithFlags(&x.copied[i], cudaEventDisableTiming);
            if (e == cudaSuccess) e = cudaEventCreateWithFlags(&x.marked[i], cudaEventDisableTiming);
        }
        void* word = nullptr;
        if (e == cudaSuccess) e = cudaHostAlloc(&word, sizeof(std::uint64_t), cudaHostAllocPortable | cudaHostAllocMapped);
        if (e != cudaSuccess) return detail::cuda_status(e);
        x.word = ::new (word) std::uint64_t{0};
        void* on_device = nullptr;
        if (e = cudaHostGetDevicePointer(&on_device, word, 0); e != cudaSuccess) return detail::cuda_status(e);
        x.word_address = reinterpret_cast<CUdeviceptr>(on_device);
        return cuda_engine(std::move(made));
    }

    /// As `copy_engine` and `pins_memory` ask; the memory is page-locked, and copies run on a stream of the engine's own. A stream that CUDA
    /// refuses, as another GPU's, is invalid_argument with CUDA's number; one that was destroyed is the caller's mistake.
    /// @{
    result<staging_buffer> allocate(std::size_t bytes) noexcept {
        void* p = nullptr;
        if (const cudaError_t e = cudaHostAlloc(&p, bytes, cudaHostAllocPortable); e != cudaSuccess)
            return detail::cuda_status(e);
        return staging_buffer(static_cast<std::byte*>(p), bytes, [](void* q) noexcept { (void)cudaFreeHost(q); });
    }
    result<staging_buffer> pin(std::byte* p, std::size_t bytes) noexcept {
        if (const cudaError_t e = cudaHostRegister(p, bytes, cudaHostRegisterPortable); e != cudaSuccess)
            return detail::cuda_status(e);
        return staging_buffer(p, bytes, [](void* q) noexcept { (void)cudaHostUnregister(q); });
    }
    status check(const void* p, std::size_t bytes) noexcept {
        cudaPointerAttributes a{};
        const cudaError_t e = cudaPointerGetAttributes(&a, p);
        if (e != cudaSuccess) return detail::cuda_status(e, errc::invalid_argument);
        const bool of_gpu = a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
        if (!of_gpu || a.device != state_->device) return errc::invalid_argument;
        const detail::current_device current(state_->device);  // the driver knows the allocations of the current one
        CUdeviceptr base{};
        std::size_t size{};
        const auto at = reinterpret_cast<CUdeviceptr>(p);
        if (state_->range(&base, &size, at) != CUDA_SUCCESS) return errc::invalid_argument;
        return bytes <= size - (at - base) ? errc::ok : errc::out_of_range;
    }

    result<std::uint64_t> read(void* host, const void* device, std::size_t bytes) noexcept {
        return begin(host, device, bytes, cudaMemcpyDeviceToHost);
    }
    result<std::uint64_t> write(void* device, const void* host, std::size_t bytes) noexcept {
        return begin(device, host, bytes, cudaMemcpyHostToDevice);
    }
    result<bool> done(std::uint64_t n) noexcept {
        state& x = *state_;
        if (n < x.done) return true;
        const nanoseconds now = steady_clock{}.now();
        if (now < x.ask_at) return false;
        const cudaError_t e = cudaEventQuery(x.copied[n % copies_in_flight]);
        if (e == cudaErrorNotReady) {
            (void)cudaGetLastError();
            x.ask_at = now + between_questions;
            return false;
        }
        if (e != cudaSuccess) return detail::cuda_status(e);
        x.done = n + 1;
        return true;
    }

    result<std::uint64_t> mark(stream s) noexcept {
        state& x = *state_;
        const cudaError_t e = cudaEventRecord(x.marked[x.marks % copies_in_flight], s);
        return e == cudaSuccess ? result<std::uint64_t>(x.marks++) : detail::cuda_status(e, errc::invalid_argument);
    }
    status follow(std::uint64_t mark) noexcept {
        return detail::cuda_status(cudaStreamWaitEvent(state_->copies, state_->marked[mark % copies_in_flight], 0));
    }
    status hold(stream s, std::uint64_t n) noexcept {
        const detail::current_device current(state_->device);
        const CUresult r = state_->wait_value(s, state_->word_address, n, CU_STREAM_WAIT_VALUE_GEQ);
        return r == CUDA_SUCCESS ? status{} : status{errc::invalid_argument, static_cast<std::uint32_t>(r)};
    }
    /// The copies before it have ended, as seen by done(); the store lets go of streams that read what they copied.
    void release(std::uint64_t n) noexcept {
        if (!state_) return;
        const std::atomic_ref word(*state_->word);
        if (word.load(std::memory_order_relaxed) < n) word.store(n, std::memory_order_release);
    }
    /// @}

private:
    /// CUDA answers under a lock that all threads of the device need to begin copies, too.
    static constexpr nanoseconds between_questions{2'000};

    struct state {
        int device{};
        cudaStream_t copies{};
        cudaEvent_t copied[copies_in_flight]{}, marked[copies_in_flight]{};
        std::uint64_t* word{};  ///< what held streams wait for: numbers up to it are released
        CUdeviceptr word_address{};
        detail::stream_wait_value wait_value{};
        detail::address_range range{};
        std::uint64_t begun{}, done{}, marks{};
        nanoseconds ask_at{};

        state() = default;
        state(const state&) = delete;
        /// Waits for the copies: their memory goes next.
        ~state() {
            if (copies) (void)cudaStreamSynchronize(copies);
            for (unsigned i = 0; i < copies_in_flight; ++i) {
                if (copied[i]) (void)cudaEventDestroy(copied[i]);
                if (marked[i]) (void)cudaEventDestroy(marked[i]);
            }
            if (copies) (void)cudaStreamDestroy(copies);
            if (word) (void)cudaFreeHost(word);
        }
    };
    explicit cuda_engine(owned<state> s) noexcept : state_(std::move(s)) {}

    /// The direction is said, not guessed: memory that was freed meanwhile would be taken for the host's, and touched.
    result<std::uint64_t> begin(void* to, const void* from, std::size_t bytes, cudaMemcpyKind direction) noexcept {
        state& x = *state_;
        cudaError_t e = bytes == 0 ? cudaSuccess : cudaMemcpyAsync(to, from, bytes, direction, x.copies);
        if (e == cudaSuccess) e = cudaEventRecord(x.copied[x.begun % copies_in_flight], x.copies);
        return e == cudaSuccess ? result<std::uint64_t>(x.begun++) : detail::cuda_status(e);
    }

    owned<state> state_;
};
static_assert(copy_engine<cuda_engine> && pins_memory<cuda_engine>);

}  // namespace vccl::inline v0
