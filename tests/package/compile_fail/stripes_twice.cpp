// EXPECT: vccl: stripes<N> and a share policy at most once each
#include <vccl/stripe/compose.hpp>
#include <vccl/verbs/soft.hpp>

using wrong = vccl::striped_sender<vccl::verbs::soft, vccl::stripes<2>, vccl::stripes<4>>;
wrong* p;
