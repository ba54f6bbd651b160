/// The clusters of VCCL's design: two hosts of eight GPUs, each GPU with its own NIC of two ports or of one, all sixteen
/// GPUs at work at once, both ways, in one simulated fabric.

#include "../host/world.hpp"

#include <vccl/stripe/compose.hpp>

#include <doctest/doctest.h>

using namespace vccl_test;

namespace {

constexpr std::uint32_t chunk = 64 * 1024;
constexpr unsigned buffers = 4;

/// One GPU's channel to the same GPU of the other host, with a user at each end.
template <class Sender, class Receiver>
struct pair_of_gpus {
    std::vector<std::byte> out, in;
    memory out_memory, in_memory;
    Sender tx;
    Receiver rx;
    std::uint64_t sent{}, checked{}, wrong{};
    unsigned number;

    static endpoint_options options(std::uint64_t seed) {
        endpoint_options o;
        o.seed = seed;
        o.window = buffers;
        return o;
    }
    pair_of_gpus(unsigned n, host_context<verbs::soft>& a, host_context<verbs::soft>& b, gpu_id from, gpu_id to,
                 manual_clock clock)
        : out(std::size_t{chunk} * buffers),
          in(out.size()),
          tx(a, from, channel_id{n}, options(100 + 16 * n), {}, {}, {}, {}, clock),
          rx(b, to, channel_id{n}, options(900 + 16 * n), {}, {}, {}, {}, clock),
          number(n) {
        const auto of_tx = tx.local_info(), of_rx = rx.local_info();
        REQUIRE(of_tx);
        REQUIRE(of_rx);
        REQUIRE(tx.begin_connect(*of_rx));
        REQUIRE(rx.begin_connect(*of_tx));
        out_memory = std::move(*a.register_memory(out.data(), out.size()));
        in_memory = std::move(*b.register_memory(in.data(), in.size()));
    }
    std::byte byte_of(std::uint64_t s, std::size_t i) const { return static_cast<std::byte>(number * 53 + s * 131 + i * 7); }

    void pass(std::uint64_t goal) {
        for (; checked < rx.received().value; ++checked) {
            const std::byte* p = in.data() + checked % buffers * chunk;
            for (std::size_t i = 0; i < chunk; i += 61) wrong += p[i] != byte_of(checked, i);
        }
        while (rx.connected() && rx.next().value < goal && rx.next().value - checked < buffers)
            REQUIRE(rx.recv(in_memory.view(rx.next().value % buffers * chunk, chunk)));
        while (tx.connected() && sent < goal && sent - tx.acknowledged().value < buffers) {
            std::byte* p = out.data() + sent % buffers * chunk;
            for (std::size_t i = 0; i < chunk; ++i) p[i] = byte_of(sent, i);
            REQUIRE(tx.send(out_memory.view(sent % buffers * chunk, chunk)));
            ++sent;
        }
        tx.progress();
        rx.progress();
    }
};

template <class... Ps>
struct cluster {
    using sender = striped_sender<verbs::soft, Ps..., journal, manual_clock, testing::memory_oob>;
    using receiver = striped_receiver<verbs::soft, Ps..., journal, manual_clock, testing::memory_oob, hold_down<1>>;
    using gpus = pair_of_gpus<sender, receiver>;

    verbs::soft_fabric fabric;
    host_context<verbs::soft> a, b;
    std::vector<std::unique_ptr<gpus>> all;  ///< A's GPU i to B's GPU i, then back

    static verbs::soft_fabric make(const cluster_shape& shape, std::uint64_t rate) {
        verbs::soft_options o;
        o.bytes_per_second = rate;
        o.manual_time = true;
        o.latency = 2_us;
        auto made = verbs::soft_fabric::create(make_cluster(shape), o);
        REQUIRE(made);
        return std::move(*made);
    }
    cluster(const cluster_shape& shape, std::uint64_t rate)
        : fabric(make(shape, rate)), a(*fabric.host("A"), fabric.shape()), b(*fabric.host("B"), fabric.shape()) {
        for (std::uint16_t g = 0; g < 8; ++g) {
            const gpu_id of_a{g}, of_b{static_cast<std::uint16_t>(8 + g)};
            all.push_back(std::make_unique<gpus>(2u * g, a, b, of_a, of_b, fabric.clock()));
            all.push_back(std::make_unique<gpus>(2u * g + 1, b, a, of_b, of_a, fabric.clock()));
        }
    }
    /// Keeps every channel busy while `faults` are given to the fabric, one every `gap`, and for as long afterwards.
    void run(const std::vector<std::string>& faults, nanoseconds gap) {
        std::size_t given = 0;
        const nanoseconds start = fabric.now(), limit = start + 60_s;
        std::uint64_t goal = ~std::uint64_t{0};
        for (bool busy = true; busy;) {
            busy = false;
            const nanoseconds now = fabric.now();
            REQUIRE(now < limit);
            if (given < faults.size() && now >= start + gap * static_cast<std::int64_t>(given + 1))
                REQUIRE(fabric.command(faults[given++]));
            if (goal == ~std::uint64_t{0} && now >= start + gap * static_cast<std::int64_t>(faults.size() + 2)) {
                goal = 0;
                for (auto& p : all) goal = std::max(goal, p->sent);
            }
            for (auto& p : all) {
                p->pass(goal);
                REQUIRE(p->tx.health());
                REQUIRE(p->rx.health());
                busy = busy || p->checked < goal || p->tx.acknowledged().value < goal;
            }
            fabric.advance(4_us);
        }
        for (auto& p : all) {
            CHECK(p->wrong == 0);
            CHECK(p->tx.handler().chunks.size() == goal);
            CHECK(p->rx.handler().chunks.size() == goal);
        }
    }
    unsigned failovers() const {
        unsigned n = 0;
        for (const auto& p : all) n += p->rx.handler().count(channel_event::kind::failed_over);
        return n;
    }
};

}  // namespace

TEST_CASE("2 x 8 GPUs, dual-port NICs, sibling ports: one port of every NIC dies in turn, and returns") {
    std::vector<std::string> faults;
    for (unsigned n = 0; n < 8; ++n) {
        const std::string port = (n % 2 ? "A.nic" : "B.nic") + std::to_string(n) + ".p0";
        faults.push_back("down " + port);
        faults.push_back("up " + port);
    }
    cluster<sibling_port> c(dual_port_cluster, 500'000'000);
    c.run(faults, 2_ms);
    CHECK(c.failovers() >= 16);  // both ways of each
}

TEST_CASE("2 x 8 GPUs, dual-port NICs, two stripes each: both ports carry, each dies and returns") {
    std::vector<std::string> faults;
    for (unsigned n = 0; n < 8; ++n) {
        const std::string port = (n % 2 ? "A.nic" : "B.nic") + std::to_string(n) + ".p" + std::to_string(n / 2 % 2);
        faults.push_back("down " + port);
        if (n >= 2) faults.push_back("up " + faults[2 * n - 4].substr(5));
    }
    cluster<sibling_port, stripes<2>> c(dual_port_cluster, 500'000'000);
    c.run(faults, 2_ms);
    CHECK(c.failovers() >= 16);
}

TEST_CASE("2 x 8 GPUs, single-port NICs, the adjacent GPU's NIC stands in: a NIC of every pair dies") {
    std::vector<std::string> faults;
    for (unsigned n = 0; n < 8; n += 2)
        faults.push_back("down " + std::string(n % 4 ? "A.nic" : "B.nic") + std::to_string(n) + ".p0");
    for (unsigned n = 0; n < 8; n += 2)
        faults.push_back("up " + std::string(n % 4 ? "A.nic" : "B.nic") + std::to_string(n) + ".p0");
    cluster<adjacent_gpu> c(single_port_cluster, 500'000'000);
    c.run(faults, 2_ms);
    CHECK(c.failovers() == 8);
}

TEST_CASE("2 x 8 GPUs, single-port NICs, two stripes over neighbours: a whole switch dies") {
    cluster<adjacent_gpu, stripes<2>> c(single_port_cluster, 50'000'000);
    c.run({"switch-down rail3", "up all", "switch-up rail3"}, 150_ms);  // nobody is told: the NICs' retries must run out
    CHECK(c.failovers() >= 4);  // the stripes of GPU 3 and of its neighbour, both ways
}
