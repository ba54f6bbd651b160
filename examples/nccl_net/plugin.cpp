// libnccl-net-vccl.so: the tables that NCCL looks for, and nothing but what turns NCCL's calls into ours. No exception leaves
// here and nothing ends the process: what goes wrong is a line in NCCL's log and an error code.
#include "network.hpp"

#include <vccl/base/status_text.hpp>

#include <cstdlib>
#include <cstring>

namespace nccl_net {

namespace {

/// The process's network: made by the first init(), ended by the last finalize() or, where NCCL has none, at exit.
struct plugin_state {
    std::mutex mutex;
    std::unique_ptr<network> net;
    unsigned users{};

    /// Effects: gives closed connections time to say goodbye, and lets go of everything unless NCCL still uses it.
    void end() noexcept {
        constexpr vccl::nanoseconds patience{1'000'000'000};
        if (!net) return;
        if (net->wind_up(patience)) net.reset();
    }
};

/// Never destroyed: NCCL's threads may still run while the process exits.
plugin_state& state() {
    static plugin_state* const only = [] {
        (void)std::atexit([] {
            const std::scoped_lock lock(state().mutex);
            nccl_log.store(nullptr);
            state().end();
        });
        return new plugin_state;
    }();
    return *only;
}

template <class F>
code guarded(const F& f) noexcept {
    try {
        return f();
    } catch (const settings_error& e) {
        warn(e.what());
        return code::invalid_usage;
    } catch (const std::exception& e) {
        try {
            warn(e.what());
        } catch (...) {  // no memory left for the line either
        }
        return code::system_error;
    }
}

code failed(const char* what, const vccl::status& why) {
    warn(std::string(what) + ": " + vccl::describe(why));
    return why.code == vccl::errc::invalid_argument ? code::internal_error : code::system_error;
}

// --- what all versions share -----------------------------------------------------------------------------------------

code begin(nccl_abi::logger log) noexcept {
    return guarded([&] {
        nccl_log.store(log, std::memory_order_release);
        plugin_state& s = state();
        const std::scoped_lock lock(s.mutex);
        if (s.net) {
            ++s.users;
            return code::success;
        }
        const settings chosen = read_settings();
        s.net = chosen.backend == "soft" ? make_soft_network(chosen) : make_ibv_network(chosen);
        std::string names;
        for (const device& d : s.net->devices()) names += " " + d.name;
        info("backend " + chosen.backend + ", ports" + names + ", backup " +
             std::string(backup_words[static_cast<std::size_t>(chosen.backup)]) + ", " + std::to_string(chosen.qps) +
             " QPs a lane, " + std::to_string(s.net->threads()) + " threads" +
             ((s.net->pointers() & nccl_abi::pointer_cuda) != 0 ? ", GPU memory directly" : ", GPU memory through the host's"));
        ++s.users;
        return code::success;
    });
}

code finalize(void*) noexcept {
    return guarded([] {
        plugin_state& s = state();
        const std::scoped_lock lock(s.mutex);
        if (s.users == 0) return code::internal_error;
        if (--s.users == 0) s.end();
        return code::success;
    });
}

network& net() { return *state().net; }
bool valid(int device) { return state().net && device >= 0 && static_cast<std::size_t>(device) < net().devices().size(); }

code devices(int* count) noexcept {
    if (!state().net) return code::internal_error;
    *count = static_cast<int>(net().devices().size());
    return code::success;
}

template <int Version>
code get_properties(int dev, nccl_abi::properties<Version>* out) noexcept {
    if (!valid(dev)) return code::internal_error;
    const device& d = net().devices()[static_cast<std::size_t>(dev)];
    *out = {};
    out->name = const_cast<char*>(d.name.c_str());
    out->pci_path = d.pci_path.empty() ? nullptr : const_cast<char*>(d.pci_path.c_str());
    out->guid = d.nic;
    out->pointers = net().pointers();
    out->mbit_per_second = static_cast<int>(d.mbit_per_second);
    out->port = static_cast<int>(d.port);
    out->max_comms = 1 << 16;
    out->max_recvs = static_cast<int>(max_group);
    if constexpr (Version >= 8) out->registration = nccl_abi::is_global::yes;
    if constexpr (Version >= 9) {
        out->fused.count = 1;
        out->fused.devices[0] = dev;
        out->largest.p2p = out->largest.collective = vccl::endpoint_options{}.max_chunk;
    }
    if constexpr (Version >= 11) out->requests = nccl_abi::multi_request::one;
    if constexpr (Version >= 12) out->where = {static_cast<std::int16_t>(d.rail), nccl_abi::no_rail};
    return code::success;
}

code listen(int dev, void* where, void** out) noexcept {
    return guarded([&] {
        if (!valid(dev)) return code::internal_error;
        handle h{};
        *out = net().listen(dev, h).release();
        std::memset(where, 0, nccl_abi::handle_bytes);
        std::memcpy(where, &h, sizeof h);
        return code::success;
    });
}

code connect(int dev, void* where, void** out, void**) noexcept {
    *out = nullptr;
    return guarded([&] {
        if (!valid(dev)) return code::internal_error;
        handle h;
        std::memcpy(&h, where, sizeof h);
        if (h.magic != handle::magic_value || h.version != introduction_version) {
            warn("the other rank listens with another net plugin, or another version of this one; give all ranks the same");
            return code::invalid_usage;
        }
        std::unique_ptr<send_comm> made;
        const code c = net().connect(dev, h, made);
        if (made) {
            net().look_after(*made);
            *out = static_cast<comm*>(made.release());
        }
        return c;
    });
}

code accept(void* from, void** out, void**) noexcept {
    *out = nullptr;
    return guarded([&] {
        std::unique_ptr<recv_comm> made;
        const code c = static_cast<listener*>(from)->accept(made);
        if (made) {
            net().look_after(*made);
            *out = static_cast<comm*>(made.release());
        }
        return c;
    });
}

code register_memory(void*, void* data, std::size_t bytes, int pointer, void** out) noexcept {
    return guarded([&] {
        if ((net().pointers() & pointer) == 0) {
            warn("cannot register GPU memory: this backend was said to take host memory only");
            return code::internal_error;
        }
        auto r = net().register_memory(data, bytes, pointer != nccl_abi::pointer_host);
        if (!r) return failed("cannot register memory", r.error());
        *out = *r;
        return code::success;
    });
}

code register_dmabuf(void*, void* data, std::size_t bytes, int, std::uint64_t offset, int fd, void** out) noexcept {
    return guarded([&] {
        auto r = net().register_dmabuf(data, bytes, offset, fd);
        if (!r) return failed("cannot register GPU memory through a dma-buf", r.error());
        *out = *r;
        return code::success;
    });
}

code deregister(void* user, void* memory) noexcept {
    return guarded([&] {
        const bool ours = net().deregister(static_cast<registration*>(memory), *static_cast<comm*>(user));
        return ours ? code::success : code::internal_error;
    });
}

inline vccl::memory_view piece(const comm& c, void* memory, const void* data, std::size_t bytes) noexcept {
    return memory ? static_cast<const registration*>(memory)->view(c.share, data, bytes) : vccl::memory_view{};
}

/// A connection's turn. Where the keeper drives it NCCL's thread does not wait for it: NCCL asks again in a moment.
inline __attribute__((always_inline)) std::unique_lock<comm_turn> turn_at(comm& c) noexcept {
    if (c.driven) return std::unique_lock(c.turn, std::try_to_lock);
    c.attended.store(true, std::memory_order_relaxed);
    return std::unique_lock(c.turn);
}

code isend(void* to, void* data, std::size_t bytes, int tag, void* memory, void** out) noexcept {
    *out = nullptr;
    auto& c = static_cast<send_comm&>(*static_cast<comm*>(to));
    const auto turn = turn_at(c);
    if (!turn) return code::success;
    request* r = nullptr;
    const code result = c.isend(bytes ? piece(c, memory, data, bytes) : vccl::memory_view{}, tag, &r);
    *out = r;
    if (c.driven && r) c.kept_by->wake();
    return result;
}

/// Of a group's buffers; only those of which there are any are made.
union views {
    views() noexcept {}
    vccl::memory_view at[max_group];
};

template <class Size>  // int or std::size_t
code irecv(void* from, int n, void** data, Size* sizes, int* tags, void** memory, void** out) noexcept {
    *out = nullptr;
    if (n < 1 || n > static_cast<int>(max_group)) return code::internal_error;
    auto& c = static_cast<recv_comm&>(*static_cast<comm*>(from));
    const auto turn = turn_at(c);
    if (!turn) return code::success;
    views rooms;
    for (int i = 0; i < n; ++i) std::construct_at(&rooms.at[i], piece(c, memory[i], data[i], static_cast<std::size_t>(sizes[i])));
    request* r = nullptr;
    const code result = c.irecv(n, rooms.at, tags, &r);
    *out = r;
    if (c.driven && r) c.kept_by->wake();
    return result;
}

/// Nothing to be done: bytes in GPU memory were flushed before they counted as received.
code iflush(void*, int, void**, int*, void**, void** out) noexcept {
    *out = nullptr;
    return code::success;
}

code test(void* what, int* done, int* sizes) noexcept {
    auto* r = static_cast<request*>(what);
    *done = 0;
    if (!r) return code::internal_error;
    const auto turn = turn_at(*r->owner);
    if (!turn) return code::success;
    if (!r->used) return code::internal_error;
    return r->owner->test(*r, done, sizes);
}

code close_comm(void* what) noexcept {
    return guarded([&] {
        auto* const c = static_cast<comm*>(what);
        c->kept_by->part_with(keeper::owned_comm(c));
        return code::success;
    });
}

code close_listen(void* what) noexcept {
    delete static_cast<listener*>(what);
    return code::success;
}

// --- where the versions differ: a table's type says which of these it takes -----------------------------------------------

code begin(nccl_abi::logger log, nccl_abi::profiler) noexcept { return begin(log); }
code begin(void** context, std::uint64_t, nccl_abi::comm_config*, nccl_abi::logger log, nccl_abi::profiler) noexcept {
    *context = nullptr;
    return begin(log);
}

code listen(void*, int dev, void* where, void** out) noexcept { return listen(dev, where, out); }
code connect(int dev, nccl_abi::comm_config*, void* where, void** out, void** offload) noexcept {
    return connect(dev, where, out, offload);
}
code connect(void*, int dev, void* where, void** out, void** offload) noexcept { return connect(dev, where, out, offload); }

code register_memory(void* c, void* data, int bytes, int pointer, void** out) noexcept {
    return bytes < 0 ? code::internal_error : register_memory(c, data, static_cast<std::size_t>(bytes), pointer, out);
}
code isend(void* to, void* data, int bytes, int tag, void* memory, void** out) noexcept {
    return bytes < 0 ? code::internal_error : isend(to, data, static_cast<std::size_t>(bytes), tag, memory, out);
}
code isend(void* to, void* data, std::size_t bytes, int tag, void* memory, void*, void** out) noexcept {
    return isend(to, data, bytes, tag, memory, out);
}
code irecv(void* from, int n, void** data, std::size_t* sizes, int* tags, void** memory, void**, void** out) noexcept {
    return irecv(from, n, data, sizes, tags, memory, out);
}

template <int Version>
constexpr nccl_abi::net<Version> table() {
    nccl_abi::net<Version> t{};
    t.name = "VCCL";
    t.init = begin;
    t.devices = devices;
    t.get_properties = get_properties;
    t.listen = listen;
    t.connect = connect;
    t.accept = accept;
    t.register_memory = register_memory;
    t.register_dmabuf = register_dmabuf;
    t.deregister = deregister;
    t.isend = isend;
    t.irecv = irecv;
    t.iflush = iflush;
    t.test = test;
    t.close_send = close_comm;
    t.close_recv = close_comm;
    t.close_listen = close_listen;
    if constexpr (Version >= 11) t.context.finalize = finalize;
    return t;
}

}  // namespace

}  // namespace nccl_net

#define NCCL_NET_TABLE(VERSION)                                                                                         \
    extern "C" __attribute__((visibility("default"))) constinit const nccl_abi::net<VERSION> ncclNetPlugin_v##VERSION = \
        nccl_net::table<VERSION>()

NCCL_NET_TABLE(7);
NCCL_NET_TABLE(8);
NCCL_NET_TABLE(9);
NCCL_NET_TABLE(10);
NCCL_NET_TABLE(11);
NCCL_NET_TABLE(12);
