// In place of network_ibv.cpp where the plugin is built without libibverbs.
#include "network.hpp"

namespace nccl_net {

std::unique_ptr<network> make_ibv_network(const settings&) {
    throw network_error("this libnccl-net-vccl.so was built without libibverbs; VCCL_NET_BACKEND=soft needs none");
}

}  // namespace nccl_net
