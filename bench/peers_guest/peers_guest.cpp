/// \file
/// vccl's side of the comparison with its peers in the guest; bench/peers_guest/measure runs it between the others.
///
///   peers_guest rate SIZE COUNT DEPTH    prints MiB a second
///   peers_guest ping TIMES               prints half a round trip of 8 bytes, in microseconds
///   peers_guest stream SECONDS           64 KiB chunks, 8 outstanding; a line for each event, a count twice a second
///   peers_guest faults                   one stream through the faults that the peers were measured under; a line for each

#include "../ends/gap.hpp"
#include "../ends/guest_channel.hpp"

#include <vccl/telemetry/event_text.hpp>

#include <cstring>
#include <string_view>
#include <thread>

using namespace ends;

namespace {

/// A fault, and what mends it: commands, each followed by a pause of milliseconds. The last one mends.
struct scenario {
    const char* name;
    struct {
        const char* act;
        unsigned pause;
    } step[4];
};
constexpr scenario scenarios[] = {
    {"switch", {{"switch-down rail0", 3000}, {"switch-up rail0", 0}}},
    {"cable", {{"cable-down a0", 3000}, {"cable-up a0", 0}}},
    {"own port", {{"port-down a0", 3000}, {"port-up a0", 0}}},
    {"peer's port", {{"port-down b0", 3000}, {"port-up b0", 0}}},
    {"the same rail again", {{"port-down a0", 3000}, {"port-up a0", 0}}},
    {"and again", {{"switch-down rail0", 3000}, {"switch-up rail0", 0}}},
    {"the backup's rail, too", {{"port-down a0", 2000}, {"port-down a1", 2000}, {"port-up a1", 1000}, {"port-up a0", 0}}},
    {"the other rail, the first recovers",
     {{"port-down a0", 2000}, {"port-up a0", 0}, {"port-down a1", 2000}, {"port-up a1", 0}}},
    {"100 ms flap of the switch", {{"switch-down rail0", 100}, {"switch-up rail0", 0}}},
    {"30 s outage of the switch", {{"switch-down rail0", 30000}, {"switch-up rail0", 0}}},
};

void start_stream(family& f, board& b) {
    const verbs::ibv host_a{.path = {}, .devices = "rxe_a"}, host_b{.path = {}, .devices = "rxe_b"};
    f.start([=, &b] { stream_sender<verbs::ibv>(host_a, take(host_a.discover(), "discover"), port_id{0}, b, {.naps = true}); });
    f.start([=, &b] { stream_receiver<verbs::ibv>(host_b, take(host_b.discover(), "discover"), port_id{0}, b, {.naps = true}); });
}
void end_stream(board& b) {
    b.order = 1;
    wait_for([&] { return b.done[0] && b.done[1]; }, 60_s, "the end", true);
}
double seconds(nanoseconds t) { return static_cast<double>(t.count) * 1e-9; }

/// All times from the beginning of the first command, the return from that which mends the first rail; a command takes about 0.1 s.
void go_through(const scenario& s, family& f, board& b, const std::string& fault) {
    using kind = channel_event::kind;
    const unsigned verdicts[2] = {count(b.side[0], kind::lane_failed), count(b.side[1], kind::lane_failed)};
    const unsigned resumed = count(b.side[1], kind::resumed), over = count(b.side[0], kind::failed_over);
    const auto last_move = [&]() -> const channel_event* {
        for (unsigned i = std::min(b.side[1].events.load(std::memory_order_acquire), max_events); i-- != 0;)
            if (const channel_event& e = b.side[1].event[i]; e.what == kind::failed_back || e.what == kind::failed_over)
                return &e;
        return nullptr;
    };
    const auto at_home = [&] { return !last_move() || last_move()->to == lane_id{0}; };
    const nanoseconds broke = now();
    nanoseconds mended = broke, moved = broke, longest{};
    std::uint64_t chunks = b.side[1].chunks;
    const auto watch = [&] {
        if (!f.well()) give_up("an end failed");
        if (const std::uint64_t n = b.side[1].chunks; n != chunks) {
            longest = std::max(longest, now() - moved);
            moved = now();
            chunks = n;
        }
    };
    for (const auto& step : s.step) {
        if (!step.act) break;
        if (std::string_view(step.act).find("-up") != std::string_view::npos && step.act[std::strlen(step.act) - 1] == '0')
            mended = now();
        std::thread command([&] {
            if (std::system((fault + " " + step.act).c_str()) != 0) give_up(std::string("fault ") + step.act);
        });
        const nanoseconds until = now() + nanoseconds{std::int64_t{step.pause} * 1'000'000};
        while (now() < until) {
            watch();
            ::usleep(200);
        }
        command.join();
    }
    // A verdict may still come, and the return; on a machine with other work both may take long, and the row says what came.
    const nanoseconds settled = now() + 2_s, limit = now() + 30_s;
    while (now() < settled || (!at_home() && now() < limit)) {
        watch();
        ::usleep(200);
    }

    const auto first = [&](unsigned side, kind k, unsigned n) { return nth(b.side[side], k, n); };
    nanoseconds verdict = nanoseconds::never();
    for (unsigned side = 0; side < 2; ++side)
        if (const channel_event* e = first(side, kind::lane_failed, verdicts[side])) verdict = std::min(verdict, e->at);
    const channel_event* again = first(1, kind::resumed, resumed);
    const channel_event* back = at_home() && last_move() && last_move()->at > mended ? last_move() : nullptr;
    std::uint64_t replayed = 0;
    for (unsigned i = over; const channel_event* e = first(0, kind::failed_over, i); ++i) replayed += e->replayed;
    const auto told = [](bool is, double s) { is ? std::printf(" %8.3f", s) : std::printf(" %8s", "-"); };
    std::printf("%-36s", s.name);
    told(verdict != nanoseconds::never(), seconds(verdict - broke));
    told(again != nullptr, again ? seconds(again->at - broke) : 0);
    told(true, seconds(longest));
    told(back != nullptr, back ? seconds(back->at - mended) : 0);
    std::printf(" %8llu\n", static_cast<unsigned long long>(replayed * traffic{}.chunk >> 10));
    std::fflush(stdout);
}

int faults(board& b) {
    const char* const fault = std::getenv("VCCL_GUEST_FAULT");
    if (!fault) give_up("peers_guest runs in the guest: bench/run peers_guest");
    family f;
    start_stream(f, b);
    wait_for([&] { return b.side[1].chunks > 50 || !f.well(); }, 60_s, "traffic", true);
    for (const scenario& s : scenarios) go_through(s, f, b, fault);
    end_stream(b);
    return 0;
}

int stream(board& b, unsigned how_long) {
    family f;
    start_stream(f, b);
    const nanoseconds start = now();
    unsigned told[2]{};
    const auto tell = [&] {
        for (unsigned side = 0; side < 2; ++side)
            for (; told[side] < b.side[side].events.load(std::memory_order_acquire) && told[side] < max_events; ++told[side]) {
                const channel_event& e = b.side[side].event[told[side]];
                std::printf("%.3f %s %s\n", seconds(e.at - start), side == 0 ? "sender" : "receiver", describe(e, {}).c_str());
            }
        std::printf("%.3f chunks %llu\n", seconds(now() - start), static_cast<unsigned long long>(b.side[1].chunks.load()));
        std::fflush(stdout);
    };
    for (unsigned half = 0; half < 2 * how_long; ++half) {
        ::usleep(500'000);
        tell();
        if (!f.well()) return 1;
    }
    end_stream(b);
    std::uint64_t replayed = 0;
    for (unsigned i = 0; const channel_event* e = nth(b.side[0], channel_event::kind::failed_over, i); ++i)
        replayed += e->replayed;
    tell();
    std::printf("replayed %llu bytes at most\n", static_cast<unsigned long long>(replayed * traffic{}.chunk));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const auto number = [&](int i) { return static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10)); };
    board& b = *shared_board();
    if (what == "rate" && argc == 5 && number(2) != 0 && number(4) != 0)
        return std::printf("%.3f\n", channel_rate(b, number(2), number(3), number(4)) / (1 << 20)) < 0;
    if (what == "ping" && argc == 3) return std::printf("%.2f\n", channel_ping(b, *shared_board(), number(2))) < 0;
    if (what == "stream" && argc == 3) return stream(b, number(2));
    if (what == "faults" && argc == 2) return faults(b);
    std::fprintf(stderr, "peers_guest rate SIZE COUNT DEPTH | ping TIMES | stream SECONDS | faults\n");
    return 2;
}
