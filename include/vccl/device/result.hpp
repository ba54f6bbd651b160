#pragma once
/// \file
/// What a device operation returns, and how long it may wait. The same in kernels and on the host, in every mode.

#include <vccl/device/cqe.hpp>

namespace vccl::inline v0::device {

/// What became of an operation; `ok` and `moved` are the good ones.
enum class outcome : std::uint8_t {
    ok,
    moved,    ///< ok, and meanwhile the queue went over to another lane; `epoch` says which epoch it is in
    timeout,  ///< the deadline passed; what was posted stays posted and may still complete
    error,    ///< a CQE with an error: `why`, `vendor`, `wqe`
    aborted,  ///< the owner on the host ended the queue
};

/// Converts to true when the operation did what it says. An error CQE never does.
struct [[nodiscard]] device_result {
    outcome what{outcome::ok};     ///< the rest has a meaning only with some of them
    syndrome why{syndrome::none};  ///< of the first error CQE; `timeout` may carry the one that was being recovered from
    std::uint8_t vendor{};         ///< of that CQE; for the log of an expert
    std::uint16_t wqe{};           ///< hardware index of the WQE that failed
    std::uint16_t epoch{};         ///< the queue's epoch, its low bits

    /// ok or moved.
    VCCL_HOST_DEVICE constexpr explicit operator bool() const noexcept { return what == outcome::ok || what == outcome::moved; }
    friend constexpr bool operator==(const device_result&, const device_result&) noexcept = default;
};
static_assert(sizeof(device_result) == 8);

/// A word or two, for messages.
VCCL_HOST_DEVICE constexpr const char* text(outcome o) noexcept {
    switch (o) {
        case outcome::ok: return "ok";
        case outcome::moved: return "ok, on another lane";
        case outcome::timeout: return "timeout";
        case outcome::error: return "error";
        case outcome::aborted: return "aborted";
    }
    return "?";
}

/// As one word, the way a result travels between lanes of a warp and through a `failure` word.
VCCL_HOST_DEVICE constexpr std::uint64_t pack(const device_result& r) noexcept {
    return std::uint64_t{static_cast<std::uint8_t>(r.what)} | std::uint64_t{static_cast<std::uint8_t>(r.why)} << 8 |
           std::uint64_t{r.vendor} << 16 | std::uint64_t{r.wqe} << 24 | std::uint64_t{r.epoch} << 40;
}
/// From the word that pack made; any word gives some result.
VCCL_HOST_DEVICE constexpr device_result unpack(std::uint64_t w) noexcept {
    return {static_cast<outcome>(w & 0xff), static_cast<syndrome>(w >> 8 & 0xff), static_cast<std::uint8_t>(w >> 16),
            static_cast<std::uint16_t>(w >> 24), static_cast<std::uint16_t>(w >> 40)};
}

/// Does the same request meet the same error on every lane? Then no failover can help, and waits end at once.
/// The counterpart of `stock_verdict` (policy/completion.hpp).
VCCL_HOST_DEVICE constexpr bool is_fatal(syndrome s) noexcept {
    switch (s) {
        case syndrome::local_length:
        case syndrome::local_protection:
        case syndrome::memory_window_bind:
        case syndrome::bad_response:
        case syndrome::local_access:
        case syndrome::remote_invalid_request:
        case syndrome::remote_access:
        case syndrome::remote_operation: return true;
        default: return false;
    }
}

}  // namespace vccl::inline v0::device
