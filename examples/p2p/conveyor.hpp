#pragma once
// A second thread for what would keep the endpoint's thread from its work: reading, writing and hashing chunks, in order.
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>

namespace p2p {

/// Chunks 0, 1, 2 … are given by one thread, worked on by its own, and `done()` says how many are finished.
class conveyor {
public:
    explicit conveyor(std::function<void(std::uint64_t)> work) : work_(std::move(work)), thread_([this] { run(); }) {}
    conveyor(const conveyor&) = delete;
    ~conveyor() {
        given_.store(stop, std::memory_order_release);
        given_.notify_one();
        thread_.join();
    }

    /// Effects: all chunks below `count` may be worked on.
    void give(std::uint64_t count) noexcept {
        if (given_.load(std::memory_order_relaxed) == count) return;
        given_.store(count, std::memory_order_release);
        given_.notify_one();
    }
    /// Returns: the number of chunks finished. Throws what the work threw.
    std::uint64_t done() const {
        const std::uint64_t n = done_.load(std::memory_order_acquire);
        if (n != failed) return n;
        std::rethrow_exception(why_);
    }

private:
    static constexpr std::uint64_t stop = UINT64_MAX, failed = UINT64_MAX;

    void run() {
        for (std::uint64_t next = 0;; ++next) {
            std::uint64_t given = given_.load(std::memory_order_acquire);
            while (given == next) {
                given_.wait(given, std::memory_order_acquire);
                given = given_.load(std::memory_order_acquire);
            }
            if (given == stop) return;
            try {
                work_(next);
            } catch (...) {
                why_ = std::current_exception();
                done_.store(failed, std::memory_order_release);
                return;
            }
            done_.store(next + 1, std::memory_order_release);
        }
    }

    std::function<void(std::uint64_t)> work_;
    std::atomic<std::uint64_t> given_{}, done_{};
    std::exception_ptr why_;
    std::thread thread_;
};

}  // namespace p2p
