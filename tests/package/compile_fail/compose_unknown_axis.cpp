// EXPECT: vccl: a policy_axis of a host_sender or host_receiver must be one of vccl::axis
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct stranger {
    using policy_axis = stranger;
};

}  // namespace

using tx = vccl::host_receiver<vccl::testing::loopback<false>, stranger>;
tx* never_made{};
