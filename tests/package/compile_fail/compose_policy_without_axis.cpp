// EXPECT: vccl: every policy of a host_sender or host_receiver must say which axis it is on: using policy_axis = vccl::axis::...;
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct untagged {
    vccl::nanoseconds now() const noexcept { return {}; }
};

}  // namespace

using tx = vccl::host_sender<vccl::testing::loopback<false>, untagged>;
tx* never_made{};
