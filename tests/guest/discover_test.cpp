// What verbs::ibv makes of the devices it finds. Needs no device.

#include <vccl/verbs/ibv.hpp>

#include <doctest/doctest.h>

using namespace vccl;
using namespace vccl::verbs::ibv_detail;

namespace {

const std::string root0 = "/sys/devices/pci0000:3a/0000:3a:00.0/";
const std::string root1 = "/sys/devices/pci0000:ba/0000:ba:00.0/";

found_device nic(std::string name, std::string path, int numa) {
    return {std::move(name), std::move(path), numa, {{1, 25'000'000'000}}};
}

}  // namespace

TEST_CASE("two devices of one card are one NIC with two numbered ports") {
    const topology t = arrange("h",
                               {nic("mlx5_0", root0 + "0000:3b:00.0", 0), nic("mlx5_1", root0 + "0000:3b:00.1", 0),
                                nic("mlx5_2", root1 + "0000:bb:00.0", 1)},
                               {});
    REQUIRE(validate(t));
    REQUIRE(t.nics.size() == 2);
    REQUIRE(t.ports.size() == 3);
    CHECK(t.ports[0].nic == t.ports[1].nic);
    CHECK(t.ports[0].number == 1);
    CHECK(t.ports[1].number == 2);
    CHECK(t.ports[1].name.view() == "mlx5_1:1");
    CHECK(t.ports[2].nic == nic_id{1});
    CHECK(t.nics[1].pci.view() == "0000:bb:00.0");
    CHECK(t.nics[1].numa == 1);
    CHECK(t.ports[2].bytes_per_second == 25'000'000'000);
}

TEST_CASE("both ports of one device belong to its NIC, under the names that open() takes") {
    const topology t = arrange("h", {{"mlx4_0", root0 + "0000:3b:00.0", 0, {{1, 5}, {2, 5}}}}, {});
    REQUIRE(t.nics.size() == 1);
    REQUIRE(t.ports.size() == 2);
    CHECK(t.ports[1].name.view() == "mlx4_0:2");
    CHECK(t.ports[1].number == 2);
}

TEST_CASE("soft devices without hardware are not taken for one card") {
    const topology t = arrange("h", {nic("rxe_a0", "", -1), nic("rxe_a1", "", -1), nic("odd", "/sys/devices/virtual/x", -1)}, {});
    CHECK(t.nics.size() == 3);
    CHECK(t.nics[0].pci.view().empty());
}

TEST_CASE("every port is on the rail of its place in the host") {
    const topology t = arrange("h", {nic("a", "", -1), nic("b", "", -1), nic("c", "", -1)}, {});
    for (std::size_t i = 0; i < t.ports.size(); ++i) CHECK(t.ports[i].rail == rail_id{static_cast<std::uint16_t>(i)});
}

TEST_CASE("a GPU is nearest to the NIC behind its own switch, farthest from the one on the other socket") {
    const topology t =
        arrange("h",
                {nic("mlx5_0", root0 + "0000:3b:00.0/0000:3c:00.0/0000:3d:00.0", 0),
                 nic("mlx5_1", root0 + "0000:40:00.0/0000:41:00.0/0000:42:00.0", 0), nic("mlx5_2", root1 + "0000:bb:00.0", 1)},
                {{root0 + "0000:3b:00.0/0000:3c:01.0/0000:3e:00.0", 0}});
    REQUIRE(validate(t));
    REQUIRE(t.gpus.size() == 1);
    CHECK(t.gpus[0].name.view() == "gpu0");
    CHECK(t.gpus[0].pci.view() == "0000:3e:00.0");
    const auto& d = t.gpus[0].to_nic;
    REQUIRE(d.size() == 3);
    CHECK(d[0] < d[1]);
    CHECK(d[1] < d[2]);
}

TEST_CASE("a port's name is device and number, the first port's just the device") {
    CHECK(parse("mlx5_0:2")->port == 2);
    CHECK(parse("mlx5_0:2")->device == "mlx5_0");
    CHECK(parse("mlx5_0")->port == 1);
    for (const char* bad : {"mlx5_0:", "mlx5_0:0", "mlx5_0:x", "mlx5_0:1x", "mlx5_0:256"})
        CHECK(parse(bad).error().code == errc::no_port);
}

TEST_CASE("GIDs are preferred in the order routable IPv4, routable IPv6, link-local, RoCE v1") {
    const auto entry = [](std::uint32_t type, std::initializer_list<std::uint8_t> bytes) {
        ibv_gid_entry e{};
        e.gid_type = type;
        std::copy(bytes.begin(), bytes.end(), e.gid.raw);
        return e;
    };
    const auto ipv4 = {std::uint8_t{0},    std::uint8_t{0},    std::uint8_t{0}, std::uint8_t{0}, std::uint8_t{0},
                       std::uint8_t{0},    std::uint8_t{0},    std::uint8_t{0}, std::uint8_t{0}, std::uint8_t{0},
                       std::uint8_t{0xff}, std::uint8_t{0xff}, std::uint8_t{10}};
    const auto ipv6 = {std::uint8_t{0x20}, std::uint8_t{0x01}, std::uint8_t{0x0d}, std::uint8_t{0xb8}};
    const auto local = {std::uint8_t{0xfe}, std::uint8_t{0x80}};
    const int order[] = {rank(entry(IBV_GID_TYPE_ROCE_V2, ipv4)), rank(entry(IBV_GID_TYPE_ROCE_V2, ipv6)),
                         rank(entry(IBV_GID_TYPE_ROCE_V2, local)), rank(entry(IBV_GID_TYPE_ROCE_V1, ipv4))};
    for (int i = 1; i < 4; ++i) CHECK(order[i - 1] > order[i]);
    CHECK(order[3] > 0);
}

TEST_CASE("line rates follow from speed and width") {
    CHECK(bytes_per_second(128, 2) == 50'000'000'000);  // NDR 4x: 400 Gbit/s
    CHECK(bytes_per_second(32, 2) == 12'500'000'000);   // EDR 4x: 100 Gbit/s
    CHECK(bytes_per_second(3, 2) == 0);
}

TEST_CASE("a path MTU is rounded down to a standard one") {
    CHECK(*mtu_of(4096) == IBV_MTU_4096);
    CHECK(*mtu_of(4095) == IBV_MTU_2048);
    CHECK(*mtu_of(9000) == IBV_MTU_4096);
    CHECK(mtu_of(255).error().code == errc::invalid_argument);
}

TEST_CASE("errno becomes the typed error that says what to do") {
    CHECK(from_errno(EACCES).code == errc::permission);
    CHECK(from_errno(ENOMEM).code == errc::no_memory);
    CHECK(from_post(ENOMEM).code == errc::would_block);
    CHECK(from_errno(EOPNOTSUPP).code == errc::unsupported);
    CHECK(from_errno(EIO) == status{errc::system, subject::system_error, EIO});
    CHECK(from_return(0));
    errno = EBUSY;
    CHECK(from_return(-1).code == errc::busy);
}
