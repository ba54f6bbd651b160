// EXPECT: vccl: a fail-back policy needs nanoseconds hold(unsigned) const noexcept
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct hasty {
    using policy_axis = vccl::axis::failback;
    vccl::nanoseconds hold(unsigned) const { return {}; }
};

}  // namespace

using tx = vccl::host_sender<vccl::testing::loopback<false>, hasty>;
tx* never_made{};
