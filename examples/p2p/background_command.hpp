#pragma once
// A program run beside the transfer: the endpoint's thread must not wait for it.
#include "files.hpp"

#include <spawn.h>
#include <sys/wait.h>

#include <string>
#include <vector>

namespace p2p {

/// Runs one program after the other.
class background_command {
public:
    background_command() = default;
    background_command(const background_command&) = delete;
    ~background_command() {
        if (running_ != 0) ::waitpid(running_, nullptr, 0);
    }

    /// Effects: begins; waits first for an earlier one to end. No words: nothing is to be run.
    void start(std::vector<std::string> words) {
        reap(0);
        if (words.empty()) return;
        text_.clear();
        std::vector<char*> arguments;
        for (std::string& w : words) {
            text_ += (text_.empty() ? "" : " ") + w;
            arguments.push_back(w.data());
        }
        arguments.push_back(nullptr);
        if (::posix_spawnp(&running_, words[0].c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
            running_ = 0;
            throw user_error("cannot run " + words[0]);
        }
    }
    /// Throws if the program has ended and failed. Never waits.
    void attend() { reap(WNOHANG); }

private:
    void reap(int flags) {
        int status = 0;
        if (running_ == 0 || ::waitpid(running_, &status, flags) == 0) return;
        running_ = 0;
        if (status != 0) throw user_error("\"" + text_ + "\" failed");
    }

    pid_t running_{};
    std::string text_;
};

}  // namespace p2p
