// EXPECT: vccl: a replay log needs capacity, can_replay and noexcept record, at and retire; see policy/replay.hpp
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct forgetful {
    using policy_axis = vccl::axis::replay;
    static constexpr std::size_t capacity = 4;
};

}  // namespace

using tx = vccl::host_sender<vccl::testing::loopback<false>, forgetful>;
tx* never_made{};
