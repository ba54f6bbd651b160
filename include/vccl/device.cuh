#pragma once
/// \file
/// Umbrella of the device part, for code that a CUDA compiler compiles: senders and receivers whose queues kernels post on, and
/// what kernels take. A host build of the same needs device/compose.hpp only.

#include <vccl/device/compose.hpp>
#include <vccl/device/gpu_space.cuh>
#include <vccl/device/host_ring.hpp>
