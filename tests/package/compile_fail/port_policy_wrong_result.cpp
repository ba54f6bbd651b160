// EXPECT: vccl: backup_for must return vccl::result<vccl::port_id>
#include <vccl/policy/port_policies.hpp>

namespace {

struct broken {
    using policy_axis = vccl::axis::port;
    vccl::port_id backup_for(const vccl::topology&, vccl::port_id p, vccl::channel_id) const noexcept { return p; }
};

}  // namespace

template struct vccl::check_port_policy<broken>;
