// EXPECT: vccl: a channel has between 1 and 8 stripes
#include <vccl/stripe/share.hpp>

template struct vccl::stripes<9>;
