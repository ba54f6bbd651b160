#pragma once
/// \file
/// What an endpoint is made with, and how completion statuses read as causes and errors. Plain values, any thread.

#include <vccl/base/clock.hpp>
#include <vccl/host/oob.hpp>
#include <vccl/model/event.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/verbs/backend.hpp>

#include <sys/random.h>

namespace vccl::inline v0 {

/// Bytes written by a NIC into GPU memory are visible to the GPU only after a READ behind them.
enum class flush_mode : std::uint8_t { none, device, always };

/// Do bytes in such memory count only after a flush?
constexpr bool must_flush(flush_mode mode, bool device) noexcept {
    return mode == flush_mode::always || (mode == flush_mode::device && device);
}

/// Where a channel begins at this end: at a GPU, or at a port.
struct starting_point {
    gpu_id gpu{};    ///< where `is_port` is false
    port_id port{};  ///< where it is true
    bool is_port{};  ///< which of the two counts
    /// The port policy, or nearness, names the primary port.
    constexpr starting_point(gpu_id g) noexcept : gpu(g) {}
    /// This port is the primary, whatever the policy says.
    constexpr starting_point(port_id p) noexcept : port(p), is_port(true) {}
};

/// Runtime settings of one end; docs/api.md says which end looks at which.
struct endpoint_options {
    std::uint64_t session{};                    ///< of your job: both ends' must agree
    unsigned lanes{8};                          ///< at most so many, the primary included; no more than max_lanes
    unsigned first_lane{0};                     ///< prefer this lane: 1 sends everything over the first backup
    unsigned window{64};                        ///< receiver: receives outstanding; power of two, at most max_window
    std::uint32_t max_chunk{1u << 30};          ///< bytes
    std::uint32_t inline_bytes{128};            ///< chunks up to this size are copied while posting
    qp_timers timers{};                         ///< of the QPs; a backstop: detection does not rest on them
    std::uint32_t split_from{65536};            ///< receiver with stripes: a receive of so many bytes is cut over them
    nanoseconds give_up_after{30'000'000'000};  ///< without a lane for so long, the channel fails
    nanoseconds peer_grace{5'000'000'000};      ///< a peer whose process seems to be gone is given up after this
    nanoseconds ack_delay{50'000};              ///< receiver: an acknowledgement waits so long for a grant to ride on
    flush_mode flush{flush_mode::device};       ///< receiver: what must be flushed before it counts as received
    oob_address oob{"127.0.0.1:0"};             ///< receiver: address at which the sender finds it; port 0: any
    std::uint64_t seed{};                       ///< 0: from the system
};

namespace detail {

constexpr bool in_range(const endpoint_options& o) noexcept {
    const qp_timers& t = o.timers;
    return o.lanes != 0 && o.lanes <= max_lanes && o.first_lane < o.lanes && o.window != 0 && o.window <= max_window &&
           (o.window & (o.window - 1)) == 0 && o.max_chunk != 0 && o.max_chunk <= 1u << 30 && t.timeout <= 31 &&
           t.retry_count <= 7 && t.rnr_retry <= 7 && t.min_rnr_timer <= 31 && o.give_up_after.count >= 0 &&
           o.peer_grace.count >= 0 && o.ack_delay.count >= 0;
}

inline std::uint64_t random_word(std::uint64_t seed) noexcept {
    if (seed != 0) return seed;
    std::uint64_t word = 0;
    if (::getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word))
        word = static_cast<std::uint64_t>(steady_clock{}.now().count);
    return word | 1;
}

inline oob_secret random_secret() noexcept {
    oob_secret s{};
    for (unsigned i = 0; i < sizeof s.bytes; i += 8) {
        const std::uint64_t word = random_word(0);
        std::memcpy(s.bytes + i, &word, 8);
    }
    return s;
}

constexpr status too_large(std::uint32_t most, std::uint64_t bytes) noexcept {
    return {errc::too_large, subject::bytes, most, bytes < 0xffffffff ? static_cast<std::uint32_t>(bytes) : 0xffffffff};
}

constexpr fault_cause cause_of(wc_status s) noexcept {
    switch (s) {
        case wc_status::retry_exc_err:
        case wc_status::rnr_retry_exc_err:
        case wc_status::resp_timeout_err: return fault_cause::retries;
        case wc_status::wr_flush_err: return fault_cause::flushed;
        default: return fault_cause::local_error;
    }
}
constexpr errc errc_of(wc_status s) noexcept {
    switch (s) {
        case wc_status::rem_access_err:
        case wc_status::rem_inv_req_err:
        case wc_status::rem_op_err: return errc::remote_access;
        default: return errc::local_protection;
    }
}

}  // namespace detail

}  // namespace vccl::inline v0
