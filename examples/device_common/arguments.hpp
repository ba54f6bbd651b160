#pragma once
/// \file
/// Command lines that are a few numbers in order.

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace example {

/// What follows the program's name, each word read once.
class arguments {
public:
    arguments(int argc, char** argv, const char* usage) : at_(argv + 1), end_(argv + argc), usage_(usage) {
        asked_ = argc > 1 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0);
    }

    /// Is the next word this one? Then it is read.
    bool flag(const char* name) {
        if (at_ == end_ || std::strcmp(*at_, name) != 0) return false;
        ++at_;
        return true;
    }
    /// The next word as a whole number, or `usual` if there is none.
    template <class T>
    T number(T usual, T least, T most) {
        if (at_ == end_ || wrong_) return usual;
        const char* const word = *at_++;
        T n{};
        const auto [stop, fault] = std::from_chars(word, word + std::strlen(word), n);
        if (fault == std::errc{} && *stop == '\0' && n >= least && n <= most) return n;
        wrong_ = word;
        return usual;
    }
    /// Has the program to end, since it was asked for help, or the words make no sense? Effects: says so, to be called last.
    bool done() {
        if (!asked_ && !wrong_ && at_ != end_) wrong_ = *at_;
        if (wrong_ && !asked_) std::fprintf(stderr, "cannot take \"%s\"\n", wrong_);
        if (wrong_ || asked_) std::fprintf(asked_ ? stdout : stderr, "usage: %s\n", usage_);
        return wrong_ || asked_;
    }
    /// The program's exit status then.
    int status() const { return asked_ ? 0 : 2; }

private:
    char **at_, **end_;
    const char* usage_;
    const char* wrong_{};
    bool asked_{};
};

}  // namespace example
