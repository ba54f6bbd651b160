#pragma once
/// \file
/// Where the rings lie that the NIC in a kernel consumes: in mapped host memory, or in the memory of its GPU. Owner thread of the
/// QP; made and destroyed while the kernel is paused. Needs the CUDA runtime.

#include <vccl/device/gpu_nic/board.cuh>
#include <vccl/device/ring_image.hpp>

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
        auto image = ring_image::make(depth, cq_depth);
        if (!image) return image.error();
        gpu_rings made;
        made.on_ = &on;
        made.image_ = std::move(*image);
        made.base_ = on.allocate(made.image_.bytes());
        if (made.base_ == nullptr) return errc::no_memory;
        made.view_ = made.image_.at(made.base_);
        return made;
    }
    /// As ring_memory's.
    /// @{
    ring& view() noexcept { return view_; }
    const ring& view() const noexcept { return view_; }
    void clear() noexcept { on_->copy_in(base_, image_.data(), image_.bytes()); }
    /// @}

private:
    gpu_nic_detail::board* on_{};
    ring_image image_;
    void* base_{};
    ring view_{};
};

}  // namespace vccl::inline v0::device
