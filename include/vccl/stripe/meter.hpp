#pragma once
/// \file
/// How much a stripe has to carry, and how fast it does so when it always has something to carry. Pure. Owner thread.

#include <vccl/base/time.hpp>

namespace vccl::inline v0 {

class stripe_meter {
public:
    /// A sample is taken over so many bytes, or over so long if at least some came: many chunks, yet soon.
    static constexpr std::uint64_t sample_bytes = 1 << 20, least_bytes = 1 << 16;
    static constexpr nanoseconds sample_time{10'000'000};

    std::uint64_t backlog() const noexcept { return backlog_; }
    /// Bytes per second; 0: not known.
    std::uint64_t rate() const noexcept { return rate_; }
    /// What was measured was of another lane.
    void forget() noexcept {
        rate_ = 0;
        carried_ = 0;
    }

    void load(std::uint64_t bytes, nanoseconds now) noexcept {
        if (backlog_ == 0) {
            since_ = now;
            carried_ = 0;
        }
        backlog_ += bytes;
    }
    void unload(std::uint64_t bytes, nanoseconds now) noexcept {
        backlog_ -= bytes;
        carried_ += bytes;
        // It had less to carry than it could: all that is known is that it carries more than was thought.
        if (backlog_ == 0) rate_ += rate_ / 8;
        const bool enough = carried_ >= sample_bytes || (carried_ >= least_bytes && now - since_ >= sample_time);
        if (backlog_ == 0 || !enough || now <= since_) return;
        const auto sample =
            static_cast<std::uint64_t>(static_cast<double>(carried_) * 1e9 / static_cast<double>((now - since_).count));
        rate_ = rate_ == 0 ? sample : (rate_ + sample) / 2;
        since_ = now;
        carried_ = 0;
    }

private:
    std::uint64_t backlog_{}, carried_{}, rate_{};
    nanoseconds since_{};  ///< of the sample under way: its first byte was loaded, or the sample before it ended
};

}  // namespace vccl::inline v0
