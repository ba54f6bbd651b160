#pragma once
// A connection as NCCL sees it, whatever backend and QP count it has: a sender or a receiver of messages with tags. One thread
// at a time uses it, NCCL's or the keeper's, and has its turn.
#include "abi.hpp"
#include "event_log.hpp"
#include "introduction.hpp"
#include "policies.hpp"
#include "registrations.hpp"

#include <sched.h>
#include <atomic>

namespace nccl_net {

using nccl_abi::code;

inline constexpr unsigned max_group = 8;                                              // receives that NCCL may group
inline constexpr unsigned messages_at_once = nccl_abi::requests_at_once * max_group;  // on their way, at each end
static_assert(messages_at_once <= vccl::max_window);

class comm;
class keeper;

/// What NCCL asks about with test().
struct request {
    comm* owner{};
    std::uint64_t first{};   // chunk
    std::uint32_t count{};   // chunks; 0: a send that waits for the sends before it in its group
    std::size_t bytes{};     // sender
    bool used{};
};

/// A comm's requests; taken and given back by whoever has the comm's turn.
class request_pool {
public:
    explicit request_pool(comm& owner) noexcept {
        for (request& r : all_) {
            r.owner = &owner;
            free_[room_++] = &r;
        }
    }
    request* take() noexcept {
        if (room_ == 0) return nullptr;
        request* const r = free_[--room_];
        r->used = true;
        r->count = 0;
        return r;
    }
    void give_back(request& r) noexcept {
        r.used = false;
        free_[room_++] = &r;
    }
    bool idle() const noexcept { return room_ == messages_at_once; }

private:
    request all_[messages_at_once];
    request* free_[messages_at_once];
    unsigned room_{};
};

/// Whose turn a comm is: NCCL's thread's or the keeper's. Almost always free, and held for one look, so that a mutex's calls would
/// be a tenth of what a message costs.
class comm_turn {
public:
    bool try_lock() noexcept {
        return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire);
    }
    void lock() noexcept {
        while (!try_lock()) ::sched_yield();
    }
    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> taken_{};
};

class comm {
public:
    comm() = default;
    comm(const comm&) = delete;
    virtual ~comm() = default;

    // --- while connecting, by one thread ---

    /// Effects: opens the lanes and puts the way to them into `ours`.
    virtual vccl::status introduce(introduction& ours) = 0;
    virtual vccl::status join(const introduction& theirs) = 0;
    virtual bool connected() const noexcept = 0;

    // --- afterwards, by whoever has the turn ---

    /// Effects: one look at the channel.
    virtual void pass() noexcept = 0;
    virtual vccl::status health() const noexcept = 0;
    /// Effects: nothing of this comm's memory is written from now on; what was not delivered will not be.
    virtual void abort() noexcept = 0;
    /// Effects: one step of an orderly end. Returns: true when there is nothing left to be done.
    virtual bool part() noexcept = 0;
    virtual bool idle() const noexcept = 0;
    virtual code test(request& r, int* done, int* sizes) noexcept = 0;

    /// Effects: writes to the log, once, why the connection is of no use any more.
    code report(const vccl::status& why) noexcept {
        try {
            if (!label_.end_said) warn(label_.peer + ": " + vccl::describe(why, lane_of(why)) + "; lanes: " + label_.all());
        } catch (...) {  // no memory for a line: that it ended matters more
        }
        label_.end_said = true;
        return why.code == vccl::errc::message_too_long ? code::invalid_usage : code::remote_error;
    }
    channel_label& label() noexcept { return label_; }

    comm_turn turn;
    std::atomic<bool> attended{};  // NCCL looked at it since the keeper did
    unsigned share{};  // whose memory keys it uses
    keeper* kept_by{};
    bool driven{};  // by the keeper: NCCL's threads only post and ask

protected:
    std::string lane_of(const vccl::status& s) const { return s.lane < label_.count ? label_.lanes[s.lane] : std::string(); }

    channel_label label_;
};

class send_comm : public comm {
public:
    static constexpr const char* direction = "to ";
    virtual code isend(const vccl::memory_view& bytes, int tag, request** out) noexcept = 0;
};

class recv_comm : public comm {
public:
    static constexpr const char* direction = "from ";
    virtual code irecv(int n, const vccl::memory_view* rooms, const int* tags, request** out) noexcept = 0;
};

}  // namespace nccl_net
