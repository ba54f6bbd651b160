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

/// What endpoints know of a registration. Owned by the context, which keeps and reuses it: a view that has outlived its
/// registration still points to one of these, and its stamp tells. `in_flight` is written by the endpoints' owner threads.
struct memory_region {
    std::uint64_t addr{};  ///< where it begins; a virtual address of this process, or of its GPU
    std::uint64_t bytes{};  ///< how long it is
    /// By the slot that host_context::open gives a port.
    /// @{
    lkey local[max_open_ports]{};
    rkey remote[max_open_ports]{};
    /// @}
    /// Which registration this is: its context in the high 32 bits, its number there in the low ones; 0 once its owner let
    /// go of it.
    std::atomic<std::uint64_t> stamp{};
    std::atomic<std::uint32_t> in_flight{};  ///< chunks posted and not ended
    bool device{};                           ///< GPU memory: never inlined by the CPU, flushed before a chunk counts

    /// Owner threads of different endpoints may share a region, so the count is atomic; it orders nothing.
    void hold() noexcept { in_flight.fetch_add(1, std::memory_order_relaxed); }
    /// The chunk has ended.
    void drop() noexcept { in_flight.fetch_sub(1, std::memory_order_relaxed); }
};

namespace detail {
/// What views point to that are of no registration, or reach outside theirs.
inline constinit memory_region not_memory{}, outside_memory{};

/// Tells the contexts of a process apart: in the high 32 bits, never 0.
inline std::uint64_t next_context_stamp() noexcept {
    static constinit std::atomic<std::uint32_t> contexts{};
    return std::uint64_t{contexts.fetch_add(1, std::memory_order_relaxed) + 1} << 32;
}
}  // namespace detail

/// A piece of registered memory; `memory::view` makes it. It lies inside, or `check()` says what is wrong with it.
class memory_view {
public:
    memory_view() = default;
    /// Made by memory::view; what lies outside the region is seen by check().
    memory_view(memory_region* region, std::uint32_t stamp, std::uint64_t addr, std::uint64_t bytes) noexcept
        : region_(region), addr_(addr), bytes_(bytes), stamp_(stamp) {
        // An address below the region's wraps round and is beyond its end.
        const std::uint64_t offset = addr - region->addr;
        if (offset > region->bytes || bytes > region->bytes - offset) region_ = &detail::outside_memory;
    }

    /// Never null: a view of nothing has a region of its own.
    memory_region* region() const noexcept { return region_; }
    /// May lie outside: see check().
    std::uint64_t addr() const noexcept { return addr_; }
    /// 0 for a view of nothing.
    std::uint64_t bytes() const noexcept { return bytes_; }
    /// The same as addr(); for GPU memory not to be followed on the host.
    void* data() const noexcept { return reinterpret_cast<void*>(addr_); }
    /// A piece of this piece. If it reaches outside, `check()` says so.
    memory_view part(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        memory_view v(region_, stamp_, addr_ + offset, bytes);
        if (offset > bytes_ || bytes > bytes_ - offset) v.region_ = &detail::outside_memory;
        return v;
    }

    /// Is it of memory that is registered now?
    bool good() const noexcept { return low(region_->stamp.load(std::memory_order_relaxed)) == stamp_; }
    /// The same, with the context of this stamp: another's keys are none of its ports'.
    bool good_in(std::uint64_t context_stamp) const noexcept {
        return region_->stamp.load(std::memory_order_relaxed) == (context_stamp | stamp_);
    }
    /// Returns: ok if it is; not_registered, out_of_range.
    status check() const noexcept { return good() ? errc::ok : why_not(); }
    /// The same for one context's endpoints: memory of another context is not_registered, too.
    status check_in(std::uint64_t context_stamp) const noexcept { return good_in(context_stamp) ? errc::ok : why_not(); }
    /// No piece of anything, and no bytes: what a send without bytes may name.
    bool nothing() const noexcept { return bytes_ == 0 && region_ == &detail::not_memory; }

private:
    static std::uint32_t low(std::uint64_t stamp) noexcept { return static_cast<std::uint32_t>(stamp); }
    errc why_not() const noexcept { return region_ == &detail::outside_memory ? errc::out_of_range : errc::not_registered; }

    memory_region* region_{&detail::not_memory};
    std::uint64_t addr_{}, bytes_{};
    std::uint32_t stamp_{~0u};
};

/// Owns a registration. Destroying it while chunks are in flight is safe: the keys stay valid until they have ended
/// (the caller keeps the bytes themselves alive); no new chunk may name it.
class memory {
public:
    /// How the context takes a region back; `force`: also with chunks in flight.
    using releaser = status (*)(void* context, memory_region*, bool force) noexcept;

    memory() = default;
    /// Made by host_context::register_memory.
    memory(memory_region* r, void* context, releaser f) noexcept
        : region_(r),
          context_(context),
          release_(f),
          stamp_(static_cast<std::uint32_t>(r->stamp.load(std::memory_order_relaxed))) {}
    /// `o` owns nothing afterwards.
    memory(memory&& o) noexcept
        : region_(std::exchange(o.region_, nullptr)), context_(o.context_), release_(o.release_), stamp_(o.stamp_) {}
    /// What was owned before is let go of as by the destructor.
    memory& operator=(memory&& o) noexcept {
        if (this != &o) {
            drop();
            region_ = std::exchange(o.region_, nullptr);
            context_ = o.context_;
            release_ = o.release_;
            stamp_ = o.stamp_;
        }
        return *this;
    }
    ~memory() { drop(); }

    /// Does it own a registration?
    explicit operator bool() const noexcept { return region_ != nullptr; }
    /// Bytes; 0 without a registration.
    std::uint64_t size() const noexcept { return region_ ? region_->bytes : 0; }
    /// Null without a registration.
    memory_region* region() const noexcept { return region_; }

    /// A piece of it. If it reaches outside, `check()` says so, and the endpoint that is to use it.
    memory_view view(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return region_ ? memory_view{region_, stamp_, region_->addr + offset, bytes} : memory_view{};
    }
    /// All of it; a view of nothing without a registration.
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
    std::uint32_t stamp_{};
};

}  // namespace vccl::inline v0
