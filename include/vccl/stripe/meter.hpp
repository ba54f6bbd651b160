#pragma once
/// \file
/// How much a stripe has to carry, and how fast it does so, measured while it has something to carry. Pure. Owner thread.

#include <vccl/base/time.hpp>

namespace vccl::inline v0 {

class stripe_meter {
public:
    static constexpr std::uint64_t sample_bytes = 1 << 20;   ///< a sample is taken over so much: many chunks, yet soon
    static constexpr nanoseconds memory{100'000'000};        ///< what was measured before so long a rest is forgotten

    std::uint64_t backlog() const noexcept { return backlog_; }
    /// Bytes per second; 0: not known.
    std::uint64_t rate() const noexcept { return rate_; }

    void load(std::uint64_t bytes, nanoseconds now) noexcept {
        if (backlog_ == 0) {
            if (now - since_ > memory) rate_ = 0;
            since_ = now;
            carried_ = 0;
        }
        backlog_ += bytes;
    }
    void unload(std::uint64_t bytes, nanoseconds now) noexcept {
        backlog_ -= bytes;
        carried_ += bytes;
        if (carried_ < sample_bytes || now <= since_) return;
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
