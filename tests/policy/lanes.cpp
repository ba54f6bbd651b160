// Lane lists: order, repeats, limits, and the agreement of both ends on rails.
#include <vccl/model/shapes.hpp>
#include <vccl/policy/port_policies.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace vccl;

template <class P>
std::string lanes(const topology& t, std::string_view gpu, const P& policy, unsigned max = max_lanes, std::uint32_t channel = 0) {
    const auto list = lanes_for(t, *t.find_gpu(gpu), channel_id{channel}, policy, max);
    if (!list) return "error";
    std::string out;
    for (port_id p : *list) out += std::string(out.empty() ? "" : " ") + std::string(t.ports[p.value].name.view());
    return out;
}

TEST_CASE("a lane list starts with the nearest port and goes on with the policy's backups") {
    const topology t = make_cluster(dual_port_cluster);
    CHECK_EQ(lanes(t, "A.gpu0", no_backup{}), "A.nic0.p0");
    CHECK_EQ(lanes(t, "A.gpu0", sibling_port{}), "A.nic0.p0 A.nic0.p1");
    CHECK_EQ(lanes(t, "B.gpu3", adjacent_gpu{}), "B.nic3.p0 B.nic2.p0");
    CHECK_EQ(lanes(t, "A.gpu0", each_of<sibling_port, adjacent_gpu>{}), "A.nic0.p0 A.nic0.p1 A.nic1.p0");
}

TEST_CASE("a policy that chooses the primary decides where the list starts") {
    const topology t = make_cluster(dual_port_cluster);
    CHECK_EQ(lanes(t, "A.gpu0", channel_parity{}, max_lanes, 0), "A.nic0.p0 A.nic0.p1");
    CHECK_EQ(lanes(t, "A.gpu0", channel_parity{}, max_lanes, 1), "A.nic0.p1 A.nic0.p0");
    CHECK_EQ(lanes(t, "A.gpu0", each_of<channel_parity, adjacent_gpu>{}, max_lanes, 1), "A.nic0.p1 A.nic0.p0 A.nic1.p1");
}

TEST_CASE("the limit cuts backups off, never the primary") {
    const topology t = make_cluster(1, 1, 4, 1);
    CHECK_EQ(lanes(t, "A.gpu0", sibling_port{}, 3), "A.nic0.p0 A.nic0.p1 A.nic0.p2");
    CHECK_EQ(lanes(t, "A.gpu0", sibling_port{}, 1), "A.nic0.p0");
}

TEST_CASE("a NIC with more ports than a list holds fills it and no more") {
    const topology t = make_cluster(1, 1, max_lanes + 4, 1);
    const auto list = lanes_for(t, gpu_id{0}, channel_id{0}, sibling_port{});
    REQUIRE(list);
    CHECK_EQ(list->size(), max_lanes);
}

TEST_CASE("a machine without GPUs makes its list from a given port") {
    const topology t = make_cluster(1, 1, 2, 0);
    const auto list = lanes_for(t, *t.find_port("A.nic0.p1"), channel_id{0}, sibling_port{});
    REQUIRE(list);
    CHECK_EQ((*list)[0], *t.find_port("A.nic0.p1"));
    CHECK_EQ((*list)[1], *t.find_port("A.nic0.p0"));
}

struct wanders_off {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology& t, port_id, channel_id) const noexcept {
        return port_id{static_cast<std::uint16_t>(t.ports.size() - 1)};  // a port of the last host
    }
};
struct gives_up {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology&, port_id, channel_id) const noexcept { return errc::permission; }
};

TEST_CASE("bad arguments and bad answers become typed errors") {
    const topology t = make_cluster(dual_port_cluster);
    const auto code = [&](auto where, const auto& policy, unsigned max) {
        return lanes_for(t, where, channel_id{0}, policy, max).error().code;
    };
    CHECK_EQ(code(gpu_id{0}, sibling_port{}, 0), errc::invalid_argument);
    CHECK_EQ(code(gpu_id{0}, sibling_port{}, max_lanes + 1), errc::invalid_argument);
    CHECK_EQ(code(gpu_id{16}, sibling_port{}, 2), errc::invalid_argument);
    CHECK_EQ(code(port_id{32}, sibling_port{}, 2), errc::no_port);
    CHECK_EQ(code(gpu_id{0}, wanders_off{}, 2), errc::no_port);
    CHECK_EQ(code(gpu_id{0}, gives_up{}, 2), errc::permission);
    CHECK_EQ(lanes_for(make_cluster(1, 2, 0, 1), gpu_id{0}, channel_id{0}, sibling_port{}).error().code, errc::no_device);
}

TEST_CASE("a topology whose indices lead nowhere is refused, not followed") {
    topology t = make_cluster(1, 1, 2, 1);
    t.ports[1].nic = nic_id{7};
    CHECK_EQ(lanes_for(t, gpu_id{0}, channel_id{0}, sibling_port{}).error(), status(errc::invalid_argument, 1));
    t = make_cluster(1, 1, 2, 1);
    t.ports[1].number = t.ports[0].number;
    CHECK_EQ(lanes_for(t, gpu_id{0}, channel_id{0}, sibling_port{}).error(), status(errc::invalid_argument, 1));
    t = make_cluster(1, 1, 2, 1);
    t.gpus[0].to_nic.push_back(1);
    CHECK_EQ(lanes_for(t, gpu_id{0}, channel_id{0}, sibling_port{}).error(), status(errc::invalid_argument, 0));
    t = make_cluster(1, 1, 2, 1);
    t.nics[0].host = host_id{1};
    CHECK_EQ(lanes_for(t, gpu_id{0}, channel_id{0}, sibling_port{}).error(), status(errc::invalid_argument, 0));
}

TEST_CASE("both ends of a regular cluster agree on the rails of every lane") {
    const topology t = make_cluster(dual_port_cluster);
    const each_of<sibling_port, adjacent_gpu> policy;
    const auto a = lanes_for(t, *t.find_gpu("A.gpu4"), channel_id{0}, policy);
    const auto b = lanes_for(t, *t.find_gpu("B.gpu4"), channel_id{0}, policy);
    REQUIRE(a);
    REQUIRE(b);
    CHECK(match_rails(rails_of(t, *a), rails_of(t, *b)));
}

TEST_CASE("a backup on another rail is a rail_mismatch that names the lane and both rails") {
    topology t = make_cluster(2, 1, 2, 1);
    t.ports[t.find_port("B.nic0.p1")->value].rail = rail_id{9};
    const auto a = lanes_for(t, *t.find_gpu("A.gpu0"), channel_id{0}, sibling_port{});
    const auto b = lanes_for(t, *t.find_gpu("B.gpu0"), channel_id{0}, sibling_port{});
    const status s = match_rails(rails_of(t, *a), rails_of(t, *b));
    CHECK_EQ(s.code, errc::rail_mismatch);
    CHECK_EQ(s.lane, 1);
    CHECK_EQ(s.detail, 1);
    CHECK_EQ(s.extra, 9);
}

TEST_CASE("GPUs of different places in their hosts do not match, since their primaries are on different rails") {
    const topology t = make_cluster(dual_port_cluster);
    const auto a = lanes_for(t, *t.find_gpu("A.gpu0"), channel_id{0}, sibling_port{});
    const auto b = lanes_for(t, *t.find_gpu("B.gpu1"), channel_id{0}, sibling_port{});
    const status s = match_rails(rails_of(t, *a), rails_of(t, *b));
    CHECK_EQ(s.code, errc::rail_mismatch);
    CHECK_EQ(s.lane, 0);
}

TEST_CASE("ends with different numbers of lanes are a policy_mismatch, and a peer's impossible number is no overrun") {
    const rail_list two{.rails = {}, .size = 2}, three{.rails = {}, .size = 3}, too_many{.rails = {}, .size = 200};
    const status s = match_rails(two, three);
    CHECK_EQ(s.code, errc::policy_mismatch);
    CHECK_EQ(s.detail, 2);
    CHECK_EQ(s.extra, 3);
    CHECK_EQ(match_rails(too_many, too_many).code, errc::policy_mismatch);
}

}  // namespace
