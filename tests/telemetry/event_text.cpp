// Errors and events in words.
#include <vccl/telemetry/event_text.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <set>
#include <string>

namespace {

using namespace vccl;

constexpr lane_names ports{{"A.nic0.p0", "A.nic0.p1"}};

TEST_CASE("every error has words of its own") {
    std::set<std::string_view> seen;
    for (unsigned c = 0; c <= static_cast<unsigned>(errc::io_error); ++c) {
        const std::string_view words = text(static_cast<errc>(c));
        CHECK_NE(words, "unknown error");
        CHECK_MESSAGE(seen.insert(words).second, words);
    }
    CHECK_EQ(text(static_cast<errc>(250)), "unknown error");
}

TEST_CASE("completion statuses have libibverbs' names") {
    CHECK_EQ(text(wc_status::success), "SUCCESS");
    CHECK_EQ(text(wc_status::wr_flush_err), "WR_FLUSH_ERR");
    CHECK_EQ(text(wc_status::retry_exc_err), "RETRY_EXC_ERR");
    CHECK_EQ(text(wc_status::general_err), "GENERAL_ERR");
    CHECK_EQ(text(static_cast<wc_status>(99)), "unknown completion status");
}

TEST_CASE("a status says which lane, which completion and which errno") {
    status s{errc::no_lane_left};
    s.lane = 1;
    s.wc = wc_status::retry_exc_err;
    CHECK_EQ(describe(s, "A.nic0.p1"), std::string(text(errc::no_lane_left)) + " (A.nic0.p1) [RETRY_EXC_ERR]");
    CHECK_EQ(describe(s), std::string(text(errc::no_lane_left)) + " (lane 1) [RETRY_EXC_ERR]");
    CHECK_EQ(describe(status{errc::system, subject::system_error, ENOENT}),
             "a system call failed; see the reason: No such file or directory");
}

TEST_CASE("a failover reads as one line with ports, time and chunks") {
    channel_event e{};
    e.what = channel_event::kind::lane_failed;
    e.cause = fault_cause::retries;
    e.wc = wc_status::retry_exc_err;
    CHECK_EQ(describe(e, ports), "A.nic0.p0 failed: the NIC gave up retransmitting (RETRY_EXC_ERR)");
    e = {};
    e.what = channel_event::kind::failed_over;
    e.to = lane_id{1};
    e.replayed = 5;
    e.already_delivered = 1;
    CHECK_EQ(describe(e, ports), "failed over to A.nic0.p1, 5 chunks replayed, 1 chunk had arrived already");
    e = {};
    e.what = channel_event::kind::failed_over;
    e.to = lane_id{1};
    e.took = nanoseconds{12'440'000};
    CHECK_EQ(describe(e, ports), "failed over to A.nic0.p1, decided 12.4 ms after the first sign");
}

TEST_CASE("a lane without a name goes by its number") {
    channel_event e{};
    e.what = channel_event::kind::lane_restored;
    e.lane = lane_id{3};
    CHECK_EQ(describe(e, ports), "lane 3 is back and answers");
}

TEST_CASE("durations choose their unit") {
    CHECK_EQ(duration_text(nanoseconds{850'900}), "850 µs");
    CHECK_EQ(duration_text(nanoseconds{1'000'000}), "1.0 ms");
    CHECK_EQ(duration_text(nanoseconds{3'150'000'000}), "3.1 s");
}

}  // namespace
