// The parts of p2p that decide what is printed: script, rates, messages, the judgement and its gap.
#include "digest.hpp"
#include "script.hpp"
#include "session.hpp"
#include "summary.hpp"
#include "witness.hpp"

#include <doctest/doctest.h>

namespace {

using namespace p2p;

TEST_CASE("a fault script is read in the order of its percentages") {
    const auto steps = parse_script(" at=70% up A.nic0.p0; at=40.5% down A.nic0.p0 ;");
    REQUIRE_EQ(steps.size(), 2);
    CHECK_EQ(steps[0].share, doctest::Approx(0.405));
    CHECK_EQ(steps[0].command, "down A.nic0.p0");
    CHECK_EQ(steps[1].command, "up A.nic0.p0");
    CHECK(parse_script("").empty());
}

TEST_CASE("a step that cannot be read is refused and named") {
    for (const char* bad : {"down A.nic0.p0", "at=40 down x", "at=x% down y", "at=101% down y", "at=-1% down y", "at=% down y",
                            "at=40%", "at=4 0% down x"}) {
        INFO(bad);
        try {
            (void)parse_script(bad);
            FAIL("accepted");
        } catch (const user_error& e) { CHECK_NE(std::string(e.what()).find(std::string("\"") + bad + "\""), std::string::npos); }
    }
}

TEST_CASE("rates have units") {
    std::uint64_t rate = 1;
    CHECK(parse_rate("400MB/s", rate));
    CHECK_EQ(rate, 400'000'000);
    CHECK(parse_rate("0", rate));
    CHECK_EQ(rate, 0);
    for (const char* bad : {"", "MB/s", "4 MB/s", "400MiB", "9999999999GB/s"}) CHECK_FALSE(parse_rate(bad, rate));
}

TEST_CASE("fields come back as they were sent, and a missing or bad one is an error") {
    fields sent;
    sent.set("name", "a file with spaces");
    sent.set("size", std::uint64_t{123});
    const fields got(sent.encode());
    CHECK_EQ(got.text("name"), "a file with spaces");
    CHECK_EQ(got.number("size"), 123);
    CHECK_THROWS_AS((void)got.text("chunk"), user_error);
    CHECK_THROWS_AS((void)got.number("name"), user_error);
    const std::vector<std::uint64_t> numbers{0, 1, UINT64_MAX};
    CHECK_EQ(split(join(numbers)), numbers);
}

TEST_CASE("sizes and chunks that cannot be done are refused, the largest among them") {
    CHECK_EQ(plan{UINT64_MAX, 1U << 20}.chunks(), std::uint64_t{1} << 44);
    CHECK_EQ(plan{0, 1}.chunks(), 0);
    CHECK_EQ(plan{(std::uint64_t{4} << 30) + 1, 1024}.chunks(), (std::uint64_t{4} << 20) + 1);
    CHECK_NOTHROW((plan{(std::uint64_t{4} << 30) + 1, 1024}.check()));
    for (const plan& bad : {plan{UINT64_MAX, 1U << 20}, plan{std::uint64_t{1} << 30, 1}, plan{1, 0}, plan{1, (64U << 20) + 1}})
        CHECK_THROWS_AS(bad.check(), user_error);
}

TEST_CASE("the last line has every count, and says ok only if nothing was lost, duplicated or corrupted") {
    judgement j;
    CHECK_FALSE(j.ok());
    j.counted = true;
    j.bytes = 268435456;
    j.gap_us = 7;
    CHECK_EQ(j.line(),
             "RESULT ok bytes=268435456 chunks=0 failovers=0 failbacks=0 replayed=0 already_delivered=0 lost=0 duplicated=0 "
             "corrupted=0 gap_us=7");
    for (auto bad : {&judgement::lost, &judgement::duplicated, &judgement::corrupted}) {
        judgement k = j;
        k.*bad = 1;
        CHECK_FALSE(k.ok());
        CHECK(k.line().starts_with("RESULT failed "));
    }
    j.reason = "a \"quoted\"\nreason";
    CHECK_FALSE(j.ok());
    CHECK(j.line().ends_with(" reason=\"a 'quoted' reason\""));
}

vccl::channel_event event(vccl::channel_event::kind what, std::uint8_t lane, std::int64_t at_us, std::int64_t took_us = 0) {
    vccl::channel_event e{};
    e.what = what;
    e.lane = e.to = vccl::lane_id{lane};
    e.at = {at_us * 1000};
    e.took = {took_us * 1000};
    return e;
}
using kind = vccl::channel_event::kind;

TEST_CASE("the gap begins with the first sign at either end, and only of the lane in use") {
    const std::vector<vccl::channel_event> receiver{event(kind::connected, 0, 0), event(kind::lane_failed, 0, 1010),
                                                    event(kind::failed_over, 1, 1020), event(kind::resumed, 1, 1100, 90)};
    CHECK_EQ(longest_gap_us(receiver, {}), 90);
    CHECK_EQ(longest_gap_us(receiver, {{0, 950'000}}), 150);
    CHECK_EQ(longest_gap_us(receiver, {{2, 500'000}}), 90);
    CHECK_EQ(longest_gap_us(receiver, {{0, 1'500'000}}), 90);
}

TEST_CASE("a second failover before bytes arrive counts from the first one's fault; of two gaps the longest counts") {
    const std::vector<vccl::channel_event> receiver{event(kind::connected, 0, 0),      event(kind::lane_failed, 0, 100),
                                                    event(kind::failed_over, 1, 110),  event(kind::lane_failed, 1, 150),
                                                    event(kind::failed_over, 2, 160),  event(kind::resumed, 2, 300, 50),
                                                    event(kind::failed_back, 0, 1000), event(kind::lane_failed, 0, 2000),
                                                    event(kind::failed_over, 1, 2001), event(kind::resumed, 1, 2050, 50)};
    CHECK_EQ(longest_gap_us(receiver, {}), 200);
}

TEST_CASE("a chunk reported twice, or one that was never sent, is a duplicate") {
    witness w(2);
    w.on_done({vccl::sequence{0}, 1, {}, {}, {}});
    w.on_done({vccl::sequence{0}, 1, {}, {}, {}});
    w.on_done({vccl::sequence{2}, 1, {}, {}, {}});
    w.on_done({vccl::sequence{1}, 1, {}, {}, vccl::errc::aborted});
    CHECK_EQ(w.distinct, 1);
    CHECK_EQ(w.duplicated, 2);
}

TEST_CASE("both ends of a lane have one name") {
    CHECK_EQ(lane_name("A.nic0.p0", "B.nic0.p0"), "nic0.p0");
    CHECK_EQ(lane_name("A.nic0.p0", "B.nic1.p0"), "A.nic0.p0 - B.nic1.p0");
    CHECK_EQ(lane_name("rxe_a0:1", "rxe_b0:1"), "rxe_a0:1 - rxe_b0:1");
}

TEST_CASE("SHA-256 is the known one, and a chunk's check sees every changed byte") {
    sha256 empty, abc;
    abc.add(std::as_bytes(std::span("abc", 3)));
    CHECK_EQ(empty.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK_EQ(abc.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    std::vector<std::byte> data(77, std::byte{5});
    const std::uint64_t right = chunk_check(data);
    for (std::byte& b : data) {
        b ^= std::byte{0x40};
        CHECK_NE(chunk_check(data), right);
        b ^= std::byte{0x40};
    }
    CHECK_EQ(chunk_check(data), right);
    CHECK_NE(chunk_check(std::span(data).first(76)), right);
}

}  // namespace
