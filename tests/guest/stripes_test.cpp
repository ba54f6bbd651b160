// Stripes over real verbs, in a guest of two hosts with eight RoCE ports each: both hosts in one process, one thread.

#include "endpoints.hpp"

#include <vccl/base/status_text.hpp>
#include <vccl/stripe/compose.hpp>
#include <vccl/vccl.hpp>

#include <cstring>
#include <memory>

using namespace guest;

namespace {

constexpr std::uint32_t chunk = 128 * 1024;
constexpr unsigned buffers = 8;
constexpr nanoseconds patience = 120_s;

bool have_eight() {
    const auto found = backend{.devices = "rxe_a"}.discover();
    if (found && found->ports.size() == 8) return true;
    MESSAGE("SKIP: needs a guest with the set-up eight (tests/guest/README.md)");
    return false;
}

/// A channel from A to B with a user at each end who checks every byte.
template <class... Ps>
struct channel {
    using sender = striped_sender<backend, Ps..., counters>;
    using receiver = striped_receiver<backend, Ps..., counters, hold_down<5>>;
    std::vector<std::byte> out, in;
    memory out_memory, in_memory;
    sender tx;
    receiver rx;
    std::uint64_t checked{}, wrong{};

    static endpoint_options options() {
        endpoint_options o;
        o.timers.timeout = 18;  // an early retransmission ends in REM_INV_REQ_ERR on 6.1 under load; see README.md
        o.window = buffers;
        return o;
    }
    channel(host_context<backend>& a, host_context<backend>& b, std::uint16_t gpu)
        : out(std::size_t{chunk} * buffers),
          in(out.size()),
          tx(a, gpu_id{gpu}, channel_id{gpu}, options()),
          rx(b, gpu_id{gpu}, channel_id{gpu}, options()) {
        const auto of_tx = must(tx.local_info()), of_rx = must(rx.local_info());
        must(rx.begin_connect(of_tx));
        must(tx.begin_connect(of_rx));
        REQUIRE(eventually([&] { return tx.progress(), rx.progress(), tx.connected() && rx.connected(); }, 30_s));
        out_memory = must(a.register_memory(out.data(), out.size()));
        in_memory = must(b.register_memory(in.data(), in.size()));
    }
    std::byte byte_of(std::uint64_t s) const { return static_cast<std::byte>(s * 131 + 17); }

    void pass(std::uint64_t goal) {
        for (; checked < rx.received().value; ++checked) {
            const std::byte* p = in.data() + checked % buffers * chunk;
            for (std::uint32_t i = 0; i < chunk; i += 509) wrong += p[i] != byte_of(checked);
        }
        while (rx.next().value < goal && rx.next().value - checked < buffers)
            must(rx.recv(in_memory.view(rx.next().value % buffers * chunk, chunk)).error());
        while (tx.next().value < goal && tx.next().value - tx.acknowledged().value < buffers) {
            const std::uint64_t s = tx.next().value;
            std::memset(out.data() + s % buffers * chunk, static_cast<int>(byte_of(s)), chunk);
            must(tx.send(out_memory.view(s % buffers * chunk, chunk)).error());
        }
        bool moved = tx.progress();
        moved |= rx.progress();
        if (!moved) ::usleep(20);
        REQUIRE_MESSAGE(tx.health(), "sender: " << describe(tx.health()));
        REQUIRE_MESSAGE(rx.health(), "receiver: " << describe(rx.health()));
    }
    bool done(std::uint64_t goal) const { return checked == goal && tx.acknowledged().value == goal; }
    bool run(std::uint64_t goal) {
        const nanoseconds end = steady_clock{}.now() + patience;
        while (!done(goal)) {
            if (steady_clock{}.now() > end) return false;
            pass(goal);
        }
        return wrong == 0;
    }
    std::uint64_t failovers() const { return rx.handler().failovers; }
};

struct hosts {
    host_context<backend> a{backend{.devices = "rxe_a"}, host("a")}, b{backend{.devices = "rxe_b"}, host("b")};
};

}  // namespace

TEST_CASE("Four stripes over four of the sixteen ports: ports and a switch die and return, every byte arrives once") {
    if (!have_eight()) return;
    hosts h;
    network_faults network;
    channel<stripes<4>, no_backup> c(h.a, h.b, 0);
    REQUIRE(c.run(40));
    REQUIRE(network.fault("port-down a1"));
    REQUIRE(c.run(80));
    REQUIRE(network.fault("port-down b2"));
    REQUIRE(c.run(120));
    CHECK(c.failovers() >= 2);
    REQUIRE(network.fault("port-up a1"));
    REQUIRE(network.fault("port-up b2"));
    REQUIRE(network.fault("switch-down rail3"));
    REQUIRE(c.run(240));
    REQUIRE(network.fault("switch-up rail3"));
    REQUIRE(c.run(300));
    CHECK(c.rx.handler().chunks == 300);
}

TEST_CASE("2 x 8 single-port NICs: eight channels at once, and the neighbour's NIC stands in for each that dies") {
    if (!have_eight()) return;
    hosts h;
    network_faults network;
    std::vector<std::unique_ptr<channel<adjacent_gpu>>> all;
    for (std::uint16_t g = 0; g < 8; ++g) all.push_back(std::make_unique<channel<adjacent_gpu>>(h.a, h.b, g));
    const auto run = [&](std::uint64_t goal) {
        const nanoseconds end = steady_clock{}.now() + patience;
        for (bool busy = true; busy;) {
            busy = false;
            for (auto& c : all) {
                c->pass(goal);
                busy = busy || !c->done(goal);
            }
            REQUIRE(steady_clock{}.now() < end);
        }
    };
    run(10);
    REQUIRE(network.fault("port-down a2"));
    REQUIRE(network.fault("port-down b5"));
    run(30);
    REQUIRE(network.fault("port-up a2"));
    REQUIRE(network.fault("port-up b5"));
    run(50);
    for (std::uint16_t g = 0; g < 8; ++g) {
        CHECK(all[g]->wrong == 0);
        CHECK(all[g]->rx.handler().chunks == 50);
        CHECK(all[g]->failovers() >= (g == 2 || g == 5 ? 1 : 0));
    }
}
