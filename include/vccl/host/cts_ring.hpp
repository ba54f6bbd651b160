#pragma once
/// \file
/// What lies at the sender for the receiver to write: the acknowledgement line, then the CTS ring. Read by the sender's owner
/// thread, written by the receiver's NIC.

#include <vccl/model/wire.hpp>

#include <atomic>

namespace vccl::inline v0 {

struct cts_ring {
    ack_line ack;
    cts_slot slots[max_window];

    /// The slot is written by the receiver's NIC: the acquire pairs with the order in which an RDMA WRITE lands, and
    /// `check` rejects a slot that is half written.
    template <std::uint64_t cts_words::*Word>
    VCCL_ALWAYS_INLINE static std::uint64_t word_of(cts_slot& slot) noexcept {
        return std::atomic_ref(slot.words.*Word).load(std::memory_order_acquire);
    }
    cts_words read(std::uint64_t s) noexcept {
        cts_slot& slot = slots[s & (max_window - 1)];
        return {word_of<&cts_words::sequence>(slot), word_of<&cts_words::addr>(slot),  word_of<&cts_words::room>(slot),
                word_of<&cts_words::binding>(slot),  word_of<&cts_words::acked>(slot), word_of<&cts_words::check>(slot)};
    }
};

}  // namespace vccl::inline v0
