#pragma once
/// \file
/// Small facts that the kernel shows as files: text of an attribute, real path of a device. Set-up only; any thread.
/// Source: the kernel's Documentation/ABI (sysfs-bus-pci, stable/sysfs-class-infiniband).

#include <vccl/base/config.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace vccl::inline v0::verbs::sysfs {

/// Returns: the file's first line without its end, or nothing.
VCCL_COLD inline std::string line(const std::string& path) {
    char text[256];
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    const ssize_t got = ::read(fd, text, sizeof text);
    ::close(fd);
    std::string out(text, got > 0 ? static_cast<std::size_t>(got) : 0);
    return out.substr(0, out.find('\n'));
}

VCCL_COLD inline int number(const std::string& path, int otherwise) {
    const std::string text = line(path);
    char* end = nullptr;
    const long value = ::strtol(text.c_str(), &end, 10);
    return end == text.c_str() ? otherwise : static_cast<int>(value);
}

/// Returns: the path with all links followed, or nothing.
VCCL_COLD inline std::string resolve(const std::string& path) {
    char* const real = ::realpath(path.c_str(), nullptr);
    const std::string out = real != nullptr ? real : "";
    ::free(real);
    return out;
}

VCCL_COLD inline std::vector<std::string> entries(const std::string& folder) {
    std::vector<std::string> out;
    dirent** found = nullptr;
    const int count = ::scandir(folder.c_str(), &found, nullptr, &::alphasort);
    for (int i = 0; i < count; ++i) {
        if (found[i]->d_name[0] != '.') out.emplace_back(found[i]->d_name);
        ::free(found[i]);
    }
    ::free(found);
    return out;
}

}  // namespace vccl::inline v0::verbs::sysfs
