/// What is made of a machine as hwloc sees it; the machine is an XML file.

#include <vccl/model/topology_hwloc.hpp>
#include <vccl/model/topology_print.hpp>
#include <vccl/model/topology_text.hpp>
#include <vccl/policy/lanes.hpp>
#include <vccl/policy/port_policies.hpp>

#include <doctest/doctest.h>

using namespace vccl;

namespace {
const std::string folder = VCCL_TEST_FOLDER;
}

TEST_CASE("Two NUMA nodes: functions of a card make one NIC, each GPU is nearest to the NIC behind its switch") {
    const auto t = topology_from_hwloc("h", (folder + "/two_nodes.xml").c_str());
    REQUIRE(t);
    REQUIRE(validate(*t));
    REQUIRE(t->nics.size() == 2);
    REQUIRE(t->gpus.size() == 2);
    CHECK(t->nics[0].pci.view() == "0000:3c:00.0");
    CHECK(t->nics[0].numa == 0);
    CHECK(t->nics[1].numa == 1);
    CHECK(t->port_count(nic_id{0}) == 2);  // mlx5_0 and mlx5_1
    CHECK(t->port_count(nic_id{1}) == 2);  // two ports of mlx5_2
    CHECK(t->find_port("mlx5_1:1"));
    CHECK(t->find_port("mlx5_2:2"));
    for (std::uint16_t g = 0; g < 2; ++g) {
        CHECK(nearest_nic(*t, gpu_id{g}).value() == nic_id{g});
        CHECK(t->gpus[g].to_nic[g] < path::same_root);
        CHECK(t->gpus[g].to_nic[1 - g] == path::other_numa);
    }
    const auto lanes = lanes_for(*t, gpu_id{0}, channel_id{0}, first_of<sibling_port, adjacent_gpu>{});
    REQUIRE(lanes);
    CHECK(t->ports[(*lanes)[1].value].name.view() == "mlx5_1:1");
}

TEST_CASE("Its text form reads back to an equal one") {
    const auto t = topology_from_hwloc("h", (folder + "/two_nodes.xml").c_str());
    REQUIRE(t);
    const std::string text = print_topology(*t);
    const auto again = parse_topology(text);
    REQUIRE(again);
    CHECK(print_topology(*again) == text);
}

TEST_CASE("What is no XML of hwloc's is refused; so is a machine without an RDMA device") {
    CHECK(topology_from_hwloc("h", "/nonexistent.xml").error().code == errc::parse_error);
    const std::string bad = folder + "/CMakeLists.txt";
    CHECK(topology_from_hwloc("h", bad.c_str()).error().code == errc::parse_error);
    const auto here = topology_from_hwloc("h");
    CHECK((here || here.error().code == errc::no_device));
}
