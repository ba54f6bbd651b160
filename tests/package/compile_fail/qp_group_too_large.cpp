// EXPECT: vccl: a qp_group has 1 to 8 QPs
#include <vccl/policy/timing.hpp>

template struct vccl::qp_group<9>;
