// EXPECT: vccl: a detection policy needs detection_times times() const noexcept
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct blind {
    using policy_axis = vccl::axis::detect;
};

}  // namespace

using tx = vccl::host_sender<vccl::testing::loopback<false>, blind>;
tx* never_made{};
