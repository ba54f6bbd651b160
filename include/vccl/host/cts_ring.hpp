#pragma once
/// \file
/// What lies at the sender for the receiver to write: the acknowledgement line, then the CTS ring. Read by the sender's owner
/// thread, written by the receiver's NIC.

#include <vccl/base/status.hpp>
#include <vccl/model/wire.hpp>

#include <atomic>

namespace vccl::inline v0 {

struct cts_ring {
    ack_line ack{};
    cts_slot slots[max_window]{};

    cts_ring() noexcept {
        for (cts_slot& s : slots) {
            s.words.sequence = ~std::uint64_t{0};
            s.words.check = s.note_check = 1;  // which no sequence has with words of zeros
        }
    }

    /// The slot is written by the receiver's NIC: the acquire pairs with the order in which an RDMA WRITE lands, and
    /// `check` rejects a slot that is half written.
    template <std::uint64_t cts_words::*Word>
    VCCL_ALWAYS_INLINE static std::uint64_t word_of(cts_slot& slot) noexcept {
        return read_word(slot.words.*Word);
    }
    VCCL_ALWAYS_INLINE static std::uint64_t read_word(std::uint64_t& word) noexcept {
        return std::atomic_ref(word).load(std::memory_order_acquire);
    }
    cts_words read(std::uint64_t s) noexcept {
        cts_slot& slot = slots[s & (max_window - 1)];
        return {word_of<&cts_words::sequence>(slot), word_of<&cts_words::addr>(slot),  word_of<&cts_words::room>(slot),
                word_of<&cts_words::binding>(slot),  word_of<&cts_words::acked>(slot), word_of<&cts_words::check>(slot)};
    }
    /// How much the receive of chunk `s` takes; would_block while no grant has come.
    result<std::uint32_t> room(std::uint64_t s) noexcept {
        const cts_words c = read(s);
        return c.sequence == s && c.check == check_of(c) ? result(c.length()) : errc::would_block;
    }
    /// The note of that receive; would_block while no grant with one has come.
    result<std::uint64_t> note(std::uint64_t s) noexcept {
        cts_slot& slot = slots[s & (max_window - 1)];
        const std::uint64_t note = read_word(slot.note);
        return read_word(slot.note_check) == cts_note_mix(s, note) ? result(note) : errc::would_block;
    }
};

}  // namespace vccl::inline v0
