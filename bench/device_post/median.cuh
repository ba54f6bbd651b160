#pragma once
/// \file
/// How long a launch takes on the GPU: the median of five after one to warm up, in milliseconds. Ends the program on an error.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace bench {

inline void need(bool good, const char* what) {
    if (good) return;
    std::printf("device_post: %s failed: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    std::exit(1);
}

template <class Launch>
double median_ms(Launch&& launch) {
    std::vector<float> ms;
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    for (int i = 0; i < 6; ++i) {
        cudaEventRecord(a);
        launch();
        cudaEventRecord(b);
        need(cudaEventSynchronize(b) == cudaSuccess, "kernel");
        float t = 0;
        cudaEventElapsedTime(&t, a, b);
        if (i != 0) ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

}  // namespace bench
