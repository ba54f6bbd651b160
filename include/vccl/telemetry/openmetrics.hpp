#pragma once
/// \file
/// Metrics of any number of channels as OpenMetrics text, which Prometheus and its kin scrape. docs/metrics.md lists the
/// families. Any thread, at any time; allocates. Source: OpenMetrics 1.0.

#include <vccl/telemetry/metrics.hpp>

#include <span>
#include <string>

namespace vccl::inline v0 {

/// A label that every sample gets, such as {"job", "llama"}. What may not stand in a label's name becomes '_'.
struct metrics_label {
    /// Any value will do: what must be escaped is.
    /// @{
    std::string_view name, value;
    /// @}
};

/// The value of the label `cause`.
constexpr std::string_view label_of(fault_cause c) noexcept {
    switch (c) {
        case fault_cause::none: return "none";
        case fault_cause::own_port: return "own_port";
        case fault_cause::retries: return "retries";
        case fault_cause::flushed: return "flushed";
        case fault_cause::local_error: return "local_error";
        case fault_cause::qp_fatal: return "qp_fatal";
        case fault_cause::hung: return "hung";
        case fault_cause::probe_lost: return "probe_lost";
        case fault_cause::peer_notice: return "peer_notice";
        case fault_cause::gid_change: return "gid_change";
    }
    return "unknown";
}

namespace detail {

class openmetrics_writer {
public:
    openmetrics_writer(std::span<const channel_metrics* const> ends, std::span<const metrics_label> common) : ends_(ends) {
        for (const metrics_label& l : common) common_ += label_name(l.name) + "=\"" + escaped(l.value) + "\",";
    }

    std::string take() {
        family("vccl_delivered_bytes", "counter", "bytes", "Bytes of delivered chunks.");
        each_lane([&](const auto& l, const std::string& at) { sample("vccl_delivered_bytes_total", at, l.bytes.get()); });
        family("vccl_delivered_chunks", "counter", "", "Chunks received (receiver) or acknowledged (sender).");
        each_lane([&](const auto& l, const std::string& at) { sample("vccl_delivered_chunks_total", at, l.chunks.get()); });
        family("vccl_lane_failures", "counter", "", "Verdicts on a lane, by cause.");
        each_lane([&](const auto& l, const std::string& at) {
            by_cause(l.failures, [&](const std::string& c, std::uint64_t n) { sample("vccl_lane_failures_total", at + c, n); });
        });
        family("vccl_lane_condition", "stateset", "", "Whether a lane can carry chunks.");
        each_lane([&](const auto& l, const std::string& at) {
            constexpr std::string_view names[] = {"unknown", "up", "failed"};
            for (unsigned c = 0; c < 3; ++c)
                sample("vccl_lane_condition", at + ",vccl_lane_condition=\"" + std::string(names[c]) + "\"",
                       l.condition.get() == c);
        });
        family("vccl_lane_active", "gauge", "", "1 for the lane that new chunks take.");
        for (const channel_metrics* m : ends_)
            for (unsigned l = 0; l < count(*m); ++l) sample("vccl_lane_active", lane_labels(*m, l), m->active.get() == l);

        family("vccl_failovers", "counter", "", "Failovers, by cause.");
        for (const channel_metrics* m : ends_)
            by_cause(m->failovers,
                     [&](const std::string& c, std::uint64_t n) { sample("vccl_failovers_total", labels(*m) + c, n); });
        total("vccl_failbacks", "Returns to an earlier lane.", &channel_metrics::failbacks);
        total("vccl_suspensions", "Times that no lane was left.", &channel_metrics::suspensions);
        total("vccl_control_losses", "Breaks of the out-of-band connection.", &channel_metrics::control_losses);
        total("vccl_refused_chunks", "Chunks that ended undelivered.", &channel_metrics::refused);
        total("vccl_replayed_chunks", "Chunks sent again, wholly or in part (sender).", &channel_metrics::replayed);
        total("vccl_already_delivered_chunks", "Chunks that a failover found delivered (sender).",
              &channel_metrics::already_delivered);
        family("vccl_running", "gauge", "", "1 while the channel runs over some lane.");
        for (const channel_metrics* m : ends_) sample("vccl_running", labels(*m), m->running.get());
        gaps();
        return out_ + "# EOF\n";
    }

private:
    /// Opens a metric family; what follows belongs to it.
    void family(const char* name, const char* type, const char* unit, const char* help) {
        out_ += std::string("# TYPE ") + name + " " + type + "\n";
        if (*unit != '\0') out_ += std::string("# UNIT ") + name + " " + unit + "\n";
        out_ += std::string("# HELP ") + name + " " + help + "\n";
    }
    template <class F>
    void each_lane(F&& f) {
        for (const channel_metrics* m : ends_)
            for (unsigned l = 0; l < count(*m); ++l) f(m->of[l], lane_labels(*m, l));
    }
    template <class F>
    static void by_cause(const metric (&of)[channel_metrics::causes], F&& f) {
        for (unsigned c = 0; c < channel_metrics::causes; ++c)
            if (const std::uint64_t n = of[c].get(); n != 0)
                f(",cause=\"" + std::string(label_of(static_cast<fault_cause>(c))) + "\"", n);
    }
    void total(const char* name, const char* help, metric channel_metrics::*of) {
        family(name, "counter", "", help);
        for (const channel_metrics* m : ends_) sample((std::string(name) + "_total").c_str(), labels(*m), (m->*of).get());
    }
    void gaps() {
        family("vccl_gap_seconds", "histogram", "seconds",
               "From the first sign of a fault to the first byte afterwards (receiver).");
        for (const channel_metrics* m : ends_) {
            std::uint64_t below = 0;
            for (unsigned b = 0; b < channel_metrics::gap_buckets; ++b) {
                below += m->gaps[b].get();
                const bool last = b + 1 == channel_metrics::gap_buckets;
                const std::string bound = last ? "+Inf" : decimal(channel_metrics::gap_bounds_us[b], 6);
                sample("vccl_gap_seconds_bucket", labels(*m) + ",le=\"" + bound + "\"", below);
            }
            sample("vccl_gap_seconds_count", labels(*m), below);
            out_ += "vccl_gap_seconds_sum{" + labels(*m) + "} " + decimal(m->gap_sum_ns.get(), 9) + "\n";
        }
    }
    void sample(const char* name, const std::string& at, std::uint64_t value) {
        out_ += std::string(name) + "{" + at + "} " + std::to_string(value) + "\n";
    }

    static unsigned count(const channel_metrics& m) noexcept { return m.lanes < max_lanes ? m.lanes : max_lanes; }
    std::string labels(const channel_metrics& m) const {
        return common_ + "channel=\"" + std::to_string(m.channel.value) + "\",end=\"" + escaped(m.end.view()) + "\"";
    }
    std::string lane_labels(const channel_metrics& m, unsigned l) const {
        return labels(m) + ",lane=\"" + std::to_string(l) + "\",port=\"" + escaped(m.of[l].port.view()) + "\"";
    }

    /// n / 10^digits, exactly, whatever the locale.
    static std::string decimal(std::uint64_t n, unsigned digits) {
        std::string text = std::to_string(n);
        if (text.size() <= digits) text.insert(0, digits + 1 - text.size(), '0');
        text.insert(text.size() - digits, 1, '.');
        while (text.back() == '0' && text[text.size() - 2] != '.') text.pop_back();
        return text;
    }
    static std::string escaped(std::string_view s) {
        std::string out;
        for (char c : s) {
            if (c == '\\' || c == '"') out += '\\';
            out += c == '\n' ? std::string("\\n") : std::string(1, c);
        }
        return out;
    }
    static std::string label_name(std::string_view s) {
        std::string out(s.empty() ? "_" : s);
        for (std::size_t i = 0; i < out.size(); ++i) {
            const char c = out[i];
            const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
            if (!letter && (i == 0 || c < '0' || c > '9')) out[i] = '_';
        }
        return out;
    }

    std::span<const channel_metrics* const> ends_;
    std::string common_, out_;
};

}  // namespace detail

/// Returns: the metrics of these ends as one exposition. Ends of the same channel in one process differ by `end`.
inline std::string openmetrics_text(std::span<const channel_metrics* const> ends, std::span<const metrics_label> common = {}) {
    return detail::openmetrics_writer(ends, common).take();
}

}  // namespace vccl::inline v0
