// The plugin between two processes, with faults: each case starts two ranks on a software fabric, breaks it as they say how far
// they are, and looks at how they end and at what NCCL's log would have shown.
#include "../../examples/nccl_net/abi.hpp"
#include "../../examples/nccl_net/settings.hpp"

#include "ranks.hpp"

#include <vccl/verbs/soft.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

using namespace nccl_test;

/// Returns: what of a job is still in shared memory.
std::string left_behind(const std::string& name) {
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
        if (entry.path().filename().string().find(name) != std::string::npos) found += entry.path().string() + " ";
    return found;
}

/// On a software fabric of two hosts with a dual-port NIC each.
ending play(const story& s) {
    static int number = 0;
    const std::string name = "nccl-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
    auto fabric = vccl::verbs::soft_fabric::create_shared(name, vccl::verbs::soft_topology(2, 1, 2, 1));
    REQUIRE(fabric);
    const variables both{{"VCCL_NET_BACKEND", "soft"}, {"VCCL_NET_FABRIC", name}};
    stage on{both, both, [&](const std::string& command) { return static_cast<bool>(fabric->command(command)); }};
    on.a["VCCL_NET_HOST"] = "A";
    on.b["VCCL_NET_HOST"] = "B";
    const ending e = play(s, on);
    fabric = vccl::errc::unsupported;  // ends it
    CHECK_MESSAGE(left_behind(name).empty(), left_behind(name));
    return e;
}

/// Both connections of a rank say that they failed over, the first of them as a warning.
void check_a_warning(const std::string& text, const std::string& peer, const std::string& lane) {
    const auto says = [&](const std::string& what) { return text.find(what) != std::string::npos; };
    const std::string to = "NET/VCCL : to " + peer + ": failed over to " + lane,
                      from = "NET/VCCL : from " + peer + ": failed over to " + lane;
    const bool both = says(to) && says(from), one_warns = says("WARN " + to) || says("WARN " + from);
    CHECK_MESSAGE(both, text);
    CHECK_MESSAGE(one_warns, text);
}

}  // namespace

TEST_CASE("Messages arrive whole through every version of the table") {
    for (int version = nccl_abi::oldest_version; version <= nccl_abi::newest_version; ++version) {
        CAPTURE(version);
        const ending e = play({.version = version, .messages = 100, .seed = 10u + static_cast<unsigned>(version)});
        check_ok(e);
        CHECK_MESSAGE(e.a_says("device 1 A.nic0.p1 nic=0 port=2 mbit=100000 pointers=1 recvs=8"), e.text_a);
    }
}

TEST_CASE("Messages arrive whole with more QPs a lane") {
    check_ok(play({.messages = 200, .seed = 31, .both = {{"VCCL_NET_QPS", "4"}}}));
    check_ok(play({.messages = 200, .seed = 32, .both = {{"VCCL_NET_QPS", "2"}}}));
}

TEST_CASE("Threads of the plugin drive the connections: the same, with and without faults") {
    const variables driven{{"VCCL_NET_THREADS", "2"}};
    check_ok(play({.messages = 300, .seed = 41, .both = driven}));
    check_ok(play({.seed = 42, .faults = {{20, "down A.nic0.p0"}, {60, "up A.nic0.p0"}}, .both = driven}));
    check_ok(play({.mode = "pause", .seed = 43, .faults = {{50, "down B.nic0.p0"}, {90, "up B.nic0.p0"}}, .only_b = driven}));
    const ending e = play({.mode = "abandon", .seed = 44, .both = driven});
    CHECK_MESSAGE(!e.either_says("RESULT wrong"), e.both());
}

TEST_CASE("A port dies and comes back: nothing is lost, and the log says it in one line") {
    for (const std::string port : {"A.nic0.p0", "B.nic0.p0"}) {
        CAPTURE(port);
        const ending e = play({.seed = 2, .faults = {{20, "down " + port}, {60, "up " + port}}});
        check_ok(e);
        check_a_warning(e.text_a, "B", "A.nic0.p1>B.nic0.p1");
        check_a_warning(e.text_b, "A", "B.nic0.p1>A.nic0.p1");
    }
}

TEST_CASE("A cable, a switch, loss and a silent QP: nothing is lost") {
    const std::vector<std::vector<fault>> weather{{{20, "cable-down A.nic0.p0"}, {60, "cable-up A.nic0.p0"}},
                                                  {{20, "switch-down rail0"}, {60, "switch-up rail0"}},
                                                  {{10, "loss all 1%"}, {70, "clear all"}},
                                                  {{20, "hang B.nic0.p0"}, {80, "clear B.nic0.p0"}},
                                                  {{20, "flap A.nic0.p0 5ms 20ms 10x"}},
                                                  {{20, "down A.nic0.p0"},
                                                   {40, "up A.nic0.p0"},
                                                   {50, "down B.nic0.p1"},
                                                   {60, "down A.nic0.p0"},
                                                   {60, "up B.nic0.p1"},
                                                   {80, "up A.nic0.p0"}}};
    for (unsigned i = 0; i < weather.size(); ++i) {
        CAPTURE(weather[i][0].command);
        check_ok(play({.seed = 50 + i, .faults = weather[i]}));
    }
}

TEST_CASE("A port dies while nobody calls the plugin: the connection fails over, and goes on when it is used again") {
    const ending e = play({.mode = "pause", .seed = 3, .faults = {{50, "down A.nic0.p0"}, {90, "up A.nic0.p0"}}});
    check_ok(e);
    CHECK_MESSAGE(e.a_says("failed over to A.nic0.p1>B.nic0.p1"), e.text_a);
}

TEST_CASE("Both ports stay dead: NCCL gets an error within the time set, and the log names the ports") {
    const ending e = play({.messages = 1000000,
                           .seed = 4,
                           .faults = {{0, "down A.nic0.p0"}, {0, "down A.nic0.p1"}},
                           .both = {{"VCCL_NET_GIVE_UP_AFTER", "1s"}}});
    CHECK_MESSAGE(e.a_says("RESULT error 6"), e.text_a);
    CHECK_MESSAGE(e.b_says("RESULT error 6"), e.text_b);
    CHECK_MESSAGE(e.a_says("lanes: A.nic0.p0>B.nic0.p0, A.nic0.p1>B.nic0.p1"), e.text_a);
}

TEST_CASE("The other rank is killed: an error, in bounded time") {
    const ending e = play({.messages = 1000000,
                           .seed = 5,
                           .both = {{"VCCL_NET_GIVE_UP_AFTER", "2s"}, {"VCCL_NET_PEER_GRACE", "1s"}},
                           .when_begun = [](process&, process& b) { b.kill(); }});
    CHECK(e.b == 128 + SIGKILL);
    CHECK_MESSAGE(e.a_says("RESULT error 6"), e.text_a);
}

TEST_CASE("A rank leaves with requests on their way: it ends, and the other gets an error or its last bytes") {
    const ending e = play({.mode = "abandon", .seed = 6});
    CHECK_MESSAGE(e.a_says("RESULT"), e.text_a);
    CHECK_MESSAGE(e.b_says("RESULT"), e.text_b);
    CHECK_MESSAGE(!e.either_says("RESULT wrong"), e.both());
}

TEST_CASE("Ranks with other settings are refused, at both ends, with the reason") {
    const std::map<std::string, std::string> differences{
        {"VCCL_NET_QPS", "2"}, {"VCCL_NET_BACKUP", "none"}, {"VCCL_NET_LANES", "1"}};
    for (const auto& difference : differences) {
        const auto& [name, value] = difference;
        CAPTURE(difference.first);
        const ending e = play({.mode = "connect", .only_b = {{name, value}}});
        CHECK_MESSAGE(e.a_says("RESULT error 5"), e.text_a);
        CHECK_MESSAGE(e.b_says("RESULT error 5"), e.text_b);
        CHECK_MESSAGE(e.a_says(name + " is "), e.text_a);
        CHECK_MESSAGE(e.b_says(name + " is " + value + " here"), e.text_b);
    }
}

TEST_CASE("A rank that is called and never looks: its caller gets an error in the time set, and waits in no call") {
    const ending e = play({.mode = "silent", .both = {{"VCCL_NET_CONNECT_TIMEOUT", "200ms"}}});
    CHECK_MESSAGE(e.a_says("RESULT error 6 connect"), e.text_a);
    CHECK_MESSAGE(e.a_says("the other rank does not answer"), e.text_a);
}

TEST_CASE("Calls with arguments that mean nothing are errors, and harm nothing") {
    check_ok(play({.mode = "misused", .messages = 100, .seed = 7}));
    check_ok(play({.version = 7, .mode = "misused", .messages = 100, .seed = 8}));
}

TEST_CASE("A handle of another version is refused") {
    const ending e = play({.mode = "damaged"});
    CHECK_MESSAGE(e.a_says("RESULT error 5 connect"), e.text_a);
    CHECK_MESSAGE(e.a_says("give all ranks the same"), e.text_a);
}

TEST_CASE("A message larger than its receive is an error at both ends, and never done") {
    const ending e = play({.mode = "long"});
    CHECK_MESSAGE(e.a_says("RESULT error 5 long"), e.text_a);
    CHECK_MESSAGE(e.b_says("RESULT error 5 long"), e.text_b);
    CHECK_MESSAGE(e.a_says("larger than the receive"), e.text_a);
}

TEST_CASE("What the environment asks for and cannot be had is said, with what to do") {
    const std::map<std::string, variables> asked{
        {"VCCL_NET_QPS=3 means nothing", {{"VCCL_NET_QPS", "3"}}},
        {"VCCL_NET_PROBE_TIMEOUT=5 means nothing; it takes a time such as", {{"VCCL_NET_PROBE_TIMEOUT", "5"}}},
        {"VCCL_NET_BACKEND=tcp means nothing; it takes ibv or soft", {{"VCCL_NET_BACKEND", "tcp"}}},
        {"there are: A B", {{"VCCL_NET_HOST", "Z"}}},
        {"nccl_net_fabric makes one", {{"VCCL_NET_FABRIC", "nobody-made-this"}}},
        {"is no IP address", {{"VCCL_NET_ADDRESS", "somewhere"}}},
    };
    for (const auto& wish : asked) {
        CAPTURE(wish.first);
        const ending e = play({.mode = "connect", .both = wish.second});
        CHECK_MESSAGE(e.a_says("RESULT error"), e.text_a);
        CHECK_MESSAGE(e.a_says(wish.first), e.text_a);
    }
}

TEST_CASE("docs/nccl.md has every variable with its default") {
    std::ifstream file(NCCL_DOCS);
    std::stringstream text;
    text << file.rdbuf();
    const std::string page = text.str();
    for (const auto& v : nccl_net::variables) {
        const std::string standard = *v.standard ? "`" + std::string(v.standard) + "`" : "none";
        CHECK_MESSAGE(page.find("| `" + std::string(v.name) + "` | " + standard + " |") != std::string::npos,
                      v.name << " with " << standard);
    }
}
