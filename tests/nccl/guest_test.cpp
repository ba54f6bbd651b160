// The plugin over real verbs: two ranks on soft-RoCE in a guest, with ports, cables and switches that go down for real.
#include "ranks.hpp"

#include <cstdlib>

namespace {

using namespace nccl_test;

/// Each port of the guest is a device of its own, so the other devices stand in.
stage in_guest() {
    const variables both{{"VCCL_NET_BACKEND", "ibv"}, {"VCCL_NET_BACKUP", "all"}, {"VCCL_NET_ADDRESS", "127.0.0.1"}};
    stage on{both, both, [](const std::string& command) {
                 return std::system((std::string(std::getenv("VCCL_GUEST_FAULT")) + " " + command).c_str()) == 0;
             }};
    on.a["VCCL_NET_DEVICES"] = "rxe_a";
    on.b["VCCL_NET_DEVICES"] = "rxe_b";
    return on;
}

const bool outside = std::getenv("VCCL_GUEST_FAULT") == nullptr;

}  // namespace

TEST_CASE("Messages arrive whole over real verbs" * doctest::skip(outside)) {
    const ending e = play({.messages = 100, .seed = 1}, in_guest());
    check_ok(e);
    CHECK_MESSAGE(e.a_says("device 0 rxe_a0:1"), e.text_a);
}

TEST_CASE("A port, a cable and the peer's port go down and come back: nothing is lost" * doctest::skip(outside)) {
    const std::pair<const char*, const char*> breaks[] = {
        {"port-down a0", "port-up a0"}, {"cable-down a0", "cable-up a0"}, {"port-down b0", "port-up b0"}};
    for (const auto& how : breaks) {
        CAPTURE(how.first);
        const ending e = play({.messages = 1500, .seed = 2, .faults = {{20, how.first}, {60, how.second}}}, in_guest());
        check_ok(e);
        CHECK_MESSAGE(e.either_says("failed over to"), e.both());
    }
}

TEST_CASE("All ports stay down: an error that names them" * doctest::skip(outside)) {
    const ending e = play({.messages = 100000,
                           .seed = 3,
                           .faults = {{0, "port-down a0"}, {0, "port-down a1"}},
                           .both = {{"VCCL_NET_GIVE_UP_AFTER", "3s"}}},
                          in_guest());
    CHECK_MESSAGE(e.a_says("RESULT error 6"), e.text_a);
    CHECK_MESSAGE(e.b_says("RESULT error 6"), e.text_b);
    CHECK_MESSAGE(e.a_says("rxe_a1:1>rxe_b1:1"), e.text_a);
}
