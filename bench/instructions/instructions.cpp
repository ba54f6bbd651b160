/// \file
/// Instructions per chunk by number of QPs and by policy, both ends, counted by callgrind on the null backend of
/// bench/hotpath, under a clock that stands still; the hand-written loop beside it. The counts depend on the compiler and on
/// nothing else, so a change of a few per cent is a change of the code. Cycles beside them: of the processor's time-stamp
/// counter, both ends, the least of many short runs, so that what else the machine does falls out.
///
///   instructions                    prints the table and the BENCH line
///   instructions --check FILE       fails, naming the rows, if one costs over 3 % more than FILE says
///   instructions --accept FILE      writes FILE
///   instructions MODE CHUNKS STEP   one measured loop

#include "../hotpath/callgrind.hpp"
#include "../hotpath/pair.hpp"

#include <vccl/telemetry/metrics.hpp>
#include <vccl/telemetry/rate_monitor.hpp>
#include <vccl/telemetry/timeline.hpp>

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

namespace hotpath {

// --- the set-ups: `still`, but for what the name says --------------------------------------------------------------

struct no_failover : still {
    using port = no_backup;
    using log = no_replay<64>;
};
struct two_ports : still {
    static constexpr unsigned ports = 2;
};
struct two_ports_alone : two_ports {
    using log = no_replay<64>;
    static endpoint_options options() {
        endpoint_options o;
        o.lanes = 1;
        return o;
    }
};
struct long_log : still {
    using log = rollback_fifo<1024>;
};
struct other_port : still {
    using port = first_of<channel_parity, adjacent_gpu>;
};
struct fail_back_at_once : still {
    using failback = immediate_failback;
};
struct blind : still {
    using detection = detect_without_events;
};
template <class... Handlers>
struct heard : still {
    using handler = on_completion<Handlers...>;
    static handler make_handler() { return {}; }
};
struct with_meter : heard<meter> {
    static handler make_handler() {
        static channel_metrics of[2];
        static unsigned next = 0;
        return handler{meter{&of[next++ % 2]}};
    }
};
struct with_timeline : heard<record_timeline<still_clock>> {
    static handler make_handler() {
        static timeline lines[2]{timeline(nanoseconds{0}), timeline(nanoseconds{0})};
        static unsigned next = 0;
        return handler{record_timeline<still_clock>{.line = &lines[next++ % 2]}};
    }
};

struct mode {
    const char* name;
    const char* what;
    int (*run)(std::uint64_t chunks);
    double (*cycles)();
};

template <class Loop>
int measured(std::uint64_t chunks) {
    auto loop = std::make_unique<Loop>();
    if (!loop->connect()) {
        std::fprintf(stderr, "instructions: the two ends did not connect\n");
        return 1;
    }
    loop->run(1000);
    loop->run(chunks);
    return 0;
}

/// Of a chunk; 0 where there is no counter to read.
template <class Loop>
double least_cycles() {
#if defined(__x86_64__)
    constexpr unsigned runs = 2000, chunks = 10 * most_step;
    auto loop = std::make_unique<Loop>();
    if (!loop->connect()) return 0;
    loop->run(1000);
    std::uint64_t least = ~std::uint64_t{0};
    for (unsigned i = 0; i < runs; ++i) {
        const std::uint64_t before = __builtin_ia32_rdtsc();
        loop->run(chunks);
        least = std::min<std::uint64_t>(least, __builtin_ia32_rdtsc() - before);
    }
    return static_cast<double>(least) / chunks;
#else
    return 0;
#endif
}

template <class Loop>
constexpr mode of(const char* name, const char* what) {
    return {name, what, measured<Loop>, least_cycles<Loop>};
}

constexpr mode modes[] = {
    of<by_hand<1>>("hand1", "by hand, 1 QP"),
    of<by_hand<2>>("hand2", "by hand, 2 QPs"),
    of<by_hand<4>>("hand4", "by hand, 4 QPs"),
    of<by_hand<8>>("hand8", "by hand, 8 QPs"),
    of<pair<1, still>>("ours1", "vccl, 1 QP, counters"),
    of<pair<2, still>>("ours2", "vccl, 2 QPs, counters"),
    of<pair<4, still>>("ours4", "vccl, 4 QPs, counters"),
    of<pair<8, still>>("ours8", "vccl, 8 QPs, counters"),
    of<pair<1, two_ports>>("two_ports1", "vccl, 2 ports at once, 1 QP on each"),
    of<pair<4, two_ports>>("two_ports4", "vccl, 2 ports at once, 4 QPs on each"),
    of<pair<1, two_ports_alone>>("two_ports_alone", "2 ports, 1 QP, a lane each, no_replay"),
    of<pair<1, no_failover>>("no_failover", "no_backup, no_replay"),
    of<pair<1, long_log>>("rollback_fifo_1024", "rollback_fifo<1024>"),
    of<pair<1, other_port>>("channel_parity", "first_of<channel_parity, adjacent_gpu>"),
    of<pair<1, fail_back_at_once>>("immediate_failback", "immediate_failback"),
    of<pair<1, blind>>("detect_without_events", "detect_without_events"),
    of<pair<1, heard<>>>("no_handler", "on_completion<>"),
    of<pair<1, heard<trace<>>>>("trace", "on_completion<trace<>>"),
    of<pair<1, with_meter>>("meter", "on_completion<meter>"),
    of<pair<1, heard<rate_monitor<>>>>("rate_monitor", "on_completion<rate_monitor<>>, its clock included"),
    of<pair<1, heard<rate_monitor<still_clock>>>>("rate_monitor_still", "the same without its clock"),
    of<pair<1, with_timeline>>("record_timeline", "on_completion<record_timeline<>> without its clock"),
};

// --- measuring ----------------------------------------------------------------------------------------------------

struct counts {
    double sender{}, receiver{};
    double cycles{};  ///< not kept in the file: another processor has others
};
using table = std::map<std::string, counts>;

std::string compiler() {
#if defined(__clang__)
    return "clang " + std::to_string(__clang_major__);
#else
    return "gcc " + std::to_string(__GNUC__);
#endif
}

bool measure(const char* self, table& out) {
    std::printf("instructions per 64 KiB chunk, null backend, %u chunks a step, %s\n%-24s %8s %8s %8s %8s\n", most_step,
                compiler().c_str(), "", "sender", "receiver", "both", "cycles");
    for (const mode& m : modes) {
        const counts c{instructions(self, m.name, most_step, "sender_step"),
                       instructions(self, m.name, most_step, "receiver_step"), m.cycles()};
        if (c.sender <= 0 || c.receiver <= 0) {
            std::fprintf(stderr,
                         "instructions: %s was not counted: needs valgrind (Debian: valgrind), and that `%s %s 2000 32` runs\n",
                         m.name, self, m.name);
            return false;
        }
        out[m.name] = c;
        std::printf("%-24s %8.1f %8.1f %8.1f %8.1f  %s\n", m.name, c.sender, c.receiver, c.sender + c.receiver, m.cycles(),
                    m.what);
        std::fflush(stdout);
    }
    return true;
}

/// Lines "NAME SENDER RECEIVER" after a first line that names the compiler. Returns false if there is no such file.
bool read(const char* file, std::string& by, table& out) {
    std::ifstream in(file);
    if (!std::getline(in, by)) return false;
    std::string name;
    for (counts c; in >> name >> c.sender >> c.receiver;) out[name] = c;
    return true;
}
bool write(const char* file, const table& t) {
    std::ofstream out(file);
    out << compiler() << '\n' << std::fixed;
    out.precision(1);
    for (const mode& m : modes) out << m.name << ' ' << t.at(m.name).sender << ' ' << t.at(m.name).receiver << '\n';
    return static_cast<bool>(out.flush());
}

/// Returns: 0, or 1 having said what costs more than it did; 2 if the file is of no use.
int check(const char* file, const table& now) {
    constexpr double allowed = 1.03;
    std::string by;
    table before;
    if (!read(file, by, before)) return std::fprintf(stderr, "instructions: cannot read %s; make it with --accept\n", file), 2;
    if (by != compiler())
        return std::fprintf(stderr, "instructions: %s was counted with %s, this is %s\n", file, by.c_str(), compiler().c_str()),
               2;
    int dearer = 0;
    for (const auto& entry : now) {
        const std::string& name = entry.first;
        const counts& c = entry.second;
        const auto old = before.find(name);
        if (old == before.end())
            return std::fprintf(stderr, "instructions: %s does not know %s; --accept\n", file, name.c_str()), 2;
        const auto compare = [&](const char* end, double was, double is) {
            if (is <= was * allowed) return;
            std::fprintf(stderr, "instructions: %s: the %s costs %.1f, not %.1f: %+.1f %%\n", name.c_str(), end, is, was,
                         (is / was - 1) * 100);
            dearer = 1;
        };
        compare("sender", old->second.sender, c.sender);
        compare("receiver", old->second.receiver, c.receiver);
    }
    if (dearer == 0) std::printf("nothing costs over 3 %% more than in %s\n", file);
    return dearer;
}

int all(const char* self, const char* what, const char* file) {
    table t;
    if (!measure(self, t)) return 1;
    const auto both = [&](const char* name) { return t[name].sender + t[name].receiver; };
    int rc = 0;
    if (std::strcmp(what, "--check") == 0) rc = check(file, t);
    if (std::strcmp(what, "--accept") == 0 && !write(file, t)) rc = 1;
    std::printf(
        "BENCH instructions ratio_1=%.2f ratio_2=%.2f ratio_4=%.2f ratio_8=%.2f cycles_1=%.2f failover=%.3f meter=%.1f "
        "rate_monitor=%.1f two_ports=%.1f two_ports_4=%.1f regressed=%d\n",
        both("ours1") / both("hand1"), both("ours2") / both("hand2"), both("ours4") / both("hand4"),
        both("ours8") / both("hand8"), t["hand1"].cycles > 0 ? t["ours1"].cycles / t["hand1"].cycles : 0,
        both("ours1") / both("no_failover"), both("meter") - both("no_handler"), both("rate_monitor") - both("no_handler"),
        both("two_ports1"), both("two_ports4"), rc);
    return rc;
}

}  // namespace hotpath

int main(int argc, char** argv) {
    using namespace hotpath;
    char self[512]{};
    if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    if (argc == 4) {
        for (const mode& m : modes)
            if (std::strcmp(m.name, argv[1]) == 0) return m.run(std::strtoull(argv[2], nullptr, 10));
    } else if (argc == 1) {
        return all(self, "", "");
    } else if (argc == 3 && (std::strcmp(argv[1], "--check") == 0 || std::strcmp(argv[1], "--accept") == 0)) {
        return all(self, argv[1], argv[2]);
    }
    std::fprintf(stderr, "instructions [--check FILE | --accept FILE]\n");
    return 2;
}
