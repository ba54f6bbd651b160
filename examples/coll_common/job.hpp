#pragma once
// How the ranks of an example come to be and meet: started by this program, or by a launcher; one software fabric; one mesh.
#include "options.hpp"

#include <vccl/base/status_text.hpp>
#include <vccl/bootstrap/environment.hpp>
#include <vccl/coll/host_mesh.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/telemetry/timeline.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <csignal>
#include <functional>

namespace coll_example {

using namespace vccl;

inline nanoseconds seconds(double s) { return {static_cast<std::int64_t>(s * 1e9)}; }
inline user_error failure(const std::string& what, const status& s) { return user_error(what + ": " + describe(s)); }

/// Keeps the events for the person who watches.
struct witness {
    using policy_axis = axis::completion;
    std::vector<channel_event> events;
    void on_event(const channel_event& e) noexcept {
        if (events.size() < events.capacity()) events.push_back(e);
    }
};
using sender = host_sender<verbs::soft, sibling_port, on_completion<counters>>;
using receiver = host_receiver<verbs::soft, sibling_port, on_completion<counters, witness, record_timeline<>>, hold_down<50>>;
using mesh = host_mesh<sender, receiver>;

/// A rank at work. Members in the order in which they may go, last first.
class job {
public:
    job(const options& o, const job_place& place, tcp_bootstrap exchange, bool pairs)
        : o_(o), place_(place), exchange_(std::move(exchange)), fabric_(common_fabric()), context_(open_host(), fabric_.shape()) {
        mesh_options m;
        std::vector<std::uint32_t> host_of_rank;
        for (std::uint32_t r = 0; r < place.ranks; ++r) host_of_rank.push_back(r / gpus());
        m.rings = ring_orders(host_of_rank, o.rings);
        m.pairs = pairs;
        m.limits.piece_bytes = o.piece;
        if (m.limits.least_piece_bytes > o.piece) m.limits.least_piece_bytes = o.piece;
        mesh_.reset(new mesh(context_, gpu_id{static_cast<std::uint16_t>(place.rank)}, place.rank, place.ranks, m));
    }

    std::uint32_t rank() const noexcept { return place_.rank; }
    std::uint32_t ranks() const noexcept { return place_.ranks; }
    host_context<verbs::soft>& context() noexcept { return context_; }
    verbs::soft_fabric& fabric() noexcept { return fabric_; }
    mesh& ends() noexcept { return *mesh_; }

    void connect() {
        if (const status s = mesh_->connect(exchange_, seconds(o_.patience)); !s)
            throw failure("cannot connect to rank " + std::to_string(s.detail), s);
        exchange_.while_waiting([this] { mesh_->progress(); });
    }
    void barrier() {
        if (const status s = exchange_.barrier(seconds(o_.patience)); !s) throw failure("a rank did not come along", s);
    }
    /// Everybody's words at rank 0; nothing elsewhere.
    template <class Words>
    std::vector<Words> gather(const Words& own) {
        std::vector<std::byte> bytes(sizeof own);
        std::memcpy(bytes.data(), &own, sizeof own);
        auto got = exchange_.exchange({{0, 0, std::move(bytes)}}, seconds(o_.patience));
        if (!got) throw failure("a rank did not come along", got.error());
        std::vector<Words> all;
        for (const parcel& p : *got) {
            if (p.bytes.size() != sizeof own) throw user_error("a rank speaks another version");
            all.emplace_back();
            std::memcpy(&all.back(), p.bytes.data(), sizeof own);
        }
        return all;
    }

private:
    std::uint32_t hosts() const noexcept { return o_.hosts < place_.ranks ? o_.hosts : place_.ranks; }
    std::uint32_t gpus() const noexcept { return (place_.ranks + hosts() - 1) / hosts(); }

    /// Rank 0 makes it, then the others find it.
    verbs::soft_fabric common_fabric() {
        auto fabric = result<verbs::soft_fabric>(errc::not_found);
        if (place_.rank == 0) {
            verbs::soft_options settings;
            settings.bytes_per_second = o_.rate;
            cluster_shape shape{
                .hosts = hosts(), .nics_per_host = gpus(), .ports_per_nic = 2, .gpus_per_host = gpus(), .bytes_per_second = 0};
            fabric = verbs::soft_fabric::create_shared(o_.fabric, make_cluster(shape), settings);
        }
        barrier();
        if (place_.rank != 0) fabric = verbs::soft_fabric::attach(o_.fabric);
        if (!fabric) throw failure("cannot use the software fabric \"" + o_.fabric + "\" (another --fabric?)", fabric.error());
        return std::move(*fabric);
    }
    verbs::soft open_host() {
        auto host = fabric_.host(fabric_.shape().hosts[place_.rank / gpus()].name.view());
        if (!host) throw failure("cannot use the software fabric \"" + o_.fabric + "\"", host.error());
        return std::move(*host);
    }

    const options& o_;
    job_place place_;
    tcp_bootstrap exchange_;
    verbs::soft_fabric fabric_;
    host_context<verbs::soft> context_;
    owned<mesh> mesh_;
};

using rank_body = std::function<int(const job_place&, tcp_bootstrap)>;

/// Starts all ranks as processes of this host and waits for them. Returns: the exit status.
inline int start_ranks(const options& o, const rank_body& body) {
    auto listener = bootstrap_listener::open("127.0.0.1:0");
    auto secret = job_secret::random();
    if (!listener || !secret) throw failure("cannot listen on 127.0.0.1", listener ? secret.error() : listener.error());
    std::vector<pid_t> children;
    for (std::uint32_t r = 0; r < o.ranks; ++r) {
        const pid_t child = ::fork();
        if (child < 0) throw p2p::system_error("cannot start a process");
        if (child != 0) {
            children.push_back(child);
            continue;
        }
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const job_place place{.rank = r, .ranks = o.ranks, .local_rank = r, .local_ranks = o.ranks, .root = listener->address()};
        int result = 1;
        try {
            auto b = r == 0 ? tcp_bootstrap::join(place, std::move(*listener), *secret, seconds(o.patience))
                            : tcp_bootstrap::join(place, *secret, seconds(o.patience));
            if (!b) throw failure("cannot join the job", b.error());
            result = body(place, std::move(*b));
        } catch (const std::exception& e) { std::fprintf(stderr, "rank %u: %s\n", r, e.what()); }
        std::fflush(nullptr);
        std::_Exit(result);
    }
    int worst = 0;
    for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 1;
    }
    return worst;
}

/// One rank of a launcher's job, or all of one's own. Returns: the exit status.
inline int run_job(const options& o, const rank_body& body) {
    std::string why;
    const auto place = read_job_place(process_environment, why);
    if (place.error().code == errc::not_found) return start_ranks(o, body);
    if (!place) throw user_error(why);
    const auto secret = read_job_secret(process_environment, why);
    if (!secret) throw user_error(why);
    auto b = tcp_bootstrap::join(*place, *secret, seconds(o.patience));
    if (!b) throw failure("cannot join the job at " + place->root, b.error());
    return body(*place, std::move(*b));
}

}  // namespace coll_example
