#pragma once
/// \file
/// What is to happen when: packets in flight, timers, turns. Events at the same time run in the order in which they were
/// added, so a run is determined by its seed. A binary heap. Engine lock.

#include <vccl/base/time.hpp>
#include <vccl/verbs/soft/packet.hpp>

#include <utility>
#include <vector>

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
    time_queue() { heap_.reserve(1024); }

    bool empty() const noexcept { return heap_.empty(); }
    std::int64_t next_at() const noexcept { return heap_.empty() ? nanoseconds::never().count : heap_.front().at; }

    void push(timed_event e) {
        e.order = order_++;
        heap_.push_back(e);
        for (std::size_t i = heap_.size() - 1; i != 0;) {
            const std::size_t up = (i - 1) / 2;
            if (!heap_[i].before(heap_[up])) break;
            std::swap(heap_[i], heap_[up]);
            i = up;
        }
    }

    timed_event pop() noexcept {
        const timed_event top = heap_.front();
        heap_.front() = heap_.back();
        heap_.pop_back();
        for (std::size_t i = 0;;) {
            std::size_t least = i;
            for (std::size_t child = 2 * i + 1; child <= 2 * i + 2 && child < heap_.size(); ++child)
                if (heap_[child].before(heap_[least])) least = child;
            if (least == i) break;
            std::swap(heap_[i], heap_[least]);
            i = least;
        }
        return top;
    }

private:
    std::vector<timed_event> heap_;
    std::uint64_t order_{};
};

}  // namespace vccl::inline v0::verbs::soft_detail
