#pragma once
/// \file
/// The endpoints that one thread drives in turn. Fair: in each turn every endpoint that has something to do gets one pass, and
/// a pass is bounded. One that has been idle for a while rests for some turns, so that it costs next to nothing; a call of its
/// user wakes it. The driving thread's, under whatever lock it holds.

#include <vccl/base/config.hpp>

#include <atomic>
#include <vector>

namespace vccl::inline v0 {

class roster {
public:
    /// Idle passes before an endpoint rests: longer than any wait between the steps of a transfer.
    static constexpr unsigned patience = 64;
    /// Turns that it then sits out between two passes: what an idle endpoint costs falls by as much.
    static constexpr unsigned rest = 15;

    struct passenger {
        void* self{};
        bool (*pass)(void*) noexcept {};    ///< true: it moved, or cannot rest
        std::atomic<bool>* called{};        ///< set by calls of its user; taken back here
    };

    void add(passenger p) { seats_.push_back({p}); }
    void remove(void* self) noexcept {
        std::erase_if(seats_, [self](const seat& s) { return s.who.self == self; });
    }
    std::size_t size() const noexcept { return seats_.size(); }

    /// Returns true if any of them moved.
    bool turn() noexcept {
        bool moved = false;
        for (seat& s : seats_) {
            if (s.resting != 0) {
                if (!s.who.called->load(std::memory_order_relaxed)) {
                    --s.resting;
                    continue;
                }
                s.idle = 0;
            }
            s.who.called->store(false, std::memory_order_relaxed);
            if (s.who.pass(s.who.self)) {
                moved = true;
                s.idle = 0;
                s.resting = 0;
            } else {
                s.idle += s.idle < patience ? 1 : 0;
                s.resting = s.idle < patience ? 0 : rest;
            }
        }
        return moved;
    }

private:
    struct seat {
        passenger who;
        std::uint32_t idle{}, resting{};
    };
    std::vector<seat> seats_;
};

}  // namespace vccl::inline v0
