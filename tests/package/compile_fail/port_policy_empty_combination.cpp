// EXPECT: vccl: first_of and each_of combine at least one port policy
#include <vccl/policy/port_policies.hpp>

template struct vccl::first_of<>;
