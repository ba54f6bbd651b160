// The plugin between two processes, with faults: each case starts two ranks on a software fabric, breaks it as they say how far
// they are, and looks at how they end and at what NCCL's log would have shown.
#include "../../examples/nccl_net/settings.hpp"

#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

extern char** environ;

namespace {

using variables = std::map<std::string, std::string>;

/// A rank as a process: what it wrote, and how it ended.
class process {
public:
    process(const std::vector<std::string>& command, const variables& set, int peer) {
        int out[2];
        REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t files;
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, out[1], 1);
        posix_spawn_file_actions_adddup2(&files, out[1], 2);
        posix_spawn_file_actions_adddup2(&files, peer, 3);
        std::vector<char*> arguments, environment;
        for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
        arguments.push_back(nullptr);
        std::vector<std::string> lines;
        for (const auto& [name, value] : set) lines.push_back(name + "=" + value);
        for (char** e = environ; *e; ++e)
            if (!std::string_view(*e).starts_with("VCCL_NET_")) environment.push_back(*e);
        for (auto& line : lines) environment.push_back(line.data());
        environment.push_back(nullptr);
        REQUIRE(::posix_spawn(&id_, command[0].c_str(), &files, nullptr, arguments.data(), environment.data()) == 0);
        posix_spawn_file_actions_destroy(&files);
        ::close(out[1]);
        output_ = out[0];
        ::fcntl(output_, F_SETFL, O_NONBLOCK);
    }
    process(const process&) = delete;
    ~process() {
        if (id_ > 0) {
            ::kill(id_, SIGKILL);
            ::waitpid(id_, nullptr, 0);
        }
        ::close(output_);
    }

    int output() const noexcept { return output_; }
    const std::string& text() const noexcept { return text_; }
    bool says(std::string_view what) const noexcept { return text_.find(what) != std::string::npos; }
    void kill() const noexcept { ::kill(id_, SIGKILL); }
    /// Returns: false when the output has ended.
    bool read() {
        char buffer[4096];
        for (;;) {
            const ssize_t n = ::read(output_, buffer, sizeof buffer);
            if (n > 0) text_.append(buffer, static_cast<std::size_t>(n));
            if (n == 0) return false;
            if (n < 0) return errno == EAGAIN || errno == EINTR;
        }
    }
    /// Returns: the exit status, or 128 and the signal.
    int wait() {
        int status = 0;
        REQUIRE(::waitpid(id_, &status, 0) == id_);
        id_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

private:
    pid_t id_{-1};
    int output_{-1};
    std::string text_;
};

struct fault {
    unsigned percent;  // of what rank A has received
    std::string command;
};

struct story {
    int version = 11;
    std::string mode = "traffic";
    unsigned messages = 600;
    unsigned seed = 1;
    std::vector<fault> faults{};
    variables both{}, only_b{};
    std::function<void(process& a, process& b)> at_half{};
};

struct ending {
    int a, b;
    std::string text_a, text_b;
    bool a_says(std::string_view what) const { return text_a.find(what) != std::string::npos; }
    bool b_says(std::string_view what) const { return text_b.find(what) != std::string::npos; }
    std::string both() const { return text_a + text_b; }
    bool either_says(std::string_view what) const { return a_says(what) || b_says(what); }
};

ending play(const story& s) {
    static int number = 0;
    const std::string name = "nccl-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
    auto fabric = vccl::verbs::soft_fabric::create_shared(
        name,
        vccl::make_cluster({.hosts = 2, .nics_per_host = 1, .ports_per_nic = 2, .gpus_per_host = 1, .bytes_per_second = 0}));
    REQUIRE(fabric);
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    const auto start = [&](const char* host, unsigned self, const variables& more, int peer) {
        variables v{
            {"VCCL_NET_BACKEND", "soft"}, {"VCCL_NET_FABRIC", name}, {"VCCL_NET_HOST", host}, {"VCCL_NET_FAILBACK", "20ms"}};
        for (const auto* add : {&s.both, &more})
            for (const auto& [key, value] : *add) v[key] = value;
        const std::vector<std::string> command{NCCL_RANK,
                                               NCCL_PLUGIN,
                                               std::to_string(s.version),
                                               s.mode,
                                               std::to_string(s.messages),
                                               std::to_string(s.seed),
                                               std::to_string(self)};
        return std::make_unique<process>(command, v, peer);
    };
    const auto a = start("A", 0, {}, pair[0]), b = start("B", 1, s.only_b, pair[1]);
    ::close(pair[0]);
    ::close(pair[1]);

    std::size_t broken = 0;
    bool halved = false;
    for (bool of_a = true, of_b = true; of_a || of_b;) {
        pollfd fds[2] = {{a->output(), POLLIN, 0}, {b->output(), POLLIN, 0}};
        if (!of_a) fds[0].fd = -1;
        if (!of_b) fds[1].fd = -1;
        REQUIRE(::poll(fds, 2, 100'000) > 0);
        if (of_a) of_a = a->read();
        if (of_b) of_b = b->read();
        while (broken < s.faults.size() && a->says("progress " + std::to_string(s.faults[broken].percent) + "\n"))
            REQUIRE(fabric->command(s.faults[broken++].command));
        if (!halved && s.at_half && a->says("progress 50\n")) {
            halved = true;
            s.at_half(*a, *b);
        }
    }
    CHECK(broken == s.faults.size());
    const int code_a = a->wait(), code_b = b->wait();
    return {code_a, code_b, a->text(), b->text()};
}

void check_ok(const ending& e) {
    CHECK(e.a == 0);
    CHECK(e.b == 0);
    CHECK_MESSAGE(e.a_says("RESULT ok"), e.text_a);
    CHECK_MESSAGE(e.b_says("RESULT ok"), e.text_b);
    CHECK_MESSAGE(!e.either_says("gave up: "), e.both());
}

}  // namespace

TEST_CASE("Messages arrive whole through every version of the table") {
    for (int version = 8; version <= 12; ++version) {
        CAPTURE(version);
        const ending e = play({.version = version, .messages = 100, .seed = 10u + static_cast<unsigned>(version)});
        check_ok(e);
        CHECK_MESSAGE(e.a_says("device 1 A.nic0.p1 nic=0 port=2 mbit=100000 pointers=1 recvs=8"), e.text_a);
        CHECK_MESSAGE(!e.either_says("WARN"), e.both());
    }
}

TEST_CASE("Messages arrive whole with more QPs a lane") {
    check_ok(play({.messages = 200, .seed = 31, .both = {{"VCCL_NET_QPS", "4"}}}));
    check_ok(play({.messages = 200, .seed = 32, .both = {{"VCCL_NET_QPS", "2"}}}));
}

TEST_CASE("A port dies and comes back: nothing is lost, and the log says it in one line") {
    for (const std::string port : {"A.nic0.p0", "B.nic0.p0"}) {
        CAPTURE(port);
        const ending e = play({.seed = 2, .faults = {{20, "down " + port}, {60, "up " + port}}});
        check_ok(e);
        for (const auto& [text, peer, lane] :
             {std::tuple(e.text_a, "B", "A.nic0.p1>B.nic0.p1"), std::tuple(e.text_b, "A", "B.nic0.p1>A.nic0.p1")}) {
            const std::string to = std::string("NET/VCCL : to ") + peer + ": failed over to " + lane,
                              from = std::string("NET/VCCL : from ") + peer + ": failed over to " + lane;
            const bool both = text.find(to) != std::string::npos && text.find(from) != std::string::npos;
            const bool one_warns =
                (text.find("WARN " + to) != std::string::npos) != (text.find("WARN " + from) != std::string::npos);
            CHECK_MESSAGE(both, text);
            CHECK_MESSAGE(one_warns, text);
        }
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
    const ending e = play({.messages = 5000,
                           .seed = 4,
                           .faults = {{20, "down A.nic0.p0"}, {20, "down A.nic0.p1"}},
                           .both = {{"VCCL_NET_GIVE_UP_AFTER", "1s"}}});
    CHECK_MESSAGE(e.a_says("RESULT error 6"), e.text_a);
    CHECK_MESSAGE(e.b_says("RESULT error 6"), e.text_b);
    CHECK_MESSAGE(e.a_says("lanes: A.nic0.p0>B.nic0.p0, A.nic0.p1>B.nic0.p1"), e.text_a);
}

TEST_CASE("The other rank is killed: an error, in bounded time") {
    const ending e = play({.messages = 5000,
                           .seed = 5,
                           .both = {{"VCCL_NET_GIVE_UP_AFTER", "2s"}, {"VCCL_NET_PEER_GRACE", "1s"}},
                           .at_half = [](process&, process& b) { b.kill(); }});
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
