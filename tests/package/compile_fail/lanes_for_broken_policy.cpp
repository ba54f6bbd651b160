// EXPECT: vccl: backup_for must be noexcept: a failover has no one to catch what it throws
#include <vccl/policy/lanes.hpp>

namespace {

struct broken {
    using policy_axis = vccl::axis::port;
    vccl::result<vccl::port_id> backup_for(const vccl::topology&, vccl::port_id p, vccl::channel_id) const { return p; }
};

}  // namespace

unsigned lanes(const vccl::topology& t) { return vccl::lanes_for(t, vccl::gpu_id{0}, vccl::channel_id{0}, broken{}).has_value(); }
