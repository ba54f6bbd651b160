// EXPECT: vccl: a port policy must say: using policy_axis = vccl::axis::port;
#include <vccl/policy/port_policies.hpp>

namespace {

struct broken {};

}  // namespace

template struct vccl::first_of<vccl::sibling_port, broken>;
