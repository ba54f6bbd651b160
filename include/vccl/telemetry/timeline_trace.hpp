#pragma once
/// \file
/// Timelines as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: a process for each timeline, a track for
/// each lane, chunks as slices, failovers as instants, outages of lanes as spans, throughput as a counter. Called after the transfer, any thread.
/// Source: the JSON form of the Trace Event Format.

#include <vccl/telemetry/timeline.hpp>

#include <initializer_list>
#include <string>

namespace vccl::inline v0 {

namespace detail {

inline std::string json_string(std::string_view s) {
    constexpr char hex[] = "0123456789abcdef";
    std::string out = "\"";
    for (char c : s) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            out += '\\', out += c;
        else if (u < 0x20)
            out += std::string("\\u00") + hex[u >> 4] + hex[u & 15];
        else
            out += c;
    }
    return out + "\"";
}

class trace_writer {
public:
    void process(unsigned pid, const timeline& t, std::string_view name) {
        metadata("process_name", pid, 0, name);
        for (std::uint8_t l = 0; l < max_lanes; ++l) {
            const lane_id lane{l};
            if (t.name(lane).empty() && !t.used(lane)) continue;
            metadata("thread_name", pid, track(lane), lane_name(t, lane));
        }
        for (const timeline_slice& s : t.slices())
            event("X", "chunk " + std::to_string(s.sequence.value), pid, track(s.lane), s.begin,
                  ",\"dur\":" + micros(s.end - s.begin) + ",\"args\":{\"sequence\":" + std::to_string(s.sequence.value) +
                      ",\"bytes\":" + std::to_string(s.bytes) + "}");
        for (const timeline_mark& m : t.marks()) event("i", m.text.view(), pid, track(m.lane), m.at, ",\"s\":\"p\"");
        for (const timeline_outage& o : t.outages()) {
            const std::string id =
                ",\"cat\":\"lane\",\"id\":\"" + std::to_string(pid) + "." + std::to_string(o.lane.value) + "\"";
            const std::string name = lane_name(t, o.lane) + " out of use";
            event("b", name, pid, track(o.lane), o.begin, id);
            event("e", name, pid, track(o.lane), o.end < t.end() ? o.end : t.end(), id);
        }
        counter(pid, t);
        if (t.dropped_slices() != 0)
            event("i", std::to_string(t.dropped_slices()) + " more chunks are not shown", pid, 1, t.end(), ",\"s\":\"p\"");
    }

    std::string take() { return std::move(events_); }

private:
    static unsigned track(lane_id lane) { return lane.value + 1U; }
    static std::string lane_name(const timeline& t, lane_id lane) {
        return t.name(lane).empty() ? "lane " + std::to_string(lane.value) : std::string(t.name(lane));
    }

    /// The format counts microseconds; three decimals keep the nanoseconds.
    static std::string micros(nanoseconds t) {
        const std::int64_t ns = t.count < 0 ? 0 : t.count;
        const std::string rest = std::to_string(ns % 1000);
        return std::to_string(ns / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
    }
    void open(const char* phase, std::string_view name, unsigned pid, unsigned tid) {
        if (!events_.empty()) events_ += ",\n";
        events_ += "{\"ph\":\"" + std::string(phase) + "\",\"name\":" + json_string(name) + ",\"pid\":" + std::to_string(pid) +
                   ",\"tid\":" + std::to_string(tid);
    }
    void metadata(const char* what, unsigned pid, unsigned tid, std::string_view name) {
        open("M", what, pid, tid);
        events_ += ",\"args\":{\"name\":" + json_string(name) + "}}";
    }
    void event(const char* phase, std::string_view name, unsigned pid, unsigned tid, nanoseconds at, const std::string& rest) {
        open(phase, name, pid, tid);
        events_ += ",\"ts\":" + micros(at) + rest + "}";
    }
    /// One value a bin and lane, written where it changes.
    void counter(unsigned pid, const timeline& t) {
        std::string before;
        const auto last = static_cast<std::size_t>((t.end() - t.origin()).count / t.bin_width().count);
        for (std::size_t b = 0; b <= last && b < timeline::bin_count; ++b) {
            std::string values;
            for (std::uint8_t l = 0; l < max_lanes; ++l) {
                const lane_id lane{l};
                if (!t.used(lane)) continue;
                const double rate = static_cast<double>(t.bytes_in(b, lane)) * 1e9 / static_cast<double>(t.bin_width().count);
                values += (values.empty() ? "" : ",") + json_string(lane_name(t, lane)) + ":" +
                          std::to_string(static_cast<std::uint64_t>(rate / 1e6));
            }
            if (values == before) continue;
            event("C", "throughput (MB/s)", pid, 0, t.origin() + t.bin_width() * static_cast<std::int64_t>(b),
                  ",\"args\":{" + values + "}");
            before = std::move(values);
        }
    }

    std::string events_;
};

}  // namespace detail

/// Returns: the events of one timeline, shown as the process `pid` of that name. Timelines of one clock, such as those of
/// the processes of one host, may go into one document.
inline std::string trace_events(const timeline& t, std::string_view name, unsigned pid = 1) {
    detail::trace_writer writer;
    writer.process(pid, t, name);
    return writer.take();
}

/// Returns: a trace file of the parts that trace_events made; empty parts count for nothing.
inline std::string trace_document(std::initializer_list<std::string_view> parts) {
    std::string all;
    for (std::string_view part : parts) {
        if (part.empty()) continue;
        if (!all.empty()) all += ",\n";
        all += part;
    }
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + all + "\n]}\n";
}

}  // namespace vccl::inline v0
