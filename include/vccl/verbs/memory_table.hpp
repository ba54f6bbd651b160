#pragma once
/// \file
/// Registered memory of one process: keys, bounds, and the protection domain each belongs to. A key has a generation, so a
/// key of deregistered memory is refused; lkey and rkey of a region differ, so a mix-up is caught. For backends in software;
/// one thread at a time.

#include <vccl/model/work.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace vccl::inline v0::verbs {

/// Keys and what they cover.
class memory_table {
public:
    /// Tells an rkey from the lkey of the same region.
    static constexpr std::uint32_t remote_bit = 0x80000000;

    /// Returns: the region's local key. Errors: invalid_argument (nothing, or beyond the end of the address space), no_memory.
    result<std::uint32_t> add(std::uint32_t domain, void* memory, std::size_t bytes) noexcept {
        if (memory == nullptr || bytes == 0 || reinterpret_cast<std::uintptr_t>(memory) + bytes < bytes)
            return errc::invalid_argument;
        if (free_ == none) {
            if (regions_.size() == none) return errc::no_memory;
            try {
                regions_.push_back({});
            } catch (const std::bad_alloc&) { return errc::no_memory; }
            free_ = static_cast<std::uint32_t>(regions_.size() - 1);
        }
        const std::uint32_t index = free_;
        region& r = regions_[index];
        free_ = r.next_free;
        r.start = reinterpret_cast<std::uintptr_t>(memory);
        r.bytes = bytes;
        r.domain = domain;
        r.live = true;
        return key(index, r.generation);
    }

    /// Effects: both keys are refused from now on.
    void remove(std::uint32_t local_key) noexcept {
        region* r = find(local_key);
        if (r == nullptr) return;
        r->live = false;
        ++r->generation;
        r->next_free = free_;
        free_ = local_key >> 8;
    }

    /// What a key covers.
    struct extent {
        std::uint64_t start;  ///< its address
        std::uint64_t bytes;  ///< from there on
    };
    /// Of nothing when the key is not good.
    extent range_of(std::uint32_t local_key) noexcept {
        const region* r = find(local_key);
        return r == nullptr ? extent{} : extent{r->start, r->bytes};
    }

    /// The bytes, or null when the key or the range is not good. Callers do not ask about zero bytes.
    /// @{
    std::byte* local(std::uint32_t domain, lkey k, std::uint64_t addr, std::uint64_t length) noexcept {
        return (k.value & remote_bit) != 0 ? nullptr : check(domain, k.value, addr, length);
    }
    std::byte* remote(std::uint32_t domain, rkey k, std::uint64_t addr, std::uint64_t length) noexcept {
        return (k.value & remote_bit) == 0 ? nullptr : check(domain, k.value & ~remote_bit, addr, length);
    }
    /// @}

private:
    static constexpr std::uint32_t none = 0x7fffff;  ///< as an index; also how many regions there may be

    struct region {
        std::uint64_t start{}, bytes{};
        std::uint32_t domain{};
        std::uint8_t generation{1};
        bool live{};
        std::uint32_t next_free{none};
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
    std::uint32_t free_{none};
};

/// Memory in a table that a backend's ports share, and out of it when this goes. Move-only.
class memory_registration {
public:
    /// Errors: as memory_table::add.
    static result<memory_registration> make(std::shared_ptr<memory_table> table, std::uint32_t domain, void* memory,
                                            std::size_t bytes) noexcept {
        const auto key = table->add(domain, memory, bytes);
        if (!key) return key.error();
        return memory_registration(std::move(table), *key);
    }
    memory_registration(memory_registration&&) noexcept = default;
    ~memory_registration() {
        if (table_) table_->remove(key_);
    }
    /// As the concept `verbs_mr` has them.
    /// @{
    lkey local_key() const noexcept { return lkey{key_}; }
    rkey remote_key() const noexcept { return rkey{key_ | memory_table::remote_bit}; }
    /// @}

private:
    memory_registration(std::shared_ptr<memory_table> table, std::uint32_t key) noexcept : table_(std::move(table)), key_(key) {}
    std::shared_ptr<memory_table> table_;
    std::uint32_t key_;
};

}  // namespace vccl::inline v0::verbs
