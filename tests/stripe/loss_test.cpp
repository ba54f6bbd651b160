/// Every subset of ports lost, in every order, and returned in every order: the guarantees hold.

#include "striped_world.hpp"

#include <numeric>

using namespace vccl_test;

namespace {

/// One stripe a NIC, each with the other port of its NIC for its only backup.
struct one_a_nic {
    using policy_axis = axis::port;
    lane_list stripes_for(const topology& t, port_id primary, unsigned) const noexcept {
        lane_list out;
        for (std::uint16_t i = 0; i < t.ports.size(); ++i)
            if (const port_id p{i}; t.host_of(p) == t.host_of(primary) && t.place_in_nic(p) == 0) (void)out.add(p);
        return out;
    }
    result<port_id> backup_for(const topology& t, port_id primary, channel_id c) const noexcept {
        return sibling_port{}.backup_for(t, primary, c);
    }
};

std::uint64_t failovers;  ///< of all cases so far

using order = std::vector<unsigned>;

/// Takes the ports down in one order and up in the other, a step every `gap`, while chunks flow.
template <class World>
void survives(const std::vector<std::string>& ports, const order& down, const order& up, nanoseconds gap, unsigned lanes) {
    world_options o;
    o.nics = 4;
    o.ports = 2;
    o.chunk = 64 * 1024;
    o.buffers = 8;
    o.rx.split_from = 0;
    o.tx.lanes = o.rx.lanes = lanes;
    World w(o);
    start(w);
    std::size_t step = 0;
    nanoseconds next = w.fabric.now() + 40_us;
    const auto steps = [&] {
        while (w.fabric.now() >= next && step < down.size() + up.size()) {
            const bool falls = step < down.size();
            const unsigned p = falls ? down[step] : up[step - down.size()];
            REQUIRE(w.command((falls ? "down " : "up ") + ports[p]));
            ++step;
            next = next + gap;
        }
    };
    std::uint64_t chunks = 0;
    do REQUIRE(w.transfer(chunks += 24, steps));
    while (step < down.size() + up.size());
    REQUIRE(w.transfer(chunks += 24));
    exact(w, chunks);
    failovers += w.rx->handler().count(event::failed_over);
}

order members(unsigned subset) {
    order out;
    for (unsigned i = 0; subset >> i; ++i)
        if (subset >> i & 1) out.push_back(i);
    return out;
}

}  // namespace

TEST_CASE("Two stripes over two ports: every subset of both ends' ports, in every order of loss and return") {
    failovers = 0;
    const std::vector<std::string> ports{"A.nic0.p0", "A.nic0.p1", "B.nic0.p0", "B.nic0.p1"};
    for (unsigned subset = 0; subset < 16; ++subset) {
        order down = members(subset);
        do {
            order up = members(subset);
            do {
                CAPTURE(subset);
                survives<striped_world<2>>(ports, down, up, 60_us, 8);
            } while (std::next_permutation(up.begin(), up.end()));
        } while (std::next_permutation(down.begin(), down.end()));
    }
    CHECK(failovers > 1000);
}

TEST_CASE("Four stripes of two lanes each: every subset of the eight ports lost, in seeded orders") {
    failovers = 0;
    std::vector<std::string> ports;
    for (unsigned n = 0; n < 4; ++n)
        for (unsigned p = 0; p < 2; ++p) ports.push_back("A.nic" + std::to_string(n) + ".p" + std::to_string(p));
    std::uint64_t random = 88172645463325252u;
    const auto below = [&](std::size_t n) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random % n;
    };
    for (unsigned subset = 0; subset < 256; ++subset) {
        order down = members(subset), up = down;
        for (std::size_t i = down.size(); i > 1; --i) {
            std::swap(down[i - 1], down[below(i)]);
            std::swap(up[i - 1], up[below(i)]);
        }
        for (unsigned p : down)
            if (below(2)) ports[p][0] = ports[p][0] == 'A' ? 'B' : 'A';
        CAPTURE(subset);
        survives<striped_world<4, 1, equal_finish, one_a_nic>>(ports, down, up, below(2) ? 60_us : 0_us, 2);
    }
    CHECK(failovers > 200);
}
