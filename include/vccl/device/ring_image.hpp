#pragma once
/// \file
/// A ring for memory that the CPU does not reach: what it looks like before its first use, to be copied there, and the view of
/// it there. Owner thread.

#include <vccl/device/ring_memory.hpp>

namespace vccl::inline v0::device {

/// Move-only owner of the image; made by `make`.
class ring_image {
public:
    ring_image() = default;
    /// Returns what ring_memory::make returns.
    VCCL_COLD static result<ring_image> make(std::uint32_t depth, std::uint32_t cq_depth) noexcept {
        auto memory = ring_memory<heap_memory>::make(depth, cq_depth);
        if (!memory) return memory.error();
        ring_image made;
        made.memory_ = std::move(*memory);
        return made;
    }
    /// The bytes, which lie at the beginning of the memory that they are copied to.
    /// @{
    const void* data() const noexcept { return memory_.view().wq; }
    std::size_t bytes() const noexcept { return offset_of(memory_.view().cq_record + 1); }
    /// @}
    /// How far from the beginning a part of `local()` lies.
    std::size_t offset_of(const void* part) const noexcept {
        return static_cast<std::size_t>(static_cast<const std::byte*>(part) - static_cast<const std::byte*>(data()));
    }
    /// The view of the image itself.
    const ring& local() const noexcept { return memory_.view(); }
    /// The view of a copy of it at `base`.
    ring at(void* base) const noexcept {
        const auto move = [&](auto*& p) {
            p = reinterpret_cast<std::remove_reference_t<decltype(p)>>(static_cast<std::byte*>(base) + offset_of(p));
        };
        ring r = memory_.view();
        move(r.wq);
        move(r.doorbell_record);
        move(r.doorbell);
        move(r.cq);
        move(r.cq_record);
        return r;
    }

private:
    ring_memory<heap_memory> memory_;
};

}  // namespace vccl::inline v0::device
