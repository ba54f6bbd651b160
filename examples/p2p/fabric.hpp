#pragma once
// What differs between the backends: how a role finds its ports, and how a fault script breaks them.
#include "options.hpp"

#include <vccl/base/status_text.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>
#include <vccl/verbs/soft/command_text.hpp>

#if defined(P2P_HAS_IBV)
#include <vccl/verbs/ibv.hpp>
#endif

#include <string>
#include <vector>

namespace p2p {

/// Returns: `port` of the topology, or without a name the host's first port.
inline vccl::port_id find_primary(const vccl::topology& t, const std::string& port, vccl::host_id host) {
    if (!port.empty()) {
        if (const auto p = t.find_port(port); p && t.host_of(*p) == host) return *p;
    } else {
        for (std::uint16_t p = 0; p < t.ports.size(); ++p)
            if (t.host_of(vccl::port_id{p}) == host) return vccl::port_id{p};
    }
    std::string known;
    for (std::uint16_t p = 0; p < t.ports.size(); ++p)
        if (t.host_of(vccl::port_id{p}) == host) known += " " + std::string(t.ports[p].name.view());
    throw user_error("no port \"" + port + "\" here; there are:" + (known.empty() ? " none" : known));
}

/// Two hosts A and B with two dual-port NICs each, in shared memory. B makes it, A and vccl-fabric find it by its name.
class soft_network {
public:
    using backend = vccl::verbs::soft;

    soft_network(const options& o, char who, std::string name)
        : name_(std::move(name)), fabric_(who == 'B' ? make(o) : find()), host_(open(fabric_, who)) {
        const std::string host(1, who);
        primary_ = find_primary(shape(), o.port, *shape().find_host(host));
    }

    const backend& verbs() const noexcept { return host_; }
    const vccl::topology& shape() const noexcept { return fabric_.shape(); }
    vccl::port_id primary() const noexcept { return primary_; }
    const std::string& name() const noexcept { return name_; }
    std::string by_hand() const { return "break it by hand: vccl-fabric -f " + name_ + " down A.nic0.p0"; }

    /// Throws user_error if command() could not do it.
    void check(const std::string& what) const { refuse(fabric_.check_command(what), what); }
    /// Effects: does it. Returns: what is to be run besides, here nothing.
    std::vector<std::string> command(const std::string& what) {
        refuse(fabric_.command(what), what);
        return {};
    }

private:
    using fabric = vccl::verbs::soft_fabric;

    void refuse(const vccl::status& s, const std::string& what) const {
        if (!s) throw user_error("cannot do \"" + what + "\": " + vccl::verbs::describe_command_fault(s, what, shape()));
    }
    fabric make(const options& o) {
        vccl::verbs::soft_options settings;
        settings.bytes_per_second = o.rate;
        const vccl::topology shape =
            vccl::make_cluster({.hosts = 2, .nics_per_host = 2, .ports_per_nic = 2, .gpus_per_host = 2, .bytes_per_second = 0});
        auto made = fabric::create_shared(name_, shape, settings);
        if (made.error().code == vccl::errc::already_exists || made.error().about == vccl::subject::owner) {
            name_ += "-" + std::to_string(::getpid());
            made = fabric::create_shared(name_, shape, settings);
        }
        if (!made && made.error().code == vccl::errc::invalid_argument)
            throw user_error("no software fabric can be called \"" + name_ +
                             "\": a name has 1 to 64 letters, digits, '-' and '_'; choose another with --fabric");
        if (!made) throw user_error("cannot make the software fabric \"" + name_ + "\": " + vccl::describe(made.error()));
        return std::move(*made);
    }
    fabric find() const {
        auto found = fabric::attach(name_);
        if (!found) throw user_error("cannot use the software fabric \"" + name_ + "\": " + vccl::describe(found.error()));
        return std::move(*found);
    }
    backend open(fabric& f, char who) const {
        auto host = f.host(std::string_view(&who, 1));
        if (!host) throw user_error("cannot use the software fabric \"" + name_ + "\": " + vccl::describe(host.error()));
        return std::move(*host);
    }

    std::string name_;
    fabric fabric_;
    backend host_;
    vccl::port_id primary_{};
};

#if defined(P2P_HAS_IBV)
/// This machine's devices. On one host both roles see all of them, so each has its own prefix.
class ibv_network {
public:
    using backend = vccl::verbs::ibv;

    ibv_network(const options& o, char who, std::string name) : name_(std::move(name)) {
        const std::size_t comma = o.devices.find(',');
        const std::string prefix = comma == std::string::npos ? o.devices
                                   : who == 'A'               ? o.devices.substr(0, comma)
                                                              : o.devices.substr(comma + 1);
        backend_.devices = std::string_view(prefix);
        auto found = backend_.discover();
        if (!found) {
            const std::string which = prefix.empty() ? std::string() : " whose name begins with \"" + prefix + "\"";
            throw user_error("no RDMA device" + which + ": " + vccl::describe(found.error()) + "; --backend soft needs none");
        }
        shape_ = std::move(*found);
        primary_ = find_primary(shape_, o.port, vccl::host_id{0});
    }

    const backend& verbs() const noexcept { return backend_; }
    const vccl::topology& shape() const noexcept { return shape_; }
    vccl::port_id primary() const noexcept { return primary_; }
    const std::string& name() const noexcept { return name_; }
    std::string by_hand() const { return "break it by hand: ip link set dev INTERFACE down"; }

    /// Throws user_error if command() could not do it.
    void check(const std::string& what) const { (void)command(what); }
    /// Returns: what takes the port's network interface down or up, for "down rxe_a0:1" and "up rxe_a0:1".
    std::vector<std::string> command(const std::string& what) const {
        const std::size_t space = what.find(' ');
        const std::string verb = what.substr(0, space);
        const std::string port(space == std::string::npos ? std::string_view{} : trim(std::string_view(what).substr(space)));
        if ((verb != "down" && verb != "up") || port.empty())
            throw user_error("cannot do \"" + what + "\" on ibv; write down PORT, up PORT or run COMMAND");
        const std::string netdev = backend_.netdev(std::string_view(port));
        if (netdev.empty())
            throw user_error("no port \"" + port + "\" with a network interface to take " + verb +
                             "; there are:" + known_ports());
        return {"ip", "link", "set", "dev", netdev, verb};
    }

private:
    /// Of every device here, also of those that the other role on this host uses.
    static std::string known_ports() {
        const auto all = backend{}.discover();
        std::string known;
        if (all)
            for (const auto& p : all->ports) known.append(" ").append(p.name.view());
        return known.empty() ? " none" : known;
    }

    backend backend_{};
    std::string name_;
    vccl::topology shape_;
    vccl::port_id primary_{};
};
#endif

}  // namespace p2p
