// EXPECT: vccl: the senders and the receivers of a host_mesh are driven by the same: all with proxy_thread, or none
#include <vccl/coll/host_mesh.hpp>
#include <vccl/testing/loopback.hpp>
#include <vccl/vccl.hpp>

using backend = vccl::testing::loopback<>;
using mesh = vccl::host_mesh<vccl::host_sender<backend, vccl::proxy_thread>, vccl::host_receiver<backend>>;
constexpr auto size = sizeof(mesh);
