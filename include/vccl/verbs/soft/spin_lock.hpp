#pragma once
/// \file
/// The engine's lock: process-local, spins, then yields. Holders do bounded work. Who only wants to help tries and goes
/// on; who must change state waits, and holders of long turns let waiters in.

#include <atomic>
#include <cstdint>

#include <sched.h>

namespace vccl::inline v0::verbs::soft_detail {

class spin_lock {
public:
    bool try_lock() noexcept {
        return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_seq_cst);
    }
    void lock() noexcept {
        if (try_lock()) return;
        waiting_.fetch_add(1, std::memory_order_relaxed);
        for (unsigned spins = 0; !try_lock(); ++spins) {
            if (spins < 64)
                pause();
            else
                ::sched_yield();
        }
        waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    /// Sequentially consistent, so that what the holder reads next is newer than any failed `try_lock`.
    void unlock() noexcept { held_.store(false, std::memory_order_seq_cst); }
    bool wanted() const noexcept { return waiting_.load(std::memory_order_relaxed) != 0; }

private:
    static void pause() noexcept {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    alignas(64) std::atomic<bool> held_{};
    alignas(64) std::atomic<std::uint32_t> waiting_{};
};

class locked {
public:
    explicit locked(spin_lock& l) noexcept : lock_(l) { lock_.lock(); }
    ~locked() { lock_.unlock(); }
    locked(const locked&) = delete;
    locked& operator=(const locked&) = delete;

private:
    spin_lock& lock_;
};

}  // namespace vccl::inline v0::verbs::soft_detail
