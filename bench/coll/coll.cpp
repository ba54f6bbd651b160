/// \file
/// What a failure costs a collective, and what ranks cost: all-reduce on the software RNIC in simulated time. First four ranks, a
/// port that dies in the middle: bytes moved beyond the necessary, time lost beyond the pause. Then more and more ranks, with 2 % of
/// all ports failing during the operation: time against that without faults and against the bound; memory and QPs of a rank.
///
///   coll [--ranks N]    up to N ranks, in hosts of eight; default 64

#include "../../tests/coll/cluster.hpp"
#include "../../tests/coll/expected.hpp"

#include <malloc.h>
#include <time.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace {

using namespace coll_test;
using world = soft_cluster<>;

double us(nanoseconds n) { return static_cast<double>(n.count) * 1e-3; }
double cpu_seconds() {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
double heap_bytes() {
    const struct mallinfo2 m = ::mallinfo2();
    return static_cast<double>(m.uordblks + m.hblkhd);
}
std::uint64_t bytes_out(const world& w) {
    std::uint64_t n = 0;
    for (const auto& row : w.fabric.status()) n += row.bytes_out;
    return n;
}
std::uint64_t received(world::rank& r) {
    std::uint64_t n = 0;
    r.mesh->each_receiver([&](const mesh_link&, auto& e) { n += e.handler().template get<counters>().bytes; });
    return n;
}
/// Chunks that were sent again.
std::uint64_t replayed(world& w) {
    std::uint64_t n = 0;
    for (auto& r : w.ranks)
        r.mesh->each_sender([&](const mesh_link&, auto& e) { n += e.handler().template get<counters>().replayed; });
    return n;
}
std::uint64_t failovers(world& w) {
    std::uint64_t n = 0;
    for (auto& r : w.ranks)
        r.mesh->each_receiver([&](const mesh_link&, auto& e) { n += e.handler().template get<counters>().failovers; });
    return n;
}

struct outcome {
    nanoseconds took{}, pause{};  ///< pause: the longest time in which a rank next to the failure received nothing
    std::uint64_t bytes{}, wrong{};
};

/// All-reduce in place of `count` int32; `every` runs before each pass with the time since the beginning.
outcome all_reduce(world& w, std::uint64_t count, const std::function<void(nanoseconds)>& every,
                   const std::vector<unsigned>& watched) {
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    for (std::uint32_t r = 0; r < n; ++r) fill(element_type::int32, w.ranks[r].out.data(), r, 0, count);
    outcome o;
    const nanoseconds begin = w.fabric.now();
    const std::uint64_t before = bytes_out(w);
    std::vector<std::pair<std::uint64_t, nanoseconds>> seen;  // of each watched rank: bytes, and since when
    for (const unsigned r : watched) seen.emplace_back(received(w.ranks[r]), begin);
    const status s = w.run(
        [&](world::rank& r, std::uint32_t) {
            return r.comm->all_reduce(r.out_memory.view(), r.out_memory.view(), count, element_type::int32, reduce_op::sum);
        },
        [&] {
            every(w.fabric.now() - begin);
            for (std::size_t i = 0; i < watched.size(); ++i) {
                const std::uint64_t bytes = received(w.ranks[watched[i]]);
                if (w.ranks[watched[i]].comm->done()) continue;
                if (w.fabric.now() - seen[i].second > o.pause) o.pause = w.fabric.now() - seen[i].second;
                if (bytes != seen[i].first) seen[i] = {bytes, w.fabric.now()};
            }
        });
    need(s, "all_reduce");
    o.took = w.fabric.now() - begin;
    o.bytes = bytes_out(w) - before;
    const auto wanted = combination(element_type::int32, reduce_op::sum, n, 0, count);
    for (auto& r : w.ranks) o.wrong += std::memcmp(r.out.data(), wanted.data(), wanted.size()) != 0;
    return o;
}

/// Returns: the longest pause.
nanoseconds through_a_failure(std::uint64_t& wrong, double& worst_bytes, double& worst_time) {
    constexpr std::uint64_t count = 4u << 20;  // 16 MiB
    std::printf(
        "4 ranks, 16 MiB, 10 GB/s, 2 us one way; A's port dies at so much of the time without faults\n"
        "beyond: lost besides the pause; again: replayed; flying: the most unacknowledged until the failover; wire: sent more by "
        "all "
        "ports, NICs' own retries included\n");
    std::printf("%10s %6s | %9s %9s %9s %9s | %10s %10s %10s %10s\n", "piece KiB", "at", "free us", "us", "pause us", "beyond us",
                "MB needed", "again KB", "flying KB", "wire KB");
    nanoseconds longest{};
    for (const std::uint32_t piece : {64u << 10, 256u << 10}) {
        cluster_options o;
        o.hosts = 4;
        o.limits = {.piece_bytes = piece, .least_piece_bytes = 16 * 1024, .lap_pieces = 8};
        for (const unsigned percent : {10u, 50u, 90u}) {
            world w(o);
            w.buffers(0, count * 4);
            const outcome free = all_reduce(w, count, [](nanoseconds) {}, {0, 1});
            bool down = false;
            double window = 0;  // the most that was unacknowledged on A's two links, from the failure to the failover
            const auto look = [&] {
                double now = 0;
                for (const unsigned r : {0u, 3u})
                    w.ranks[r].mesh->each_sender([&](const mesh_link&, auto& e) {
                        now += static_cast<double>((e.next().value - e.acknowledged().value) * piece);
                    });
                window = std::max(window, now);
            };
            const outcome broken = all_reduce(w, count,
                                              [&](nanoseconds t) {
                                                  if (!down && t.count * 100 > free.took.count * percent) {
                                                      need(w.command("down A.nic0.p0"), "down");
                                                      down = true;
                                                  }
                                                  if (down && failovers(w) < 2) look();
                                              },
                                              {0, 1});
            const double again = static_cast<double>(replayed(w) * piece),
                         beyond = static_cast<double>(broken.bytes) - static_cast<double>(free.bytes),
                         lost = us(broken.took - free.took - (broken.pause - free.pause));
            std::printf("%10u %5u%% | %9.0f %9.0f %9.0f %9.0f | %10.2f %10.1f %10.1f %10.1f\n", piece >> 10, percent,
                        us(free.took), us(broken.took), us(broken.pause), lost, static_cast<double>(free.bytes) * 1e-6,
                        again * 1e-3, window * 1e-3, beyond * 1e-3);
            wrong += free.wrong + broken.wrong;
            worst_bytes = std::max(worst_bytes, again / window);
            worst_time = std::max(worst_time, lost);
            if (broken.pause > longest) longest = broken.pause;
        }
    }
    return longest;
}

/// QPs of an end: one of data and one of control on each of its lanes.
unsigned qps_of(world::rank& r) {
    unsigned n = 0;
    r.mesh->each_sender([&](const mesh_link&, auto& e) { n += 2 * e.lanes(); });
    r.mesh->each_receiver([&](const mesh_link&, auto& e) { n += 2 * e.lanes(); });
    return n;
}

struct scale_row {
    double ratio{}, kib{};
    std::uint64_t wrong{};
};

scale_row at_scale(unsigned ranks, nanoseconds pause) {
    constexpr std::uint64_t count = 256 * 1024;  // 1 MiB at each
    const double start = cpu_seconds();
    cluster_options o;
    o.hosts = ranks / 8;
    o.gpus = o.nics = 8;
    o.limits = {.piece_bytes = 16 * 1024, .least_piece_bytes = 512, .lap_pieces = 4};
    o.ends.flush = flush_mode::none;  // host memory needs none: a QP less on each lane of a receiver
    const double heap = heap_bytes();
    world w(o);
    scale_row row;
    row.kib = (heap_bytes() - heap) / 1024 / ranks;
    w.buffers(0, count * 4);
    const outcome free = all_reduce(w, count, [](nanoseconds) {}, {});
    std::mt19937_64 random(ranks);
    struct fault {
        nanoseconds at;
        std::string command;
    };
    std::vector<fault> faults;
    const auto& ports = w.fabric.shape().ports;
    const auto failing = static_cast<unsigned>(std::max<std::size_t>(1, ports.size() / 50));
    std::vector<bool> chosen(ports.size());
    for (unsigned i = 0; i < failing;) {
        const std::size_t p = random() % ports.size();
        if (chosen[p] || !ports[p].name.view().ends_with(".p0")) continue;  // all of them in use
        chosen[p] = true;
        ++i;
        const nanoseconds at{static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(free.took.count))};
        faults.push_back({at, "down " + std::string(ports[p].name.view())});
        faults.push_back({at + 50_ms, "up " + std::string(ports[p].name.view())});
    }
    const outcome broken = all_reduce(w, count,
                                      [&](nanoseconds t) {
                                          for (std::size_t i = 0; i < faults.size();) {
                                              if (faults[i].at > t) {
                                                  ++i;
                                                  continue;
                                              }
                                              need(w.command(faults[i].command), "fault");
                                              faults.erase(faults.begin() + static_cast<std::ptrdiff_t>(i));
                                          }
                                      },
                                      {});
    row.ratio = static_cast<double>(broken.took.count) / static_cast<double>(free.took.count);
    row.wrong = free.wrong + broken.wrong;
    const double bound = us(free.took) + failing * us(pause);
    std::printf("%6u | %8.0f %8.0f %6.2f %9.0f | %6u %9llu | %9.0f %5u | %7.1f\n", ranks, us(free.took), us(broken.took),
                row.ratio, bound, failing, static_cast<unsigned long long>(failovers(w)), row.kib, qps_of(w.ranks[0]),
                cpu_seconds() - start);
    std::fflush(stdout);
    return row;
}

/// Ends between all pairs, too: what a rank then holds.
void with_pairs(unsigned ranks) {
    cluster_options o;
    o.hosts = ranks / 8;
    o.gpus = o.nics = 8;
    o.pairs = true;
    o.ends.flush = flush_mode::none;
    const double heap = heap_bytes();
    world w(o);
    std::printf("%6u | %9.0f %5u\n", ranks, (heap_bytes() - heap) / 1024 / ranks, qps_of(w.ranks[0]));
}

int run(unsigned most) {
    std::uint64_t wrong = 0;
    double worst_bytes = 0, worst_time = 0;
    const nanoseconds pause = through_a_failure(wrong, worst_bytes, worst_time);

    std::printf(
        "\nhosts of 8 GPUs and 8 NICs of 2 ports, all-reduce of 1 MiB; ports in use die during it, 2 %% of\nall ports, each for "
        "50 ms; bound: without faults, and a pause for each\n");
    std::printf("%6s | %8s %8s %6s %9s | %6s %9s | %9s %5s | %7s\n", "ranks", "free us", "us", "ratio", "bound us", "ports",
                "failovers", "KiB/rank", "QPs", "cpu s");
    scale_row last;
    for (const unsigned n : {8u, 16u, 32u, 64u, 128u, 256u, 512u}) {
        if (n > most) break;
        last = at_scale(n, pause);
        wrong += last.wrong;
    }
    std::printf("\nwith ends between all pairs\n%6s | %9s %5s\n", "ranks", "KiB/rank", "QPs");
    for (const unsigned n : {8u, 16u}) with_pairs(n);  // 2,048 QPs; the software RNIC has 4,096 a process
    std::printf("BENCH coll wrong=%llu bytes_again_of_flying=%.2f us_beyond_pause=%.0f scale_ratio=%.2f kib_per_rank=%.0f\n",
                static_cast<unsigned long long>(wrong), worst_bytes, worst_time, last.ratio, last.kib);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    unsigned most = 64;
    if (argc == 3 && std::strcmp(argv[1], "--ranks") == 0) most = static_cast<unsigned>(std::atoi(argv[2]));
    if ((argc != 1 && argc != 3) || most < 8 || most > 512) {
        std::fprintf(stderr, "usage: coll [--ranks N]    8 to 512\n");
        return 2;
    }
    return run(most);
}
