// Metrics of a channel whose port dies and returns, and their way out of the process.
#include <vccl/telemetry/metrics_export.hpp>
#include <vccl/telemetry/openmetrics.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace {

using namespace vccl;
using namespace vccl::literals;

bool has_line(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST_CASE("a port dies: both ends count chunks, the failure, the failover and the gap") {
    using sender = host_sender<verbs::soft, sibling_port, on_completion<meter>, manual_clock, testing::memory_oob>;
    using receiver =
        host_receiver<verbs::soft, sibling_port, on_completion<meter>, immediate_failback, manual_clock, testing::memory_oob>;
    verbs::soft_options slow;
    slow.manual_time = true;
    slow.latency = 2_us;
    auto fabric = verbs::soft_fabric::create(verbs::soft_topology(2, 1, 2, 1), slow);
    REQUIRE(fabric.has_value());
    host_context<verbs::soft> a(*fabric->host("A"), fabric->shape()), b(*fabric->host("B"), fabric->shape());
    std::vector<char> bytes(4096, 'v'), in(4096);
    auto from = a.register_memory(bytes.data(), bytes.size()), to = b.register_memory(in.data(), in.size());
    REQUIRE(from.has_value());
    REQUIRE(to.has_value());

    channel_metrics of_tx{}, of_rx{};
    of_tx.channel = of_rx.channel = channel_id{7};
    of_tx.end = "sender";
    of_rx.end = "receiver";
    sender tx(a, gpu_id{0}, channel_id{7}, {}, {}, on_completion<meter>{meter{&of_tx}}, {}, {}, fabric->clock());
    receiver rx(b, gpu_id{1}, channel_id{7}, {}, {}, on_completion<meter>{meter{&of_rx}}, {}, {}, fabric->clock());
    auto mine = tx.local_info(), theirs = rx.local_info();
    REQUIRE(mine.has_value());
    REQUIRE(theirs.has_value());
    REQUIRE(tx.begin_connect(*theirs));
    REQUIRE(rx.begin_connect(*mine));
    auto until = [&](auto&& done) {
        for (unsigned pass = 0; !done() && pass < 1'000'000; ++pass) {
            tx.progress();
            rx.progress();
            fabric->advance(2_us);
        }
        REQUIRE(done());
    };
    auto transfer = [&](unsigned chunks) {
        for (unsigned i = 0; i < chunks; ++i) {
            REQUIRE(rx.recv(to->view()).has_value());
            const auto s = tx.send(from->view());
            REQUIRE(s.has_value());
            until([&] { return tx.ended(*s) && rx.ended(*s); });
        }
    };
    until([&] { return tx.connected() && rx.connected(); });
    describe_lanes(of_tx, tx);
    describe_lanes(of_rx, rx);
    CHECK_EQ(of_tx.lanes, 2);
    CHECK_EQ(of_tx.of[0].port.view(), "A.nic0.p0");
    CHECK_EQ(of_tx.of[1].condition.get(), static_cast<unsigned>(lane_condition::up));

    transfer(3);
    REQUIRE(fabric->command("down A.nic0.p0"));
    transfer(5);
    for (const channel_metrics* m : {&of_tx, &of_rx}) {
        CAPTURE(m->end.view());
        CHECK_EQ(m->of[0].chunks.get() + m->of[1].chunks.get(), 8);
        CHECK_EQ(m->of[0].bytes.get() + m->of[1].bytes.get(), 8 * 4096);
        CHECK_GE(m->of[1].chunks.get(), 5);
        CHECK_EQ(m->of[0].condition.get(), static_cast<unsigned>(lane_condition::failed));
        CHECK_EQ(m->active.get(), 1);
        CHECK_EQ(m->running.get(), 1);
        std::uint64_t failures = 0, failovers = 0;
        for (unsigned c = 0; c < channel_metrics::causes; ++c) {
            failures += m->of[0].failures[c].get();
            failovers += m->failovers[c].get();
        }
        CHECK_EQ(failures, 1);
        CHECK_EQ(failovers, 1);
    }
    CHECK_EQ(of_tx.of[0].failures[static_cast<unsigned>(fault_cause::own_port)].get(), 1);
    std::uint64_t gaps = 0;
    for (const metric& g : of_rx.gaps) gaps += g.get();
    CHECK_EQ(gaps, 1);
    CHECK_GT(of_rx.gap_sum_ns.get(), 0);

    REQUIRE(fabric->command("up A.nic0.p0"));
    until([&] { return of_rx.failbacks.get() == 1; });
    CHECK_EQ(of_rx.active.get(), 0);
    CHECK_EQ(of_rx.of[0].condition.get(), static_cast<unsigned>(lane_condition::up));
    tx.abort();
    until([&] { return !rx.health(); });
    CHECK_EQ(of_tx.running.get(), 0);
    CHECK_EQ(of_rx.running.get(), 0);

    const channel_metrics* both[] = {&of_tx, &of_rx};
    const std::string text = openmetrics_text(both);
    CHECK(has_line(text, R"(vccl_lane_failures_total{channel="7",end="sender",lane="0",port="A.nic0.p0",cause="own_port"} 1)"));
    CHECK(has_line(text, R"(vccl_failbacks_total{channel="7",end="receiver"} 1)"));
}

TEST_CASE("a gap falls into the first bucket that is not smaller, and buckets accumulate") {
    channel_metrics m{};
    meter h{&m};
    channel_event e{};
    e.what = channel_event::kind::resumed;
    for (const nanoseconds took : {20_us, 21_us, 60_s}) {
        e.took = took;
        h.on_event(e);
    }
    const channel_metrics* one[] = {&m};
    const std::string text = openmetrics_text(one);
    CHECK(has_line(text, R"(vccl_gap_seconds_bucket{channel="0",end="",le="0.00002"} 1)"));
    CHECK(has_line(text, R"(vccl_gap_seconds_bucket{channel="0",end="",le="0.00005"} 2)"));
    CHECK(has_line(text, R"(vccl_gap_seconds_bucket{channel="0",end="",le="10.0"} 2)"));
    CHECK(has_line(text, R"(vccl_gap_seconds_bucket{channel="0",end="",le="+Inf"} 3)"));
    CHECK(has_line(text, R"(vccl_gap_seconds_sum{channel="0",end=""} 60.000041)"));
}

TEST_CASE("labels keep the format whatever is in them") {
    channel_metrics m{};
    m.end = "a\"b\\c\nd";
    const channel_metrics* one[] = {&m};
    const metrics_label job[] = {{"1 job", "x\"y"}};
    CHECK(has_line(openmetrics_text(one, job), R"(vccl_running{__job="x\"y",channel="0",end="a\"b\\c\nd"} 0)"));
    CHECK_EQ(openmetrics_text({}).substr(openmetrics_text({}).size() - 6), "# EOF\n");
}

TEST_CASE("a refused chunk counts as refused, not as delivered") {
    channel_metrics m{};
    meter h{&m};
    h.on_done({sequence{0}, 100, lane_id{0}, epoch{1}, errc::message_too_long});
    CHECK_EQ(m.refused.get(), 1);
    CHECK_EQ(m.of[0].chunks.get(), 0);
}

TEST_CASE("a metrics file is replaced at once; where there is no folder, the error says which system error it was") {
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("vccl-metrics." + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    const std::string file = folder / "vccl.prom";
    CHECK(write_metrics_file(file, "first\n"));
    CHECK(write_metrics_file(file, "second\n"));
    std::stringstream read;
    read << std::ifstream(file).rdbuf();
    CHECK_EQ(read.str(), "second\n");
    CHECK_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
    const status s = write_metrics_file(folder / "none" / "vccl.prom", "x");
    CHECK_EQ(s.code, errc::io_error);
    CHECK_EQ(s.detail, ENOENT);
    std::filesystem::remove_all(folder);
}

/// What a caller gets that sends `request` and waits for the end.
std::string ask(const oob_address& where, std::string_view request) {
    vccl::detail::socket_address a;
    if (!vccl::detail::parse_address(where.view(), a)) return "no address";
    const int s = ::socket(a.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::string answer;
    if (::connect(s, reinterpret_cast<const sockaddr*>(&a.storage), a.length) == 0) {
        (void)::send(s, request.data(), request.size(), MSG_NOSIGNAL);
        char part[1024];
        for (ssize_t n; (n = ::recv(s, part, sizeof part, 0)) > 0;) answer.append(part, static_cast<std::size_t>(n));
    }
    ::close(s);
    return answer;
}

TEST_CASE("the server answers a scrape, turns away what it does not know, and outlives a caller that says nothing") {
    metrics_server server;
    CHECK_EQ(server.serve(1_ms, [] { return "x"; }).error().code, errc::not_connected);
    CHECK_EQ(server.listen("somewhere").error().code, errc::invalid_argument);
    const auto where = server.listen("127.0.0.1:0");
    REQUIRE(where.has_value());
    metrics_server second;
    CHECK_EQ(second.listen(*where).error().code, errc::already_exists);

    std::string scrape, other, wrong, endless, silent;
    std::atomic<bool> asked{};
    std::thread caller([&] {
        silent = ask(*where, "GET /metr");  // never ends its request: cut off after a second
        scrape = ask(*where, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        other = ask(*where, "GET / HTTP/1.1\r\n\r\n");
        wrong = ask(*where, "POST /metrics HTTP/1.1\r\n\r\n");
        endless = ask(*where, std::string(100'000, 'x'));
        asked = true;
    });
    unsigned served = 0;
    while (!asked) served += *server.serve(50_ms, [] { return std::string("# EOF\n"); });
    caller.join();
    CHECK_EQ(silent, "");
    CHECK_EQ(endless, "");
    CHECK_EQ(served, 1);
    CHECK_NE(scrape.find("200 OK"), std::string::npos);
    CHECK_NE(scrape.find("openmetrics-text"), std::string::npos);
    CHECK_EQ(scrape.substr(scrape.size() - 10), "\r\n\r\n# EOF\n");
    CHECK_NE(other.find("404"), std::string::npos);
    CHECK_NE(wrong.find("405"), std::string::npos);
}

}  // namespace
