// EXPECT: vccl: backup_for must be noexcept: a failover has no one to catch what it throws
#include <vccl/policy/port_policies.hpp>

namespace {

struct broken {
    using policy_axis = vccl::axis::port;
    vccl::result<vccl::port_id> backup_for(const vccl::topology&, vccl::port_id p, vccl::channel_id) const { return p; }
};

}  // namespace

template struct vccl::check_port_policy<broken>;
