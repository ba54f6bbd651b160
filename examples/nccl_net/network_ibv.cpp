// The network over rdma-core. GPU memory is offered where the kernel has a way for it: dma-buf, or nvidia_peermem.
#include "network_of.hpp"

#include <vccl/verbs/ibv.hpp>

namespace nccl_net {

namespace {

using vccl::verbs::ibv;

class ibv_network final : public network_of<ibv> {
public:
    ibv_network(const settings& s, const ibv& backend, const vccl::topology& shape)
        : network_of(s, std::vector<ibv>(shares_of(s), backend), shape, vccl::host_id{0}) {
        if (!s.gpu_direct) return;
        if (takes_dmabuf(contexts_[0]->port(0).port)) pointers_ |= nccl_abi::pointer_cuda | nccl_abi::pointer_dmabuf;
        if (::access("/sys/module/nvidia_peermem/version", F_OK) == 0) pointers_ |= nccl_abi::pointer_cuda;
    }

private:
    /// A kernel and NIC that know dma-buf find fault with the descriptor, others with the call.
    template <class Port>
    static bool takes_dmabuf(Port& port) {
        if constexpr (ibv::capabilities.dmabuf) {
            const auto refused = port.register_dmabuf(-1, 0, 4096, 0);
            return refused.error().code != vccl::errc::unsupported;
        }
        return false;
    }
};

}  // namespace

std::unique_ptr<network> make_ibv_network(const settings& s) {
    ibv backend;
    backend.devices = std::string_view(s.devices);
    auto shape = backend.discover();
    if (!shape) {
        const std::string which = s.devices.empty() ? std::string() : " whose name begins with \"" + s.devices + "\"";
        throw network_error("no RDMA device" + which + ": " + vccl::describe(shape.error()) +
                            "; VCCL_NET_BACKEND=soft needs none");
    }
    settings mine = s;
    if (mine.threads == as_many_as_help) mine.threads = 0;  // the NIC moves the bytes
    if (mine.address.empty()) {
        std::vector<std::string> of_lanes;
        for (const auto& p : shape->ports) of_lanes.push_back(backend.netdev(p.name));
        mine.address = find_address(of_lanes);
    }
    return std::make_unique<ibv_network>(mine, backend, *shape);
}

}  // namespace nccl_net
