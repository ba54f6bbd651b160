#pragma once
/// \file
/// What a work request does to memory that is all in this process. For backends in software; any thread.

#include <vccl/model/work.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vccl::inline v0::verbs {

/// The atomic of a FETCH_ADD (`add`) or CMP_SWAP on the word at `at`, which is aligned. Returns: the old value.
inline std::uint64_t run_atomic(std::byte* at, bool add, std::uint64_t swap_add, std::uint64_t compare) noexcept {
    std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
    if (add) return word.fetch_add(swap_add, std::memory_order_acq_rel);
    std::uint64_t old = compare;
    word.compare_exchange_strong(old, swap_add, std::memory_order_acq_rel);
    return old;
}

/// Effects: moves the bytes of `w` between `ours`, which it names as local, and `theirs`: its remote memory, or for a SEND the
/// buffer of the receive that it took; `copy(to, from, bytes)` does it.
template <class Copy>
void carry(const work& w, std::byte* ours, std::byte* theirs, Copy&& copy) noexcept {
    switch (w.op) {
        case work_op::write:
        case work_op::write_imm:
        case work_op::send: copy(theirs, ours, w.length); break;
        case work_op::read: copy(ours, theirs, w.length); break;
        case work_op::fetch_add:
        case work_op::cmp_swap: {
            const std::uint64_t old = run_atomic(theirs, w.op == work_op::fetch_add, w.swap_add, w.compare);
            copy(ours, &old, sizeof old);
            break;
        }
    }
}
/// The same as plain memory is moved; both may be the same bytes.
inline void carry(const work& w, std::byte* ours, std::byte* theirs) noexcept {
    carry(w, ours, theirs, [](void* to, const void* from, std::size_t bytes) { std::memmove(to, from, bytes); });
}

}  // namespace vccl::inline v0::verbs
