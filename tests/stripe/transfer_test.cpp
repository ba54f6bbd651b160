#include "striped_world.hpp"

using namespace vccl_test;

namespace {

world_options wide(unsigned nics, unsigned ports) {
    world_options o;
    o.nics = nics;
    o.ports = ports;
    o.chunk = 256 * 1024;
    o.buffers = 8;
    return o;
}

}  // namespace

TEST_CASE("With one stripe a striped endpoint is the host endpoint") {
    static_assert(std::same_as<striped_sender<verbs::soft, stripes<1>>, host_sender<verbs::soft>>);
    static_assert(std::same_as<striped_sender<verbs::soft>, host_sender<verbs::soft>>);
    static_assert(
        std::same_as<striped_receiver<qp_group<2>, stripes<1>, verbs::soft, own_share>, host_receiver<verbs::soft, qp_group<2>>>);
    static_assert(std::same_as<striped_sender<stripes<2>, verbs::soft>, striped_sender<verbs::soft, equal_finish, stripes<2>>>);
}

TEST_CASE("Two stripes carry half of every chunk each, over both ports of the NIC") {
    striped_world<2> w(wide(1, 2));
    start(w);
    REQUIRE(w.transfer(64));
    exact(w, 64);
    const double a = double(bytes_in(w, "B.nic0.p0")), b = double(bytes_in(w, "B.nic0.p1"));
    CHECK(a / b == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("Chunks of every size arrive whole, cut or not") {
    for (unsigned round = 0; round < 2; ++round) {
        world_options o = wide(2, 2);
        if (round == 1) o.rx.split_from = 0;
        striped_world<4, 2> w(o);
        start(w);
        const std::uint32_t sizes[] = {0, 1, 128, 129, 4096, 16383, 65535, 65536, 65537, 200'001, 262'144};
        const auto size = [&](std::uint64_t s) { return sizes[s % std::size(sizes)]; };
        REQUIRE(w.transfer_of(200, size));
        exact(w, 200);
    }
}

TEST_CASE("Receives below split_from take the stripes in turn, one message each") {
    world_options o = wide(1, 2);
    o.chunk = 32 * 1024;
    striped_world<2> w(o);
    start(w);
    REQUIRE(w.transfer(101));
    exact(w, 101);
    CHECK(w.rx->stripe(0).received().value == 51);
    CHECK(w.rx->stripe(1).received().value == 50);
}

TEST_CASE("A chunk larger than its receive is refused at both ends, and the channel goes on") {
    world_options o = wide(1, 2);
    striped_world<2> w(o);
    start(w);
    REQUIRE(w.rx->recv(w.in_memory.view(0, 70'000)));
    REQUIRE(w.rx->recv(w.in_memory.view(w.o.chunk, w.o.chunk)));
    REQUIRE(w.tx->send(w.out_memory.view(0, 200'000)));
    REQUIRE(w.tx->send(w.out_memory.view(0, 200'000)));
    REQUIRE(w.until([&] { return w.tx->acknowledged().value == 2 && w.rx->received().value == 2; }));
    CHECK(w.rx->outcome(sequence{0}).error().code == errc::message_too_long);
    CHECK(w.tx->wait(sequence{0}, 1_s).code == errc::message_too_long);
    CHECK(w.rx->outcome(sequence{1}).value() == 200'000);
    CHECK(std::all_of(w.in.begin(), w.in.begin() + 70'000, [](std::byte b) { return b == std::byte{}; }));
}

TEST_CASE("One port dies: its stripe goes on over the other, and returns; nothing is lost") {
    for (const char* port : {"A.nic0.p0", "A.nic0.p1", "B.nic0.p0", "B.nic0.p1"}) {
        CAPTURE(port);
        striped_world<2> w(wide(1, 2));
        start(w);
        auto down = at_chunk(w, 20, std::string("down ") + port), up = at_chunk(w, 60, std::string("up ") + port);
        REQUIRE(w.transfer(200, [&] {
            down();
            up();
        }));
        exact(w, 200);
        CHECK(w.rx->handler().count(event::failed_over) == 1);
        w.rest(500_ms);
        CHECK(w.rx->handler().count(event::failed_back) == 1);
        const unsigned stripe = port[std::string_view(port).size() - 1] - '0';
        CHECK(w.rx->handler().first(event::failed_over)->stripe == stripe);
        CHECK(w.rx->stripe(stripe).active_lane() == lane_id{0});
    }
}

TEST_CASE("A slow port gets what it can carry") {
    world_options o = wide(1, 2);
    o.chunk = 1 << 20;
    o.fabric.bytes_per_second = 4'000'000'000;
    striped_world<2> w(o);
    start(w);
    REQUIRE(w.command("rate A.nic0.p1 1GB/s"));  // the ports still promise four: only their backlog tells
    REQUIRE(w.transfer(40));
    const double a0 = double(bytes_in(w, "B.nic0.p0")), b0 = double(bytes_in(w, "B.nic0.p1"));
    REQUIRE(w.transfer(140));
    exact(w, 140);
    const double a = double(bytes_in(w, "B.nic0.p0")) - a0, b = double(bytes_in(w, "B.nic0.p1")) - b0;
    CHECK(a / b == doctest::Approx(4).epsilon(0.15));
}

TEST_CASE("A port that was slow and is well again gets its half again, although nothing tells of it") {
    world_options o = wide(1, 2);
    o.chunk = 1 << 20;
    o.fabric.bytes_per_second = 4'000'000'000;
    striped_world<2> w(o);
    start(w);
    REQUIRE(w.command("rate A.nic0.p1 100MB/s"));
    REQUIRE(w.transfer(60));
    REQUIRE(w.command("rate A.nic0.p1 4GB/s"));
    REQUIRE(w.transfer(160));
    const double a0 = double(bytes_in(w, "B.nic0.p0")), b0 = double(bytes_in(w, "B.nic0.p1"));
    REQUIRE(w.transfer(240));
    exact(w, 240);
    CHECK((double(bytes_in(w, "B.nic0.p0")) - a0) / (double(bytes_in(w, "B.nic0.p1")) - b0) == doctest::Approx(1).epsilon(0.1));
}

TEST_CASE("With own_share a stripe keeps its half wherever it goes") {
    striped_world<2, 1, own_share> w(wide(1, 2));
    start(w);
    auto down = at_chunk(w, 20, "down A.nic0.p1");
    REQUIRE(w.transfer(100, [&] { down(); }));
    exact(w, 100);
    CHECK(w.tx->stripe(0).acknowledged().value == 100);
    CHECK(w.tx->stripe(1).active_lane() == lane_id{1});
}

TEST_CASE("An exclusive share leaves the far NIC alone until the near one is gone") {
    world_options o = wide(2, 1);
    striped_world<2, 1, far_at_most<>> w(o);
    start(w);
    REQUIRE(w.transfer(50));
    exact(w, 50);
    CHECK(bytes_in(w, "B.nic1.p0") < 50 * 200);  // control messages and empty parts
}

TEST_CASE("Closing closes every stripe; nothing is left behind") {
    striped_world<2> w(wide(1, 2));
    start(w);
    REQUIRE(w.transfer(10));
    CHECK(w.tx->close(0_ns).code == errc::timeout);  // begun; the passes end it
    REQUIRE(w.until([&] { return w.tx->health().code == errc::closed && w.rx->health().code == errc::closed; }));
    CHECK(w.tx->send(w.out_memory.view(0, 1)).error().code == errc::closed);
    CHECK(w.out_memory.release());
    CHECK(w.in_memory.release());
}

TEST_CASE("Aborting one end ends every stripe of the other, and lets go of the memory") {
    striped_world<2> w(wide(1, 2));
    start(w);
    for (int i = 0; i < 4; ++i) REQUIRE(w.tx->send(w.out_memory.view(0, w.o.chunk)));
    w.pass();
    w.rx->abort();
    REQUIRE(w.until([&] { return w.tx->health().code == errc::aborted; }));
    w.pass();
    CHECK(w.tx->stripe(0).health().code == errc::aborted);
    CHECK(w.tx->stripe(1).health().code == errc::aborted);
    CHECK(w.out_memory.release());
}
