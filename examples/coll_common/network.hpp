#pragma once
// What differs between the backends: how a rank gets at its NICs, and how a fault script breaks them.
#include "../p2p/fabric.hpp"
#include "options.hpp"

#include <vccl/bootstrap/environment.hpp>
#include <vccl/bootstrap/tcp_text.hpp>
#include <vccl/host/endpoint.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>

#include <sys/statvfs.h>

namespace coll_example {

inline user_error failure(const std::string& what, const status& s) { return user_error(what + ": " + describe(s)); }

/// "run COMMAND" of a fault script, for the shell; nothing if it is another.
inline std::vector<std::string> as_shell_command(const std::string& step) {
    if (!step.starts_with("run ")) return {};
    return {"sh", "-c", step.substr(4)};
}

/// Hosts of a software fabric with a GPU, a NIC and two ports for each rank. Rank 0 makes it, then the others find it.
class soft_network {
public:
    using backend = verbs::soft;

    /// `peers`: to how many others a rank is connected.
    template <class Barrier>
    soft_network(const options& o, const job_place& place, std::uint32_t peers, Barrier&& barrier) : o_(o), place_(place) {
        if (place.rank == 0) fabric_ = make(peers);
        barrier();
        if (place.rank != 0) fabric_ = verbs::soft_fabric::attach(o.fabric);
        if (!fabric_) throw failure("cannot use the software fabric \"" + o.fabric + "\"", fabric_.error());
    }
    backend verbs() {
        auto host = fabric_->host(fabric_->shape().hosts[place_.rank / per_host()].name.view());
        if (!host) throw failure("cannot use the software fabric \"" + o_.fabric + "\"", host.error());
        return std::move(*host);
    }
    const topology& shape() const noexcept { return fabric_->shape(); }
    starting_point from() const noexcept { return gpu_id{static_cast<std::uint16_t>(place_.rank)}; }
    std::uint32_t per_host() const noexcept { return (place_.ranks + hosts() - 1) / hosts(); }
    std::string text() const {
        return "software RNIC \"" + o_.fabric + "\"; break it: vccl-fabric -f " + o_.fabric + " down A.nic0.p0";
    }
    /// Throws user_error if command() could not do it.
    void check(const std::string& what) const {
        if (as_shell_command(what).empty()) refuse(fabric_->check_command(what), what);
    }
    /// Effects: does what the script says. Returns: what is to be run besides.
    std::vector<std::string> command(const std::string& what) {
        if (auto run = as_shell_command(what); !run.empty()) return run;
        refuse(fabric_->command(what), what);
        return {};
    }

private:
    void refuse(const status& s, const std::string& what) const {
        if (!s) throw user_error("cannot do \"" + what + "\": " + verbs::describe_command_fault(s, what, shape()));
    }
    std::uint32_t hosts() const noexcept { return o_.hosts < place_.ranks ? o_.hosts : place_.ranks; }
    result<verbs::soft_fabric> make(std::uint32_t peers) const {
        verbs::soft_options settings;
        settings.bytes_per_second = o_.rate;
        settings.processes = place_.ranks;
        const cluster_shape shape{.hosts = hosts(),
                                  .nics_per_host = per_host(),
                                  .ports_per_nic = 2,
                                  .gpus_per_host = per_host(),
                                  .bytes_per_second = 0};
        auto made = verbs::soft_fabric::create_shared(o_.fabric, make_cluster(shape), settings);
        if (made.error().code == errc::already_exists)
            throw user_error("a job that still runs has the software fabric \"" + o_.fabric +
                             "\"; give this job another one with --fabric NAME, or end that job");
        if (made.error().code == errc::invalid_argument)
            throw user_error("no software fabric can be called \"" + o_.fabric +
                             "\": a name has 1 to 64 letters, digits, '-' and '_'; choose another with --fabric");
        if (made) need_memory(std::uint64_t{place_.ranks} * peers * settings.ring_bytes);
        return made;
    }
    /// Throws user_error if the fabric could not get so much more: its processes take memory only as they connect, and one that
    /// finds none looks like a dead port to the others.
    static void need_memory(std::uint64_t bytes) {
        constexpr std::uint64_t mebibyte = 1 << 20;
        struct statvfs room {};
        if (::statvfs("/dev/shm", &room) != 0 || room.f_bavail >= bytes / room.f_frsize) return;
        throw failure("cannot connect so many ranks",
                      {errc::no_memory, subject::shared_memory, static_cast<std::uint32_t>((bytes + mebibyte - 1) / mebibyte),
                       static_cast<std::uint32_t>(room.f_bavail * room.f_frsize / mebibyte)});
    }

    const options& o_;
    job_place place_;
    result<verbs::soft_fabric> fabric_{errc::not_found};
};

#if defined(P2P_HAS_IBV)
/// This machine's devices. The ranks of a host begin at its ports in turn. Several prefixes (--devices a,b): so many hosts,
/// which share this machine's kernel.
class ibv_network {
public:
    using backend = verbs::ibv;

    template <class Barrier>
    ibv_network(const options& o, const job_place& place, std::uint32_t, Barrier&&)
        : place_(place), prefixes_(words_of(o.devices)), devices_(settings(), 'A', {}) {}
    backend verbs() const { return devices_.verbs(); }
    const topology& shape() const noexcept { return devices_.shape(); }
    starting_point from() const noexcept {
        return port_id{static_cast<std::uint16_t>(place_.rank % per_host() % shape().ports.size())};
    }
    std::uint32_t per_host() const noexcept {
        const auto hosts = static_cast<std::uint32_t>(prefixes_.size());
        if (hosts > 1) return (place_.ranks + hosts - 1) / hosts;
        return place_.local_ranks != 0 ? place_.local_ranks : place_.ranks;
    }
    std::string text() const { return "real verbs; " + devices_.by_hand(); }
    /// Throws user_error if command() could not do it.
    void check(const std::string& what) const { (void)command(what); }
    std::vector<std::string> command(const std::string& what) const {
        if (auto run = as_shell_command(what); !run.empty()) return run;
        return devices_.command(what);
    }

private:
    static std::vector<std::string> words_of(const std::string& list) {
        std::vector<std::string> words(1);
        for (const char c : list)
            if (c == ',')
                words.emplace_back();
            else
                words.back() += c;
        return words;
    }
    p2p::options settings() const {
        p2p::options o;
        o.devices = prefixes_[place_.rank / per_host() % prefixes_.size()];
        return o;
    }

    job_place place_;
    std::vector<std::string> prefixes_;
    p2p::ibv_network devices_;
};
#endif

/// Returns: f.operator()<Network>() of the backend that was asked for.
template <class F>
int with_network(const options& o, F&& f) {
    if (!o.ibv) return f.template operator()<soft_network>();
#if defined(P2P_HAS_IBV)
    return f.template operator()<ibv_network>();
#else
    throw user_error("this program was built without rdma-core; install libibverbs-dev and build again, or use --backend soft");
#endif
}

}  // namespace coll_example
