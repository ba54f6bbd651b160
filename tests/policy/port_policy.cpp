// What each stock port policy answers, cluster by cluster.
#include <vccl/model/shapes.hpp>
#include <vccl/policy/port_policies.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace vccl;

template <class P>
std::string backup(const P& policy, const topology& t, std::string_view primary, std::uint32_t channel = 0) {
    const auto b = policy.backup_for(t, *t.find_port(primary), channel_id{channel});
    return b ? std::string(t.ports[b->value].name.view()) : std::string("none");
}
std::string nearest(const topology& t, std::string_view gpu) {
    const auto p = nearest_port(t, *t.find_gpu(gpu));
    return p ? std::string(t.ports[p->value].name.view()) : std::string("none");
}
template <class P>
std::string primary(const P& policy, const topology& t, std::string_view gpu, std::uint32_t channel) {
    const auto p = policy.primary_for(t, *t.find_gpu(gpu), channel_id{channel});
    return p ? std::string(t.ports[p->value].name.view()) : std::string("none");
}

TEST_CASE("the two ports of a dual-port NIC back each other up") {
    const topology t = make_cluster(dual_port_cluster);
    CHECK_EQ(backup(sibling_port{}, t, "A.nic3.p0"), "A.nic3.p1");
    CHECK_EQ(backup(sibling_port{}, t, "A.nic3.p1"), "A.nic3.p0");
    CHECK_EQ(backup(sibling_port{}, t, "B.nic7.p1"), "B.nic7.p0");
}

TEST_CASE("sibling_port goes by NIC and port number, not by the order in which ports were found") {
    topology t = make_cluster(1, 2, 2, 2);
    std::swap(t.ports[1], t.ports[2]);  // A.nic0.p0, A.nic1.p0, A.nic0.p1, A.nic1.p1
    CHECK_EQ(backup(sibling_port{}, t, "A.nic0.p0"), "A.nic0.p1");
    CHECK_EQ(backup(sibling_port{}, t, "A.nic1.p1"), "A.nic1.p0");
}

TEST_CASE("a single-port NIC has no sibling port") {
    CHECK_EQ(backup(sibling_port{}, make_cluster(single_port_cluster), "A.nic0.p0"), "none");
}

TEST_CASE("sibling_port on a NIC with four ports lists the other three, starting after the primary") {
    const topology t = make_cluster(1, 1, 4, 1);
    const lane_list all = sibling_port{}.backups_for(t, *t.find_port("A.nic0.p2"), channel_id{0});
    REQUIRE_EQ(all.size(), 3);
    CHECK_EQ(t.ports[all[0].value].name, "A.nic0.p3");
    CHECK_EQ(t.ports[all[1].value].name, "A.nic0.p0");
    CHECK_EQ(t.ports[all[2].value].name, "A.nic0.p1");
}

TEST_CASE("GPUs 2k and 2k+1 of a host back each other up with their nearest NICs") {
    const topology t = make_cluster(single_port_cluster);
    for (const char* host : {"A", "B"})
        for (int even = 0; even < 8; even += 2) {
            const std::string first = std::string(host) + ".nic" + std::to_string(even) + ".p0";
            const std::string second = std::string(host) + ".nic" + std::to_string(even + 1) + ".p0";
            CHECK_EQ(backup(adjacent_gpu{}, t, first), second);
            CHECK_EQ(backup(adjacent_gpu{}, t, second), first);
        }
}

TEST_CASE("adjacent_gpu pairs GPUs by their order on the host, also where an earlier host has an odd number") {
    const topology t = make_cluster(2, 3, 1, 3);  // B's GPUs are numbers 3, 4 and 5 of the topology
    CHECK_EQ(backup(adjacent_gpu{}, t, "B.nic0.p0"), "B.nic1.p0");
    CHECK_EQ(backup(adjacent_gpu{}, t, "B.nic1.p0"), "B.nic0.p0");
}

TEST_CASE("the last of an odd number of GPUs has no neighbour and so no backup") {
    CHECK_EQ(backup(adjacent_gpu{}, make_cluster(2, 3, 1, 3), "A.nic2.p0"), "none");
}

TEST_CASE("adjacent_gpu keeps the port's place when it changes the NIC") {
    const topology t = make_cluster(dual_port_cluster);
    CHECK_EQ(backup(adjacent_gpu{}, t, "A.nic0.p1"), "A.nic1.p1");
    CHECK_EQ(backup(adjacent_gpu{}, t, "A.nic5.p0"), "A.nic4.p0");
}

TEST_CASE("adjacent_gpu finds nothing where both GPUs of the pair share one NIC") {
    CHECK_EQ(backup(adjacent_gpu{}, make_cluster(1, 1, 2, 2), "A.nic0.p0"), "none");
    CHECK_EQ(backup(adjacent_gpu{}, make_cluster(1, 4, 1, 8), "A.nic1.p0"), "none");
}

TEST_CASE("adjacent_gpu finds nothing for a NIC that is no GPU's nearest") {
    CHECK_EQ(backup(adjacent_gpu{}, make_cluster(1, 4, 1, 1), "A.nic3.p0"), "none");
}

TEST_CASE("channel_parity spreads channels over the ports of the nearest NIC and backs up with the next one") {
    const topology t = make_cluster(dual_port_cluster);
    CHECK_EQ(primary(channel_parity{}, t, "A.gpu2", 0), "A.nic2.p0");
    CHECK_EQ(primary(channel_parity{}, t, "A.gpu2", 1), "A.nic2.p1");
    CHECK_EQ(primary(channel_parity{}, t, "A.gpu2", 6), "A.nic2.p0");
    CHECK_EQ(backup(channel_parity{}, t, "A.nic2.p1", 1), "A.nic2.p0");
    CHECK_EQ(primary(channel_parity{}, make_cluster(single_port_cluster), "B.gpu2", 7), "B.nic2.p0");
}

TEST_CASE("first_of takes the first policy that knows a backup") {
    const first_of<sibling_port, adjacent_gpu> policy;
    CHECK_EQ(backup(policy, make_cluster(dual_port_cluster), "A.nic0.p0"), "A.nic0.p1");
    CHECK_EQ(backup(policy, make_cluster(single_port_cluster), "A.nic0.p0"), "A.nic1.p0");
    CHECK_EQ(backup(policy, make_cluster(1, 1, 1, 1), "A.nic0.p0"), "none");
}

TEST_CASE("each_of lists every policy's backups in order and no port twice") {
    const topology t = make_cluster(dual_port_cluster);
    const each_of<sibling_port, adjacent_gpu, sibling_port> policy;
    const lane_list all = policy.backups_for(t, *t.find_port("A.nic0.p0"), channel_id{0});
    REQUIRE_EQ(all.size(), 2);
    CHECK_EQ(t.ports[all[0].value].name, "A.nic0.p1");
    CHECK_EQ(t.ports[all[1].value].name, "A.nic1.p0");
}

TEST_CASE("a combination chooses the primary as its first choosing member does") {
    CHECK(chooses_primary<first_of<adjacent_gpu, channel_parity>>);
    CHECK_FALSE(chooses_primary<first_of<adjacent_gpu, sibling_port>>);
    const first_of<adjacent_gpu, channel_parity> policy;
    CHECK_EQ(primary(policy, make_cluster(dual_port_cluster), "A.gpu0", 1), "A.nic0.p1");
}

struct fixed_port {  // a policy with state
    using policy_axis = axis::port;
    port_id answer{};
    result<port_id> backup_for(const topology&, port_id p, channel_id) const noexcept {
        return p == answer ? result<port_id>{errc::no_port} : result<port_id>{answer};
    }
};

TEST_CASE("a combination keeps the state of its members") {
    const topology t = make_cluster(dual_port_cluster);
    const first_of<fixed_port, sibling_port> policy{fixed_port{*t.find_port("A.nic6.p1")}, sibling_port{}};
    CHECK_EQ(backup(policy, t, "A.nic0.p0"), "A.nic6.p1");
    CHECK_EQ(backup(policy, t, "A.nic6.p1"), "A.nic6.p0");
}

struct always_fails {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology&, port_id, channel_id) const noexcept { return errc::system; }
};

TEST_CASE("first_of passes an error on instead of hiding it behind the next policy") {
    const topology t = make_cluster(dual_port_cluster);
    const first_of<always_fails, sibling_port> policy;
    CHECK_EQ(policy.backup_for(t, port_id{0}, channel_id{0}).error().code, errc::system);
}

TEST_CASE("the nearest port is on the NIC at the smallest distance") {
    topology t = make_cluster(1, 4, 2, 2);
    CHECK_EQ(nearest(t, "A.gpu1"), "A.nic2.p0");
    t.gpus[1].to_nic = {9, 9, 9, 3};
    CHECK_EQ(nearest(t, "A.gpu1"), "A.nic3.p0");
}

TEST_CASE("GPUs with unknown or equal distances take the NICs in turn") {
    topology t = make_cluster(2, 2, 1, 4);
    for (auto& g : t.gpus) g.to_nic.clear();
    CHECK_EQ(nearest(t, "A.gpu0"), "A.nic0.p0");
    CHECK_EQ(nearest(t, "A.gpu1"), "A.nic1.p0");
    CHECK_EQ(nearest(t, "A.gpu2"), "A.nic0.p0");
    CHECK_EQ(nearest(t, "B.gpu1"), "B.nic1.p0");
}

TEST_CASE("a NIC without ports and a NIC of another host are never the nearest") {
    topology t = make_cluster(2, 2, 1, 1);
    t.ports.erase(t.ports.begin());  // A.nic0 loses its only port
    t.gpus[0].to_nic = {1, 5, 0, 0};
    CHECK_EQ(nearest(t, "A.gpu0"), "A.nic1.p0");
    CHECK_EQ(nearest_port(make_cluster(1, 2, 0, 1), gpu_id{0}).error().code, errc::no_device);
}

TEST_CASE("a PCI path and a NUMA node give the order of distances that the machine has") {
    constexpr device_place gpu{0, "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3d:00.0"};
    constexpr device_place on_its_switch{0, "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:02.0/0000:3e:00.0"};
    constexpr device_place two_switches_off{
        0, "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:02.0/0000:40:00.0/0000:41:00.0"};
    constexpr device_place same_root{0, "/sys/devices/pci0000:3a/0000:3a:02.0/0000:50:00.0"};
    constexpr device_place same_node{0, "/sys/devices/pci0000:5a/0000:5a:00.0/0000:5b:00.0"};
    constexpr device_place other_node{1, "/sys/devices/pci0000:ba/0000:ba:00.0/0000:bb:00.0"};
    constexpr device_place unknown{-1, ""};
    CHECK_LT(path_distance(gpu, gpu), path_distance(gpu, on_its_switch));
    CHECK_LT(path_distance(gpu, on_its_switch), path_distance(gpu, two_switches_off));
    CHECK_LT(path_distance(gpu, two_switches_off), path_distance(gpu, same_root));
    CHECK_LT(path_distance(gpu, same_root), path_distance(gpu, same_node));
    CHECK_LT(path_distance(gpu, same_node), path_distance(gpu, other_node));
    CHECK_LT(path_distance(gpu, other_node), path_distance(gpu, unknown));
    CHECK_EQ(path_distance(gpu, same_root), path_distance(same_root, gpu));
    CHECK_EQ(path_distance({0, "/sys/devices/pci0000:3a/x"}, {0, "/sys/devices/pci0000:3ab/x"}), path::same_numa);
}

}  // namespace
