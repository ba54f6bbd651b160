#pragma once
/// \file
/// What is plugged in where: hosts, NICs, ports, GPUs, their distances, and the rail (switch plane) of each port.
/// A value; read from the machine by a backend's `discover()`, from text, or written by hand. Any thread while const.

#include <vccl/base/ids.hpp>
#include <vccl/base/status.hpp>

#include <cstring>
#include <string_view>
#include <vector>

namespace vccl::inline v0 {

/// A short name held in place, so that it can travel in a blob.
template <std::size_t N>
struct fixed_name {
    char text[N]{};  ///< ends at the first zero byte, or at N

    constexpr fixed_name() noexcept = default;
    /// Names longer than N - 1 characters are cut.
    constexpr fixed_name(std::string_view s) noexcept {
        const std::size_t n = s.size() < N ? s.size() : N - 1;
        for (std::size_t i = 0; i < n; ++i) text[i] = s[i];
    }
    /// From a literal; what is too long is cut.
    constexpr fixed_name(const char* s) noexcept : fixed_name(std::string_view(s)) {}
    /// Points into this name, and lives as long as it does.
    constexpr std::string_view view() const noexcept {
        std::size_t n = 0;
        while (n < N && text[n] != '\0') ++n;
        return {text, n};
    }
    friend constexpr bool operator==(const fixed_name& a, const fixed_name& b) noexcept { return a.view() == b.view(); }
};

/// As the backend knows it: "mlx5_0:1" (device:port) for ibv, "A.nic0.p0" for the software RNIC.
using port_name = fixed_name<48>;

/// Relative cost of a path inside a host; only the order matters.
using distance = std::uint32_t;

/// Plain vectors; an id is an index into its vector. Written by hand, it is checked where it is used, not where it is made.
struct topology {
    /// A machine.
    struct host {
        fixed_name<48> name;  ///< "A"; unique in the topology
    };
    /// A network card.
    struct nic {
        fixed_name<48> name;    ///< "mlx5_0", "A.nic0"; unique in the topology.
        host_id host;           ///< that it is plugged into
        std::int16_t numa{-1};  ///< -1: unknown
        fixed_name<48> pci;     ///< "0000:3b:00.0", or empty
    };
    /// A port of a NIC: where a lane begins or ends.
    struct port {
        port_name name;                ///< "mlx5_0:1", "A.nic0.p0"; what a backend opens.
        nic_id nic;                    ///< that it belongs to
        std::uint8_t number{1};        ///< 1-based within its NIC
        rail_id rail;                  ///< ports of one rail reach each other; lanes never cross rails
        std::uint64_t bytes_per_second{};  ///< line rate, one direction; 0: unknown
    };
    /// A GPU: where channels are counted from.
    struct gpu {
        fixed_name<48> name;  ///< "A.gpu0"; unique in the topology.
        host_id host;  ///< that it is plugged into
        std::int16_t numa{-1};         ///< -1: unknown
        fixed_name<48> pci;            ///< "0000:17:00.0", or empty
        std::vector<distance> to_nic;  ///< one for each entry of `nics`; same host only has a meaning
    };

    /// Indexed by the id of the same name.
    /// @{
    std::vector<host> hosts;
    std::vector<nic> nics;
    std::vector<port> ports;
    std::vector<gpu> gpus;
    /// @}

    /// Requires: valid(p).
    host_id host_of(port_id p) const noexcept { return nics[ports[p.value].nic.value].host; }
    /// Is it an index into its vector?
    /// @{
    bool valid(port_id p) const noexcept { return p.value < ports.size(); }
    bool valid(gpu_id g) const noexcept { return g.value < gpus.size(); }
    bool valid(nic_id n) const noexcept { return n.value < nics.size(); }
    bool valid(host_id h) const noexcept { return h.value < hosts.size(); }
    /// @}

    /// Returns: how many ports the NIC has.
    unsigned port_count(nic_id n) const noexcept {
        unsigned count = 0;
        for (const port& p : ports) count += p.nic == n ? 1U : 0U;
        return count;
    }
    /// Returns: the NIC's nth port by port number, counted from 0; `no_port` beyond the last.
    result<port_id> port_at(nic_id n, unsigned nth) const noexcept {
        for (std::size_t i = 0; i < ports.size(); ++i)
            if (ports[i].nic == n && place_in_nic(port_id{static_cast<std::uint16_t>(i)}) == nth)
                return port_id{static_cast<std::uint16_t>(i)};
        return status{errc::no_port, subject::nic, n.value};
    }
    /// Requires: valid(p). Returns: the port's place among its NIC's ports, by port number, from 0.
    unsigned place_in_nic(port_id p) const noexcept {
        const port& self = ports[p.value];
        unsigned before = 0;
        for (const port& q : ports) before += q.nic == self.nic && q.number < self.number ? 1U : 0U;
        return before;
    }
    /// By name; set-up only, the search is linear. Errors: `no_port`, `no_device` or `not_found`, by kind.
    /// @{
    result<port_id> find_port(std::string_view name) const noexcept {
        return find<port_id>(ports, name, {errc::no_port, subject::port, unnamed_index});
    }
    result<nic_id> find_nic(std::string_view name) const noexcept {
        return find<nic_id>(nics, name, {errc::no_device, subject::nic, unnamed_index});
    }
    result<gpu_id> find_gpu(std::string_view name) const noexcept {
        return find<gpu_id>(gpus, name, {errc::not_found, subject::gpu, unnamed_index});
    }
    result<host_id> find_host(std::string_view name) const noexcept {
        return find<host_id>(hosts, name, {errc::not_found, subject::host, unnamed_index});
    }
    /// @}

private:
    template <class Id, class List>
    static result<Id> find(const List& list, std::string_view name, const status& otherwise) noexcept {
        for (std::size_t i = 0; i < list.size(); ++i)
            if (list[i].name.view() == name) return Id{static_cast<typename Id::rep>(i)};
        return otherwise;
    }
};

/// Returns: ok when every index is in range, every port of a NIC has its own number, and each GPU has a distance to
/// every NIC or to none (unknown). Otherwise `invalid_argument`, with the index of the faulty entry in `detail`.
/// A topology of unknown origin is checked once before it is walked.
VCCL_COLD inline status validate(const topology& t) noexcept {
    constexpr std::size_t most = 0xffff;
    if (t.hosts.size() > most || t.nics.size() > most || t.ports.size() > most || t.gpus.size() > most) return errc::too_large;
    for (std::size_t i = 0; i < t.nics.size(); ++i)
        if (!t.valid(t.nics[i].host)) return status{errc::invalid_argument, static_cast<std::uint32_t>(i)};
    for (std::size_t i = 0; i < t.ports.size(); ++i) {
        if (!t.valid(t.ports[i].nic)) return status{errc::invalid_argument, static_cast<std::uint32_t>(i)};
        for (std::size_t j = 0; j < i; ++j)
            if (t.ports[i].nic == t.ports[j].nic && t.ports[i].number == t.ports[j].number)
                return status{errc::invalid_argument, static_cast<std::uint32_t>(i)};
    }
    for (std::size_t i = 0; i < t.gpus.size(); ++i)
        if (!t.valid(t.gpus[i].host) || (!t.gpus[i].to_nic.empty() && t.gpus[i].to_nic.size() != t.nics.size()))
            return status{errc::invalid_argument, static_cast<std::uint32_t>(i)};
    return {};
}

}  // namespace vccl::inline v0
