// p2p: moves a file from A to B while ports die and come back. p2p --help says how; the README shows a run.
#include "fabric.hpp"
#include "launch.hpp"
#include "receive.hpp"
#include "send.hpp"

namespace {

using namespace p2p;

template <class Fabric>
judgement play(const options& o, reporter& out, rendezvous& peer) {
    try {
        return o.role == role::a ? send_role<Fabric>(o, out, peer) : receive_role<Fabric>(o, out, peer);
    } catch (const user_error& e) {
        peer.try_send(note::refusal, std::string(1, static_cast<char>(o.role)) + ": " + e.what());
        throw;
    }
}

/// What a person types to start the other role, up to its address.
std::string other_role(const options& o) {
    const bool other_is_b = o.role == role::a;
    return std::string(other_is_b ? "B; start it with: p2p --role B" : "A; start it with: p2p --role A") +
           (o.backend == backend_kind::ibv ? " --backend ibv" : "");
}

rendezvous meet(const options& o) {
    if (!o.connect.empty())
        return rendezvous::connect(o.connect, seconds(o.patience), [&] {
            if (o.started) return;
            std::printf("waiting at %s for %s --listen :%s\n", o.connect.c_str(), other_role(o).c_str(),
                        parse_endpoint(o.connect).port.c_str());
            std::fflush(stdout);
        });
    listener door(o.listen);
    if (o.started)
        std::printf("L %u\n", door.port());
    else
        std::printf("waiting for %s --connect %s:%u\n", other_role(o).c_str(),
                    parse_endpoint(o.listen).host.empty() ? "HOST" : parse_endpoint(o.listen).host.c_str(), door.port());
    std::fflush(stdout);
    return rendezvous(door.accept(seconds(o.patience)), seconds(o.patience));
}

judgement play(const options& o, reporter& out) {
    rendezvous peer = meet(o);
    if (o.backend == backend_kind::soft) return play<soft_network>(o, out, peer);
#if defined(P2P_HAS_IBV)
    return play<ibv_network>(o, out, peer);
#else
    throw user_error("this program was built without rdma-core; install libibverbs-dev and build again, or use --backend soft");
#endif
}

}  // namespace

int main(int count, char** arguments) {
    options o;
    if (const int status = parse_options(count, arguments, o); status >= 0) return status;
    reporter out(o.started ? report_to::starter : report_to::person);
    judgement j;
    try {
        if (o.role == role::both) return launch(o, out);
        j = play(o, out);
    } catch (const user_error& e) { j.reason = e.what(); } catch (const std::exception& e) {
        j.reason = std::string("unexpected: ") + e.what();
    }
    return out.result(j.line()) && j.ok() ? 0 : 1;
}
