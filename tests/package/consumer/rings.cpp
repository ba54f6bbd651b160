/// A stranger's program: asks every RDMA port for a ring, and says what comes of it.
#include <vccl/base/status_text.hpp>
#include <vccl/device/mlx5dv_rings.hpp>
#include <vccl/verbs/ibv.hpp>

#include <cstdio>

/// Posts from the CPU: no GPU has to reach anything.
struct cpu_poster : vccl::device::heap_memory {
    static vccl::result<std::uint64_t*> map_doorbell(void* reg) noexcept { return static_cast<std::uint64_t*>(reg); }
    static void unmap_doorbell(void*) noexcept {}
};

int main() {
    vccl::verbs::ibv backend;
    const auto found = backend.discover();
    if (!found) return std::puts(vccl::describe(found.error()).c_str()), 0;
    for (const auto& p : found->ports) {
        auto port = backend.open(p.name);
        if (!port) return 1;
        const auto qp = vccl::device::mlx5dv_rings<cpu_poster>().create_qp(*port, {});
        std::printf("%.*s: %s\n", int(p.name.view().size()), p.name.view().data(),
                    qp ? "a ring" : vccl::device::text(vccl::device::problem_of(qp.error())));
    }
    return 0;
}
