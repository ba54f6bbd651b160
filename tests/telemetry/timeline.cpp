// The timeline: bytes are all counted, wherever they fall, and recording stays within its memory.
#include "sample.hpp"

#include <vccl/telemetry/timeline_svg.hpp>
#include <vccl/telemetry/timeline_trace.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>

namespace {

using namespace vccl;

std::uint64_t between(const timeline& t, nanoseconds from, nanoseconds to, lane_id lane) {
    std::uint64_t sum = 0;
    for (std::size_t b = 0; b < timeline::bin_count; ++b) {
        const nanoseconds at = t.origin() + t.bin_width() * static_cast<std::int64_t>(b);
        if (at >= from && at + t.bin_width() <= to) sum += t.bytes_in(b, lane);
    }
    return sum;
}

TEST_CASE("every byte is counted once, on its own lane") {
    const timeline t = sample::failover();
    CHECK_EQ(t.bytes(lane_id{0}), 156U << 20);
    CHECK_EQ(t.bytes(lane_id{1}), 100U << 20);
}

TEST_CASE("no byte falls into the gap of a failover") {
    const timeline t = sample::failover();
    const nanoseconds fault = t.marks()[0].at, over = t.marks()[2].at;
    CHECK_EQ(between(t, fault + t.bin_width(), over, lane_id{0}), 0);
    CHECK_EQ(between(t, fault + t.bin_width(), over, lane_id{1}), 0);
    CHECK_GT(between(t, over, over + nanoseconds{3'000'000}, lane_id{1}), 0);
}

TEST_CASE("a chunk's bytes are spread evenly over its time") {
    timeline t(nanoseconds{0});
    t.add_chunk({nanoseconds{5'000}, nanoseconds{25'000}, sequence{0}, 2000, lane_id{0}});
    CHECK_EQ(t.bin_width(), nanoseconds{10'000});
    CHECK_EQ(t.bytes_in(0, lane_id{0}), 500);
    CHECK_EQ(t.bytes_in(1, lane_id{0}), 1000);
    CHECK_EQ(t.bytes_in(2, lane_id{0}), 500);
}

TEST_CASE("a chunk that took no time is counted where it ended") {
    timeline t(nanoseconds{0});
    t.add_chunk({nanoseconds{15'000}, nanoseconds{15'000}, sequence{0}, 77, lane_id{3}});
    CHECK_EQ(t.bytes_in(1, lane_id{3}), 77);
}

TEST_CASE("a long transfer halves the resolution and loses no byte") {
    timeline t(nanoseconds{0});
    constexpr std::uint64_t chunks = 5000;
    for (std::uint64_t i = 0; i < chunks; ++i) {
        const auto at = static_cast<std::int64_t>(i) * 7'000'000;
        t.add_chunk({nanoseconds{at}, nanoseconds{at + 7'000'000}, sequence{i}, 1001, lane_id{0}});
    }
    CHECK_EQ(t.bytes(lane_id{0}), chunks * 1001);
    CHECK_LT((t.end() - t.origin()).count, t.bin_width().count * static_cast<std::int64_t>(timeline::bin_count));
    CHECK_EQ(t.bin_width().count % timeline::first_bin_width.count, 0);
}

TEST_CASE("slices and marks beyond the capacity are counted, their bytes still drawn") {
    timeline t(nanoseconds{0}, 2, 1);
    for (std::uint64_t i = 0; i < 5; ++i) t.add_chunk({nanoseconds{0}, nanoseconds{100}, sequence{i}, 10, lane_id{0}});
    for (int i = 0; i < 3; ++i) t.add_mark({nanoseconds{5}, mark_kind::note, lane_id{0}, "x"});
    CHECK_EQ(t.slices().size(), 2);
    CHECK_EQ(t.dropped_slices(), 3);
    CHECK_EQ(t.marks().size(), 1);
    CHECK_EQ(t.dropped_marks(), 2);
    CHECK_EQ(t.bytes(lane_id{0}), 50);
    CHECK_NE(trace_events(t, "p").find("3 more chunks are not shown"), std::string::npos);
}

TEST_CASE("a lane that the timeline has no room for, or a time before it, is left out") {
    timeline t(nanoseconds{1000});
    t.add_chunk({nanoseconds{1000}, nanoseconds{2000}, sequence{0}, 10, lane_id{max_lanes}});
    t.add_chunk({nanoseconds{0}, nanoseconds{500}, sequence{0}, 10, lane_id{0}});
    for (std::uint8_t l = 0; l < max_lanes; ++l) CHECK_EQ(t.bytes(lane_id{l}), 0);
}

TEST_CASE("every lane has a colour of its own in the picture's legend") {
    timeline t(nanoseconds{0});
    for (std::uint8_t l = 0; l < max_lanes; ++l) t.add_bytes(nanoseconds{0}, nanoseconds{100'000}, 1'000'000, lane_id{l});
    const std::string svg = timeline_svg(t), before = "rx=\"2\" fill=\"";
    std::set<std::string> colours;
    for (std::size_t at = 0; (at = svg.find(before, at)) != std::string::npos; ++at)
        colours.insert(svg.substr(at + before.size(), 7));
    CHECK_EQ(colours.size(), max_lanes);
}

TEST_CASE("the handler turns chunks and events into slices and marks, and bytes after a failover begin with it") {
    nanoseconds now{1000};
    timeline t(now);
    t.name_lane(lane_id{1}, "B.nic0.p1");
    record_timeline<manual_clock> handler{&t, manual_clock{&now}};
    now = nanoseconds{11'000};
    handler.on_done({sequence{0}, 100, lane_id{0}, epoch{1}, {}});
    channel_event e{};
    e.what = channel_event::kind::failed_over;
    e.to = lane_id{1};
    e.at = nanoseconds{50'000};
    handler.on_event(e);
    now = nanoseconds{60'000};
    handler.on_done({sequence{1}, 100, lane_id{1}, epoch{2}, {}});
    handler.on_done({sequence{2}, 100, lane_id{1}, epoch{2}, errc::aborted});
    REQUIRE_EQ(t.slices().size(), 2);
    CHECK_EQ(t.slices()[0].begin, nanoseconds{1000});
    CHECK_EQ(t.slices()[1].begin, nanoseconds{50'000});
    REQUIRE_EQ(t.marks().size(), 1);
    CHECK_EQ(t.marks()[0].text, "failed over to B.nic0.p1");
    CHECK_EQ(static_cast<int>(t.marks()[0].kind), static_cast<int>(mark_kind::failover));
}

TEST_CASE("at a receiver bytes count when they arrive, not again when their chunk is delivered") {
    nanoseconds now{0};
    timeline t(now);
    record_timeline<manual_clock> handler{&t, manual_clock{&now}};
    completion c{};
    c.wr_id = wr_id::make(wr_kind::arrival, 2, 0, 1, 0).raw;
    c.op = completion_op::recv_write_imm;
    c.byte_len = 300;
    now = nanoseconds{15'000};
    handler.on_polled(c);
    c.status = wc_status::wr_flush_err;
    handler.on_polled(c);
    now = nanoseconds{95'000};
    handler.on_done({sequence{0}, 300, lane_id{2}, epoch{1}, {}});
    CHECK_EQ(t.bytes(lane_id{2}), 300);
    CHECK_EQ(t.bytes_in(0, lane_id{2}) + t.bytes_in(1, lane_id{2}), 300);
    CHECK_EQ(t.slices().size(), 1);
}

TEST_CASE("the handler notes for how long a lane was out of use, and the trace shows it as a span") {
    nanoseconds now{1000};
    timeline t(now, 16, 2);
    t.name_lane(lane_id{0}, "A.nic0.p0");
    record_timeline<manual_clock> handler{&t, manual_clock{&now}};
    auto tell = [&](channel_event::kind what, unsigned lane, std::int64_t at) {
        channel_event e{};
        e.what = what;
        e.lane = lane_id{static_cast<std::uint8_t>(lane)};
        e.at = nanoseconds{at};
        handler.on_event(e);
    };
    tell(channel_event::kind::lane_restored, 0, 2'000);
    tell(channel_event::kind::lane_failed, 0, 3'000);
    tell(channel_event::kind::lane_failed, 0, 4'000);
    tell(channel_event::kind::lane_restored, 0, 9'500);
    tell(channel_event::kind::lane_failed, 1, 10'000);
    tell(channel_event::kind::lane_failed, 2, 12'000);  // no room left
    REQUIRE_EQ(t.outages().size(), 2);
    CHECK_EQ(t.outages()[0].begin, nanoseconds{3'000});
    CHECK_EQ(t.outages()[0].end, nanoseconds{9'500});
    CHECK_EQ(t.outages()[1].end, nanoseconds::never());
    const std::string trace = trace_events(t, "p");
    const auto has = [&](const char* what) { return trace.find(what) != std::string::npos; };
    CHECK(has(R"({"ph":"b","name":"A.nic0.p0 out of use","pid":1,"tid":1,"ts":3.000,"cat":"lane","id":"1.0"})"));
    CHECK(has(R"({"ph":"e","name":"A.nic0.p0 out of use","pid":1,"tid":1,"ts":9.500,"cat":"lane","id":"1.0"})"));
    CHECK(has(R"({"ph":"e","name":"lane 1 out of use","pid":1,"tid":2,"ts":12.000,"cat":"lane","id":"1.1"})"));
}

TEST_CASE("labels of marks at one time stand in rows of their own") {
    timeline t(nanoseconds{0});
    t.add_chunk({nanoseconds{0}, nanoseconds{1'000'000}, sequence{0}, 1000, lane_id{0}});
    for (const char* text : {"first", "second", "third"}) t.add_mark({nanoseconds{500'000}, mark_kind::note, lane_id{0}, text});
    const std::string svg = timeline_svg(t);
    const auto y_of = [&](const char* text) {
        const std::size_t end = svg.find(">" + std::string(text) + "<");
        const std::size_t y = svg.rfind("y=\"", end);
        return svg.substr(y, svg.find('"', y + 3) - y);
    };
    CHECK_NE(y_of("first"), y_of("second"));
    CHECK_NE(y_of("second"), y_of("third"));
    CHECK_NE(y_of("first"), y_of("third"));
}

TEST_CASE("numbers on the axes are short, and units fit the size") {
    CHECK_EQ(vccl::detail::short_number(12.50, 3), "12.5");
    CHECK_EQ(vccl::detail::short_number(0.04, 1), "0");
    CHECK_EQ(vccl::detail::short_number(-0.25, 2), "-0.25");
    CHECK_EQ(vccl::detail::tick_step(10, 5), doctest::Approx(2));
    CHECK_EQ(vccl::detail::tick_step(2.3, 5), doctest::Approx(0.5));
    CHECK_EQ(std::string(vccl::detail::rate_unit(2.5e6).name), "MB/s");
    CHECK_EQ(std::string(vccl::detail::time_unit(0.3).name), "ms");
}

}  // namespace
