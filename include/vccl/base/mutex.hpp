#pragma once
/// \file
/// A mutex and its guards, with the standard ones' meaning: <mutex> and <thread> cost a tenth of a second in every program
/// that includes the library. Used while registering memory and opening ports, and by proxies; never on the data path.

#include <vccl/base/config.hpp>

#include <pthread.h>

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

/// Holds a mutex as long as it lives.
class [[nodiscard]] scoped_lock {
public:
    explicit scoped_lock(mutex& m) noexcept : mutex_(m) { mutex_.lock(); }
    scoped_lock(const scoped_lock&) = delete;
    scoped_lock& operator=(const scoped_lock&) = delete;
    ~scoped_lock() { mutex_.unlock(); }

private:
    mutex& mutex_;
};

/// The same, if nobody else holds it now.
class [[nodiscard]] scoped_try_lock {
public:
    explicit scoped_try_lock(mutex& m) noexcept : mutex_(m.try_lock() ? &m : nullptr) {}
    scoped_try_lock(const scoped_try_lock&) = delete;
    scoped_try_lock& operator=(const scoped_try_lock&) = delete;
    ~scoped_try_lock() {
        if (mutex_) mutex_->unlock();
    }
    explicit operator bool() const noexcept { return mutex_ != nullptr; }

private:
    mutex* mutex_;
};

}  // namespace vccl::inline v0
