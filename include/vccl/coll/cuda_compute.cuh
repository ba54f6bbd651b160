#pragma once
/// \file
/// A GPU as the one who touches elements: kernels on a stream of its own combine what arrived with one's own, while other
/// pieces are on the wire. The bits are those of `cpu_compute`. Buffers: memory that this GPU reaches, so its own (with staged
/// ends, or registered with the NIC), or page-locked host memory. Compiled by nvcc; owner thread of the collective only.

#include <vccl/base/owned.hpp>
#include <vccl/coll/compute.hpp>
#include <vccl/staging/cuda_engine.hpp>

namespace vccl::inline v0 {

namespace detail {

/// `vectors` times 16 bytes, then the elements behind them. `to` may be `a` or `b`: a thread writes only what it alone has read.
template <class Element, reduce_op Op>
__global__ void reduce_kernel(typename Element::stored* to, const typename Element::stored* a, const typename Element::stored* b,
                              std::uint64_t vectors, std::uint64_t count) {
    constexpr unsigned in_vector = 16 / sizeof(typename Element::stored);
    const auto stride = std::uint64_t{gridDim.x} * blockDim.x, own = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    auto* const to_vector = reinterpret_cast<uint4*>(to);
    const auto *const a_vector = reinterpret_cast<const uint4*>(a), *const b_vector = reinterpret_cast<const uint4*>(b);
    for (std::uint64_t i = own; i < vectors; i += stride) {
        uint4 x = a_vector[i], y = b_vector[i];
        auto* const bytes = reinterpret_cast<std::byte*>(&x);
        reduce_block<Element, Op, in_vector>(bytes, bytes, reinterpret_cast<const std::byte*>(&y));
        to_vector[i] = x;
    }
    for (std::uint64_t i = vectors * in_vector + own; i < count; i += stride)
        to[i] = Element::write(combined<Op>(Element::read(a[i]), Element::read(b[i])));
}

/// Starts kernels with one shape; the type and the operation choose which.
struct reduce_launch {
    cudaStream_t stream;
    unsigned most_blocks;
    const combine_work& work;

    template <class Element, reduce_op Op>
    void run() const noexcept {
        using stored = typename Element::stored;
        constexpr unsigned threads = 256;
        auto* const to = static_cast<stored*>(work.to);
        const auto *const a = static_cast<const stored*>(work.a), *const b = static_cast<const stored*>(work.b);
        const auto address =
            reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b);
        const std::uint64_t vectors = address % 16 == 0 ? work.count * sizeof(stored) / 16 : 0;
        const std::uint64_t wanted = ((vectors != 0 ? vectors : work.count) + threads - 1) / threads;
        const auto blocks = static_cast<unsigned>(wanted < most_blocks ? wanted : most_blocks);
        reduce_kernel<Element, Op><<<blocks, threads, 0, stream>>>(to, a, b, vectors, work.count);
    }
    template <class Element, class ForSum = Element>
    void run() const noexcept {
        switch (work.op) {
            case reduce_op::sum: return run<ForSum, reduce_op::sum>();
            case reduce_op::max: return run<Element, reduce_op::max>();
            case reduce_op::min: return run<Element, reduce_op::min>();
        }
    }
    void run() const noexcept {
        switch (work.type) {
            case element_type::float32: return run<plain_element<float>>();
            case element_type::float16: return run<half_element<float16>>();
            case element_type::bfloat16: return run<half_element<bfloat16>>();
            case element_type::int32: return run<plain_element<std::int32_t>, plain_element<std::uint32_t>>();
            case element_type::int64: return run<plain_element<std::int64_t>, plain_element<std::uint64_t>>();
        }
    }
};

using stream_write_value = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned);

}  // namespace detail

/// One a rank: pieces are combined in the order in which they came.
class cuda_compute {
public:
    /// `most_blocks`: of a kernel; so many of the GPU's SMs are busy with it at most.
    /// Errors: no_device; unsupported if the driver's streams cannot write words; no_memory.
    static result<cuda_compute> create(int device, unsigned most_blocks = 64) {
        const detail::current_device current(device);
        if (const status s = current.ok(); !s) return s;
        owned<state> made(new (std::nothrow) state);
        if (!made) return errc::no_memory;
        made->device = device;
        made->most_blocks = most_blocks == 0 ? 1 : most_blocks;
        made->write_value = detail::driver_function<detail::stream_write_value>("cuStreamWriteValue64");
        if (!made->write_value) return errc::unsupported;
        void *word = nullptr, *on_device = nullptr;
        cudaError_t e = cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking);
        if (e == cudaSuccess) e = cudaHostAlloc(&word, sizeof(std::uint64_t), cudaHostAllocPortable | cudaHostAllocMapped);
        if (e != cudaSuccess) return detail::cuda_status(e);
        made->done = ::new (word) std::uint64_t{0};
        if (e = cudaHostGetDevicePointer(&on_device, word, 0); e != cudaSuccess) return detail::cuda_status(e);
        made->word = reinterpret_cast<CUdeviceptr>(on_device);
        return cuda_compute(std::move(made));
    }

    /// As `element_compute` asks: begins a kernel; its ticket is done when that is.
    std::uint64_t combine(const combine_work& w) noexcept {
        const detail::current_device current(state_->device);
        if (w.count != 0) detail::reduce_launch{state_->stream, state_->most_blocks, w}.run();
        return ticket(cudaGetLastError());
    }
    /// As `element_compute` asks: begins a copy, in order with the kernels.
    std::uint64_t copy(void* to, const void* from, std::uint64_t bytes) noexcept {
        const detail::current_device current(state_->device);
        return ticket(bytes == 0 ? cudaSuccess : cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, state_->stream));
    }
    /// The stream writes the word behind the work, so whoever sees it sees what the kernels wrote.
    bool done(std::uint64_t ticket) const noexcept {
        return std::atomic_ref(*state_->done).load(std::memory_order_acquire) >= ticket;
    }
    /// Looks at the stream without waiting: io_error with CUDA's number once a kernel or copy has failed.
    status health() const noexcept {
        if (!state_->why) return state_->why;
        const cudaError_t e = cudaStreamQuery(state_->stream);
        if (e == cudaSuccess) return {};
        if (e != cudaErrorNotReady) return detail::cuda_status(e);
        (void)cudaGetLastError();
        return {};
    }

private:
    struct state {
        int device{};
        unsigned most_blocks{};
        cudaStream_t stream{};
        detail::stream_write_value write_value{};
        std::uint64_t* done{};  ///< work up to this ticket; written by the stream
        CUdeviceptr word{};
        std::uint64_t given{};
        status why{};

        state() = default;
        state(const state&) = delete;
        ~state() {
            if (stream) {
                (void)cudaStreamSynchronize(stream);
                (void)cudaStreamDestroy(stream);
            }
            if (done) (void)cudaFreeHost(done);
        }
    };
    explicit cuda_compute(owned<state> s) noexcept : state_(std::move(s)) {}

    /// Of the work that was just given. What could not be given is never done.
    std::uint64_t ticket(cudaError_t e) noexcept {
        state& x = *state_;
        if (e != cudaSuccess && x.why) x.why = detail::cuda_status(e);
        ++x.given;
        if (x.why && x.write_value(x.stream, x.word, x.given, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS)
            x.why = errc::io_error;
        return x.given;
    }

    owned<state> state_;
};
static_assert(element_compute<cuda_compute>);

}  // namespace vccl::inline v0
