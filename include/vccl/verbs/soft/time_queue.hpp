#pragma once
/// \file
/// What is to happen when: packets in flight, timers, turns. Events at the same time run in the order in which they were
/// added, so a run is determined by its seed. A binary heap that grows, and refuses where it cannot. Engine lock.

#include <vccl/base/owned.hpp>
#include <vccl/base/time.hpp>
#include <vccl/verbs/soft/packet.hpp>

#include <utility>

namespace vccl::inline v0::verbs::soft_detail {

enum class event_kind : std::uint8_t { turn, deliver, timer, wake, flap };

struct timed_event {
    std::int64_t at{};
    std::uint64_t order{};
    packet* carried{};     ///< deliver
    std::uint32_t which{}; ///< QP number, or number of the flap
    event_kind kind{};

    bool before(const timed_event& o) const noexcept { return at != o.at ? at < o.at : order < o.order; }
};

class time_queue {
public:
    time_queue() : heap_(new timed_event[first_room]) {}

    bool empty() const noexcept { return size_ == 0; }
    std::int64_t next_at() const noexcept { return size_ == 0 ? nanoseconds::never().count : heap_[0].at; }

    /// Returns false, and has done nothing, where there is no memory for it.
    [[nodiscard]] bool push(timed_event e) noexcept {
        if (size_ == room_ && !grow()) return false;
        e.order = order_++;
        std::size_t i = size_++;
        for (; i != 0 && e.before(heap_[(i - 1) / 2]); i = (i - 1) / 2) heap_[i] = heap_[(i - 1) / 2];
        heap_[i] = e;
        return true;
    }

    timed_event pop() noexcept {
        const timed_event top = heap_[0];
        heap_[0] = heap_[--size_];
        for (std::size_t i = 0;;) {
            std::size_t least = i;
            for (std::size_t child = 2 * i + 1; child <= 2 * i + 2 && child < size_; ++child)
                if (heap_[child].before(heap_[least])) least = child;
            if (least == i) break;
            std::swap(heap_[i], heap_[least]);
            i = least;
        }
        return top;
    }

private:
    static constexpr std::size_t first_room = 1024;

    bool grow() noexcept {
        const std::size_t room = 2 * room_;
        owned_array<timed_event> wider(new (std::nothrow) timed_event[room]);
        if (!wider) return false;
        for (std::size_t i = 0; i < size_; ++i) wider[i] = heap_[i];
        heap_ = std::move(wider);
        room_ = room;
        return true;
    }

    owned_array<timed_event> heap_;
    std::size_t size_{}, room_{first_room};
    std::uint64_t order_{};
};

}  // namespace vccl::inline v0::verbs::soft_detail
