#pragma once
/// \file
/// One packet ring in shared memory: single producer process, single consumer process, bytes in between. A record is a
/// length word, the packet header and the payload; it is published by moving the tail, so a producer that dies in the
/// middle has sent nothing. The other side is not trusted: positions and lengths are checked, and a ring that makes no
/// sense is emptied. Each side under its own engine's lock.

#include <vccl/verbs/soft/packet.hpp>
#include <vccl/verbs/soft/segment.hpp>

namespace vccl::inline v0::verbs::soft_detail {

struct ring_record {
    std::uint32_t bytes;  ///< of the whole record, a multiple of 8; `ring_wrap`: go on at the ring's start
    std::uint32_t padding;
    packet_header header;
};
inline constexpr std::uint32_t ring_wrap = 0xffffffff;
inline constexpr std::uint32_t ring_grain = 64;  ///< records start on cache lines
static_assert(sizeof(ring_record) == 96);

constexpr std::uint32_t record_bytes(std::uint32_t payload) noexcept {
    return (static_cast<std::uint32_t>(sizeof(ring_record)) + payload + ring_grain - 1) / ring_grain * ring_grain;
}

/// The sending end.
class ring_producer {
public:
    ring_producer() = default;
    ring_producer(const segment& s, std::uint32_t from, std::uint32_t to) noexcept
        : control_(&s.ring(from, to)),
          data_(s.base + s.ring_offset(from, to)),
          capacity_(s.at.ring_bytes),
          tail_(control_->tail.load(std::memory_order_acquire) & ~std::uint64_t{ring_grain - 1}),
          head_seen_(control_->head.load(std::memory_order_acquire)) {}

    explicit operator bool() const noexcept { return control_ != nullptr; }

    /// Is there room for one more record of this payload?
    bool room(std::uint32_t payload) noexcept {
        const std::uint64_t need = needed(record_bytes(payload));
        if (fits(need)) return true;
        head_seen_ = control_->head.load(std::memory_order_acquire);
        return fits(need);
    }
    /// After `room` said yes.
    void push(const packet_header& h, const std::byte* payload) noexcept {
        const std::uint32_t bytes = record_bytes(carried(h));
        if (const std::uint64_t offset = tail_ & (capacity_ - 1); offset + bytes > capacity_) {
            reinterpret_cast<ring_record*>(data_ + offset)->bytes = ring_wrap;
            tail_ += capacity_ - offset;
        }
        std::byte* at = data_ + (tail_ & (capacity_ - 1));
        auto* r = reinterpret_cast<ring_record*>(at);
        r->bytes = bytes;
        r->header = h;
        if (carried(h) != 0) std::memcpy(at + sizeof(ring_record), payload, h.length);
        tail_ += bytes;
        control_->tail.store(tail_, std::memory_order_release);
    }

private:
    std::uint64_t needed(std::uint32_t bytes) const noexcept {
        const std::uint64_t offset = tail_ & (capacity_ - 1);
        return offset + bytes > capacity_ ? capacity_ - offset + bytes : bytes;
    }
    bool fits(std::uint64_t need) const noexcept {
        const std::uint64_t used = tail_ - head_seen_;
        return used <= capacity_ && need <= capacity_ - used;
    }

    ring_control* control_{};
    std::byte* data_{};
    std::uint32_t capacity_{};
    std::uint64_t tail_{}, head_seen_{};
};

/// The receiving end.
class ring_consumer {
public:
    ring_consumer() = default;
    ring_consumer(const segment& s, std::uint32_t from, std::uint32_t to) noexcept
        : control_(&s.ring(from, to)),
          data_(s.base + s.ring_offset(from, to)),
          capacity_(s.at.ring_bytes),
          head_(control_->head.load(std::memory_order_acquire) & ~std::uint64_t{ring_grain - 1}) {}

    explicit operator bool() const noexcept { return control_ != nullptr; }

    /// The next record, its header copied out; null when there is none. A carried payload stays valid until `pop`.
    const std::byte* front(packet_header& h) noexcept {
        const std::uint64_t tail = control_->tail.load(std::memory_order_acquire);
        while (head_ != tail) {
            const std::uint64_t offset = head_ & (capacity_ - 1);
            const std::uint64_t filled = tail - head_;
            const auto* r = reinterpret_cast<const ring_record*>(data_ + offset);
            const std::uint32_t bytes = *static_cast<const volatile std::uint32_t*>(&r->bytes);
            if (filled > capacity_ || filled % ring_grain != 0) return give_up(tail);
            if (bytes == ring_wrap) {
                if (offset == 0 || filled < capacity_ - offset) return give_up(tail);
                head_ += capacity_ - offset;
                continue;
            }
            if (bytes < sizeof(ring_record) || bytes > filled || offset + bytes > capacity_) return give_up(tail);
            h = r->header;
            if (h.length > train_bytes || record_bytes(carried(h)) != bytes) return give_up(tail);
            pending_ = bytes;
            return data_ + offset + sizeof(ring_record);
        }
        return nullptr;
    }
    void pop() noexcept {
        head_ += pending_;
        control_->head.store(head_, std::memory_order_release);
    }
    /// Forgets what is in the ring.
    void drain() noexcept { skip_to(control_->tail.load(std::memory_order_acquire)); }
    /// How often the ring's contents made no sense.
    std::uint64_t damaged() const noexcept { return damaged_; }

private:
    void skip_to(std::uint64_t tail) noexcept {
        head_ = tail & ~std::uint64_t{ring_grain - 1};
        control_->head.store(head_, std::memory_order_release);
    }
    const std::byte* give_up(std::uint64_t tail) noexcept {
        ++damaged_;
        skip_to(tail);
        return nullptr;
    }

    ring_control* control_{};
    const std::byte* data_{};
    std::uint32_t capacity_{}, pending_{};
    std::uint64_t head_{}, damaged_{};
};

}  // namespace vccl::inline v0::verbs::soft_detail
