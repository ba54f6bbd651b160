// EXPECT: vccl: a port policy must say: using policy_axis = vccl::axis::port;
#include <vccl/policy/port_policies.hpp>

namespace {

struct broken {
    vccl::result<vccl::port_id> backup_for(const vccl::topology&, vccl::port_id p, vccl::channel_id) const noexcept { return p; }
};

}  // namespace

template struct vccl::check_port_policy<broken>;
