#pragma once
// Two ranks as processes, a network that is broken as they say how far they are, and what they ended with.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

extern char** environ;

namespace nccl_test {

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
    std::function<void(process& a, process& b)> when_begun{};
};

/// Where the ranks run.
struct stage {
    variables a, b;                                        // what each is told by its environment
    std::function<bool(const std::string&)> break_network;  // carries out a fault's command
};

struct ending {
    int a, b;
    std::string text_a, text_b;
    bool a_says(std::string_view what) const { return text_a.find(what) != std::string::npos; }
    bool b_says(std::string_view what) const { return text_b.find(what) != std::string::npos; }
    std::string both() const { return text_a + text_b; }
    bool either_says(std::string_view what) const { return a_says(what) || b_says(what); }
};

inline ending play(const story& s, const stage& on) {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    const auto start = [&](unsigned self, const variables& place, const variables& more, int peer) {
        variables v = place;
        v.emplace("VCCL_NET_FAILBACK", "20ms");
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
    const auto a = start(0, on.a, {}, pair[0]), b = start(1, on.b, s.only_b, pair[1]);
    ::close(pair[0]);
    ::close(pair[1]);

    std::size_t broken = 0;
    bool begun = false;
    for (bool of_a = true, of_b = true; of_a || of_b;) {
        pollfd fds[2] = {{a->output(), POLLIN, 0}, {b->output(), POLLIN, 0}};
        if (!of_a) fds[0].fd = -1;
        if (!of_b) fds[1].fd = -1;
        REQUIRE(::poll(fds, 2, 100'000) > 0);
        if (of_a) of_a = a->read();
        if (of_b) of_b = b->read();
        while (broken < s.faults.size() && a->says("progress " + std::to_string(s.faults[broken].percent) + "\n"))
            REQUIRE(on.break_network(s.faults[broken++].command));
        if (!begun && s.when_begun && a->says("progress 0\n")) {
            begun = true;
            s.when_begun(*a, *b);
        }
    }
    CHECK(broken == s.faults.size());
    const int code_a = a->wait(), code_b = b->wait();
    return {code_a, code_b, a->text(), b->text()};
}

inline void check_ok(const ending& e) {
    CHECK(e.a == 0);
    CHECK(e.b == 0);
    CHECK_MESSAGE(e.a_says("RESULT ok"), e.text_a);
    CHECK_MESSAGE(e.b_says("RESULT ok"), e.text_b);
    CHECK_MESSAGE(!e.either_says("gave up: "), e.both());
}

}  // namespace nccl_test
