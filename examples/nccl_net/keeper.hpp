#pragma once
// Looks after connections that NCCL does not look at: it drives only those with work on them, and a peer's failover or probe
// must be answered at any time. Also leads closed connections to their end, for which NCCL does not wait. One thread, which
// looks about once a millisecond and lives as long as there is a connection.
#include "comm.hpp"

#include <vccl/base/clock.hpp>

#include <condition_variable>
#include <list>
#include <memory>
#include <thread>

namespace nccl_net {

class keeper {
public:
    using owned_comm = std::unique_ptr<comm>;
    static constexpr vccl::nanoseconds farewell{2'000'000'000};  // for the peer to close its end, too

    keeper() = default;
    keeper(const keeper&) = delete;
    ~keeper() { stop(vccl::nanoseconds{0}); }

    /// Effects: looks after it from now on, until `part_with`.
    void look_after(comm& c) {
        const std::scoped_lock lock(mutex_);
        kept_.push_back(&c);
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
        changed_.notify_one();
    }

    /// Effects: ends it, at once if NCCL still had requests on it, else when both ends know.
    void part_with(owned_comm c) {
        const std::scoped_lock lock(mutex_);
        kept_.remove(c.get());
        c->label().quiet = true;
        const vccl::errc how = c->health().code;
        if (!c->idle() || (how != vccl::errc::ok && how != vccl::errc::closed)) return;
        parting_.push_back({std::move(c), vccl::steady_clock{}.now() + farewell});
        changed_.notify_one();
    }

    /// Effects: gives partings `patience` to end, then ends them, and the thread.
    void stop(vccl::nanoseconds patience) {
        std::unique_lock lock(mutex_);
        const vccl::nanoseconds until = vccl::steady_clock{}.now() + patience;
        while (!parting_.empty() && thread_.joinable() && vccl::steady_clock{}.now() < until)
            gone_.wait_for(lock, std::chrono::milliseconds(1));
        stopping_ = true;
        changed_.notify_one();
        std::thread ended = std::move(thread_);
        lock.unlock();
        if (ended.joinable()) ended.join();
        lock.lock();
        parting_.clear();
        stopping_ = false;
    }

    bool idle() const {
        const std::scoped_lock lock(mutex_);
        return kept_.empty() && parting_.empty();
    }

private:
    struct parting {
        owned_comm who;
        vccl::nanoseconds until;
    };

    void run() {
        std::unique_lock lock(mutex_);
        while (!stopping_) {
            if (kept_.empty() && parting_.empty())
                changed_.wait(lock);
            else
                changed_.wait_for(lock, std::chrono::milliseconds(1));
            for (comm* c : kept_) {
                if (c->attended.exchange(false, std::memory_order_relaxed)) continue;
                const std::unique_lock theirs(c->mutex, std::try_to_lock);
                if (theirs) c->pass();
            }
            const vccl::nanoseconds now = vccl::steady_clock{}.now();
            const std::size_t before = parting_.size();
            parting_.remove_if([now](parting& p) { return p.who->part() || now >= p.until; });
            if (parting_.size() != before) gone_.notify_all();
        }
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_, gone_;
    std::list<comm*> kept_;
    std::list<parting> parting_;
    std::thread thread_;
    bool stopping_{};
};

}  // namespace nccl_net
