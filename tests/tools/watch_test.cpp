// vccl-fabric watch: what the view says of a fabric's ports, and the program itself on a fabric that runs.
#include "../../tools/fabric_watch.hpp"

#include <doctest/doctest.h>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>

namespace {

using namespace vccl;
using namespace vccl::literals;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

verbs::soft_port_status active(const char* name) {
    verbs::soft_port_status p{};
    p.name = name;
    p.up = p.cable = p.switch_up = true;
    return p;
}

TEST_CASE("rates are those between the last two looks") {
    vccl_fabric::watch_view view("demo");
    auto p = active("A.nic0.p0");
    view.look({p}, 1_s);
    p.bytes_out = 3'000'000'000;
    p.bytes_in = 150'000'000;
    view.look({p}, 3_s);
    CHECK(has(view.text(), "1.50 GB/s ##########"));
    CHECK(has(view.text(), "75.0 MB/s #........."));
    CHECK(has(view.text(), "fabric demo       2.000 s"));
    CHECK(has(view.text(), "no events since the watch began"));
    view.look({p}, 4_s);
    CHECK(has(view.text(), "0.0 kB/s .........."));
}

TEST_CASE("what happens to a port is an event, also when it is over before the next look") {
    vccl_fabric::watch_view view("demo", 4);
    auto p = active("A.nic0.p0"), q = active("A.nic0.p1");
    view.look({p, q}, 1_s);
    p.up = false;
    p.downs = 1;
    view.look({p, q}, 2_s);
    CHECK(has(view.text(), "1.000 s  A.nic0.p0: active -> down"));
    CHECK_FALSE(has(view.text(), "went down"));
    p.up = true;
    q.downs = 3;
    view.look({p, q}, 3_s);
    CHECK(has(view.text(), "2.000 s  A.nic0.p0: down -> active"));
    CHECK(has(view.text(), "2.000 s  A.nic0.p1 went down 3 times"));
    p.dropped = 10;
    view.look({p, q}, 4_s);
    p.dropped = 20;
    view.look({p, q}, 5_s);
    CHECK(has(view.text(), "3.000 s  A.nic0.p0 drops packets"));
    CHECK_FALSE(has(view.text(), "4.000 s  A.nic0.p0 drops packets"));
    q.switch_up = false;
    view.look({p, q}, 6_s);
    CHECK(has(view.text(), "5.000 s  A.nic0.p1: active -> switch down"));
    CHECK_FALSE(has(view.text(), "active -> down"));  // the oldest goes
}

TEST_CASE("the program looks once at a fabric of another process and ends") {
    const std::string name = "watch-test-" + std::to_string(::getpid());
    auto fabric = verbs::soft_fabric::create_shared(name, verbs::soft_topology(2, 1, 2, 1));
    REQUIRE(fabric.has_value());
    REQUIRE(fabric->command("down B.nic0.p1"));
    auto run = [&](const std::string& words) {
        std::FILE* pipe = ::popen((std::string(VCCL_FABRIC) + " --fabric " + name + " " + words + " 2>&1").c_str(), "r");
        std::string said;
        for (char part[512]; std::fgets(part, sizeof part, pipe) != nullptr;) said += part;
        return std::pair(::pclose(pipe), said);
    };
    const auto [status, said] = run("watch --once --interval 0.01");
    CHECK_EQ(status, 0);
    CHECK(has(said, "fabric " + name));
    CHECK(has(said, "B.nic0.p1         1  down"));
    CHECK(has(said, "A.nic0.p0         0  active"));
    CHECK_FALSE(has(said, "\x1b"));
    CHECK(has(run("status").second, "B.nic0.p1         1  down"));
    const auto ends_with = [&](const std::string& words) { return WEXITSTATUS(run(words).first); };
    for (const char* wrong : {"", "watch now", "watch --interval 0", "watch --count x", "--no-such-option", "status --fabric",
                              "tickle A", "loss A.nic0.p0 many", "down"})
        CHECK_MESSAGE(ends_with(wrong) == 2, wrong);
    CHECK(ends_with("down Z.nic0.p0") == 1);
    CHECK(ends_with("--help") == 0);
    CHECK(ends_with("down B.nic0.p0") == 0);
}

}  // namespace
