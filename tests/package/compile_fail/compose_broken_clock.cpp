// EXPECT: vccl: a clock needs nanoseconds now() const noexcept
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct stopped {
    using policy_axis = vccl::axis::clock;
    long now() const noexcept { return 0; }
};

}  // namespace

using tx = vccl::host_sender<vccl::testing::loopback<false>, stopped>;
tx* never_made{};
