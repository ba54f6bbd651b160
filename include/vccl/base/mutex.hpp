#pragma once
/// \file
/// Mutexes and their guards, with the standard ones' meaning: <mutex> and <thread> cost a tenth of a second in every program
/// that includes the library. Used while registering memory and opening ports, and by proxies; never on the data path.

#include <vccl/base/config.hpp>

#include <pthread.h>
#include <atomic>

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

/// One that a thread takes by try_lock() again and again, whatever it has to do in between, and others take by lock() now and
/// then: as soon as one of these waits, try_lock() leaves it to them. A mutex alone goes to who is awake, that is, to the same
/// thread again, for seconds if it works long enough each time.
class passing_mutex {
public:
    void lock() noexcept {
        waiting_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    void unlock() noexcept { mutex_.unlock(); }
    bool try_lock() noexcept { return !awaited() && mutex_.try_lock(); }
    /// Does somebody wait in lock()? Who holds it for long asks, and lets go.
    bool awaited() const noexcept { return waiting_.load(std::memory_order_relaxed) != 0; }

private:
    mutex mutex_;
    std::atomic<unsigned> waiting_{};
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
