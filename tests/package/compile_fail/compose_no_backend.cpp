// EXPECT: vccl: a host_sender or host_receiver needs exactly one verbs backend, such as vccl::verbs::ibv or vccl::verbs::soft
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

using tx = vccl::host_sender<vccl::qp_group<2>>;
tx* never_made{};
