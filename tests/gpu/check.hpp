#pragma once
/// \file
/// The least that a test program needs where nothing but a CUDA toolkit is installed.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime_api.h>

namespace vccl_gpu_test {

inline int failures = 0, checks = 0;

inline bool check(bool good, const char* what, const char* file, int line) {
    ++checks;
    if (good) return true;
    ++failures;
    if (failures <= 20) std::printf("%s:%d: FAILED: %s\n", file, line, what);
    return false;
}
#define GPU_CHECK(...) ::vccl_gpu_test::check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define GPU_REQUIRE(...) \
    if (!GPU_CHECK(__VA_ARGS__)) return
/// As check, and shows the numbers.
inline bool check_equal(unsigned long long found, unsigned long long wanted, const char* what, const char* file, int line) {
    const bool good = check(found == wanted, what, file, line);
    if (!good) std::printf("    %llu, not %llu\n", found, wanted);
    return good;
}
#define GPU_REQUIRE_EQUAL(found, wanted) \
    if (!::vccl_gpu_test::check_equal(found, wanted, #found " == " #wanted, __FILE__, __LINE__)) return

/// A name on the command line runs only the cases whose names contain it.
inline const char* wanted = nullptr;
inline void run(const char* name, void (*body)()) {
    if (wanted && !std::strstr(name, wanted)) return;
    const int before = failures;
    body();
    std::printf("%s: %s\n", failures == before ? "ok" : "FAILED", name);
    std::fflush(stdout);
}
/// [NAME] [--schedules=N], the latter where a program has `schedules`.
inline void read_arguments(int argc, char** argv, unsigned* schedules = nullptr) {
    constexpr char option[] = "--schedules=";
    for (int i = 1; i < argc; ++i) {
        if (schedules && std::strncmp(argv[i], option, sizeof option - 1) == 0)
            *schedules = static_cast<unsigned>(std::strtoul(argv[i] + sizeof option - 1, nullptr, 10));
        else
            wanted = argv[i];
    }
}
/// The last line is that of every test program here.
inline int finish() {
    std::printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
/// Says why and ends the program as skipped, unless there is a GPU.
inline void need_gpu() {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess && n > 0) return;
    std::printf("SKIP: no CUDA device here\n");
    std::exit(77);
}

}  // namespace vccl_gpu_test
