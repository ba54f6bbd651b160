#pragma once
/// \file
/// Who a process is, in 64 bits, and whether it still lives: its id and the time at which it started, so that a reused
/// process id is not taken for the old one. Set-up only.
/// Source: proc_pid_stat(5), fields 3 and 22.

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace vccl::inline v0::verbs::soft_detail {

/// What /proc says of a process: start time in clock ticks since boot, low 32 bits, and whether it has ended but was not
/// waited for. 0 and false when there is no such process or no /proc.
struct process_facts {
    std::uint32_t started{};
    bool ended{};
};
inline process_facts facts_of(pid_t pid) noexcept {
    char path[40] = "/proc/";
    char digits[16];
    int n = 0;
    for (auto left = static_cast<unsigned>(pid); n == 0 || left != 0; left /= 10)
        digits[n++] = static_cast<char>('0' + left % 10);
    std::size_t at = 6;
    while (n > 0) path[at++] = digits[--n];
    std::memcpy(path + at, "/stat", 6);

    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    char text[512];
    const ssize_t got = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (got <= 0) return {};
    text[got] = '\0';
    const char* p = std::strrchr(text, ')');  // the name may hold spaces: fields are counted from its end
    const char state = p != nullptr && p[1] == ' ' ? p[2] : '?';
    for (int field = 2; p != nullptr && field < 22; ++field) p = std::strchr(p + 1, ' ');
    if (p == nullptr) return {};
    return {static_cast<std::uint32_t>(std::strtoull(p + 1, nullptr, 10)), state == 'Z' || state == 'X'};
}

inline std::uint64_t identity_of(pid_t pid) noexcept { return static_cast<std::uint64_t>(pid) << 32 | facts_of(pid).started; }
inline std::uint64_t own_identity() noexcept { return identity_of(::getpid()); }

inline bool alive(std::uint64_t identity) noexcept {
    const auto pid = static_cast<pid_t>(identity >> 32);
    if (pid <= 0) return false;
    if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
    const process_facts now = facts_of(pid);
    const auto then = static_cast<std::uint32_t>(identity);
    return !now.ended && (now.started == 0 || then == 0 || now.started == then);
}

}  // namespace vccl::inline v0::verbs::soft_detail
