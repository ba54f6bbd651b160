/// \file
/// Notes: a word of the receiver's user that travels in the grant of a receive. Manual clock.

#include "checks.hpp"

using namespace vccl_test;

namespace {

/// Also those that memory could hold by accident.
std::uint64_t note_of(std::uint64_t s) {
    const std::uint64_t notes[] = {0, ~std::uint64_t{0}, s, s << 32, s * 0x9e3779b97f4a7c15u};
    return notes[s % 5];
}

/// Sends what was granted, and looks at each note first, while ports go down and up; more than two laps of the ring.
template <class World>
void notes_travel() {
    constexpr std::uint64_t total = 700, ahead = 16;
    struct fault {
        std::uint64_t at;
        const char* command;
    };
    const fault faults[] = {
        {100, "down A.nic0.p0"}, {250, "up A.nic0.p0"}, {400, "cable-down B.nic0.p1"}, {500, "cable-up B.nic0.p1"}};
    World w;
    start(w);
    std::size_t broken = 0;
    std::uint64_t unknown = 0;
    const auto step = [&] {
        const std::uint64_t received = w.rx->received().value, posted = w.rx->next().value, next = w.tx->next().value;
        if (broken < std::size(faults) && received >= faults[broken].at) REQUIRE(w.command(faults[broken++].command));
        if (posted < total && posted < received + ahead)
            REQUIRE(w.rx->recv(w.in_memory.view(posted % ahead * 4096, 4096), note_of(posted)));
        if (next < total) {
            const auto note = w.tx->note_for(sequence{next});
            if (note) {
                REQUIRE(*note == note_of(next));
                REQUIRE(w.tx->send(w.out_memory.view(next % ahead * 4096, 100)));
            } else {
                CHECK(note.error().code == errc::would_block);
                ++unknown;
            }
        }
        return received == total;
    };
    REQUIRE(w.until(step));
    CHECK(broken == std::size(faults));
    CHECK(unknown != 0);
    CHECK(w.rx->handler().count(event::failed_over) >= 2);
}

}  // namespace

TEST_CASE("A receive's note is at the sender before the chunk is sent, also after failovers") {
    notes_travel<soft_world<>>();
    notes_travel<soft_world<4>>();
}

TEST_CASE("A receive without a note has none, whatever its slot held a lap ago") {
    soft_world<> w;
    start(w);
    for (std::uint64_t s = 0; s < 2 * max_window; ++s) {
        CHECK(!w.tx->note_for(sequence{s}));
        const auto room = w.in_memory.view(0, 64);
        const auto posted = s < max_window ? w.rx->recv(room, s) : w.rx->recv(room);
        REQUIRE(posted);
        REQUIRE(w.tx->send(w.out_memory.view(0, 64)));
        REQUIRE(w.until([&] { return w.rx->received().value > s; }));
        CHECK(static_cast<bool>(w.tx->note_for(sequence{s})) == (s < max_window));
    }
}

TEST_CASE("A note that is half written is none") {
    soft_world<> w;
    start(w);
    auto* const slots = reinterpret_cast<cts_slot*>(soft_world<>::read_blob(w.sender_blob).ring_addr + sizeof(ack_line));
    slots[0].note = 5;
    CHECK(!w.tx->note_for(sequence{0}));
    annotate(slots[0], max_window, 5);  // of the slot's next lap
    CHECK(!w.tx->note_for(sequence{0}));
    annotate(slots[0], 0, 5);
    CHECK(w.tx->note_for(sequence{0}).value() == 5);
}

TEST_CASE("Before there are grants there are no notes, whatever number is asked for") {
    soft_world<> w;
    CHECK(w.tx->note_for(sequence{0}).error().code == errc::not_connected);
    CHECK(w.tx->room_for(sequence{0}).error().code == errc::not_connected);
    start(w);
    for (const std::uint64_t s : {std::uint64_t{0}, std::uint64_t{77}, ~std::uint64_t{0}}) {
        CHECK(w.tx->note_for(sequence{s}).error().code == errc::would_block);
        CHECK(w.tx->room_for(sequence{s}).error().code == errc::would_block);
        CHECK(w.tx->outcome(sequence{s}).code == errc::invalid_argument);
    }
}
