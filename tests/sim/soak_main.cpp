/// \file
/// sim_soak: the whole library in real time, with threads, for as long as you like: channels come, carry chunks that are compared byte
/// by byte, and go, while ports, cables, switches and queues fail at random. Between two rounds, when no channel is left, memory, file
/// descriptors and threads must be what they were.
///
///     sim_soak SEED SECONDS [--shake]
///
/// --shake: every thread is stopped again and again, wherever it is, for up to 3 ms.

#include "../host/proxied_channel.hpp"
#include "storm.hpp"

#include <vccl/model/shapes.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr std::uint32_t chunk = 24 * 1024;
constexpr unsigned channels = 4, buffers = 8, chunks = 300;
constexpr nanoseconds patience{120'000'000'000};

using sender = host_sender<verbs::soft, each_of<sibling_port, adjacent_gpu>, qp_group<2>, on_completion<counters>, proxy_thread>;
using receiver = host_receiver<verbs::soft, each_of<sibling_port, adjacent_gpu>, qp_group<2>, on_completion<counters>,
                               hold_down<5>, proxy_thread>;

void nap(std::int64_t ns) {
    const timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
    (void)::nanosleep(&t, nullptr);
}

using channel = vccl_test::proxied_channel<sender, receiver, chunk, buffers>;

std::mutex looking;  ///< into /proc/self: what one thread has open there, no other shall count

/// What must not grow.
struct holdings {
    std::uint64_t kib{}, descriptors{}, threads{};

    static std::uint64_t entries(const char* folder) {
        const std::filesystem::directory_iterator all(folder);
        return static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
    }
    static holdings now() {
        const std::lock_guard alone(looking);
        std::uint64_t whole = 0, resident = 0;
        std::ifstream("/proc/self/statm") >> whole >> resident;
        return {resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 1024, entries("/proc/self/fd"),
                entries("/proc/self/task")};
    }
};

/// Incidents one after the other, each for up to 40 ms, until told to stop; then everything is mended.
void weather(verbs::soft_fabric& fabric, std::uint64_t seed, const std::atomic<bool>& over,
             std::atomic<std::uint64_t>& incidents) {
    std::mt19937_64 random(seed);
    while (!over) {
        const auto& kind = vccl_sim::incident_kinds[random() % vccl_sim::of_the_fabric];
        const auto port = static_cast<unsigned>(random() % vccl_sim::port_names.size());
        (void)fabric.command(vccl_sim::command_of(kind.begin, port));
        nap(static_cast<std::int64_t>(random() % 40'000'000));
        (void)fabric.command(vccl_sim::command_of(kind.end, port));
        ++incidents;
        nap(static_cast<std::int64_t>(random() % 20'000'000));
    }
    for (const char* c : {"clear all", "up all"}) (void)fabric.command(c);
}

/// Stops threads of this process, any of them, at any instruction.
void shake(std::uint64_t seed, const std::atomic<bool>& over) {
    std::mt19937_64 random(seed);
    while (!over) {
        std::vector<pid_t> all;
        {
            const std::lock_guard alone(looking);
            for (const auto& t : std::filesystem::directory_iterator("/proc/self/task"))
                all.push_back(std::atoi(t.path().filename().c_str()));
        }
        const pid_t one = all[random() % all.size()];
        if (one != ::gettid()) (void)::syscall(SYS_tgkill, ::getpid(), one, SIGUSR1);
        nap(static_cast<std::int64_t>(random() % 300'000));
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3 || argc > 4 || (argc == 4 && std::string_view(argv[3]) != "--shake")) {
        std::fprintf(stderr, "usage: sim_soak SEED SECONDS [--shake]\n");
        return 2;
    }
    const std::uint64_t seed = std::strtoull(argv[1], nullptr, 10);
    const double seconds = std::atof(argv[2]);
    std::signal(SIGUSR1, [](int) { nap(::clock() % 3'000'000); });
    const auto begin = std::chrono::steady_clock::now();
    const auto gone = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };

    auto made = verbs::soft_fabric::create(make_cluster(2, 2, 2, 2));
    if (!made) return 2;
    host_context<verbs::soft> a{*made->host("A"), made->shape()}, b{*made->host("B"), made->shape()};
    proxy pa, pb;
    std::atomic<bool> over{};
    std::atomic<std::uint64_t> incidents{};
    std::vector<std::thread> troubles;
    troubles.emplace_back([&] { weather(*made, seed, over, incidents); });
    if (argc == 4) troubles.emplace_back([&] { shake(seed + 1, over); });

    std::vector<holdings> held;
    std::uint64_t rounds = 0, failovers = 0, failbacks = 0;
    const char* problem = nullptr;
    double next_line = 0;
    while (problem == nullptr && (gone() < seconds || rounds < 4)) {
        {
            std::vector<std::unique_ptr<channel>> all;
            for (unsigned n = 0; n < channels; ++n) all.push_back(std::make_unique<channel>(n, pa, pb, a, b, patience));
            for (auto& c : all)
                if (!c->connect()) problem = "a channel did not connect";
            std::atomic<bool> wrong{};
            std::vector<std::thread> users;
            for (auto& c : all) {
                if (problem != nullptr) break;
                users.emplace_back([&] { wrong = wrong || c->send(chunks) != chunks; });
                users.emplace_back([&] { wrong = wrong || c->receive(chunks) != chunks; });
            }
            for (auto& u : users) u.join();
            if (wrong) problem = "a chunk did not arrive whole and in time";
            for (auto& c : all) {
                const counters n = c->rx.locked([](auto& e) { return e.handler().template get<counters>(); });
                failovers += n.failovers;
                failbacks += n.failbacks;
                if (problem == nullptr && rounds % 2 == 0 && !c->tx.locked([](auto& e) { return e.close(patience); }))
                    problem = "a channel did not close";  // every other round its ends just go
            }
        }
        ++rounds;
        held.push_back(holdings::now());
        if (gone() < next_line && problem == nullptr) continue;
        next_line = gone() + seconds / 10;
        std::printf("%8.1f s  %6llu rounds  %7llu incidents  %7llu failovers  %llu KiB, %llu descriptors, %llu threads\n", gone(),
                    static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(incidents),
                    static_cast<unsigned long long>(failovers), static_cast<unsigned long long>(held.back().kib),
                    static_cast<unsigned long long>(held.back().descriptors),
                    static_cast<unsigned long long>(held.back().threads));
        std::fflush(stdout);
    }
    over = true;
    for (auto& t : troubles) t.join();

    // The first half is for the allocator and the ends' first lives.
    const auto half = held.begin() + static_cast<std::ptrdiff_t>(held.size() / 2);
    const auto most = [](auto from, auto to, std::uint64_t holdings::*what) {
        return (*std::max_element(from, to, [&](const holdings& x, const holdings& y) { return x.*what < y.*what; })).*what;
    };
    if (problem == nullptr && most(half, held.end(), &holdings::kib) > most(held.begin(), half, &holdings::kib) + 8 * 1024)
        problem = "memory grows";
    if (problem == nullptr && most(half, held.end(), &holdings::descriptors) > most(held.begin(), half, &holdings::descriptors))
        problem = "descriptors grow";
    if (problem == nullptr && most(half, held.end(), &holdings::threads) > most(held.begin(), half, &holdings::threads))
        problem = "threads grow";
    std::printf("sim_soak: seed %llu, %.0f s, %llu channels, %llu chunks, %llu incidents, %llu failovers, %llu failbacks: %s\n",
                static_cast<unsigned long long>(seed), gone(), static_cast<unsigned long long>(rounds * channels),
                static_cast<unsigned long long>(rounds * channels * chunks), static_cast<unsigned long long>(incidents),
                static_cast<unsigned long long>(failovers), static_cast<unsigned long long>(failbacks),
                problem == nullptr ? "all well" : problem);
    return problem != nullptr;
}
