#pragma once
/// \file
/// A software fabric's ports in words, for the terminal.

#include <vccl/verbs/soft.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace vccl_fabric {

/// "1.50 GB/s"
inline std::string rate_text(double bytes_per_second) {
    char out[32];
    if (bytes_per_second >= 1e9)
        std::snprintf(out, sizeof out, "%.2f GB/s", bytes_per_second * 1e-9);
    else if (bytes_per_second >= 1e6)
        std::snprintf(out, sizeof out, "%.1f MB/s", bytes_per_second * 1e-6);
    else
        std::snprintf(out, sizeof out, "%.1f kB/s", bytes_per_second * 1e-3);
    return out;
}

inline std::string limit_text(const vccl::verbs::soft_port_status& p) {
    return p.bytes_per_second ? rate_text(static_cast<double>(p.bytes_per_second)) : "-";
}

inline const char* state_text(const vccl::verbs::soft_port_status& p) {
    return !p.up ? "down" : !p.cable ? "no cable" : !p.switch_up ? "switch down" : "active";
}

inline std::string faults_text(std::uint32_t faults) {
    using namespace vccl::verbs::soft_detail;
    static constexpr struct {
        std::uint32_t bit;
        const char* name;
    } names[] = {{fault_loss, "loss"},         {fault_duplicate, "dup"},     {fault_reorder, "reorder"},
                 {fault_delay, "delay"},       {fault_hang, "hang"},         {fault_drop_acks, "drop-acks"},
                 {fault_no_event, "no-event"}, {fault_flush, "fail-flush"},  {fault_partial, "partial"},
                 {fault_error_once, "error"},  {fault_active_twice, "twice"}};
    std::string out;
    for (const auto& n : names)
        if ((faults & n.bit) != 0) out.append(out.empty() ? "" : ",").append(n.name);
    return out.empty() ? "-" : out;
}

/// One line a port, with what it has carried so far.
inline std::string status_text(const std::vector<vccl::verbs::soft_port_status>& rows) {
    std::string all;
    const auto line = [&](const char* name, const char* rail, const char* state, const char* limit, const char* out,
                          const char* in, const char* dropped, const char* downs, const char* faults) {
        char text[256];
        std::snprintf(text, sizeof text, "%-14s %4s  %-12s %-10s %12s %12s %9s %5s  %s\n", name, rail, state, limit, out, in,
                      dropped, downs, faults);
        all += text;
    };
    const auto megabytes = [](std::uint64_t bytes) {
        char text[32];
        std::snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) * 1e-6);
        return std::string(text);
    };
    line("PORT", "RAIL", "STATE", "LIMIT", "OUT MB", "IN MB", "DROPPED", "DOWNS", "FAULTS");
    for (const auto& p : rows)
        line(std::string(p.name.view()).c_str(), std::to_string(p.rail.value).c_str(), state_text(p), limit_text(p).c_str(),
             megabytes(p.bytes_out).c_str(), megabytes(p.bytes_in).c_str(), std::to_string(p.dropped).c_str(),
             std::to_string(p.downs).c_str(), faults_text(p.faults).c_str());
    return all;
}

}  // namespace vccl_fabric
