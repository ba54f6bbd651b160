/// \file
/// Groups of QPs that share a chunk: what is sent again when a lane dies between the parts. Manual clock.

#include "sizes.hpp"

using namespace vccl_test;

namespace {

/// The lane dies after any number of packets of one chunk. Parts that had arrived whole are not sent again; their bytes
/// are counted.
template <unsigned Qps>
void only_missing_parts() {
    CAPTURE(Qps);
    // Parts of 13 packets, the last one shorter, so that it ends first.
    constexpr std::uint32_t packet = 4096, part = 13 * packet, chunk = Qps * part - (Qps - 1) * packet;
    static_assert(cut_chunk(chunk, Qps).parts == Qps && (Qps == 1 || cut_chunk(chunk, Qps).part_bytes == part));
    bool all = false, some = false, none = false;
    for (std::uint32_t arrived = 0; arrived <= chunk / packet; ++arrived) {
        CAPTURE(arrived);
        world_options o;
        o.chunk = chunk;
        o.buffers = 1;
        soft_world<Qps> w(o);
        start(w);
        w.pass_time = 100_ns;
        const auto goal = w.port("B.nic0.p0").bytes_in + std::uint64_t{arrived} * packet;
        bool broken = false;
        REQUIRE(w.transfer(1, [&] {
            if (broken || w.tx->next().value == 0 || w.port("B.nic0.p0").bytes_in < goal) return;
            broken = static_cast<bool>(w.command("down B.nic0.p0"));
            w.pass_time = 2_us;
        }));
        REQUIRE(broken);
        REQUIRE(w.until(
            [&] { return w.tx->handler().count(event::failed_over) == 1 && w.rx->handler().count(event::failed_over) == 1; },
            1_s));
        exact(w, 1);
        const journal& rx = w.rx->handler();
        CHECK(rx.arrivals.size() == Qps);
        CHECK(repeated_parts(w) == 0);
        std::uint64_t missing = chunk;
        for (std::size_t i = 0; i < std::min(rx.arrivals_at_failover, rx.arrivals.size()); ++i)
            missing -= Qps == 1 ? chunk : std::min(part, chunk - rx.arrivals[i].part() * part);
        const channel_event* e = w.tx->handler().first(event::failed_over);
        REQUIRE(e);
        CHECK(w.port("A.nic0.p1").bytes_out >= missing);
        CHECK(w.port("A.nic0.p1").bytes_out < missing + packet);  // control messages are small
        CHECK(e->replayed == (missing != 0));
        CHECK(e->already_delivered <= (missing == 0));
        (missing == 0 ? all : missing == chunk ? none : some) = true;
    }
    CHECK(none);
    CHECK(all);
    CHECK(some == (Qps > 1));
}

}  // namespace

TEST_CASE_TEMPLATE("A group of QPs loses its lane in the middle of a chunk: only the parts that did not arrive are sent again",
                   Qps, std::integral_constant<unsigned, 1>, std::integral_constant<unsigned, 2>,
                   std::integral_constant<unsigned, 3>, std::integral_constant<unsigned, 4>,
                   std::integral_constant<unsigned, 8>) {
    only_missing_parts<Qps::value>();
}

TEST_CASE("Chunks of no byte, one byte, odd sizes and many packets survive failures on a group of QPs") {
    sizes_survive<soft_world<4>>({0, 1, 4095, 32767, 32768, 32769, 65535, 65536, 65537, 131073}, 8);
}
TEST_CASE("Chunks of four MiB survive failures on a group of QPs") {
    sizes_survive<soft_world<4>>({4u << 20, (4u << 20) - 1}, 3);
}
