// EXPECT: vccl: far_at_most takes a percentage
#include <vccl/stripe/share.hpp>

template struct vccl::far_at_most<101>;
