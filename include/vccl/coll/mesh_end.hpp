#pragma once
/// \file
/// How a mesh makes and uses its ends: those that the caller drives as they are, those of a proxy under their lock. Used by
/// `host_mesh`.

#include <vccl/coll/endpoint.hpp>
#include <vccl/host/proxy.hpp>

#include <memory>

namespace vccl::inline v0 {

namespace detail {
/// What a mesh needs of its ends, whoever drives them.
template <class End>
struct mesh_end {
    using endpoint = End;
    using in_collective = End;
    template <class... Args>
    static std::unique_ptr<End> make(proxy*, Args&&... args) {
        return std::make_unique<End>(std::forward<Args>(args)...);
    }
    template <class F>
    static decltype(auto) use(End& e, F&& f) noexcept(noexcept(f(e))) {
        return f(e);
    }
};
template <class Endpoint>
struct mesh_end<proxied<Endpoint>> {
    using endpoint = Endpoint;
    using in_collective = driven<proxied<Endpoint>>;
    template <class... Args>
    static std::unique_ptr<proxied<Endpoint>> make(proxy* driver, Args&&... args) {
        return std::make_unique<proxied<Endpoint>>(*driver, std::forward<Args>(args)...);
    }
    template <class F>
    static auto use(proxied<Endpoint>& e, F&& f) noexcept(noexcept(e.locked(f))) {
        return e.locked(f);
    }
};
}  // namespace detail

}  // namespace vccl::inline v0
