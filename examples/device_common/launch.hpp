#pragma once
/// \file
/// One way to start device code, with or without a GPU: `f(block, warp)` for every warp of every block. On a GPU it is a kernel;
/// in a host build each warp is a thread.

#include <vccl/base/config.hpp>

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#else
#include <thread>
#include <vector>
#endif

namespace example {

#if defined(__CUDACC__)
template <class F>
__global__ void every_warp(F f) {
    f(blockIdx.x, threadIdx.x / 32);
}
/// Loads a kernel that is to start while another one runs and waits for it: loading may have to wait for the running one.
template <class F>
void prepare() {
    cudaFuncAttributes unused;
    (void)cudaFuncGetAttributes(&unused, every_warp<F>);
}
/// What was launched, until it has ended.
class launched {
public:
    template <class F>
    launched(unsigned blocks, unsigned warps, const F& f) {
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        every_warp<<<blocks, warps * 32, 0, stream_>>>(f);
    }
    ~launched() {
        wait();
        cudaStreamDestroy(stream_);
    }
    bool wait() { return cudaStreamSynchronize(stream_) == cudaSuccess; }

private:
    cudaStream_t stream_{};
};
#else
template <class F>
void prepare() {}
class launched {
public:
    template <class F>
    launched(unsigned blocks, unsigned warps, const F& f) {
        for (unsigned b = 0; b < blocks; ++b)
            for (unsigned w = 0; w < warps; ++w) threads_.emplace_back([f, b, w] { f(b, w); });
    }
    ~launched() { (void)wait(); }
    bool wait() {
        for (std::thread& t : threads_)
            if (t.joinable()) t.join();
        return true;
    }

private:
    std::vector<std::thread> threads_;
};
#endif

}  // namespace example
