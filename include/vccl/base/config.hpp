#pragma once
/// \file
/// Compiler and version switches shared by every header. Included first by all of them.

/// The version, by Semantic Versioning; `find_package` and pkg-config say the same.
/// @{
#define VCCL_VERSION_MAJOR 0
#define VCCL_VERSION_MINOR 1
#define VCCL_VERSION_PATCH 0
/// @}

#if defined(__CUDACC__)
#define VCCL_HOST_DEVICE __host__ __device__
#define VCCL_DEVICE __device__
#else
/// For functions that kernels call, too; nothing without nvcc.
/// @{
#define VCCL_HOST_DEVICE
#define VCCL_DEVICE
/// @}
#endif

/// For the few functions whose call would cost more than they do.
#define VCCL_ALWAYS_INLINE inline __attribute__((always_inline))
/// For what is called once a run of chunks: it gets all registers to itself.
#define VCCL_NOINLINE __attribute__((noinline))
/// Marks the failover path: keeps it out of the hot path's cache lines.
#define VCCL_COLD __attribute__((noinline, cold))

#if __cplusplus < 202002L
#error "vccl: C++20 is needed; compile with -std=c++20 or later"
#endif
