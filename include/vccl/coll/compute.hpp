#pragma once
/// \file
/// Who touches the elements: combines what arrived with one's own, and copies one's own to its place. On the CPU at once;
/// on a GPU in its own time, so a piece of work has a ticket. Owner thread of the collective only.

#include <vccl/base/status.hpp>
#include <vccl/coll/reduce.hpp>

#include <concepts>
#include <cstring>

namespace vccl::inline v0 {

/// to[i] = a[i] (op) b[i]. `to` may be `a` or `b`; otherwise the three do not overlap.
struct combine_work {
    void* to{};  ///< of `count` elements, like the two below
    /// Either may be `to`.
    /// @{
    const void* a{};
    const void* b{};
    /// @}
    std::uint64_t count{};  ///< elements, not bytes
    element_type type{};  ///< of all three
    reduce_op op{};  ///< how two elements become one
};

/// Work is done in the order in which it was given; tickets grow. What `a` and `b` hold was written by a NIC before.
template <class C>
concept element_compute = requires(C c, const combine_work& w, void* to, const void* from, std::uint64_t n) {
    { c.combine(w) } noexcept -> std::same_as<std::uint64_t>;           // the ticket
    { c.copy(to, from, n) } noexcept -> std::same_as<std::uint64_t>;    // `n` bytes
    { c.done(n) } noexcept -> std::same_as<bool>;                       // is the work of ticket `n` done?
    { c.health() } noexcept -> std::same_as<status>;                    // why it can do no more
};

/// The default: everything is done when the call returns.
struct cpu_compute {
    static constexpr bool at_once = true;  ///< many small pieces cost little (gathered.hpp)
    /// As `element_compute` asks; every ticket is 0 and done.
    /// @{
    std::uint64_t combine(const combine_work& w) noexcept {
        reduce(w.type, w.op, w.to, w.a, w.b, w.count);
        return 0;
    }
    std::uint64_t copy(void* to, const void* from, std::uint64_t bytes) noexcept {
        if (bytes != 0) std::memcpy(to, from, bytes);
        return 0;
    }
    bool done(std::uint64_t) const noexcept { return true; }
    status health() const noexcept { return {}; }
    /// @}
};
static_assert(element_compute<cpu_compute>);

}  // namespace vccl::inline v0
