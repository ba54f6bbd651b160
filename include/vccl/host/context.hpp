#pragma once
/// \file
/// A process's share of the machine: the backend, the ports that its endpoints use, and registered memory. Endpoints
/// refer to it and must go before it. Opening ports and registering memory: any thread. `poll_events`: any thread, one at
/// a time does the work. An endpoint sees a port's change by comparing one word.

#include <vccl/base/mutex.hpp>
#include <vccl/base/owned.hpp>
#include <vccl/host/memory.hpp>
#include <vccl/verbs/backend.hpp>

#include <atomic>
#include <vector>

namespace vccl::inline v0 {

/// A port as its endpoints see it. `changes` rises with every event; the other words are what was found then.
template <verbs_backend B>
struct open_port {
    port_id id{};  ///< in the context's topology
    port_name name{};  ///< as the backend was asked for it
    typename B::port port;  ///< the backend's
    std::atomic<std::uint32_t> changes{};       ///< written after the words below, read before them (release, acquire)
    std::atomic<bool> up{};                     ///< may carry traffic, as last found
    std::atomic<std::uint32_t> down_events{};   ///< PORT_ERR seen; a flap too quick for `up` still counts
    std::atomic<std::uint32_t> gid_events{};  ///< GID_CHANGE seen; whether the port's own GID is another now, its lanes find out.
    std::atomic<std::uint32_t> device_events{};  ///< DEVICE_FATAL or a CQ error seen
    std::atomic<std::uint64_t> bytes_per_second{};  ///< line rate as last found; 0: unknown

    /// Made by host_context::open.
    open_port(port_id i, port_name n, typename B::port p) : id(i), name(n), port(std::move(p)) {}
};

/// One a process is usual: its memory is registered once for all channels.
template <verbs_backend B>
class host_context {
public:
    /// `shape`: this machine's topology, from `backend.discover()`, from text, or written by hand.
    VCCL_COLD host_context(B backend, topology shape) : backend_(std::move(backend)), shape_(std::move(shape)) {}
    host_context(const host_context&) = delete;
    VCCL_COLD ~host_context() {
        while (regions_) regions_ = std::move(regions_->next);
    }

    /// What it was made with.
    const topology& shape() const noexcept { return shape_; }
    /// Its own copy of what it was made with.
    B& backend() noexcept { return backend_; }
    /// What the stamps of memory registered here have in their high half.
    std::uint64_t stamp() const noexcept { return stamp_; }

    /// Opens a port once and returns its slot: the index of its keys in every memory_region.
    VCCL_COLD result<unsigned> open(port_id id) {
        const scoped_lock lock(mutex_);
        for (unsigned i = 0; i < count_.load(std::memory_order_relaxed); ++i)
            if (ports_[i]->id == id) return i;
        if (!shape_.valid(id)) return status{errc::no_port, subject::port, id.value};
        const unsigned slot = count_.load(std::memory_order_relaxed);
        if (slot == max_open_ports) return status{errc::no_memory, max_open_ports};
        auto p = backend_.open(shape_.ports[id.value].name);
        if (!p) return p.error();
        ports_[slot].reset(new open_port<B>(id, shape_.ports[id.value].name, std::move(*p)));
        refresh(*ports_[slot]);
        for (registered* r = regions_.get(); r; r = r->next.get())
            if (status s = r->vacant ? status{} : register_on(*r, slot); !s) {
                ports_[slot].reset();
                return s;
            }
        count_.store(slot + 1, std::memory_order_release);
        return slot;
    }
    /// How many so far; slots 0 to this are open. A port is never closed before the context ends.
    unsigned open_ports() const noexcept { return count_.load(std::memory_order_acquire); }
    /// Requires: slot < open_ports().
    open_port<B>& port(unsigned slot) noexcept { return *ports_[slot]; }

    /// Registers [p, p + bytes) with every open port, and with those opened later. `device`: GPU memory.
    VCCL_COLD result<memory> register_memory(void* p, std::uint64_t bytes, bool device = false) {
        if (!p || bytes == 0) return errc::invalid_argument;
        registered fresh;
        fresh.region.addr = reinterpret_cast<std::uint64_t>(p);
        fresh.region.bytes = bytes;
        fresh.region.device = device;
        return add(fresh);
    }

    /// Registers GPU memory through a dma-buf (ibv_reg_dmabuf_mr). `addr`: where the device sees it.
    result<memory> register_dmabuf(int fd, std::uint64_t offset, std::uint64_t addr, std::uint64_t bytes)
        requires(B::capabilities.dmabuf)
    {
        if (fd < 0 || bytes == 0) return errc::invalid_argument;
        registered fresh;
        fresh.region.addr = addr;
        fresh.region.bytes = bytes;
        fresh.region.device = true;
        fresh.dmabuf = fd;
        fresh.offset = offset;
        return add(fresh);
    }

    /// Takes what the ports have to report and publishes it. Cheap when there is nothing; call it now and then. With
    /// `look`, ports that are down are asked, too, which makes good a missing PORT_ACTIVE. A port that is up is never
    /// asked: a driver may hold the answer back while an administrator's command is under way (RoCE ports wait for the
    /// kernel's network lock), and its failure is found by other means.
    VCCL_COLD void poll_events(bool look) noexcept {
        const scoped_try_lock lock(events_mutex_);
        if (!lock) return;
        for (unsigned i = 0; i < open_ports(); ++i) {
            open_port<B>& p = *ports_[i];
            bool changed = false;
            for (unsigned n = 0; n < 32; ++n) {
                auto e = p.port.next_event();
                if (!e || e->what == async_event::kind::none) break;
                changed = true;
                switch (e->what) {
                    case async_event::kind::port_error:
                        p.down_events.fetch_add(1, std::memory_order_relaxed);
                        p.up.store(false);
                        break;
                    case async_event::kind::port_active: p.up.store(true); break;
                    case async_event::kind::gid_change:
                    case async_event::kind::lid_change: p.gid_events.fetch_add(1, std::memory_order_relaxed); break;
                    case async_event::kind::device_fatal:
                    case async_event::kind::cq_error: p.device_events.fetch_add(1, std::memory_order_relaxed); break;
                    default: break;
                }
            }
            if (look && !p.up.load()) changed |= refresh(p);
            if (changed) p.changes.fetch_add(1, std::memory_order_release);
        }
    }

private:
    struct registered {
        memory_region region;
        int dmabuf{-1};
        std::uint64_t offset{};
        late<typename B::port::mr> keys[max_open_ports];

        bool vacant{true};
        owned<registered> next;

        registered() = default;
        registered(const registered&) = delete;
        void deregister() noexcept {
            for (auto& k : keys) k.reset();
            vacant = true;
        }
    };

    VCCL_COLD result<memory> add(registered& fresh) {
        const scoped_lock lock(mutex_);
        sweep();
        registered& r = vacancy();
        r.region.addr = fresh.region.addr;
        r.region.bytes = fresh.region.bytes;
        r.region.device = fresh.region.device;
        r.dmabuf = fresh.dmabuf;
        r.offset = fresh.offset;
        for (unsigned i = 0; i < count_.load(std::memory_order_relaxed); ++i)
            if (status s = register_on(r, i); !s) {
                r.deregister();
                return s;
            }
        r.vacant = false;
        r.region.stamp.store(stamp_ | ++registrations_, std::memory_order_relaxed);
        return memory{&r.region, this, &host_context::release};
    }

    /// Regions are never freed before the context is: views may point to them for as long.
    VCCL_COLD registered& vacancy() {
        for (registered* r = regions_.get(); r; r = r->next.get())
            if (r->vacant) return *r;
        owned<registered> fresh(new registered);
        fresh->next = std::move(regions_);
        regions_ = std::move(fresh);
        return *regions_;
    }

    VCCL_COLD status register_on(registered& r, unsigned slot) {
        auto key = [&]() -> result<typename B::port::mr> {
            if constexpr (B::capabilities.dmabuf)
                if (r.dmabuf >= 0) return ports_[slot]->port.register_dmabuf(r.dmabuf, r.offset, r.region.bytes, r.region.addr);
            return ports_[slot]->port.register_memory(reinterpret_cast<void*>(r.region.addr), r.region.bytes);
        }();
        if (!key) return key.error();
        r.region.local[slot] = key->local_key();
        r.region.remote[slot] = key->remote_key();
        r.keys[slot].emplace(std::move(*key));
        return {};
    }

    /// Deregisters what was let go of and is no longer in flight.
    VCCL_COLD void sweep() noexcept {
        for (registered* r = regions_.get(); r; r = r->next.get())
            if (!r->vacant && r->region.stamp.load() == 0 && r->region.in_flight.load(std::memory_order_acquire) == 0)
                r->deregister();
    }

    VCCL_COLD static status release(void* self, memory_region* region, bool force) noexcept {
        auto& c = *static_cast<host_context*>(self);
        const scoped_lock lock(c.mutex_);
        const std::uint32_t flying = region->in_flight.load(std::memory_order_acquire);
        if (flying != 0 && !force) return {errc::busy, subject::in_flight, flying};
        region->stamp.store(0);
        c.sweep();
        return {};
    }

    VCCL_COLD static bool refresh(open_port<B>& p) noexcept {
        auto a = p.port.query();
        const bool up = a && a->state == port_state::active;
        if (a) p.bytes_per_second.store(a->bytes_per_second, std::memory_order_relaxed);
        return p.up.exchange(up) != up;
    }

    B backend_;
    topology shape_;
    mutex mutex_, events_mutex_;
    std::atomic<unsigned> count_{};
    owned<open_port<B>> ports_[max_open_ports];
    owned<registered> regions_;
    const std::uint64_t stamp_{detail::next_context_stamp()};
    std::uint32_t registrations_{};
};

}  // namespace vccl::inline v0
