// EXPECT: vccl: a port policy must have backup_for(const vccl::topology&, vccl::port_id, vccl::channel_id) const
#include <vccl/policy/port_policies.hpp>

namespace {

struct broken {
    using policy_axis = vccl::axis::port;
    // Not const, so it cannot be asked through a const policy.
    vccl::result<vccl::port_id> backup_for(const vccl::topology&, vccl::port_id p, vccl::channel_id) noexcept { return p; }
};

}  // namespace

template struct vccl::check_port_policy<broken>;
