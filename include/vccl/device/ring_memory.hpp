#pragma once
/// \file
/// Owns the memory of one ring: send queue, completion queue, and the words beside them, each kind on lines of its own. What
/// kind of memory it is says a type with `allocate` and `free`: `heap_memory` here, memory that GPUs can use in
/// mapped_memory.hpp. Owner thread.

#include <vccl/base/status.hpp>
#include <vccl/device/atomic.hpp>
#include <vccl/device/ring.hpp>

#include <bit>
#include <concepts>
#include <cstring>
#include <new>
#include <utility>

namespace vccl::inline v0::device {

/// Gives zeroed memory, aligned to 4096 bytes; null when there is none.
template <class M>
concept ring_memory_kind = requires(std::size_t bytes, void* p) {
    { M::allocate(bytes) } noexcept -> std::same_as<void*>;
    { M::free(p) } noexcept -> std::same_as<void>;
};

/// For rings that threads of this process post on; models ring_memory_kind.
struct heap_memory {
    /// Zeroed, aligned to 4 KiB; null: none is left.
    static void* allocate(std::size_t bytes) noexcept {
        void* const p = ::operator new(bytes, std::align_val_t{4096}, std::nothrow);
        if (p != nullptr) std::memset(p, 0, bytes);
        return p;
    }
    /// Null is fine.
    static void free(void* p) noexcept { ::operator delete(p, std::align_val_t{4096}); }
};

/// Move-only owner; made by `create`.
template <ring_memory_kind Memory>
class ring_memory {
public:
    /// Returns: `invalid_argument` for depths out of range (4 to 2^15 slots, at most 2^22 entries), `no_memory`.
    static result<ring_memory> make(std::uint32_t depth, std::uint32_t cq_depth) noexcept {
        if (depth < 4 || depth > 1u << max_ring_depth_log || cq_depth == 0 || cq_depth > max_entries)
            return errc::invalid_argument;
        ring r;
        r.depth_log = static_cast<std::uint32_t>(std::countr_zero(std::bit_ceil(depth)));
        r.cq_depth_log = static_cast<std::uint32_t>(std::countr_zero(std::bit_ceil(cq_depth)));
        const std::size_t wq_bytes = r.depth() * sizeof(wqe_block), cq_bytes = r.cq_depth() * sizeof(cqe64);
        auto* const base = static_cast<std::byte*>(Memory::allocate(wq_bytes + cq_bytes + 3 * line));
        if (base == nullptr) return errc::no_memory;
        r.wq = reinterpret_cast<wqe_block*>(base);
        r.cq = reinterpret_cast<cqe64*>(base + wq_bytes);
        std::byte* const words = base + wq_bytes + cq_bytes;
        r.doorbell_record = reinterpret_cast<std::uint32_t*>(words);
        r.doorbell = reinterpret_cast<std::uint64_t*>(words + line);
        r.cq_record = reinterpret_cast<std::uint32_t*>(words + 2 * line);
        ring_memory made;
        made.view_ = r;
        made.clear();
        return made;
    }

    ring_memory() noexcept = default;
    /// `o` owns nothing afterwards.
    ring_memory(ring_memory&& o) noexcept : view_(std::exchange(o.view_, ring{})) {}
    /// Swaps: what was owned before goes with `o`.
    ring_memory& operator=(ring_memory&& o) noexcept {
        std::swap(view_, o.view_);
        return *this;
    }
    ~ring_memory() {
        if (view_.wq != nullptr) Memory::free(view_.wq);
    }

    /// A view; valid while this owns it, also after moves.
    /// @{
    ring& view() noexcept { return view_; }
    const ring& view() const noexcept { return view_; }
    /// @}

    /// Effects: as new; `cq_record` says that `entry` entries were polled. Nobody posts, polls or consumes meanwhile.
    void clear(std::uint64_t entry = 0) noexcept {
        constexpr auto word = [](auto* p, auto v) { store<order::relaxed, scope::system>(p, v); };
        word(view_.doorbell_record + receive_record, std::uint32_t{0});
        word(view_.doorbell_record + send_record, std::uint32_t{0});
        word(view_.doorbell, std::uint64_t{0});
        word(view_.cq_record, encode_cq_record(entry));
        for (std::uint32_t i = 0; i < view_.cq_depth(); ++i) {
            cqe64 fresh = empty_cqe();
            if (owner_of(entry + i, view_.cq_depth_log) != 0) fresh.word[15] &= ~(1u << 24);
            // The last word by itself: somebody may still glance at it who will find that he has come too late.
            for (unsigned k = 0; k < 15; ++k) view_.entry(entry + i).word[k] = fresh.word[k];
            word(&view_.entry(entry + i).word[15], fresh.word[15]);
        }
    }

private:
    static constexpr std::size_t line = 128;  // two cache lines: what GPUs and some CPUs fetch together
    static constexpr std::uint32_t max_entries = 1u << 22;

    ring view_{};
};

}  // namespace vccl::inline v0::device
