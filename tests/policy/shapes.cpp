// Regular clusters: names, rails, distances.
#include <vccl/model/shapes.hpp>
#include <vccl/policy/port_nearest.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace vccl;

TEST_CASE("the dual-port cluster has two hosts, eight NICs each, and every GPU is nearest to its own NIC") {
    const topology t = make_cluster(dual_port_cluster);
    CHECK(validate(t));
    CHECK_EQ(t.ports.size(), 32);
    CHECK_EQ(t.ports.back().name, "B.nic7.p1");
    for (std::uint16_t g = 0; g < 16; ++g) CHECK_EQ(nearest_nic(t, gpu_id{g}).value(), nic_id{g});
}

TEST_CASE("ports of equal names on two hosts share a rail, and ports of one host do not") {
    const topology t = make_cluster(2, 2, 2, 2);
    for (std::uint16_t p = 0; p < 4; ++p) {
        CHECK_EQ(t.ports[p].rail, rail_id{p});
        CHECK_EQ(t.ports[p + 4U].rail, rail_id{p});
    }
}

TEST_CASE("GPUs share the NICs of their host out evenly") {
    const topology t = make_cluster(1, 2, 1, 8);
    for (std::uint16_t g = 0; g < 8; ++g) CHECK_EQ(nearest_nic(t, gpu_id{g}).value(), nic_id{static_cast<std::uint16_t>(g / 4)});
}

TEST_CASE("clusters without NICs, ports or GPUs are valid topologies") {
    for (const cluster_shape& s :
         {cluster_shape{0, 2, 2, 2}, cluster_shape{2, 0, 2, 2}, cluster_shape{2, 2, 0, 2}, cluster_shape{2, 2, 2, 0}})
        CHECK(validate(make_cluster(s)));
}

TEST_CASE("hosts are lettered like the columns of a sheet") {
    CHECK_EQ(host_letters(0), "A");
    CHECK_EQ(host_letters(25), "Z");
    CHECK_EQ(host_letters(26), "AA");
    CHECK_EQ(host_letters(51), "AZ");
    CHECK_EQ(host_letters(52), "BA");
}

}  // namespace
