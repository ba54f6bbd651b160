#pragma once
/// \file
/// One process's part of a shared fabric's memory, and the ranges of it that are in use. Who sends from there sends packets
/// that only say where their bytes lie (see `referred` in soft/packet.hpp): these are copied once, by their receiver, where
/// others are copied into the ring and out again. Set-up calls; engine lock.

#include <vccl/base/status.hpp>
#include <vccl/verbs/soft/segment.hpp>

#include <algorithm>
#include <vector>

namespace vccl::inline v0::verbs::soft_detail {

class arena {
public:
    arena() = default;
    arena(std::byte* base, std::uint64_t bytes) noexcept : base_(base), bytes_(bytes) {}

    bool contains(const std::byte* p, std::uint64_t bytes) const noexcept {
        const auto at = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_);
        return at < bytes_ && bytes <= bytes_ - at;
    }
    std::uint64_t offset_of(const std::byte* p) const noexcept { return static_cast<std::uint64_t>(p - base_); }

    /// The lowest gap of whole pages that is large enough. no_memory: there is none.
    result<std::byte*> take(std::uint64_t bytes) {
        if (bytes == 0 || bytes > bytes_) return errc::no_memory;
        const std::uint64_t need = round_up(bytes, page);
        std::uint64_t from = 0;
        auto next = taken_.begin();
        for (; next != taken_.end() && next->begin - from < need; ++next) from = next->end;
        if (bytes_ - from < need) return errc::no_memory;
        taken_.insert(next, {from, from + need});
        return base_ + from;
    }
    void give(const std::byte* p) noexcept {
        std::erase_if(taken_, [&](const range& r) { return r.begin == offset_of(p); });
    }

private:
    struct range {
        std::uint64_t begin, end;
    };
    std::byte* base_{};
    std::uint64_t bytes_{};
    std::vector<range> taken_;  // ascending
};

}  // namespace vccl::inline v0::verbs::soft_detail
