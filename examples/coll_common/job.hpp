#pragma once
// How the ranks of an example come to be and meet: started by this program, or by a launcher; one network; one mesh.
#include "../p2p/next_nic.hpp"
#include "network.hpp"
#include "pages.hpp"

#include <vccl/coll/host_mesh.hpp>
#include <vccl/telemetry/timeline.hpp>
#include <vccl/vccl.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <csignal>
#include <deque>
#include <functional>

namespace coll_example {

inline nanoseconds seconds(double s) { return {static_cast<std::int64_t>(s * 1e9)}; }

/// Keeps the events for the person who watches.
struct witness {
    using policy_axis = axis::completion;
    std::vector<channel_event> events;
    void on_event(const channel_event& e) noexcept {
        if (events.size() < events.capacity()) events.push_back(e);
    }
};

/// A rank at work. Members in the order in which they may go, last first.
template <class Network>
class job {
public:
    using backend = typename Network::backend;
    using ports = first_of<sibling_port, p2p::next_nic>;
    using sender = host_sender<backend, ports, on_completion<counters>>;
    using receiver = host_receiver<backend, ports, on_completion<counters, witness, record_timeline<>>, hold_down<50>>;
    using mesh = host_mesh<sender, receiver>;

    job(const options& o, const job_place& place, tcp_bootstrap exchange, bool pairs)
        : o_(o),
          place_(place),
          exchange_(std::move(exchange)),
          network_(o, place, peers(o, place.ranks, pairs), [this] { barrier(); }),
          context_(network_.verbs(), network_.shape()) {
        mesh_options m;
        const std::string own_host = exchange_.own_host() + ":0";
        m.ends.oob = std::string_view(own_host);
        std::vector<std::uint32_t> host_of_rank;
        for (std::uint32_t r = 0; r < place.ranks; ++r) host_of_rank.push_back(r / network_.per_host());
        m.rings = ring_orders(host_of_rank, o.rings);
        m.pairs = pairs;
        m.limits.piece_bytes = o.piece;
        if (m.limits.least_piece_bytes > o.piece) m.limits.least_piece_bytes = o.piece;
        mesh_.reset(new mesh(context_, network_.from(), place.rank, place.ranks, m));
    }

    std::uint32_t rank() const noexcept { return place_.rank; }
    std::uint32_t ranks() const noexcept { return place_.ranks; }
    host_context<backend>& context() noexcept { return context_; }
    Network& network() noexcept { return network_; }
    mesh& ends() noexcept { return *mesh_; }
    /// Registered bytes and a timeline, which live as long as ends that may use them.
    /// @{
    pages& memory(std::uint64_t bytes) { return memory_.emplace_back(context_, bytes); }
    timeline& line() noexcept { return line_; }
    /// @}

    void connect() {
        compare_options();
        if (const status s = mesh_->connect(exchange_, seconds(o_.patience)); !s)
            throw user_error("cannot connect: " + describe_exchange_fault(s));
        exchange_.while_waiting([this] { mesh_->progress(); });
    }
    /// Effects: rank 0, whose script it is, refuses commands that could not be carried out.
    void check(const std::vector<p2p::script_step>& script) const {
        for (const auto& step : script)
            if (rank() == 0) network_.check(step.command);
    }
    void barrier() {
        if (const status s = exchange_.barrier(seconds(o_.patience)); !s) throw user_error(describe_exchange_fault(s));
    }
    /// Everybody's words at rank 0; nothing elsewhere.
    template <class Words>
    std::vector<Words> gather(const Words& own) {
        std::vector<std::byte> bytes(sizeof own);
        std::memcpy(bytes.data(), &own, sizeof own);
        auto got = exchange_.exchange({{0, 0, std::move(bytes)}}, seconds(o_.patience));
        if (!got) throw user_error(describe_exchange_fault(got.error()));
        std::vector<Words> all;
        for (const parcel& p : *got) {
            if (p.bytes.size() != sizeof own) throw user_error("a rank speaks another version");
            all.emplace_back();
            std::memcpy(&all.back(), p.bytes.data(), sizeof own);
        }
        return all;
    }

private:
    /// Each tells the next one what it was started with: if two differ, somebody next to somebody does.
    void compare_options() {
        const std::string own = common_words(o_);
        const auto* const first = reinterpret_cast<const std::byte*>(own.data());
        auto got = exchange_.exchange({{(rank() + 1) % ranks(), 0, {first, first + own.size()}}}, seconds(o_.patience));
        if (!got) throw user_error(describe_exchange_fault(got.error()));
        for (const parcel& p : *got)
            if (const std::string other(reinterpret_cast<const char*>(p.bytes.data()), p.bytes.size()); other != own)
                throw user_error("all ranks must be started with the same options; rank " + std::to_string(p.peer) + " has\n  " +
                                 other + "\nand this one\n  " + own);
    }
    static std::uint32_t peers(const options& o, std::uint32_t ranks, bool pairs) noexcept {
        return pairs || 2 * o.rings > ranks - 1 ? ranks - 1 : 2 * o.rings;
    }

    const options& o_;
    job_place place_;
    tcp_bootstrap exchange_;
    Network network_;
    host_context<backend> context_;
    std::deque<pages> memory_;
    timeline line_{steady_clock{}.now()};
    owned<mesh> mesh_;
};

using rank_body = std::function<int(const job_place&, tcp_bootstrap)>;

/// Joins the job with `join()`, then works in it. Returns: the exit status. Throws user_error, which names the rank.
template <class Join>
int live(const job_place& place, const rank_body& body, Join&& join) {
    auto b = join();
    if (!b) throw user_error(describe_join_fault(b.error(), place));
    try {
        return body(place, std::move(*b));
    } catch (const std::exception& e) { throw user_error("rank " + std::to_string(place.rank) + ": " + e.what()); }
}

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
            result = live(place, body, [&] {
                return r == 0 ? tcp_bootstrap::join(place, std::move(*listener), *secret, seconds(o.patience))
                              : tcp_bootstrap::join(place, *secret, seconds(o.patience));
            });
        } catch (const std::exception& e) { std::fprintf(stderr, "%s\n", e.what()); }
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

/// One rank of a launcher's job, or all of one's own; rank 0's process does `first()` before. Returns: the exit status.
inline int run_job(const options& o, const rank_body& body, const std::function<void()>& first) {
    std::string why;
    const auto place = read_job_place(process_environment, why);
    if (!place && place.error().code != errc::not_found) throw user_error(why);
    if (!place || place->rank == 0) first();
    if (!place) return start_ranks(o, body);
    if (!o.ibv && place->ranks > verbs::soft_options::most_processes)
        throw user_error("a software fabric has room for " + std::to_string(verbs::soft_options::most_processes) +
                         " ranks, not " + std::to_string(place->ranks) + "; start fewer, or use --backend ibv");
    const auto secret = read_job_secret(process_environment, why);
    if (!secret) throw user_error(why);
    return live(*place, body, [&] { return tcp_bootstrap::join(*place, *secret, seconds(o.patience)); });
}

}  // namespace coll_example
