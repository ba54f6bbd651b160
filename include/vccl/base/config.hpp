#pragma once
/// \file
/// Compiler and version switches shared by every header. Included first by all of them.

#define VCCL_VERSION_MAJOR 0
#define VCCL_VERSION_MINOR 1
#define VCCL_VERSION_PATCH 0

#if defined(__CUDACC__)
#define VCCL_HOST_DEVICE __host__ __device__
#define VCCL_DEVICE __device__
#else
#define VCCL_HOST_DEVICE
#define VCCL_DEVICE
#endif

#define VCCL_ALWAYS_INLINE inline __attribute__((always_inline))
#define VCCL_NOINLINE __attribute__((noinline))
/// Marks the failover path: keeps it out of the hot path's cache lines.
#define VCCL_COLD __attribute__((noinline, cold))

#if __cplusplus < 202002L
#error "vccl: C++20 is needed; compile with -std=c++20 or later"
#endif
