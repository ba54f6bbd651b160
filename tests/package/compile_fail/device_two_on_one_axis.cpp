// EXPECT: vccl: two policies of a device endpoint on one axis
#include <vccl/device/compose.hpp>
#include <vccl/testing/loopback.hpp>

using tx = vccl::device_sender<vccl::testing::loopback<false>, vccl::ring_every<4>, vccl::ring_every<8>>;
constexpr auto size = sizeof(tx);
