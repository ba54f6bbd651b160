// The set-up of rings on a ConnectX, as far as it runs without one: what is refused, with which sentence. With an RDMA device
// that is no mlx5 (soft-RoCE, say) it is asked for rings, too.

#include <vccl/device/mlx5dv_rings.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

namespace {

using namespace vccl;
using namespace vccl::device;

/// A poster without a GPU: for what fails before one is needed.
struct cpu_poster : heap_memory {
    static result<std::uint64_t*> map_doorbell(void* reg) noexcept { return static_cast<std::uint64_t*>(reg); }
    static void unmap_doorbell(void*) noexcept {}
};
static_assert(ring_source<mlx5dv_rings<cpu_poster>>);

TEST_CASE("Each problem has a sentence of its own, and travels in a status") {
    std::string all;
    for (int i = 1; i <= static_cast<int>(mlx5dv_problem::command_refused); ++i) {
        const auto p = static_cast<mlx5dv_problem>(i);
        const std::string sentence = text(p);
        CHECK(sentence.size() > 40);
        CHECK(all.find(sentence) == std::string::npos);
        all += sentence;
        CHECK(as_status(p).code == errc::unsupported);
        CHECK(problem_of(as_status(p)) == p);
    }
    CHECK(as_status(mlx5dv_problem::none));
    CHECK(problem_of(status{errc::no_memory, 1}) == mlx5dv_problem::none);
    CHECK(problem_of(status{errc::unsupported, 1000}) == mlx5dv_problem::none);
}

static_assert(allows_peer_mapping("RegistryDwords: \"PeerMappingOverride=1;\"\n"));
static_assert(allows_peer_mapping("RegistryDwords: \"RMx=2;PeerMappingOverride=1\"\n"));
static_assert(allows_peer_mapping("PeerMappingOverride=1"));
static_assert(!allows_peer_mapping("PeerMappingOverride=0;"));
static_assert(!allows_peer_mapping("PeerMappingOverride=10;"));
static_assert(!allows_peer_mapping("PeerMappingOverride="));
static_assert(!allows_peer_mapping("RegistryDwords: \"\"\n"));
static_assert(!allows_peer_mapping(""));

TEST_CASE("The driver's parameters tell a missing setting from another reason") {
    char name[] = "vccl-params-XXXXXX";
    const int fd = ::mkstemp(name);
    REQUIRE(fd >= 0);
    const std::string set = "EnableMSI: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\n";
    REQUIRE(::write(fd, set.data(), set.size()) == static_cast<ssize_t>(set.size()));
    ::close(fd);
    CHECK(why_no_doorbell(name) == mlx5dv_problem::no_doorbell_mapping);
    std::remove(name);
    CHECK(why_no_doorbell(name) == mlx5dv_problem::no_peer_mapping);
}

TEST_CASE("A port that is not there is refused before any ring is made") { CHECK_FALSE(verbs::ibv{}.open("no_such_device:1")); }

TEST_CASE("A device that is no mlx5 is refused with a sentence") {
    const auto found = verbs::ibv{}.discover();
    const bool in_guest = std::getenv("VCCL_GUEST") != nullptr;  // which has soft-RoCE, and nothing else
    if (!found) {
        REQUIRE_FALSE(in_guest);
        MESSAGE("no RDMA device here: not run");
        return;
    }
    unsigned refused = 0;
    for (const auto& p : found->ports) {
        auto port = verbs::ibv{}.open(p.name);
        if (!port || mlx5dv_is_supported(port->native()->device)) continue;
        mlx5dv_rings<cpu_poster> rings;
        const auto q = rings.create_qp(*port, {});
        REQUIRE_FALSE(q);
        CHECK(problem_of(q.error()) == mlx5dv_problem::no_mlx5);
        ++refused;
    }
    CHECK((refused != 0 || !in_guest));
}

TEST_CASE("A QP that is gone refuses everything") {
    mlx5dv_rings<cpu_poster>::qp none;
    CHECK(none.memory().wq == nullptr);
    for (const status s : {none.to_reset(), none.to_init(), none.to_error(), none.to_ready_to_send({}, {}),
                           none.to_ready_to_receive({}, {}), none.state().error()})
        CHECK(s.code == errc::invalid_argument);
    CHECK(none.destroy());
}

TEST_CASE("The memory of a queue is kept for the next one") {
    using memory = mlx5dv_detail::queue_memory<cpu_poster>;
    memory m;
    void* const buffer = memory::allocate(nullptr, &m, 8192, 4096, MLX5DV_RES_TYPE_QP);
    void* const record = memory::allocate(nullptr, &m, 8, 8, MLX5DV_RES_TYPE_DBR);
    REQUIRE(buffer != nullptr);
    REQUIRE(record != nullptr);
    CHECK(record != buffer);
    memory::free(nullptr, &m, buffer, MLX5DV_RES_TYPE_QP);
    CHECK(memory::allocate(nullptr, &m, 8192, 4096, MLX5DV_RES_TYPE_QP) == buffer);
    CHECK(memory::allocate(nullptr, &m, 16384, 4096, MLX5DV_RES_TYPE_QP) == nullptr);  // never another address
    memory other;
    CHECK(memory::allocate(nullptr, &other, 8192, 8192, MLX5DV_RES_TYPE_QP) == nullptr);
}

}  // namespace
