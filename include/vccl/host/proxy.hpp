#pragma once
/// \file
/// Who drives an endpoint: the caller's own thread (`caller_driven`), or a proxy thread that serves many
/// (`proxy_thread`). A proxied endpoint's send/recv may be called from one user thread; handlers run on the proxy.

#include <vccl/base/clock.hpp>
#include <vccl/base/mutex.hpp>
#include <vccl/base/status.hpp>
#include <vccl/host/roster.hpp>

#include <pthread.h>
#include <sched.h>
#include <atomic>
#include <new>
#include <utility>

namespace vccl::inline v0 {

/// progress() is called by whoever waits.
struct caller_driven {
    using policy_axis = axis::progress;
};
/// A `proxy` calls it, from its own thread.
struct proxy_thread {
    using policy_axis = axis::progress;
};

/// One thread that drives the endpoints of a roster. They attach and detach at any time; the thread naps when all of them
/// have been idle for a while.
class proxy {
public:
    using passenger = roster::passenger;  ///< an endpoint as the proxy's thread sees it

    /// Throws: std::bad_alloc if the system gives no thread.
    proxy() {
        const auto body = [](void* self) -> void* {
            static_cast<proxy*>(self)->run();
            return nullptr;
        };
        if (::pthread_create(&thread_, nullptr, body, this) != 0) throw std::bad_alloc{};
    }
    proxy(const proxy&) = delete;
    ~proxy() {
        stop_.store(true, std::memory_order_release);
        ::pthread_join(thread_, nullptr);
    }

    /// Effects: the thread drives it from its next turn on. Any thread.
    void attach(passenger p) {
        const scoped_lock lock(mutex_);
        roster_.add(p);
    }
    /// Effects: after it returns the proxy no longer touches the endpoint.
    void detach(void* self) noexcept {
        const scoped_lock lock(mutex_);
        roster_.remove(self);
    }

private:
    static constexpr unsigned spins_before_yield = 256;

    void run() {
        for (unsigned idle = 0; !stop_.load(std::memory_order_acquire);) {
            bool moved = false;
            {
                const scoped_lock lock(mutex_);
                moved = roster_.turn();
            }
            idle = moved ? 0 : idle + 1;
            if (idle > spins_before_yield) ::sched_yield();
        }
    }

    passing_mutex mutex_;
    roster roster_;
    std::atomic<bool> stop_{};
    pthread_t thread_{};
};

/// An endpoint whose owner is a proxy. The user's calls take a lock that the proxy holds for one pass of this endpoint.
template <class Endpoint>
class proxied {
public:
    using backend = typename Endpoint::backend;  ///< as the endpoint's

    /// `args`: what the endpoint itself is made from. It is driven from now on, by `driver`, which must outlive it.
    template <class... Args>
    explicit proxied(proxy& driver, Args&&... args) : driver_(driver), endpoint_(std::forward<Args>(args)...) {
        driver_.attach({this, [](void* self) noexcept { return static_cast<proxied*>(self)->pass(); }, &called_});
    }
    proxied(const proxied&) = delete;
    ~proxied() { driver_.detach(this); }

    /// As the endpoint's, under the lock.
    auto local_info() {
        return locked([](auto& e) { return e.local_info(); });
    }
    /// As the endpoint's, under the lock; the proxy does the rest.
    template <class Blob>
    status begin_connect(const Blob& remote) {
        return locked([&](auto& e) { return e.begin_connect(remote); });
    }
    /// Waits while the proxy drives; both ends may share one.
    template <class Blob>
    status connect(const Blob& remote, nanoseconds timeout) {
        if (status s = begin_connect(remote); !s) return s;
        return wait_for(timeout, [](auto& e) { return e.connected(); });
    }
    /// As the sender's, under the lock, which the proxy holds for one pass at most.
    template <class View>
    auto send(const View& v) noexcept {
        return locked([&](auto& e) { return e.send(v); });
    }
    /// As the receiver's, under the lock, which the proxy holds for one pass at most.
    template <class View>
    auto recv(const View& v) noexcept {
        return locked([&](auto& e) { return e.recv(v); });
    }
    /// Errors: as the endpoint's own wait().
    template <class Sequence>
    status wait(Sequence s, nanoseconds timeout) noexcept {
        status outcome{};
        const status over = wait_for(timeout, [&](auto& e) {
            if (!e.ended(s)) return false;
            const auto r = e.wait(s, nanoseconds{0});
            if (!r) outcome = status_of(r);
            return true;
        });
        return over ? outcome : over;
    }
    /// As the endpoint's, under the lock.
    status health() const noexcept {
        return locked([](auto& e) { return e.health(); });
    }

    /// Runs `f(endpoint)` while the proxy keeps off: for what has no call of its own here.
    template <class F>
    auto locked(F&& f) const noexcept(noexcept(f(std::declval<Endpoint&>()))) {
        const scoped_lock lock(mutex_);
        called_.store(true, std::memory_order_relaxed);
        return f(endpoint_);
    }

private:
    /// True also while the endpoint cannot rest: somebody is calling it, or it is at something that takes several passes.
    bool pass() noexcept {
        const scoped_try_lock lock(mutex_);
        return !lock || endpoint_.progress() || endpoint_.restless();
    }

    static status status_of(status s) noexcept { return s; }
    template <class T>
    static status status_of(const result<T>& r) noexcept {
        return r.error();
    }

    template <class Done>
    status wait_for(nanoseconds timeout, Done&& done) noexcept {
        const nanoseconds deadline = steady_clock{}.now() + timeout;
        for (;;) {
            {
                const scoped_lock lock(mutex_);
                if (done(endpoint_)) return {};
                if (status s = endpoint_.health(); !s) return s;
            }
            if (steady_clock{}.now() >= deadline) return errc::timeout;
            ::sched_yield();
        }
    }

    proxy& driver_;
    mutable passing_mutex mutex_;
    mutable std::atomic<bool> called_{true};
    mutable Endpoint endpoint_;
};

}  // namespace vccl::inline v0
