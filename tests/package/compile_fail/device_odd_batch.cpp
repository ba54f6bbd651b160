// EXPECT: vccl: ring_every<N> needs a power of two
#include <vccl/device/policy.hpp>

constexpr unsigned batch = vccl::ring_every<12>::batch;
