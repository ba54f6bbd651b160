// EXPECT: vccl: the verbs backend does not model verbs_backend; see verbs/backend.hpp and its contract suite
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct empty {
    using policy_axis = vccl::axis::verbs;
};

}  // namespace

using tx = vccl::host_sender<empty>;
tx* never_made{};
