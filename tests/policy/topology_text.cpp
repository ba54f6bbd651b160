// The text form of a topology: what it means, that it comes back whole, and what each mistake is called.
#include <vccl/model/shapes.hpp>
#include <vccl/model/topology_print.hpp>
#include <vccl/model/topology_text.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace vccl;

constexpr std::string_view example = R"(# one host
host A
gpu  A.gpu0     numa=0 near=A.nic0        # before the NIC that it names
nic  A.nic0     numa=0 pci=0000:3b:00.0
port A.nic0.p0  rail=3 rate=25GB/s
port A.nic0.p1  rail=4 rate=200Gb/s
nic  mlx5_1     host=A numa=1
port mlx5_1:1   nic=mlx5_1 number=2 rail=5
gpu  A.gpu1     numa=1 to=A.nic0:40,mlx5_1:2
gpu  A.gpu2     to=unknown
)";

TEST_CASE("a topology is read from text, in any order of lines") {
    const auto t = parse_topology(example);
    REQUIRE(t);
    REQUIRE_EQ(t->ports.size(), 3);
    CHECK_EQ(t->nics[0].pci, "0000:3b:00.0");
    CHECK_EQ(t->ports[0].name, "A.nic0.p0");
    CHECK_EQ(t->ports[0].number, 1);
    CHECK_EQ(t->ports[1].number, 2);
    CHECK_EQ(t->ports[0].rail, rail_id{3});
    CHECK_EQ(t->ports[0].bytes_per_second, 25'000'000'000);
    CHECK_EQ(t->ports[1].bytes_per_second, 25'000'000'000);
    CHECK_EQ(t->ports[2].nic, nic_id{1});
    CHECK_EQ(t->ports[2].number, 2);
    CHECK_EQ(t->ports[2].bytes_per_second, 0);
    CHECK_EQ(t->gpus[0].to_nic, std::vector<distance>{path::nearest, path::other_numa});
    CHECK_EQ(t->gpus[1].to_nic, std::vector<distance>{40, 2});
    CHECK(t->gpus[2].to_nic.empty());
    CHECK_EQ(t->gpus[2].numa, -1);
    CHECK(validate(*t));
}

bool same(const topology& a, const topology& b) {
    if (a.hosts.size() != b.hosts.size() || a.nics.size() != b.nics.size() || a.ports.size() != b.ports.size() ||
        a.gpus.size() != b.gpus.size())
        return false;
    for (std::size_t i = 0; i < a.hosts.size(); ++i)
        if (!(a.hosts[i].name == b.hosts[i].name)) return false;
    for (std::size_t i = 0; i < a.nics.size(); ++i)
        if (!(a.nics[i].name == b.nics[i].name) || a.nics[i].host != b.nics[i].host || a.nics[i].numa != b.nics[i].numa ||
            !(a.nics[i].pci == b.nics[i].pci))
            return false;
    for (std::size_t i = 0; i < a.ports.size(); ++i) {
        const auto &p = a.ports[i], &q = b.ports[i];
        if (!(p.name == q.name) || p.nic != q.nic || p.number != q.number || p.rail != q.rail ||
            p.bytes_per_second != q.bytes_per_second)
            return false;
    }
    for (std::size_t i = 0; i < a.gpus.size(); ++i) {
        const auto &g = a.gpus[i], &h = b.gpus[i];
        if (!(g.name == h.name) || g.host != h.host || g.numa != h.numa || !(g.pci == h.pci) ||
            g.to_nic.size() != h.to_nic.size())
            return false;
        for (std::size_t n = 0; n < g.to_nic.size(); ++n)
            if (a.nics[n].host == g.host && g.to_nic[n] != h.to_nic[n]) return false;
    }
    return true;
}

TEST_CASE("what is printed reads back as the same topology") {
    topology odd = make_cluster(3, 3, 2, 5);
    odd.ports[0].bytes_per_second = 12'345;
    odd.nics[1].numa = -1;
    odd.gpus[1].to_nic.clear();
    odd.gpus[2].to_nic[2] = 77;
    odd.gpus[0].pci = "0000:17:00.0";
    for (const topology& t : {make_cluster(dual_port_cluster), make_cluster(single_port_cluster), make_cluster(1, 0, 0, 1), odd,
                              *parse_topology(example)}) {
        const std::string text = print_topology(t);
        INFO(text);
        topology_fault why;
        const auto back = parse_topology(text, &why);
        REQUIRE_MESSAGE(back, describe(why));
        CHECK_EQ(print_topology(*back), text);
        CHECK(same(*back, t));
    }
}

struct mistake {
    const char* text;
    unsigned line;
    topology_cause cause;
    const char* name;
};

TEST_CASE("each mistake in a text is named, with its line") {
    using enum topology_cause;
    const mistake all[] = {
        {"", 0, empty, ""},
        {"# only words\n\n", 0, empty, ""},
        {"nic A.nic0", 0, empty, ""},
        {"host A\nswitch S", 2, unknown_kind, "switch"},
        {"host", 1, missing_name, "host"},
        {"host A\nnic a=b", 2, bad_name, "a=b"},
        {"host A\nnic A.n\nport A.n.p\nnic A.n", 4, repeated_name, "A.n"},
        {"host A\nnic mlx5_0", 2, no_parent, "mlx5_0"},
        {"host A\nnic B.nic0", 2, undeclared, "B"},
        {"host A\nport A.nic0.p0", 2, undeclared, "A.nic0"},
        {"host A\nnic A.n\nport A.p", 3, wrong_kind, "A"},
        {"host A\nnic A.n\nport A.n.p\ngpu g host=A.n.p", 4, wrong_kind, "A.n.p"},
        {"host A\nnic n host=n", 2, cyclic, "n"},
        {"host A\nnic n host=p\nport p nic=n", 2, cyclic, "n"},
        {"host A\nhost B\nnic A.n host=B", 3, contradiction, "B"},
        {"host A\nnic A.n\nport A.n.p0 number=1\nport A.n.p1 number=1", 4, contradiction, "A.n.p1"},
        {"host A\nnic A.n\ngpu A.g near=A.n to=A.n:1", 3, contradiction, "to"},
        {"host A\nnic A.n\ngpu A.g to=A.n:1,A.n:2", 3, contradiction, "A.n"},
        {"host A\nhost B\nnic B.n\ngpu A.g near=B.n", 4, contradiction, "B.n"},
        {"host A\ngpu A.g near=A.n", 2, undeclared, "A.n"},
        {"host A\ngpu A.g near=A", 2, wrong_kind, "A"},
        {"host A colour=red", 1, unknown_attribute, "colour"},
        {"host A\nnic A.n rate=1GB/s", 2, unknown_attribute, "rate"},
        {"host A\nnic A.n numa=0 numa=1", 2, repeated_attribute, "numa"},
        {"host A\nnic A.n numa=x", 2, bad_value, "numa"},
        {"host A\nnic A.n numa", 2, bad_value, "numa"},
        {"host A\nnic A.n numa=", 2, bad_value, "numa="},
        {"host A\nnic A.n\nport A.n.p rail=70000", 3, bad_value, "rail"},
        {"host A\nnic A.n\nport A.n.p number=0", 3, bad_value, "number"},
        {"host A\nnic A.n\nport A.n.p number=256", 3, bad_value, "number"},
        {"host A\nnic A.n\nport A.n.p rate=fast", 3, bad_value, "rate"},
        {"host A\nnic A.n\nport A.n.p rate=GB/s", 3, bad_value, "rate"},
        {"host A\nnic A.n\nport A.n.p rate=999999999999TB/s", 3, bad_value, "rate"},
        {"host A\nnic A.n\ngpu A.g to=A.n", 3, bad_value, "to"},
        {"host A\nnic A.n\ngpu A.g to=A.n:-1", 3, bad_value, "to"},
    };
    for (const mistake& m : all) {
        INFO(m.text);
        topology_fault why;
        const auto t = parse_topology(m.text, &why);
        REQUIRE_FALSE(t);
        CHECK_EQ(t.error().code, errc::parse_error);
        CHECK_EQ(t.error().detail, m.line);
        CHECK_EQ(t.error().extra, static_cast<std::uint32_t>(m.cause));
        CHECK_EQ(why.line, m.line);
        CHECK_EQ(static_cast<int>(why.cause), static_cast<int>(m.cause));
        CHECK_EQ(std::string(why.name.view()), m.name);
    }
}

TEST_CASE("a name that no port_name can hold is refused, not cut") {
    topology_fault why;
    CHECK_FALSE(parse_topology("host " + std::string(48, 'x'), &why));
    CHECK_EQ(static_cast<int>(why.cause), static_cast<int>(topology_cause::bad_name));
    CHECK(parse_topology("host " + std::string(47, 'x')));
}

TEST_CASE("the sentence about a mistake gives the line, the word and what to do") {
    topology_fault why;
    CHECK_FALSE(parse_topology("host A\ngpu A.gpu0 near=A.nic9", &why));
    CHECK_EQ(describe(why), "line 2: A.nic9 is used but never declared; add the line that declares it");
}

}  // namespace
