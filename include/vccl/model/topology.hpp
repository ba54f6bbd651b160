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
    char text[N]{};

    constexpr fixed_name() noexcept = default;
    /// Names longer than N - 1 characters are cut.
    constexpr fixed_name(std::string_view s) noexcept {
        const std::size_t n = s.size() < N ? s.size() : N - 1;
        for (std::size_t i = 0; i < n; ++i) text[i] = s[i];
    }
    constexpr fixed_name(const char* s) noexcept : fixed_name(std::string_view(s)) {}
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

struct topology {
    struct host {
        fixed_name<48> name;
    };
    struct nic {
        fixed_name<48> name;
        host_id host;
        std::int16_t numa{-1};  ///< -1: unknown
        fixed_name<48> pci;     ///< "0000:3b:00.0", or empty
    };
    struct port {
        port_name name;
        nic_id nic;
        std::uint8_t number{1};        ///< 1-based within its NIC
        rail_id rail;
        std::uint64_t bytes_per_second{};
    };
    struct gpu {
        fixed_name<48> name;
        host_id host;
        std::int16_t numa{-1};
        fixed_name<48> pci;
        std::vector<distance> to_nic;  ///< one for each entry of `nics`; same host only has a meaning
    };

    std::vector<host> hosts;
    std::vector<nic> nics;
    std::vector<port> ports;
    std::vector<gpu> gpus;

    host_id host_of(port_id p) const noexcept { return nics[ports[p.value].nic.value].host; }
    bool valid(port_id p) const noexcept { return p.value < ports.size(); }
    bool valid(gpu_id g) const noexcept { return g.value < gpus.size(); }
};

}  // namespace vccl::inline v0
