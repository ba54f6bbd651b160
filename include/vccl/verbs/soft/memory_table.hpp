#pragma once
/// \file
/// Registered memory of one process: keys, bounds, and the port object (protection domain) each belongs to. A key has a
/// generation, so a key of deregistered memory is refused; lkey and rkey of a region differ, so a mix-up is caught.
/// Engine lock.

#include <vccl/model/work.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vccl::inline v0::verbs::soft_detail {

class memory_table {
public:
    static constexpr std::uint32_t remote_bit = 0x80000000;

    /// The region's local key.
    std::uint32_t add(std::uint32_t domain, void* memory, std::size_t bytes) {
        std::uint32_t index;
        if (free_.empty()) {
            index = static_cast<std::uint32_t>(regions_.size());
            regions_.push_back({});
        } else {
            index = free_.back();
            free_.pop_back();
        }
        region& r = regions_[index];
        r.start = reinterpret_cast<std::uintptr_t>(memory);
        r.bytes = bytes;
        r.domain = domain;
        r.live = true;
        return key(index, r.generation);
    }

    void remove(std::uint32_t local_key) noexcept {
        region* r = find(local_key);
        if (r == nullptr) return;
        r->live = false;
        ++r->generation;
        free_.push_back(local_key >> 8 & 0x7fffff);
    }

    struct extent {
        std::uint64_t start, bytes;
    };
    /// Of nothing when the key is not good.
    extent range_of(std::uint32_t local_key) noexcept {
        const region* r = find(local_key);
        return r == nullptr ? extent{} : extent{r->start, r->bytes};
    }

    /// The bytes, or null when the key or the range is not good. Callers do not ask about zero bytes.
    std::byte* local(std::uint32_t domain, lkey k, std::uint64_t addr, std::uint64_t length) noexcept {
        return (k.value & remote_bit) != 0 ? nullptr : check(domain, k.value, addr, length);
    }
    std::byte* remote(std::uint32_t domain, rkey k, std::uint64_t addr, std::uint64_t length) noexcept {
        return (k.value & remote_bit) == 0 ? nullptr : check(domain, k.value & ~remote_bit, addr, length);
    }

    static constexpr bool full(std::size_t regions) noexcept { return regions >= 0x7fffff; }
    std::size_t size() const noexcept { return regions_.size(); }

private:
    struct region {
        std::uint64_t start{}, bytes{};
        std::uint32_t domain{};
        std::uint8_t generation{1};
        bool live{};
    };

    static std::uint32_t key(std::uint32_t index, std::uint8_t generation) noexcept { return index << 8 | generation; }

    region* find(std::uint32_t k) noexcept {
        const std::uint32_t index = k >> 8;
        if (index >= regions_.size()) return nullptr;
        region& r = regions_[index];
        return r.live && r.generation == (k & 0xff) ? &r : nullptr;
    }
    std::byte* check(std::uint32_t domain, std::uint32_t k, std::uint64_t addr, std::uint64_t length) noexcept {
        const region* r = find(k);
        if (r == nullptr || r->domain != domain || addr < r->start || length > r->bytes || addr - r->start > r->bytes - length)
            return nullptr;
        return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(addr));
    }

    std::vector<region> regions_;
    std::vector<std::uint32_t> free_;
};

}  // namespace vccl::inline v0::verbs::soft_detail
