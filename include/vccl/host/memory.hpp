#pragma once
/// \file
/// Registered memory: one handle with the keys of every port that a context has opened. Registering and releasing may
/// be done on any thread; a view is a plain value.

#include <vccl/base/ids.hpp>
#include <vccl/base/status.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace vccl::inline v0 {

inline constexpr unsigned max_open_ports = 16;  ///< ports that one host_context may have open

/// What endpoints know of a registration. Owned by the context; `in_flight` is written by the endpoints' owner threads.
struct memory_region {
    std::uint64_t addr{};
    std::uint64_t bytes{};
    lkey local[max_open_ports]{};
    rkey remote[max_open_ports]{};
    std::atomic<std::uint32_t> in_flight{};  ///< chunks posted and not ended
    std::atomic<bool> live{true};            ///< false once its owner let go of it
    bool device{};                           ///< GPU memory: never inlined by the CPU, flushed before a chunk counts

    /// Owner threads of different endpoints may share a region, so the count is atomic; it orders nothing.
    void hold() noexcept { in_flight.fetch_add(1, std::memory_order_relaxed); }
    void drop() noexcept { in_flight.fetch_sub(1, std::memory_order_relaxed); }
};

/// A piece of registered memory.
struct memory_view {
    memory_region* region{};
    std::uint64_t addr{};
    std::uint64_t bytes{};

    /// Effects: ok if the piece lies inside memory that is registered now.
    status check() const noexcept {
        if (!region || !region->live.load(std::memory_order_relaxed)) return errc::not_registered;
        // An address below the region's wraps round and is beyond its end.
        const std::uint64_t offset = addr - region->addr;
        if (offset > region->bytes || bytes > region->bytes - offset) return errc::out_of_range;
        return {};
    }
    void* data() const noexcept { return reinterpret_cast<void*>(addr); }
};

/// Owns a registration. Destroying it while chunks are in flight is safe: the keys stay valid until they have ended
/// (the caller keeps the bytes themselves alive); no new chunk may name it.
class memory {
public:
    using releaser = status (*)(void* context, memory_region*, bool force) noexcept;

    memory() = default;
    memory(memory_region* r, void* context, releaser f) noexcept : region_(r), context_(context), release_(f) {}
    memory(memory&& o) noexcept : region_(std::exchange(o.region_, nullptr)), context_(o.context_), release_(o.release_) {}
    memory& operator=(memory&& o) noexcept {
        if (this != &o) {
            drop();
            region_ = std::exchange(o.region_, nullptr);
            context_ = o.context_;
            release_ = o.release_;
        }
        return *this;
    }
    ~memory() { drop(); }

    explicit operator bool() const noexcept { return region_ != nullptr; }
    std::uint64_t size() const noexcept { return region_ ? region_->bytes : 0; }
    memory_region* region() const noexcept { return region_; }

    /// A piece of it; `check()` or the endpoint finds out if it reaches outside.
    memory_view view(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return region_ ? memory_view{region_, region_->addr + offset, bytes} : memory_view{};
    }
    memory_view view() const noexcept { return view(0, size()); }

    /// Effects: deregisters now. Returns busy (with the number of chunks in flight) and keeps everything if work is in flight.
    status release() noexcept {
        if (!region_) return errc::not_registered;
        const status s = release_(context_, region_, false);
        if (s) region_ = nullptr;
        return s;
    }

private:
    void drop() noexcept {
        if (region_) (void)release_(context_, region_, true);
        region_ = nullptr;
    }

    memory_region* region_{};
    void* context_{};
    releaser release_{};
};

}  // namespace vccl::inline v0
