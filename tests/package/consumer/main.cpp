/// A stranger's program: whatever way it found the headers, they compile, link and move a chunk over the software RNIC.
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <cstdio>
#include <cstring>

using sender = vccl::host_sender<vccl::verbs::soft, vccl::sibling_port, vccl::qp_group<2>>;
using receiver = vccl::host_receiver<vccl::verbs::soft, vccl::sibling_port, vccl::qp_group<2>>;

int main() {
    using namespace vccl::literals;
    auto fabric = vccl::verbs::soft_fabric::create(vccl::verbs::soft_topology(2, 2, 2, 1));  // hosts A and B
    if (!fabric) return 1;
    vccl::host_context<vccl::verbs::soft> a(*fabric->host("A"), fabric->shape()), b(*fabric->host("B"), fabric->shape());
    sender tx{a, vccl::gpu_id{0}, vccl::channel_id{1}};
    receiver rx{b, vccl::gpu_id{1}, vccl::channel_id{1}};

    const auto from_tx = tx.local_info(), from_rx = rx.local_info();
    if (!from_tx || !from_rx || !tx.begin_connect(*from_rx) || !rx.begin_connect(*from_tx)) return 2;

    char out[] = "hello from vccl", in[sizeof out] = {};
    auto source = a.register_memory(out, sizeof out), target = b.register_memory(in, sizeof in);
    if (!source || !target) return 3;
    bool posted = false, sent = false;
    const vccl::steady_clock clock;
    for (const auto end = clock.now() + 30_s; clock.now() < end && !(sent && tx.ended(vccl::sequence{0}));) {
        tx.progress();
        rx.progress();
        if (rx.connected() && !posted) posted = rx.recv(target->view(0, sizeof in)).has_value();
        if (tx.connected() && !sent) sent = tx.send(source->view(0, sizeof out)).has_value();
    }
    if (std::strcmp(in, out) != 0) return 4;
    std::printf("%s %d.%d.%d\n", in, VCCL_VERSION_MAJOR, VCCL_VERSION_MINOR, VCCL_VERSION_PATCH);
    return 0;
}
