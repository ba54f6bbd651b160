// EXPECT: vccl: a completion handler needs on_done, on_polled, on_event or on_error, each noexcept and of the form in policy/completion.hpp
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct may_throw {
    using policy_axis = vccl::axis::completion;
    void on_done(const vccl::chunk_report&) {}
};

}  // namespace

using tx = vccl::host_sender<vccl::testing::loopback<false>, may_throw>;
tx* never_made{};
