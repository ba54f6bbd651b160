#pragma once
/// \file
/// A topology as flat bytes, so that a process that attaches to a fabric finds its shape in the segment. Set-up only.
/// Reading checks every count and index: the bytes come from another process.

#include <vccl/model/topology.hpp>

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace vccl::inline v0::verbs::soft_detail {

struct flat_gpu {
    fixed_name<48> name;
    host_id host;
    std::int16_t numa;
    fixed_name<48> pci;
};

class byte_writer {
public:
    template <class T>
    void put(const T& v) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto* from = reinterpret_cast<const std::byte*>(&v);
        bytes.insert(bytes.end(), from, from + sizeof v);
    }
    std::vector<std::byte> bytes;
};

class byte_reader {
public:
    byte_reader(const std::byte* at, std::size_t n) : at_(at), left_(n) {}
    template <class T>
    bool get(T& v) {
        if (left_ < sizeof v) return false;
        std::memcpy(static_cast<void*>(&v), at_, sizeof v);
        at_ += sizeof v;
        left_ -= sizeof v;
        return true;
    }
    std::size_t left() const { return left_; }

private:
    const std::byte* at_;
    std::size_t left_;
};

inline std::vector<std::byte> to_bytes(const topology& t) {
    byte_writer out;
    out.put(static_cast<std::uint32_t>(t.hosts.size()));
    out.put(static_cast<std::uint32_t>(t.nics.size()));
    out.put(static_cast<std::uint32_t>(t.ports.size()));
    out.put(static_cast<std::uint32_t>(t.gpus.size()));
    for (const auto& h : t.hosts) out.put(h);
    for (const auto& n : t.nics) out.put(n);
    for (const auto& p : t.ports) out.put(p);
    for (const auto& g : t.gpus) {
        out.put(flat_gpu{g.name, g.host, g.numa, g.pci});
        for (std::size_t n = 0; n < t.nics.size(); ++n) out.put(n < g.to_nic.size() ? g.to_nic[n] : distance{});
    }
    return std::move(out.bytes);
}

/// Checks that every index points somewhere: to be done to a topology from anywhere before it is used.
inline bool consistent(const topology& t) {
    for (const auto& n : t.nics)
        if (n.host.value >= t.hosts.size()) return false;
    for (const auto& p : t.ports)
        if (p.nic.value >= t.nics.size()) return false;
    for (const auto& g : t.gpus)
        if (g.host.value >= t.hosts.size()) return false;
    return true;
}

inline result<topology> topology_from(const std::byte* bytes, std::size_t size) {
    byte_reader in(bytes, size);
    std::uint32_t hosts{}, nics{}, ports{}, gpus{};
    if (!in.get(hosts) || !in.get(nics) || !in.get(ports) || !in.get(gpus)) return errc::bad_blob;
    if (std::size_t{hosts} * sizeof(topology::host) + std::size_t{nics} * sizeof(topology::nic) +
            std::size_t{ports} * sizeof(topology::port) +
            std::size_t{gpus} * (sizeof(flat_gpu) + std::size_t{nics} * sizeof(distance)) !=
        in.left())
        return errc::bad_blob;
    topology t;
    t.hosts.resize(hosts);
    t.nics.resize(nics);
    t.ports.resize(ports);
    t.gpus.resize(gpus);
    bool whole = true;
    for (auto& h : t.hosts) whole &= in.get(h);
    for (auto& n : t.nics) whole &= in.get(n);
    for (auto& p : t.ports) whole &= in.get(p);
    for (auto& g : t.gpus) {
        flat_gpu flat{};
        whole &= in.get(flat);
        g.name = flat.name;
        g.host = flat.host;
        g.numa = flat.numa;
        g.pci = flat.pci;
        g.to_nic.resize(nics);
        for (auto& d : g.to_nic) whole &= in.get(d);
    }
    if (!whole || !consistent(t)) return errc::bad_blob;
    return result<topology>(std::move(t));
}

/// The part of a topology that belongs to one host, renumbered: what `discover()` of that host gives.
inline topology part_of(const topology& t, host_id host) {
    topology out;
    out.hosts.push_back(t.hosts[host.value]);
    std::vector<std::uint16_t> new_nic(t.nics.size(), 0xffff);
    for (std::size_t n = 0; n < t.nics.size(); ++n) {
        if (t.nics[n].host != host) continue;
        new_nic[n] = static_cast<std::uint16_t>(out.nics.size());
        out.nics.push_back(t.nics[n]);
        out.nics.back().host = host_id{0};
    }
    for (const auto& p : t.ports) {
        if (new_nic[p.nic.value] == 0xffff) continue;
        out.ports.push_back(p);
        out.ports.back().nic = nic_id{new_nic[p.nic.value]};
    }
    for (const auto& g : t.gpus) {
        if (g.host != host) continue;
        out.gpus.push_back(g);
        auto& mine = out.gpus.back();
        mine.host = host_id{0};
        mine.to_nic.clear();
        for (std::size_t n = 0; n < t.nics.size(); ++n)
            if (new_nic[n] != 0xffff) mine.to_nic.push_back(n < g.to_nic.size() ? g.to_nic[n] : distance{});
    }
    return out;
}

}  // namespace vccl::inline v0::verbs::soft_detail
