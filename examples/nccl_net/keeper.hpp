#pragma once
// Looks after connections that NCCL does not look at: it drives only those with work on them, and a peer's failover or probe
// must be answered at any time. Also leads closed connections to their end, for which NCCL does not wait. One thread, which
// looks about once a millisecond and lives as long as there is a connection.
//
// A keeper that drives (VCCL_NET_THREADS) does all the work of its connections instead of NCCL's threads: it looks at those with
// requests without a pause. NCCL has one thread a GPU for all of them, which copies bytes where the NIC is a software one.
#include "comm.hpp"

#include <vccl/base/clock.hpp>

#include <sched.h>
#include <condition_variable>
#include <list>
#include <memory>
#include <thread>

namespace nccl_net {

class keeper {
public:
    using owned_comm = std::unique_ptr<comm>;
    static constexpr vccl::nanoseconds farewell{2'000'000'000};  // for the peer to close its end, too

    explicit keeper(bool drives) noexcept : drives_(drives) {}
    keeper(const keeper&) = delete;
    ~keeper() { stop(vccl::nanoseconds{0}); }

    /// Effects: looks after it from now on, until `part_with`.
    void look_after(comm& c) {
        const turn mine(*this);
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });  // the first, since it may fail
        kept_.push_back(&c);
        c.kept_by = this;
        c.driven = drives_;
        changed_.notify_one();
    }

    /// Effects: ends it, at once if NCCL still had requests on it, else when both ends know.
    void part_with(owned_comm c) {
        const turn mine(*this);
        kept_.remove(c.get());
        c->label().quiet = true;
        const vccl::errc how = c->health().code;
        if (!c->idle() || (how != vccl::errc::ok && how != vccl::errc::closed)) return;
        parting_.push_back({std::move(c), vccl::steady_clock{}.now() + farewell});
        changed_.notify_one();
    }

    /// Effects: gets a driving keeper to work that had nothing to do.
    void wake() noexcept {
        if (asleep_.load(std::memory_order_relaxed)) changed_.notify_one();
    }

    /// Effects: gives partings `patience` to end, then ends them, and the thread.
    void stop(vccl::nanoseconds patience) {
        turn mine(*this);
        const vccl::nanoseconds until = vccl::steady_clock{}.now() + patience;
        while (!parting_.empty() && thread_.joinable() && vccl::steady_clock{}.now() < until)
            gone_.wait_for(mine.lock, std::chrono::milliseconds(1));
        stopping_ = true;
        changed_.notify_one();
        std::thread ended = std::move(thread_);
        mine.lock.unlock();
        if (ended.joinable()) ended.join();
        mine.lock.lock();
        parting_.clear();
        stopping_ = false;
    }

    /// Does it drive its connections, or only look after them?
    bool drives() const noexcept { return drives_; }
    bool idle() const {
        const std::scoped_lock lock(mutex_);
        return kept_.empty() && parting_.empty();
    }

private:
    struct parting {
        owned_comm who;
        vccl::nanoseconds until;
    };
    /// Holds the mutex, having asked for it: a thread that works without a pause must be told to let others in.
    struct turn {
        explicit turn(keeper& k) : keeper_(k), lock((++k.wanted_, k.mutex_)) {}
        ~turn() { --keeper_.wanted_; }
        keeper& keeper_;
        std::unique_lock<std::mutex> lock;
    };
    static constexpr vccl::nanoseconds interval{1'000'000}, patience_when_idle{200'000};

    void run() {
        std::unique_lock lock(mutex_);
        vccl::nanoseconds now = vccl::steady_clock{}.now(), looked{}, worked = now;
        while (!stopping_) {
            const bool look = now - looked >= interval;
            if (look) looked = now;
            if (drives_ ? drive(look) : attend()) worked = now;
            if (look || !drives_) say_goodbye(now);
            if (kept_.empty() && parting_.empty())
                changed_.wait(lock);
            else if (!drives_ || now - worked > patience_when_idle)
                sleep(lock);
            else if (wanted_.load(std::memory_order_relaxed) != 0)
                let_others_in(lock);
            now = vccl::steady_clock{}.now();
        }
    }

    /// Effects: one pass over what NCCL did not look at. Returns: false.
    bool attend() noexcept {
        for (comm* c : kept_) {
            if (c->attended.exchange(false, std::memory_order_relaxed)) continue;
            const std::unique_lock theirs(c->turn, std::try_to_lock);
            if (theirs) c->pass();
        }
        return false;
    }

    /// Effects: one pass over what has requests, or over all. Returns: true if there were requests.
    bool drive(bool all) noexcept {
        bool busy = false;
        for (comm* c : kept_) {
            const std::unique_lock theirs(c->turn, std::try_to_lock);
            const bool working = !theirs || !c->idle();
            if (theirs && (working || all)) c->pass();
            busy |= working;
        }
        return busy;
    }

    void say_goodbye(vccl::nanoseconds now) {
        const std::size_t before = parting_.size();
        parting_.remove_if([now](parting& p) { return p.who->part() || now >= p.until; });
        if (parting_.size() != before) gone_.notify_all();
    }

    void sleep(std::unique_lock<std::mutex>& lock) {
        asleep_.store(true, std::memory_order_relaxed);
        changed_.wait_for(lock, std::chrono::milliseconds(1));
        asleep_.store(false, std::memory_order_relaxed);
    }

    static void let_others_in(std::unique_lock<std::mutex>& lock) {
        lock.unlock();
        ::sched_yield();
        lock.lock();
    }

    const bool drives_;
    mutable std::mutex mutex_;
    std::atomic<int> wanted_{};
    std::atomic<bool> asleep_{};
    std::condition_variable changed_, gone_;
    std::list<comm*> kept_;
    std::list<parting> parting_;
    std::thread thread_;
    bool stopping_{};
};

}  // namespace nccl_net
