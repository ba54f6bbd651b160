#pragma once
// Both roles on this host: starts B, then A, shows what they report, and ends as they end.
#include "options.hpp"
#include "rendezvous.hpp"
#include "report.hpp"
#include "summary.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>

#include <cstring>
#include <optional>
#include <string>

namespace p2p {

/// A child whose records are read line by line.
class child {
public:
    child(char who, std::vector<std::string> words) : who_(who) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("pipe");
        records_ = file_descriptor(ends[0]);
        const file_descriptor write_end(ends[1]);
        std::vector<char*> arguments;
        for (std::string& w : words) arguments.push_back(w.data());
        arguments.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
        const int why = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        if (why != 0) {
            errno = why;
            throw system_error("cannot start a second process");
        }
    }
    child(const child&) = delete;
    ~child() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }

    char who() const noexcept { return who_; }
    int records() const noexcept { return records_.get(); }
    bool open() const noexcept { return static_cast<bool>(records_); }

    /// Returns: the next whole line, if one has come in.
    std::optional<std::string> line() {
        const std::size_t end = text_.find('\n');
        if (end == std::string::npos) return {};
        std::string out = text_.substr(0, end);
        text_.erase(0, end + 1);
        return out;
    }
    void read() {
        char buffer[8192];
        const ssize_t n = ::read(records_.get(), buffer, sizeof buffer);
        if (n > 0)
            text_.append(buffer, static_cast<std::size_t>(n));
        else if (n == 0 || errno != EINTR)
            records_ = file_descriptor();
    }
    /// Returns: what is wrong with how it ended; nothing if it ended well.
    std::string wait() {
        int status = 0;
        ::waitpid(std::exchange(pid_, 0), &status, 0);
        const std::string who(1, who_);
        if (WIFSIGNALED(status))
            return who + " was killed by signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) + ")";
        return WEXITSTATUS(status) == 0 ? "" : who + " ended with status " + std::to_string(WEXITSTATUS(status));
    }

private:
    char who_;
    pid_t pid_{};
    file_descriptor records_;
    std::string text_;
};

/// Shows the children's records and keeps what decides the end.
class audience {
public:
    explicit audience(reporter& out) : out_(out) {}

    std::string port;           ///< at which B listens
    std::string good, bad;      ///< last lines of the children

    void hear(const std::string& record) {
        const char* rest = record.size() > 2 ? record.c_str() + 2 : "";
        if (record.starts_with("E ")) {
            long long at = 0;
            int used = 0;
            if (std::sscanf(rest + 1, " %lld %n", &at, &used) == 1) out_.event(rest[0], {at}, rest + 1 + used);
        } else if (record.starts_with("P ")) {
            unsigned long long done = 0, total = 0;
            double rate = 0;
            if (std::sscanf(rest, "%llu %llu %lf", &done, &total, &rate) == 3) out_.progress(done, total, rate);
        } else if (record.starts_with("L ")) {
            port = rest;
        } else if (record.starts_with("R RESULT ok")) {
            good = rest;
        } else if (record.starts_with("R ") && (bad.empty() || bad.find(rendezvous::hearsay) != std::string::npos)) {
            bad = rest;  // who met the trouble itself knows best
        }
    }

private:
    reporter& out_;
};

inline int launch(const options& o, reporter& out) {
    const auto words = [&](char who, const std::string& flag, const std::string& where) {
        std::vector<std::string> w{"p2p"};
        w.insert(w.end(), o.words.begin(), o.words.end());
        for (const std::string& more : {std::string("--started"), std::string("--role"), std::string(1, who), flag, where})
            w.push_back(more);
        return w;
    };
    audience hall(out);
    child b('B', words('B', "--listen", "127.0.0.1:0"));
    while (hall.port.empty() && b.open()) {
        b.read();
        while (const auto line = b.line()) hall.hear(*line);
    }
    std::optional<child> a;
    if (!hall.port.empty()) a.emplace('A', words('A', "--connect", "127.0.0.1:" + hall.port));
    while (b.open() || (a && a->open())) {
        pollfd p[2] = {{b.records(), POLLIN, 0}, {a ? a->records() : -1, POLLIN, 0}};
        if (::poll(p, 2, -1) < 0 && errno != EINTR) throw system_error("poll");
        if (p[0].revents != 0) b.read();
        if (p[1].revents != 0) a->read();
        for (child* c : {&b, a ? &*a : nullptr})
            while (c) {
                const auto line = c->line();
                if (!line) break;
                hall.hear(*line);
            }
    }
    std::string wrong = b.wait();
    if (a)
        if (const std::string also = a->wait(); wrong.empty() || also.find("killed") != std::string::npos)
            wrong = also.empty() ? wrong : also;
    if (wrong.empty() && hall.bad.empty() && !hall.good.empty()) return out.result(hall.good) ? 0 : 1;
    if (wrong.find("killed") != std::string::npos || hall.bad.empty()) {
        judgement j;
        j.reason = wrong.empty() ? "no result" : wrong;
        out.result(j.line());
    } else {
        out.result(hall.bad);
    }
    return 1;
}

}  // namespace p2p
