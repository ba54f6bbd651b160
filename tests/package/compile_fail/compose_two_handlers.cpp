// EXPECT: vccl: two completion handlers; combine them: on_completion<First, Second>
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

using tx = vccl::host_receiver<vccl::testing::loopback<false>, vccl::on_completion<>, vccl::on_completion<>>;
tx* never_made{};
