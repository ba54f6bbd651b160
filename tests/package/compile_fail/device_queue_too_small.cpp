// EXPECT: vccl: a device queue has at least 4 slots: rollback_fifo<4> or more
#include <vccl/device/compose.hpp>
#include <vccl/testing/loopback.hpp>

using tx = vccl::device_sender<vccl::testing::loopback<false>, vccl::rollback_fifo<2>>;
constexpr auto size = sizeof(tx);
