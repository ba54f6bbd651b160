/// Every subset of ports lost, in every order, and returned in every order: the guarantees hold. docs/stripes.md says which
/// orders need not be run, and why. Cases that take minutes are run by `test_stripe_loss --no-skip`.

#include "striped_world.hpp"

#include <bit>

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

using order = std::vector<unsigned>;  ///< of ports: port p is the p % 2-th of stripe p / 2

/// Is every stripe, at both ends, where it must be once it has noticed that the ports in `lost` are, whatever came first?
template <class World>
bool settled(const World& w, const order& lost) {
    const auto at_rest = [&](const auto& e, unsigned i) {
        bool up[2]{true, true};
        for (const unsigned p : lost)
            if (p / 2 == i) up[p % 2] = false;
        for (std::uint8_t l = 0; l < 2; ++l)
            if (const auto h = e.lane_health(lane_id{l}).health; (h == lane_health::up) != up[l] || h == lane_health::failed)
                return false;
        return e.state() == (up[0] || up[1] ? channel_state::running : channel_state::suspended);
    };
    for (unsigned i = 0; i < 4; ++i) {
        const auto& r = w.rx->stripe(i);
        if (!at_rest(w.tx->stripe(i), i) || !at_rest(r, i)) return false;
        if (r.state() == channel_state::running &&
            r.active_lane().value != (r.lane_health(lane_id{0}).health == lane_health::up ? 0 : 1))
            return false;  // the receiver decides; the sender learns of it with the next grant
    }
    return true;
}

/// What a schedule leaves open.
struct pace {
    nanoseconds gap{60'000};  ///< from step to step
    unsigned lanes{8};
    bool settle{};             ///< between the last loss and the first return
    std::uint64_t burst{24};   ///< chunks at a time
};

/// Takes the ports down in one order and up in the other while chunks flow.
template <class World>
void survives(const std::vector<std::string>& ports, const order& down, const order& up, const pace& how) {
    world_options o;
    o.nics = 4;
    o.ports = 2;
    o.chunk = 64 * 1024;
    o.buffers = 8;
    o.rx.split_from = 0;
    o.tx.lanes = o.rx.lanes = how.lanes;
    World w(o);
    start(w);
    std::size_t step = 0;
    nanoseconds next = w.fabric.now() + 40_us;
    const auto steps_below = [&](std::size_t last) {
        return [&, last] {
            while (w.fabric.now() >= next && step < last) {
                const bool falls = step < down.size();
                const unsigned p = falls ? down[step] : up[step - down.size()];
                REQUIRE(w.command((falls ? "down " : "up ") + ports[p]));
                ++step;
                next = next + how.gap;
            }
        };
    };
    std::uint64_t chunks = 0;
    if constexpr (std::remove_reference_t<decltype(*w.tx)>::stripe_count == 4) {
        if (how.settle) {
            const auto losses = steps_below(down.size());
            w.pass_time = 20_us;  // rest, and coming back from it, take many milliseconds
            const bool rests = w.until([&] {
                losses();
                if (w.checked == chunks && w.tx->acknowledged().value == chunks) chunks += 8;
                w.users(chunks, [&](std::uint64_t) { return o.chunk; });
                return step == down.size() && settled(w, down);
            });
            REQUIRE(rests);
            next = w.fabric.now();
        }
    }
    const auto steps = steps_below(down.size() + up.size());
    do REQUIRE(w.transfer(chunks += how.burst, steps));
    while (step < down.size() + up.size());
    REQUIRE(w.transfer(chunks += how.burst));
    exact(w, chunks);
    failovers += w.rx->handler().count(event::failed_over);
}

order members(unsigned subset) {
    order out;
    for (unsigned i = 0; subset >> i; ++i)
        if (subset >> i & 1) out.push_back(i);
    return out;
}

using four_by_two = striped_world<4, 1, equal_finish, one_a_nic>;

/// Stripes are alike, so of schedules that differ in the stripes' names alone one is run: the first in the alphabet.
order renamed(const order& o, const order& names) {
    order out;
    for (const unsigned p : o) out.push_back(names[p / 2] * 2 + p % 2);
    return out;
}
/// The orders of the ports of `subset` that are first among those that renaming stripes makes of them, within the subset.
/// None if the subset itself is not the first of its kind.
std::vector<order> distinct_orders(unsigned subset) {
    std::vector<order> out;
    order o = members(subset);
    const order all = o;
    do {
        bool first = true;
        order names{0, 1, 2, 3};
        do {
            order other = renamed(o, names), its_ports = other;
            std::sort(its_ports.begin(), its_ports.end());
            if (its_ports < all) return {};
            if (its_ports == all && other < o) first = false;
        } while (first && std::next_permutation(names.begin(), names.end()));
        if (first) out.push_back(o);
    } while (std::next_permutation(o.begin(), o.end()));
    return out;
}

/// Runs a case on the ports of host A or, as the case's number has it, of B.
void survives_numbered(std::uint64_t number, const order& down, const order& up, const pace& how) {
    const std::uint64_t bits = verbs::soft_detail::mix(number);
    std::vector<std::string> ports;
    for (unsigned p = 0; p < 8; ++p)
        ports.push_back((bits >> p & 1 ? "A.nic" : "B.nic") + std::to_string(p / 2) + ".p" + std::to_string(p % 2));
    CAPTURE(number);
    survives<four_by_two>(ports, down, up, how);
}

/// Every order of loss with every order of return.
std::uint64_t run_products(unsigned ports, std::uint64_t number = 0) {
    for (unsigned subset = 0; subset < 256; ++subset)
        if (std::popcount(subset) == int(ports))
            for (const order& down : distinct_orders(subset)) {
                order up = members(subset);
                do survives_numbered(++number, down, up, {60_us, 2, false});
                while (std::next_permutation(up.begin(), up.end()));
            }
    return number;
}
/// Every order of loss and every order of return, with the state of rest between them: each once.
std::uint64_t run_through_rest(unsigned ports, std::uint64_t number = 0) {
    for (unsigned subset = 0; subset < 256; ++subset)
        if (std::popcount(subset) == int(ports)) {
            const auto orders = distinct_orders(subset);
            for (std::size_t i = 0; i < orders.size(); ++i)
                survives_numbered(++number, orders[i], orders[orders.size() - 1 - i], {60_us, 2, true, 8});
        }
    return number;
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
                survives<striped_world<2>>(ports, down, up, {});
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
        survives<four_by_two>(ports, down, up, {below(2) ? 60_us : 0_us, 2});
    }
    CHECK(failovers > 200);
}

TEST_CASE("Four stripes of two lanes each: up to three ports, every order of loss with every order of return") {
    std::uint64_t cases = 0;
    for (const unsigned ports : {1u, 2u, 3u}) cases += run_products(ports);
    CHECK(cases == 134);
}

TEST_CASE("Four stripes of two lanes each: all eight ports, every order of loss and, after rest, every order of return") {
    CHECK(run_through_rest(8) == 1680);
}

TEST_CASE("Four stripes of two lanes each: four ports, every order of loss with every order of return" * doctest::skip()) {
    MESSAGE("cases: ", run_products(4));
}

TEST_CASE("Four stripes of two lanes each: any number of ports, every order of loss and, after rest, every order of return" *
          doctest::skip()) {
    std::uint64_t cases = 0;
    for (unsigned ports = 1; ports < 8; ++ports) cases += run_through_rest(ports);
    MESSAGE("cases: ", cases);
}
