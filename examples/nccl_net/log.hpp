#pragma once
// NCCL's log, as the plugin writes to it: one line a thing, from any thread. Before NCCL has handed its logger over, and
// without one, lines are lost.
#include "abi.hpp"

#include <atomic>
#include <string>

namespace nccl_net {

inline std::atomic<nccl_abi::logger> nccl_log{};

inline void warn(const std::string& line) noexcept {
    if (const auto log = nccl_log.load(std::memory_order_acquire))
        log(nccl_abi::log_level::warn, nccl_abi::subsystem_all, "vccl", 0, "NET/VCCL : %s", line.c_str());
}
inline void info(const std::string& line) noexcept {
    if (const auto log = nccl_log.load(std::memory_order_acquire))
        log(nccl_abi::log_level::info, nccl_abi::subsystem_init | nccl_abi::subsystem_net, "vccl", 0, "NET/VCCL : %s",
            line.c_str());
}

}  // namespace nccl_net
