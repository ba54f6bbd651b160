#pragma once
/// \file
/// Where the memory of a device queue lies, and how the host gets at it. `host_space`: all of it in this process, for host
/// builds. `gpu_space` (gpu_space.cuh): the posters' words in GPU memory, the rest mapped for both. Service thread only.

#include <vccl/base/time.hpp>
#include <vccl/device/atomic.hpp>
#include <vccl/device/ring_memory.hpp>

namespace vccl::inline v0 {

namespace axis {
struct space {};
}  // namespace axis

namespace device {

/// `local`: memory that posters change by read-modify-writes; the host reaches it by `read`, `write` and `upload` only.
/// `shared`: both reach it directly; words there have one writer. Both zeroed, null when there is none.
template <class S>
concept queue_space = on_axis<S, axis::space> && ring_memory_kind<typename S::shared> &&
                      requires(S s, std::size_t bytes, void* p, const void* from, std::uint64_t* word) {
                          { s.allocate_local(bytes) } noexcept -> std::same_as<void*>;
                          { s.free_local(p) } noexcept -> std::same_as<void>;
                          { s.read(word) } noexcept -> std::same_as<std::uint64_t>;
                          { s.write(word, std::uint64_t{}) } noexcept -> std::same_as<void>;  // in program order
                          { s.upload(p, from, bytes) } noexcept -> std::same_as<void>;
                      };

/// Posters are threads of this process; models queue_space.
struct host_space {
    using policy_axis = axis::space;
    using shared = heap_memory;  ///< what service and posters share

    /// As `queue_space` asks: plain memory and plain accesses, in one order for all.
    /// @{
    static void* allocate_local(std::size_t bytes) noexcept { return heap_memory::allocate(bytes); }
    static void free_local(void* p) noexcept { heap_memory::free(p); }
    // seq_cst: a service that moves the gate and then reads `completed` must not miss a poller that read the gate before.
    static std::uint64_t read(const std::uint64_t* p) noexcept { return load<order::seq_cst, scope::system>(p); }
    static void write(std::uint64_t* p, std::uint64_t value) noexcept { store<order::seq_cst, scope::system>(p, value); }
    static void upload(void* to, const void* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }
    /// @}
};
static_assert(queue_space<host_space>);

}  // namespace device

}  // namespace vccl::inline v0
