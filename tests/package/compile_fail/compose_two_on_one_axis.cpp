// EXPECT: vccl: two policies on one axis; combine port policies with first_of<...> and handlers with on_completion<...>
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

using tx = vccl::host_sender<vccl::testing::loopback<false>, vccl::sibling_port, vccl::adjacent_gpu>;
tx* never_made{};
