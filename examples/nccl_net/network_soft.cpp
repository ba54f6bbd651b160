// The network over the software RNIC: every rank is a host of one fabric in shared memory, which another program has made.
// Its NICs read and write with this process's processor, so they reach no GPU memory; NCCL copies through host buffers.
#include "network_of.hpp"

#include <vccl/verbs/soft.hpp>

#include <sched.h>
#include <algorithm>

namespace nccl_net {

namespace {

using vccl::verbs::soft_fabric;

soft_fabric find(const settings& s) {
    if (s.fabric.empty() || s.host.empty())
        throw network_error(
            "VCCL_NET_BACKEND=soft needs VCCL_NET_FABRIC, the name of a running fabric, and VCCL_NET_HOST, a host of it");
    auto found = soft_fabric::attach(s.fabric);
    if (!found)
        throw network_error("cannot use the software fabric \"" + s.fabric + "\": " + vccl::describe(found.error()) +
                            "; nccl_net_fabric makes one");
    return std::move(*found);
}

vccl::host_id place(const soft_fabric& f, const settings& s) {
    const auto host = f.shape().find_host(s.host);
    if (host) return *host;
    std::string known;
    for (const auto& h : f.shape().hosts) known += " " + std::string(h.name.view());
    throw network_error("the fabric has no host \"" + s.host + "\"; there are:" + known);
}

vccl::verbs::soft open(soft_fabric& f, const settings& s) {
    auto host = f.host(s.host);
    if (!host) throw network_error("cannot be host \"" + s.host + "\": " + vccl::describe(host.error()));
    return std::move(*host);
}

/// Of this process.
unsigned usable_cores() noexcept {
    cpu_set_t cores;
    return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? static_cast<unsigned>(CPU_COUNT(&cores)) : 1;
}

}  // namespace

std::unique_ptr<network> make_soft_network(const settings& s) {
    using made = network_of<vccl::verbs::soft>;
    settings mine = s;
    if (mine.address.empty()) mine.address = "127.0.0.1";  // a fabric is one machine
    soft_fabric first = find(s);
    const vccl::host_id host = place(first, s);
    if (s.threads == as_many_as_help) {
        // One place of the fabric is its maker's.
        const unsigned ranks = static_cast<unsigned>(first.shape().hosts.size()),
                       places = vccl::verbs::soft_detail::max_slots - 1;
        mine.threads = std::min(helpful_threads(usable_cores(), ranks), places / ranks);
    }
    // A software NIC a share: one is the work of one thread at a time.
    std::vector<vccl::verbs::soft> backends{open(first, s)};
    while (backends.size() < made::shares_of(mine)) {
        soft_fabric more = find(s);
        backends.push_back(open(more, s));
    }
    return std::make_unique<made>(mine, std::move(backends), first.shape(), host);
}

}  // namespace nccl_net
