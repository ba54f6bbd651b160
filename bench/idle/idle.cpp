/// \file
/// What idle channels cost the one thread that drives them: 1,024 channels of two lanes over 16 ports, on the null backend,
/// driven by a roster as a proxy drives them. Instructions a turn for each idle endpoint, counted by callgrind; the time of a
/// turn, which the machine's mood moves; the memory of an end.
///
///   idle                    runs itself under callgrind; prints the table and the BENCH line
///   idle SIDE TURNS ACTIVE  one measured run: SIDE tx or rx, so many turns, so many of the channels with traffic

#include "../hotpath/callgrind.hpp"

#include <vccl/model/shapes.hpp>
#include <vccl/testing/loopback.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/vccl.hpp>

#include <malloc.h>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace idle_channels {

using namespace vccl;
using namespace vccl::literals;

constexpr unsigned channels = 1024;
constexpr std::uint32_t chunk = 4096;
constexpr nanoseconds pass_time{2'000};

using null = testing::loopback<false>;
using sender = host_sender<null, sibling_port, manual_clock, testing::memory_oob>;
using receiver = host_receiver<null, sibling_port, manual_clock, testing::memory_oob>;

/// An endpoint as a proxy has it, without the lock.
template <class Endpoint>
struct rider {
    Endpoint end;
    std::atomic<bool> called{};
    template <class... As>
    explicit rider(As&&... as) : end(std::forward<As>(as)...) {}
    roster::passenger seat() {
        return {&end,
                [](void* e) noexcept {
                    auto& endpoint = *static_cast<Endpoint*>(e);
                    return endpoint.progress() || endpoint.restless();
                },
                &called};
    }
};

[[noreturn]] void give_up(const char* what) {
    std::fprintf(stderr, "idle: %s\n", what);
    std::exit(1);
}

double heap_bytes() {
    const struct mallinfo2 m = ::mallinfo2();
    return static_cast<double>(m.uordblks + m.hblkhd);
}

struct world {
    nanoseconds now{1'000'000'000};  // said, not measured: how often timers are due does not depend on the machine
    null wire;
    host_context<null> a{wire, make_cluster(dual_port_cluster)}, b{wire, make_cluster(dual_port_cluster)};
    std::vector<std::unique_ptr<rider<sender>>> tx;
    std::vector<std::unique_ptr<rider<receiver>>> rx;
    std::vector<std::byte> bytes = std::vector<std::byte>(chunk);
    memory from, to;
    roster senders, receivers;
    double bytes_an_end{};

    world() {
        const manual_clock clock{&now};
        endpoint_options o;
        o.lanes = 2;
        const double before = heap_bytes();
        for (unsigned i = 0; i < channels; ++i) {
            const gpu_id ga{static_cast<std::uint16_t>(i % 8)}, gb{static_cast<std::uint16_t>(8 + i % 8)};
            o.seed = 2 * i + 1;
            tx.push_back(std::make_unique<rider<sender>>(a, ga, channel_id{i}, o, sibling_port{}, on_completion<>{},
                                                         rollback_fifo<64>{}, detect{}, clock));
            o.seed = 2 * i + 2;
            rx.push_back(std::make_unique<rider<receiver>>(b, gb, channel_id{i}, o, sibling_port{}, on_completion<>{},
                                                           hold_down<100>{}, detect{}, clock));
            const auto of_tx = tx[i]->end.local_info(), of_rx = rx[i]->end.local_info();
            if (!of_tx || !of_rx || !tx[i]->end.begin_connect(*of_rx) || !rx[i]->end.begin_connect(*of_tx))
                give_up("a channel does not connect");
            senders.add(tx[i]->seat());
            receivers.add(rx[i]->seat());
        }
        bytes_an_end = (heap_bytes() - before) / (2 * channels);
        auto m = a.register_memory(bytes.data(), bytes.size()), n = b.register_memory(bytes.data(), bytes.size());
        if (!m || !n) give_up("no memory");
        from = std::move(*m);
        to = std::move(*n);
        for (unsigned n_turns = 0; n_turns < 4000; ++n_turns) pass();
        for (unsigned i = 0; i < channels; ++i)
            if (!tx[i]->end.connected() || !rx[i]->end.connected()) give_up("a channel did not come up");
    }
    void pass() {
        senders.turn();
        receivers.turn();
        now += pass_time;
    }
    void feed(unsigned active) {
        for (unsigned i = 0; i < active; ++i) {
            if (rx[i]->end.next().value - rx[i]->end.received().value < 8 && rx[i]->end.recv(to.view())) rx[i]->called = true;
            if (tx[i]->end.next().value - tx[i]->end.acknowledged().value < 8 && tx[i]->end.send(from.view()))
                tx[i]->called = true;
        }
    }
};

/// The turns that are counted.
__attribute__((noinline)) void counted_turn(roster& r) { r.turn(); }

int measured(const std::string& side, std::uint64_t turns, unsigned active) {
    world w;
    double ns = 0;
    for (std::uint64_t t = 0; t < turns; ++t) {
        w.feed(active);
        const nanoseconds start = steady_clock{}.now();
        counted_turn(side == "tx" ? w.senders : w.receivers);
        ns += static_cast<double>((steady_clock{}.now() - start).count);
        (side == "tx" ? w.receivers : w.senders).turn();
        w.now += pass_time;
    }
    std::printf("%.1f %.0f\n", ns / static_cast<double>(turns), w.bytes_an_end);
    return 0;
}

double a_turn(const char* self, const char* side, unsigned active) {
    constexpr std::uint64_t few = 160, many = 800;
    const auto cost = [&](std::uint64_t turns) {
        char command[1024];
        std::snprintf(
            command, sizeof command,
            "valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*counted_turn*' %s %s %llu %u 2>&1 "
            "| sed -n 's/.*Collected : //p'",
            self, side, static_cast<unsigned long long>(turns), active);
        return hotpath::number_from(command);
    };
    const double a = cost(few), b = cost(many);
    return a < 0 || b < 0 ? -1 : (b - a) / static_cast<double>(many - few);
}

}  // namespace idle_channels

int main(int argc, char** argv) {
    using namespace idle_channels;
    if (argc == 4) return measured(argv[1], std::strtoull(argv[2], nullptr, 10), static_cast<unsigned>(std::atoi(argv[3])));
    double worst = 0, turn_ns = 0, memory = 0;
    std::printf("%-9s | %16s | %22s | %12s\n", "", "a turn, instr.", "instr. an idle endpoint", "a turn, ns");
    for (const char* side : {"tx", "rx"}) {
        const double idle = a_turn(argv[0], side, 0);
        if (idle < 0) give_up("needs valgrind");
        char command[600], line[96]{};
        std::snprintf(command, sizeof command, "%s %s 3200 0", argv[0], side);
        std::FILE* pipe = ::popen(command, "r");
        double ns = 0;
        if (!pipe || !std::fgets(line, sizeof line, pipe) || std::sscanf(line, "%lf %lf", &ns, &memory) != 2 ||
            ::pclose(pipe) != 0)
            give_up("a run failed");
        std::printf("%-9s | %16.0f | %22.1f | %12.0f\n", side, idle, idle / channels, ns);
        worst = std::max(worst, idle / channels);
        turn_ns = std::max(turn_ns, ns);
    }
    std::printf("BENCH idle channels=%u instructions=%.1f ns=%.2f turn_us=%.1f bytes=%.0f\n", channels, worst, turn_ns / channels,
                turn_ns * 1e-3, memory);
}
