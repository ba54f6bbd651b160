/// \file
/// The experiments by which VCCL's fault tolerance was judged, on the software RNIC in simulated time: all-gather on two hosts
/// of eight GPUs over nothing but backups; one to one with the port taken down; reduce-scatter on two hosts of eight GPUs with
/// a NIC taken down in the middle, and what telemetry shows of it.

#include "cluster.hpp"
#include "expected.hpp"

#include <vccl/telemetry/timeline.hpp>

#include <doctest/doctest.h>

using namespace coll_test;

namespace {

using world = soft_cluster<>;

cluster_options two_by_eight() {
    cluster_options o;
    o.hosts = 2;
    o.gpus = o.nics = 8;
    o.rings = 2;
    o.limits = {.piece_bytes = 16 * 1024, .least_piece_bytes = 4096, .lap_pieces = 8};
    return o;
}

std::uint64_t bytes_out(const world& w, std::string_view suffix) {
    std::uint64_t sum = 0;
    for (const auto& row : w.fabric.status())
        if (row.name.view().ends_with(suffix)) sum += row.bytes_out;
    return sum;
}

bool same(const std::byte* a, const std::vector<std::byte>& b) { return std::equal(b.begin(), b.end(), a); }

}  // namespace

TEST_CASE("All-gather on 2 x 8 GPUs goes over the backup ports alone, if those are preferred") {
    cluster_options o = two_by_eight();
    o.ends.first_lane = 1;
    world w(o);
    constexpr std::uint64_t count = 50'000;
    w.buffers(count * 4, 16 * count * 4);
    for (std::uint32_t r = 0; r < 16; ++r) fill(element_type::float32, w.ranks[r].in.data(), r, 0, count);
    const std::uint64_t primaries = bytes_out(w, ".p0");
    const status s = w.run([&](world::rank& r, std::uint32_t) {
        return r.comm->all_gather(r.in_memory.view(), r.out_memory.view(), count, element_type::float32);
    });
    CHECK_MESSAGE(s, "errc ", int(s.code));
    for (auto& r : w.ranks)
        for (std::uint32_t b = 0; b < 16; ++b)
            CHECK(same(r.out.data() + b * count * 4, elements(element_type::float32, b, 0, count)));
    // Each of 16 ranks sends 15 blocks; the primaries carry probes at most.
    CHECK(bytes_out(w, ".p1") > std::uint64_t{16} * 15 * count * 4);
    CHECK(bytes_out(w, ".p0") - primaries < 64 * 1024);
}

TEST_CASE("One to one, the port in use is taken down in the middle: the transfer goes on and is whole") {
    cluster_options o;
    o.hosts = 2;
    o.pairs = true;
    o.limits.piece_bytes = 64 * 1024;
    world w(o);
    constexpr std::uint64_t bytes = 4 << 20;
    w.buffers(bytes, bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) w.ranks[0].in[i] = static_cast<std::byte>(i * 13 + i / 255);
    const transfer to[] = {{1, w.ranks[0].in_memory.view(0, bytes)}}, from[] = {{0, w.ranks[1].out_memory.view(0, bytes)}};
    const nanoseconds begin = w.fabric.now();
    bool down = false;
    const status s =
        w.run([&](world::rank& r, std::uint32_t me) { return me == 0 ? r.comm->exchange(to, {}) : r.comm->exchange({}, from); },
              [&] {
                  if (!down && w.fabric.now() - begin > 100_us) down = static_cast<bool>(w.command("down A.nic0.p0"));
              });
    CHECK_MESSAGE(s, "errc ", int(s.code));
    CHECK(down);
    CHECK(std::memcmp(w.ranks[0].in.data(), w.ranks[1].out.data(), bytes) == 0);
    counters seen;
    w.ranks[1].mesh->each_receiver([&](const mesh_link& l, auto& e) {
        if (l.ring == mesh_link::pairs) seen = e.handler().template get<counters>();
    });
    CHECK(seen.failovers == 1);
    CHECK(seen.bytes == bytes);  // once each
}

TEST_CASE("Reduce-scatter on 2 x 8 GPUs, a NIC is taken down in the middle: exact, and telemetry shows the dip and the return") {
    // One port a NIC: the backup is the neighbour's NIC, which has work of its own, so the ring gets slower, not only late.
    using recorder = on_completion<counters, record_timeline<manual_clock>>;
    using single_port_world = soft_cluster<recorder, hold_down<1>, adjacent_gpu>;
    cluster_options o = two_by_eight();
    o.ports = 1;
    o.fabric.bytes_per_second = 50'000'000;
    single_port_world w(o);
    w.pass_time = 10_us;
    constexpr std::uint64_t count = 250'000;
    w.buffers(16 * count * 4, count * 4);
    for (std::uint32_t r = 0; r < 16; ++r) fill(element_type::int32, w.ranks[r].in.data(), r, 0, 16 * count);

    // Rank 8 is where the first ring comes over from A, on B's first NIC.
    timeline line(w.fabric.now());
    const counters* seen = nullptr;
    w.ranks[8].mesh->each_receiver([&](const mesh_link& l, auto& e) {
        if (l.ring != 0) return;
        auto& r = e.handler().template get<record_timeline<manual_clock>>();
        r.line = &line;
        r.clock = w.fabric.clock();
        seen = &e.handler().template get<counters>();
    });
    REQUIRE(seen);

    const nanoseconds begin = w.fabric.now();
    nanoseconds down_at{}, up_at{}, over_at{}, back_at{};
    const status s = w.run(
        [&](auto& r, std::uint32_t) {
            return r.comm->reduce_scatter(r.in_memory.view(), r.out_memory.view(), count, element_type::int32, reduce_op::sum);
        },
        [&] {
            const nanoseconds now = w.fabric.now();
            if (down_at.count == 0 && now - begin > 40_ms) {
                CHECK(w.command("down B.nic0.p0"));
                down_at = now;
            }
            if (down_at.count != 0 && up_at.count == 0 && now - down_at > 20_ms) {
                CHECK(w.command("up B.nic0.p0"));
                up_at = now;
            }
            if (over_at.count == 0 && seen->failovers != 0) over_at = now;
            if (back_at.count == 0 && seen->failbacks != 0) back_at = now;
        });
    CHECK_MESSAGE(s, "errc ", int(s.code));
    const nanoseconds end = w.fabric.now();
    for (std::uint32_t r = 0; r < 16; ++r)
        CHECK(same(w.ranks[r].out.data(), combination(element_type::int32, reduce_op::sum, 16, r * count, count)));

    REQUIRE(over_at > down_at);
    REQUIRE(back_at > up_at);
    REQUIRE(end > back_at + 20_ms);
    CHECK(seen->failovers == 1);
    CHECK(seen->failbacks == 1);
    // MB/s on a lane between two times.
    const auto rate = [&](unsigned lane, nanoseconds from, nanoseconds to) {
        std::uint64_t bytes = 0;
        const std::int64_t width = line.bin_width().count;
        const auto bin = [&](nanoseconds t) { return static_cast<std::size_t>((t - line.origin()).count / width); };
        for (std::size_t b = bin(from); b < bin(to); ++b) bytes += line.bytes_in(b, lane_id{static_cast<std::uint8_t>(lane)});
        return static_cast<double>(bytes) * 1e3 / static_cast<double>((to - from).count);
    };
    const double before = rate(0, begin + 5_ms, down_at), backup = rate(1, over_at + 5_ms, back_at),
                 after = rate(0, back_at + 5_ms, end - 5_ms);
    std::printf(
        "reduce-scatter 2 x 8: down at %.1f ms, over at %.1f, up at %.1f, back at %.1f, done at %.1f; MB/s before %.1f, on the "
        "backup %.1f, "
        "after %.1f\n",
        static_cast<double>((down_at - begin).count) * 1e-6, static_cast<double>((over_at - begin).count) * 1e-6,
        static_cast<double>((up_at - begin).count) * 1e-6, static_cast<double>((back_at - begin).count) * 1e-6,
        static_cast<double>((end - begin).count) * 1e-6, before, backup, after);
    CHECK(rate(0, over_at + 1_ms, back_at) == 0);
    CHECK(backup > 0.2 * before);
    CHECK(backup < 0.9 * before);
    CHECK(after > 0.9 * before);
    CHECK(rate(1, back_at + 5_ms, end) == 0);
    unsigned marks = 0;
    for (const timeline_mark& m : line.marks()) marks += m.kind == mark_kind::failover || m.kind == mark_kind::failback;
    CHECK(marks == 2);
}
