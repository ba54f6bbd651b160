#pragma once
/// \file
/// Where the rings lie that the NIC in a kernel consumes: in mapped host memory, or in the memory of its GPU. Owner thread of the
/// QP; made and destroyed while the kernel is paused. Needs the CUDA runtime.

#include <vccl/device/gpu_nic/board.cuh>
#include <vccl/device/ring_memory.hpp>

namespace vccl::inline v0::device {

/// Rings in mapped host memory: any GPU of the process may post on them.
class mapped_rings {
public:
    mapped_rings() = default;
    /// Returns what ring_memory::make returns.
    VCCL_COLD static result<mapped_rings> make(gpu_nic_detail::board&, std::uint32_t depth, std::uint32_t cq_depth) noexcept {
        auto memory = ring_memory<mapped_memory>::make(depth, cq_depth);
        if (!memory) return memory.error();
        mapped_rings made;
        made.memory_ = std::move(*memory);
        return made;
    }
    /// As ring_memory's.
    /// @{
    ring& view() noexcept { return memory_.view(); }
    const ring& view() const noexcept { return memory_.view(); }
    void clear() noexcept { memory_.clear(); }
    /// @}

private:
    ring_memory<mapped_memory> memory_;
};

/// Rings in the memory of the NIC's GPU: posts, polls and the NIC meet in its L2 cache, and the host's service comes by copies
/// (`gpu_ring_space`). Kernels of other GPUs post only with peer access to it.
class gpu_rings {
public:
    gpu_rings() = default;
    gpu_rings(gpu_rings&& o) noexcept
        : on_(o.on_), image_(std::move(o.image_)), base_(std::exchange(o.base_, nullptr)), view_(std::exchange(o.view_, {})) {}
    gpu_rings& operator=(gpu_rings&& o) noexcept {
        std::swap(on_, o.on_);
        std::swap(image_, o.image_);
        std::swap(base_, o.base_);
        std::swap(view_, o.view_);
        return *this;
    }
    VCCL_COLD ~gpu_rings() {
        if (base_ != nullptr) (void)cudaFree(base_);
    }

    /// Returns what ring_memory::make returns.
    VCCL_COLD static result<gpu_rings> make(gpu_nic_detail::board& on, std::uint32_t depth, std::uint32_t cq_depth) noexcept {
        auto image = ring_memory<heap_memory>::make(depth, cq_depth);
        if (!image) return image.error();
        gpu_rings made;
        made.on_ = &on;
        made.image_ = std::move(*image);
        made.base_ = static_cast<std::byte*>(on.allocate(made.bytes()));
        if (made.base_ == nullptr) return errc::no_memory;
        made.view_ = made.image_.view();
        made.move(made.view_.wq);
        made.move(made.view_.doorbell_record);
        made.move(made.view_.doorbell);
        made.move(made.view_.cq);
        made.move(made.view_.cq_record);
        return made;
    }
    /// As ring_memory's.
    /// @{
    ring& view() noexcept { return view_; }
    const ring& view() const noexcept { return view_; }
    void clear() noexcept {
        image_.clear();
        on_->copy_in(base_, image_.view().wq, bytes());
    }
    /// @}

private:
    /// The image ends with the CQ record.
    std::size_t bytes() const noexcept {
        const ring& r = image_.view();
        return static_cast<std::size_t>(reinterpret_cast<std::byte*>(r.cq_record + 1) - reinterpret_cast<std::byte*>(r.wq));
    }
    template <class T>
    void move(T*& p) const noexcept {
        p = reinterpret_cast<T*>(base_ + (reinterpret_cast<std::byte*>(p) - reinterpret_cast<std::byte*>(image_.view().wq)));
    }

    gpu_nic_detail::board* on_{};
    ring_memory<heap_memory> image_;  ///< what a ring looks like before its first use
    std::byte* base_{};
    ring view_{};
};

}  // namespace vccl::inline v0::device
