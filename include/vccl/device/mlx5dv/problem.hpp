#pragma once
/// \file
/// Why a ConnectX cannot serve rings here, in one sentence that says what to do. Set-up only, any thread.

#include <vccl/base/status.hpp>

#include <cstdio>
#include <string_view>

namespace vccl::inline v0::device {

enum class mlx5dv_problem : std::uint8_t {
    none,
    no_mlx5,
    no_own_memory,
    no_doorbell_page,
    strange_layout,
    no_peer_mapping,
    no_doorbell_mapping,
    no_devx,
    no_gpu_memory,
    command_refused,
};

constexpr const char* text(mlx5dv_problem p) noexcept {
    switch (p) {
        case mlx5dv_problem::none: return "no problem";
        case mlx5dv_problem::no_mlx5:
            return "this device is no mlx5 device: rings need a ConnectX-5 or later, or else use ring_nic";
        case mlx5dv_problem::no_own_memory:
            return "queues cannot be placed in memory of our choice: update rdma-core and the kernel (parent domains with "
                   "allocators)";
        case mlx5dv_problem::no_doorbell_page:
            return "the device gave no doorbell page of its own: use fewer queues, or look for others that hold many";
        case mlx5dv_problem::strange_layout:
            return "the queues have another layout than asked for: unset MLX5_* variables in the environment, or report the "
                   "rdma-core version";
        case mlx5dv_problem::no_peer_mapping:
            return "the NVIDIA driver lets no GPU ring a NIC: load it with NVreg_RegistryDwords=\"PeerMappingOverride=1;\"";
        case mlx5dv_problem::no_doorbell_mapping:
            return "CUDA could not map the doorbell page for the GPU: check that the process may lock memory and the IOMMU is "
                   "off or passes through";
        case mlx5dv_problem::no_devx:
            return "the device takes no DevX commands from this process: it needs CAP_NET_RAW or root, and a kernel with "
                   "CONFIG_INFINIBAND_USER_ACCESS and mlx5 DevX";
        case mlx5dv_problem::no_gpu_memory:
            return "the device cannot use this GPU's memory: neither dma-buf (CUDA 11.7, open kernel modules, Linux 5.12) nor "
                   "nvidia-peermem works here; place the queues in host memory";
        case mlx5dv_problem::command_refused:
            return "the device's firmware refused a command: the second number of the status is its syndrome; report it with the "
                   "firmware's version";
    }
    return "unknown problem";
}

/// `unsupported`, with the problem as its number, and a second one that says more of it, in `extra`.
constexpr status as_status(mlx5dv_problem p, std::uint32_t more = 0) noexcept {
    if (p == mlx5dv_problem::none) return {};
    status s{errc::unsupported, static_cast<std::uint32_t>(p)};
    s.extra = more;
    return s;
}
/// The problem behind a status of this folder's calls; `none` if it is another one.
constexpr mlx5dv_problem problem_of(const status& s) noexcept {
    return s.code == errc::unsupported && s.detail <= static_cast<std::uint32_t>(mlx5dv_problem::command_refused)
               ? static_cast<mlx5dv_problem>(s.detail)
               : mlx5dv_problem::none;
}

/// Whether /proc/driver/nvidia/params, which this is the text of, has the setting that GPUs need to reach a NIC's doorbells.
constexpr bool allows_peer_mapping(std::string_view params) noexcept {
    constexpr std::string_view name = "PeerMappingOverride=";
    const std::size_t at = params.find(name);
    if (at == std::string_view::npos) return false;
    const std::string_view value = params.substr(at + name.size());
    return value.starts_with("1") && (value.size() == 1 || value[1] < '0' || value[1] > '9');
}

/// Which problem it is when CUDA refuses a doorbell page. `path` holds what /proc/driver/nvidia/params does.
inline mlx5dv_problem why_no_doorbell(const char* path = "/proc/driver/nvidia/params") noexcept {
    char params[8192];
    std::FILE* const file = std::fopen(path, "r");
    if (file == nullptr) return mlx5dv_problem::no_peer_mapping;
    const std::size_t length = std::fread(params, 1, sizeof params, file);
    std::fclose(file);
    return allows_peer_mapping({params, length}) ? mlx5dv_problem::no_doorbell_mapping : mlx5dv_problem::no_peer_mapping;
}

}  // namespace vccl::inline v0::device
