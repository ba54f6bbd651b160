#pragma once
/// \file
/// Mutexes and their guards, with the standard ones' meaning: <mutex> and <thread> cost a tenth of a second in every program
/// that includes the library. Used while registering memory and opening ports, and by proxies; never on the data path.

#include <vccl/base/config.hpp>

#include <pthread.h>
#include <atomic>
#include <cstdint>

namespace vccl::inline v0 {

class mutex {
public:
    mutex() noexcept = default;
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;
    ~mutex() { ::pthread_mutex_destroy(&mutex_); }

    void lock() noexcept { ::pthread_mutex_lock(&mutex_); }
    void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }
    bool try_lock() noexcept { return ::pthread_mutex_trylock(&mutex_) == 0; }

private:
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// One that goes to who asked first. A mutex alone goes to who is awake: a thread that takes it again and again, pass by pass, has
/// it back before another has woken, for seconds if each pass takes long enough.
class passing_mutex {
public:
    void lock() noexcept {
        const std::uint32_t mine = next_.fetch_add(1, std::memory_order_relaxed);
        for (std::uint32_t now; (now = turn_.load(std::memory_order_acquire)) != mine;)
            turn_.wait(now, std::memory_order_relaxed);
    }
    void unlock() noexcept {
        turn_.fetch_add(1, std::memory_order_seq_cst);  // before the look for sleepers in notify_all
        turn_.notify_all();
    }
    /// False also while others wait for it.
    bool try_lock() noexcept {
        std::uint32_t free = turn_.load(std::memory_order_acquire);
        return next_.compare_exchange_strong(free, free + 1, std::memory_order_relaxed);
    }
    /// Who holds it: does somebody wait for it?
    bool awaited() const noexcept { return next_.load(std::memory_order_relaxed) - turn_.load(std::memory_order_relaxed) > 1; }

private:
    std::atomic<std::uint32_t> next_{}, turn_{};  // turns: given out; whose it is
};

/// Holds a mutex as long as it lives.
template <class Mutex>
class [[nodiscard]] scoped_lock {
public:
    explicit scoped_lock(Mutex& m) noexcept : mutex_(m) { mutex_.lock(); }
    scoped_lock(const scoped_lock&) = delete;
    scoped_lock& operator=(const scoped_lock&) = delete;
    ~scoped_lock() { mutex_.unlock(); }

private:
    Mutex& mutex_;
};

/// The same, if try_lock() succeeds.
template <class Mutex>
class [[nodiscard]] scoped_try_lock {
public:
    explicit scoped_try_lock(Mutex& m) noexcept : mutex_(m.try_lock() ? &m : nullptr) {}
    scoped_try_lock(const scoped_try_lock&) = delete;
    scoped_try_lock& operator=(const scoped_try_lock&) = delete;
    ~scoped_try_lock() {
        if (mutex_) mutex_->unlock();
    }
    explicit operator bool() const noexcept { return mutex_ != nullptr; }

private:
    Mutex* mutex_;
};

}  // namespace vccl::inline v0
