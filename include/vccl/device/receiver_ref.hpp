#pragma once
/// \file
/// What a kernel holds of a device receiver: the signal words that the peer writes. Trivially copyable; any thread.

#include <vccl/device/atomic.hpp>
#include <vccl/device/result.hpp>
#include <vccl/device/scope.hpp>
#include <vccl/device/words.hpp>

namespace vccl::inline v0::device {

/// Made by a device receiver's ref(); valid until that goes.
class receiver_ref {
public:
    receiver_ref() = default;
    /// Made by basic_device_receiver::ref.
    VCCL_HOST_DEVICE receiver_ref(const std::uint64_t* words, std::uint32_t count, const host_words* host, const host_wait* wait,
                                  std::int64_t timeout_ns) noexcept
        : words_(words), host_(host), wait_(wait), timeout_(timeout_ns), count_(count) {}

    /// The same words with another deadline for each wait.
    VCCL_HOST_DEVICE receiver_ref within(std::int64_t timeout_ns) const noexcept {
        return {words_, count_, host_, wait_, timeout_ns};
    }
    /// Signal words; their numbers are below this.
    VCCL_HOST_DEVICE std::uint32_t words() const noexcept { return count_; }
    /// The words themselves, for looks of one's own: load with acquire at system scope.
    VCCL_HOST_DEVICE const std::uint64_t* data() const noexcept { return words_; }
    /// What a signal word holds now. What was put before it can be read afterwards.
    VCCL_HOST_DEVICE std::uint64_t peek(std::uint32_t word) const noexcept {
        return load<order::acquire, scope::system>(&words_[word]);
    }

    /// Effects: waits until the word has reached `value`; words only grow. Errors: timeout, aborted.
    template <class Scope>
    VCCL_HOST_DEVICE device_result wait_signal(Scope who, std::uint32_t word, std::uint64_t value) const {
        std::uint64_t packed = 0;
        if (who.rank() == 0) packed = pack(await(word, value));
        // The other threads read behind a barrier what the first has acquired.
        packed = who.broadcast(packed);
        who.sync();
        return unpack(packed);
    }

private:
    VCCL_HOST_DEVICE device_result await(std::uint32_t word, std::uint64_t value) const {
        deadline until(wait_, timeout_);
        while (static_cast<std::int64_t>(peek(word) - value) < 0) {
            if (load<order::relaxed, scope::system>(&host_->abort) != 0) return {outcome::aborted};
            if (until.passed()) return {outcome::timeout};
            pause(wait_);
        }
        return {};
    }

    const std::uint64_t* words_{};
    const host_words* host_{};
    const host_wait* wait_{};
    std::int64_t timeout_{};
    std::uint32_t count_{};
};
static_assert(std::is_trivially_copyable_v<receiver_ref>);

}  // namespace vccl::inline v0::device
