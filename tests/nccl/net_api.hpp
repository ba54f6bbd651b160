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

struct net_api {
    std::function<code(nccl_abi::logger)> init;
    std::function<code()> finalize;  // empty before version 11
    std::function<code(int*)> devices;
    std::function<code(int, nccl_abi::properties_v12*)> properties;
    std::function<code(int, void*, void**)> listen, connect;
    std::function<code(void*, void**)> accept;
    std::function<code(void*, void*, std::size_t, int, void**)> register_memory;
    std::function<code(void*, void*)> deregister;
    std::function<code(void*, void*, std::size_t, int, void*, void**)> isend;
    std::function<code(void*, int, void**, std::size_t*, int*, void**, void**)> irecv;
    std::function<code(void*, int, void**, int*, void**, void**)> iflush;
    std::function<code(void*, int*, int*)> test;
    std::function<code(void*)> close_send, close_recv, close_listen;
};

namespace detail {

template <class Properties>
nccl_abi::properties_v12 widened(const Properties& p) {
    nccl_abi::properties_v12 out{};
    out.name = p.name;
    out.pci_path = p.pci_path;
    out.guid = p.guid;
    out.pointers = p.pointers;
    out.mbit_per_second = p.mbit_per_second;
    out.port = p.port;
    out.max_recvs = p.max_recvs;
    return out;
}

template <class Properties, class Table>
net_api bind(const Table* t, void** context) {
    net_api n;
    if constexpr (requires { t->finalize; })
        n.init = [t, context](nccl_abi::logger log) {
            nccl_abi::comm_config config{-1};
            return t->init(context, 1, &config, log, nullptr);
        };
    else if constexpr (requires { t->init(nullptr, nullptr); })
        n.init = [t](nccl_abi::logger log) { return t->init(log, nullptr); };
    else
        n.init = [t](nccl_abi::logger log) { return t->init(log); };
    if constexpr (requires { t->finalize; }) n.finalize = [t, context] { return t->finalize(*context); };
    n.devices = t->devices;
    n.properties = [t](int dev, nccl_abi::properties_v12* out) {
        Properties p{};
        const code c = t->get_properties(dev, &p);
        *out = widened(p);
        return c;
    };
    n.listen = [=](int dev, void* handle, void** out) {
        if constexpr (requires { t->finalize; })
            return t->listen(*context, dev, handle, out);
        else
            return t->listen(dev, handle, out);
    };
    n.connect = [=](int dev, void* handle, void** out) {
        nccl_abi::comm_config config{-1};
        if constexpr (requires { t->finalize; })
            return t->connect(*context, dev, handle, out, nullptr);
        else if constexpr (requires { t->connect(dev, &config, handle, out, nullptr); })
            return t->connect(dev, &config, handle, out, nullptr);
        else
            return t->connect(dev, handle, out, nullptr);
    };
    n.accept = [t](void* listener, void** out) { return t->accept(listener, out, nullptr); };
    n.register_memory = t->register_memory;
    n.deregister = t->deregister;
    n.isend = [t](void* to, void* data, std::size_t bytes, int tag, void* memory, void** out) {
        if constexpr (requires { t->isend(to, data, bytes, tag, memory, nullptr, out); })
            return t->isend(to, data, bytes, tag, memory, nullptr, out);
        else if constexpr (requires(int n) {
                               (void)(t->isend == static_cast<code (*)(void*, void*, int, int, void*, void**)>(nullptr));
                           })
            return t->isend(to, data, static_cast<int>(bytes), tag, memory, out);
        else
            return t->isend(to, data, bytes, tag, memory, out);
    };
    n.irecv = [t](void* from, int count, void** data, std::size_t* bytes, int* tags, void** memory, void** out) {
        if constexpr (requires { t->irecv(from, count, data, bytes, tags, memory, nullptr, out); }) {
            return t->irecv(from, count, data, bytes, tags, memory, nullptr, out);
        } else if constexpr (requires { t->irecv(from, count, data, bytes, tags, memory, out); }) {
            return t->irecv(from, count, data, bytes, tags, memory, out);
        } else {
            std::vector<int> sizes(bytes, bytes + count);
            return t->irecv(from, count, data, sizes.data(), tags, memory, out);
        }
    };
    n.iflush = t->iflush;
    n.test = t->test;
    n.close_send = t->close_send;
    n.close_recv = t->close_recv;
    n.close_listen = t->close_listen;
    return n;
}

}  // namespace detail

/// Errors: std::runtime_error if the library or its table of that version is not there.
inline net_api load(const std::string& path, int version) {
    static void* context;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(::dlerror());
    const void* const table = ::dlsym(library, ("ncclNetPlugin_v" + std::to_string(version)).c_str());
    if (!table) throw std::runtime_error("no table of version " + std::to_string(version));
    switch (version) {
        case 8: return detail::bind<nccl_abi::properties_v8>(static_cast<const nccl_abi::net_v8*>(table), &context);
        case 9: return detail::bind<nccl_abi::properties_v9>(static_cast<const nccl_abi::net_v9*>(table), &context);
        case 10: return detail::bind<nccl_abi::properties_v9>(static_cast<const nccl_abi::net_v10*>(table), &context);
        case 11: return detail::bind<nccl_abi::properties_v11>(static_cast<const nccl_abi::net_v11*>(table), &context);
        default: return detail::bind<nccl_abi::properties_v12>(static_cast<const nccl_abi::net_v12*>(table), &context);
    }
}

}  // namespace nccl_test
