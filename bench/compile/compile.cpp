/// \file
/// The program whose compilation is timed: one sender and one receiver over real verbs, used once. `bench/run compile` times it.
/// With DISCOVER it also looks for the machine's NICs itself, which is strings and files rather than verbs.

#include <vccl/vccl.hpp>
#include <vccl/verbs/ibv.hpp>

using namespace vccl;
using namespace vccl::literals;

using sender = host_sender<verbs::ibv, sibling_port, qp_group<4>, rollback_fifo<64>, counters>;
using receiver = host_receiver<verbs::ibv, sibling_port, qp_group<4>, counters>;

int main() {
    verbs::ibv backend;
#ifdef DISCOVER
    auto shape = backend.discover();
#else
    result<topology> shape(topology{});
#endif
    if (!shape) return 1;
    host_context<verbs::ibv> context(backend, std::move(*shape));
    sender tx(context, port_id{0}, channel_id{0});
    receiver rx(context, port_id{0}, channel_id{0});
    const auto a = tx.local_info(), b = rx.local_info();
    if (!a || !b || !tx.begin_connect(*b) || !rx.connect(*a, 1_s)) return 2;
    char bytes[64]{};
    const auto memory = context.register_memory(bytes, sizeof bytes);
    if (!memory) return 3;
    const auto in = rx.recv(memory->view()), out = tx.send(memory->view());
    return in && out && rx.wait(*in, 1_s) && tx.wait(*out, 1_s) ? 0 : 4;
}
