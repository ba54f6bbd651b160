#pragma once
/// \file
/// A software NIC with a port to which no peer's address is told at first, as a kernel's tables may know none.

#include <vccl/verbs/soft.hpp>

#include <string_view>

namespace vccl_test {

struct shy_nic : vccl::verbs::soft {
    struct port : vccl::verbs::soft::port {
        using base = vccl::verbs::soft::port;
        port() = default;
        port(base&& p, const vccl::port_name& n) noexcept : base(std::move(p)), name(n) {}
        vccl::status find_peer(const vccl::port_attributes&, const vccl::gid&) noexcept {
            if (name.view() != where) return {};
            ++asked;
            if (untold == 0) return {};
            --untold;
            return {vccl::errc::timeout, vccl::subject::peer_address, 0};
        }
        vccl::port_name name;
    };
    static inline std::string_view where;  ///< that port
    static inline unsigned untold{};       ///< so many questions are not answered yet
    static inline unsigned asked{};

    /// Effects: begins anew.
    static void shy_at(std::string_view name, unsigned questions) {
        where = name;
        untold = questions;
        asked = 0;
    }

    shy_nic(vccl::verbs::soft nic) noexcept : vccl::verbs::soft(std::move(nic)) {}
    vccl::result<port> open(const vccl::port_name& name) const noexcept {
        auto p = vccl::verbs::soft::open(name);
        if (!p) return p.error();
        return port(std::move(*p), name);
    }
};
static_assert(vccl::verbs_backend<shy_nic>);

}  // namespace vccl_test
