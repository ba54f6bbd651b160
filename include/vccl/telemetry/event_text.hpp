#pragma once
/// \file
/// Channel events in lines that a person understands: which port, which cause, how long, how many chunks. Any thread.

#include <vccl/base/status_text.hpp>
#include <vccl/model/event.hpp>
#include <vccl/policy/lane_list.hpp>

#include <string>

namespace vccl::inline v0 {

/// A few words, such as "this end's port went down".
constexpr std::string_view text(fault_cause c) noexcept {
    switch (c) {
        case fault_cause::none: return "no cause known";
        case fault_cause::own_port: return "this end's port went down";
        case fault_cause::retries: return "the NIC gave up retransmitting";
        case fault_cause::flushed: return "the QP went to ERR on its own";
        case fault_cause::local_error: return "an error completion";
        case fault_cause::qp_fatal: return "the device reported a broken QP";
        case fault_cause::hung: return "work stood still";
        case fault_cause::probe_lost: return "a probe was not answered";
        case fault_cause::peer_notice: return "the peer gave it up";
        case fault_cause::gid_change: return "the port got a new address";
    }
    return "unknown cause";
}

/// "850 µs", "12.4 ms", "3.1 s"
inline std::string duration_text(nanoseconds t) {
    const std::int64_t us = t.count / 1000;
    const auto tenths = [](std::int64_t n, const char* unit) {
        return std::to_string(n / 10) + "." + std::to_string(n % 10) + unit;
    };
    if (us < 1000) return std::to_string(us) + " µs";
    if (us < 1'000'000) return tenths(us / 100, " ms");
    return tenths(us / 100'000, " s");
}

/// How the lanes of a channel are called in messages: usually by their local ports.
struct lane_names {
    std::string_view names[max_lanes]{};  ///< not kept alive by this: names must outlive it
    /// "lane 2" where it has no name.
    std::string operator[](lane_id l) const {
        return l.value < max_lanes && !names[l.value].empty() ? std::string(names[l.value]) : "lane " + std::to_string(l.value);
    }
};

/// Returns: the event as one line without a time.
inline std::string describe(const channel_event& e, const lane_names& lanes) {
    using kind = channel_event::kind;
    const auto chunks = [](std::uint64_t n, const char* what) {
        return std::to_string(n) + (n == 1 ? " chunk " : " chunks ") + what;
    };
    switch (e.what) {
        case kind::connected: return "connected over " + lanes[e.to];
        case kind::lane_failed: {
            std::string out = lanes[e.lane] + " failed: " + std::string(text(e.cause));
            if (e.wc != wc_status::success) out += " (" + std::string(text(e.wc)) + ")";
            return out;
        }
        case kind::failed_over: {
            std::string out = "failed over to " + lanes[e.to];
            if (e.took.count != 0) out += ", decided " + duration_text(e.took) + " after the first sign";
            if (e.replayed != 0 || e.already_delivered != 0)
                out += ", " + chunks(e.replayed, "replayed") + ", " + chunks(e.already_delivered, "had arrived already");
            return out;
        }
        case kind::resumed:
            return "bytes arrive again over " + lanes[e.to] + ", " + duration_text(e.took) + " after the first sign of the fault";
        case kind::lane_restored: return lanes[e.lane] + " is back and answers";
        case kind::failed_back: return "back on " + lanes[e.to] + ", nothing replayed";
        case kind::suspended: return "no lane left after " + lanes[e.lane] + ": waiting for one to come back";
        case kind::oob_lost: return "the out-of-band connection broke; the lanes carry control alone";
        case kind::oob_restored: return "the out-of-band connection is back";
        case kind::failed:
            return "gave up: " + describe(e.why, e.why.lane == status::no_lane ? std::string() : lanes[lane_id{e.why.lane}]);
        case kind::closed: return "closed in order";
    }
    return "unknown event";
}

}  // namespace vccl::inline v0
