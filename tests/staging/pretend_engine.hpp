#pragma once
/// \file
/// A copy engine under a manual clock, for host memory that plays a GPU's: copies take time, read their source at the last
/// moment, wait for marks, and fail on demand. Streams are counters that the test moves.

#include <vccl/base/clock.hpp>
#include <vccl/staging/copy_engine.hpp>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace vccl_test {

using namespace vccl;

/// What a stream has been given, and how far its work has come.
struct pretend_stream {
    std::uint64_t given{}, reached{};
    std::uint64_t held_until{};  ///< later work waits for this release
    bool destroyed{};
};

/// What the test sees and sets of one engine.
struct engine_bench {
    const std::byte* device{};  ///< the memory that it may reach
    std::size_t device_bytes{};
    double bytes_per_second{1e10};
    std::uint64_t begun{}, released{};
    unsigned pinned{};  ///< rings that lie in memory of somebody else
    std::uint64_t fails_at{~std::uint64_t{0}};  ///< this copy fails
};

class pretend_engine {
public:
    using stream = pretend_stream*;

    pretend_engine(engine_bench& bench, manual_clock clock) : bench_(&bench), clock_(clock) {}

    result<staging_buffer> allocate(std::size_t bytes) noexcept {
        return staging_buffer(new std::byte[bytes], bytes, [](void* p) noexcept { delete[] static_cast<std::byte*>(p); });
    }
    result<staging_buffer> pin(std::byte* p, std::size_t bytes) noexcept {
        ++bench_->pinned;
        return staging_buffer(p, bytes, [](void*) noexcept {});
    }
    status check(const void* p, std::size_t bytes) noexcept {
        const auto* b = static_cast<const std::byte*>(p);
        const bool inside = b >= bench_->device && b + bytes <= bench_->device + bench_->device_bytes;
        return inside ? errc::ok : errc::invalid_argument;
    }
    result<std::uint64_t> read(void* host, const void* device, std::size_t bytes) noexcept { return begin(host, device, bytes); }
    result<std::uint64_t> write(void* device, const void* host, std::size_t bytes) noexcept { return begin(device, host, bytes); }
    result<std::uint64_t> begin(void* to, const void* from, std::size_t bytes) noexcept {
        copies_.push_back({to, from, bytes, after_, after_mark_, {}});
        return bench_->begun++;
    }
    result<bool> done(std::uint64_t n) noexcept {
        run();
        if (done_ > bench_->fails_at) return status{errc::io_error, 700};
        return n < done_;
    }
    result<std::uint64_t> mark(stream s) noexcept {
        if (s->destroyed) return errc::invalid_argument;
        marks_.push_back({s, ++s->given});
        return marks_.size() - 1;
    }
    status follow(std::uint64_t n) noexcept {
        after_ = marks_[n].first;
        after_mark_ = marks_[n].second;
        return {};
    }
    status hold(stream s, std::uint64_t n) noexcept {
        if (s->destroyed) return errc::invalid_argument;
        s->held_until = n;
        return {};
    }
    void release(std::uint64_t n) noexcept {
        if (n > bench_->released) bench_->released = n;
    }

private:
    struct copy {
        void* to;
        const void* from;
        std::size_t bytes;
        stream after;
        std::uint64_t mark;
        nanoseconds ends;
    };
    void run() {
        while (!copies_.empty()) {
            copy& c = copies_.front();
            if (c.after && c.after->reached < c.mark) return;
            if (c.ends.count == 0) {
                const nanoseconds start = clock_.now() < free_at_ ? free_at_ : clock_.now();
                c.ends = start + nanoseconds{1 + static_cast<std::int64_t>(double(c.bytes) * 1e9 / bench_->bytes_per_second)};
            }
            if (clock_.now() < c.ends) return;
            free_at_ = c.ends;
            if (done_ != bench_->fails_at && c.bytes != 0) std::memcpy(c.to, c.from, c.bytes);
            ++done_;
            copies_.pop_front();
        }
    }

    engine_bench* bench_;
    manual_clock clock_;
    std::deque<copy> copies_;
    std::vector<std::pair<stream, std::uint64_t>> marks_;
    stream after_{};
    std::uint64_t after_mark_{}, done_{};
    nanoseconds free_at_{};
};
static_assert(copy_engine<pretend_engine>);

}  // namespace vccl_test
