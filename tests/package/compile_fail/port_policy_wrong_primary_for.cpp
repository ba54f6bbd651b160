// EXPECT: vccl: primary_for must be noexcept and return vccl::result<vccl::port_id>
#include <vccl/policy/port_policies.hpp>

namespace {

struct broken : vccl::sibling_port {
    vccl::port_id primary_for(const vccl::topology&, vccl::gpu_id, vccl::channel_id) const noexcept { return vccl::port_id{0}; }
};

}  // namespace

template struct vccl::check_port_policy<broken>;
