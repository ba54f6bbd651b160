#include <vccl/host/roster.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

using namespace vccl;

namespace {

/// Moves in the passes that the test says.
struct rider {
    std::uint64_t passes{};
    bool moves{};
    std::atomic<bool> called{};
    static bool pass(void* self) noexcept {
        auto& r = *static_cast<rider*>(self);
        ++r.passes;
        return r.moves;
    }
    roster::passenger seat() { return {this, &pass, &called}; }
};

struct bus {
    std::deque<rider> riders;
    roster all;
    explicit bus(unsigned n) : riders(n) {
        for (rider& r : riders) all.add(r.seat());
    }
    void turns(unsigned n) {
        while (n--) all.turn();
    }
};

}  // namespace

TEST_CASE("Every endpoint that moves gets one pass a turn, however many there are") {
    bus b(300);
    for (rider& r : b.riders) r.moves = true;
    b.turns(1000);
    CHECK(std::all_of(b.riders.begin(), b.riders.end(), [](const rider& r) { return r.passes == 1000; }));
}

TEST_CASE("One that stands still rests, and costs a sixteenth; the others lose nothing by it") {
    bus b(2);
    b.riders[0].moves = true;
    b.turns(roster::patience + 16 * 100);
    CHECK(b.riders[0].passes == roster::patience + 1600);
    CHECK(b.riders[1].passes == roster::patience + 100);
}

TEST_CASE("A pass that moves something ends the rest at once") {
    bus b(1);
    b.turns(roster::patience + 16);
    b.riders[0].moves = true;
    b.turns(roster::rest + 1);
    const std::uint64_t awake = b.riders[0].passes;
    b.turns(100);
    CHECK(b.riders[0].passes == awake + 100);
}

TEST_CASE("A call of the user wakes it in the very next turn, and it stays awake as long as before") {
    bus b(1);
    b.turns(roster::patience + 5);
    const std::uint64_t before = b.riders[0].passes;
    b.riders[0].called = true;
    b.turns(1);
    CHECK(b.riders[0].passes == before + 1);
    b.turns(roster::patience - 2);
    CHECK(b.riders[0].passes == before + roster::patience - 1);
}

TEST_CASE("Endpoints come and go between turns") {
    bus b(3);
    b.turns(10);
    b.all.remove(&b.riders[1]);
    CHECK(b.all.size() == 2);
    b.turns(10);
    CHECK(b.riders[0].passes == 20);
    CHECK(b.riders[1].passes == 10);
    CHECK(b.riders[2].passes == 20);
}
