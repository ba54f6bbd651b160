// EXPECT: vccl: backups_for must be noexcept and return vccl::lane_list
#include <vccl/policy/port_policies.hpp>

namespace {

struct broken : vccl::no_backup {
    vccl::lane_list backups_for(const vccl::topology&, vccl::port_id, vccl::channel_id) const { return {}; }
};

}  // namespace

template struct vccl::check_port_policy<broken>;
