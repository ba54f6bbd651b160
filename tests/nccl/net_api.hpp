#pragma once
// A net plugin as NCCL would use it: loaded through dlopen, any version of the table behind one set of calls. One thread.
#include "../../examples/nccl_net/abi.hpp"

#include <dlfcn.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace nccl_test {

using nccl_abi::code;

using newest_properties = nccl_abi::properties<nccl_abi::newest_version>;

struct net_api {
    std::function<code(nccl_abi::logger)> init;
    std::function<code()> finalize;  // empty before version 11
    std::function<code(int*)> devices;
    std::function<code(int, newest_properties*)> properties;
    std::function<code(int, void*, void**)> listen, connect;
    std::function<code(void*, void**)> accept;
    std::function<code(void*, void*, std::size_t, int, void**)> register_memory;
    std::function<code(void*, void*, std::size_t, int, std::uint64_t, int, void**)> register_dmabuf;
    std::function<code(void*, void*)> deregister;
    std::function<code(void*, void*, std::size_t, int, void*, void**)> isend;
    std::function<code(void*, int, void**, std::size_t*, int*, void**, void**)> irecv;
    std::function<code(void*, int, void**, int*, void**, void**)> iflush;
    std::function<code(void*, int*, int*)> test;
    std::function<code(void*)> close_send, close_recv, close_listen;
};

namespace detail {

template <int Version>
newest_properties widened(const nccl_abi::properties<Version>& p) {
    newest_properties out{};
    out.name = p.name;
    out.pci_path = p.pci_path;
    out.guid = p.guid;
    out.pointers = p.pointers;
    out.mbit_per_second = p.mbit_per_second;
    out.port = p.port;
    out.max_recvs = p.max_recvs;
    return out;
}

template <int Version>
net_api bind(const void* table) {
    static void* context;
    const auto* const t = static_cast<const nccl_abi::net<Version>*>(table);
    net_api n;
    n.init = [t](nccl_abi::logger log) {
        nccl_abi::comm_config config{-1};
        if constexpr (Version >= 11)
            return t->init(&context, 1, &config, log, nullptr);
        else if constexpr (Version >= 10)
            return t->init(log, nullptr);
        else
            return t->init(log);
    };
    if constexpr (Version >= 11) n.finalize = [t] { return t->context.finalize(context); };
    n.devices = t->devices;
    n.properties = [t](int dev, newest_properties* out) {
        nccl_abi::properties<Version> p{};
        const code c = t->get_properties(dev, &p);
        *out = widened(p);
        return c;
    };
    n.listen = [t](int dev, void* handle, void** out) {
        if constexpr (Version >= 11)
            return t->listen(context, dev, handle, out);
        else
            return t->listen(dev, handle, out);
    };
    n.connect = [t](int dev, void* handle, void** out) {
        nccl_abi::comm_config config{-1};
        if constexpr (Version >= 11)
            return t->connect(context, dev, handle, out, nullptr);
        else if constexpr (Version >= 10)
            return t->connect(dev, &config, handle, out, nullptr);
        else
            return t->connect(dev, handle, out, nullptr);
    };
    n.accept = [t](void* listener, void** out) { return t->accept(listener, out, nullptr); };
    n.register_memory = [t](void* comm, void* data, std::size_t bytes, int pointer, void** out) {
        return t->register_memory(comm, data, static_cast<nccl_abi::detail::region_size<Version>>(bytes), pointer, out);
    };
    n.register_dmabuf = t->register_dmabuf;
    n.deregister = t->deregister;
    n.isend = [t](void* to, void* data, std::size_t bytes, int tag, void* memory, void** out) {
        const auto size = static_cast<nccl_abi::detail::size<Version>>(bytes);
        if constexpr (Version >= 10)
            return t->isend(to, data, size, tag, memory, nullptr, out);
        else
            return t->isend(to, data, size, tag, memory, out);
    };
    n.irecv = [t](void* from, int count, void** data, std::size_t* bytes, int* tags, void** memory, void** out) {
        std::vector<nccl_abi::detail::size<Version>> sizes(bytes, bytes + (count > 0 ? count : 0));
        if constexpr (Version >= 10)
            return t->irecv(from, count, data, sizes.data(), tags, memory, nullptr, out);
        else
            return t->irecv(from, count, data, sizes.data(), tags, memory, out);
    };
    n.iflush = t->iflush;
    n.test = t->test;
    n.close_send = t->close_send;
    n.close_recv = t->close_recv;
    n.close_listen = t->close_listen;
    return n;
}

/// The table of that version, among `Version` and all later ones.
template <int Version>
net_api bind_one(int version, const void* table) {
    if constexpr (Version < nccl_abi::newest_version)
        if (version != Version) return bind_one<Version + 1>(version, table);
    return bind<Version>(table);
}

}  // namespace detail

/// Errors: std::runtime_error if the library or its table of that version is not there.
inline net_api load(const std::string& path, int version) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(::dlerror());
    const void* const table = ::dlsym(library, ("ncclNetPlugin_v" + std::to_string(version)).c_str());
    if (!table) throw std::runtime_error("no table of version " + std::to_string(version));
    return detail::bind_one<nccl_abi::oldest_version>(version, table);
}

}  // namespace nccl_test
