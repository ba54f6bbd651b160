/// \file
/// Instructions per chunk, counted by callgrind: vccl's sender and receiver, failover on and no fault, against a
/// hand-written verbs loop on the same null backend (by_hand.hpp). The null backend completes everything while it is posted
/// and moves no payload, so what is counted is the code above the verbs, plus what the backend itself takes: the floor.
///
///   hotpath                  runs itself under callgrind; prints the table and the BENCH line
///   hotpath MODE CHUNKS STEP one measured loop, STEP chunks a pass: ours1, hand1, ours4, hand4 (QPs), or still1: ours
///                            under a clock that stands still, so that nothing is ever due but the chunks themselves
///
/// That no chunk costs an allocation, a lock or a system call is checked on `still1`: the first two are counted in the
/// process (audit.hpp), the last are read from valgrind's trace of two runs of different length, which must be equal.

#include "audit.hpp"
#include "callgrind.hpp"
#include "pair.hpp"

#include <cstdio>
#include <cstring>
#include <string>

namespace hotpath {

template <class Loop>
int measured(std::uint64_t chunks) {
    auto loop = std::make_unique<Loop>();
    if (!loop->connect()) {
        std::fprintf(stderr, "hotpath: the two ends did not connect\n");
        return 1;
    }
    loop->run(1000);
    const std::uint64_t allocated = allocations, locked = locks;
    loop->run(chunks);
    std::printf("allocations %llu locks %llu\n", static_cast<unsigned long long>(allocations - allocated),
                static_cast<unsigned long long>(locks - locked));
    return 0;
}

int one(const std::string& mode, std::uint64_t chunks) {
    if (mode == "ours1") return measured<pair<1>>(chunks);
    if (mode == "ours4") return measured<pair<4>>(chunks);
    if (mode == "still1") return measured<pair<1, still>>(chunks);
    if (mode == "hand1") return measured<by_hand<1>>(chunks);
    if (mode == "hand4") return measured<by_hand<4>>(chunks);
    std::fprintf(stderr, "hotpath: no mode %s\n", mode.c_str());
    return 2;
}

double system_calls(const char* self, const char* mode) {
    return per_chunk([&](std::uint64_t chunks) {
        char command[1024];
        std::snprintf(command, sizeof command,
                      "valgrind --tool=none --trace-syscalls=yes %s %s %llu %u 2>&1 | grep -c '^SYSCALL.* sys_'", self, mode,
                      static_cast<unsigned long long>(chunks), most_step);
        return number_from(command);
    });
}

/// No allocation, lock or system call a chunk. Returns false, having said which, if there was one.
bool audit(const char* self) {
    char command[640];
    for (const char* what : {"allocations", "locks"}) {
        std::snprintf(command, sizeof command, "%s still1 100000 32 | sed 's/.*%s \\([0-9]*\\).*/\\1/'", self, what);
        if (const double n = number_from(command); n != 0) {
            std::fprintf(stderr, "hotpath: %.0f %s in 100000 chunks\n", n, what);
            return false;
        }
    }
    if (const double n = system_calls(self, "still1"); n != 0) {
        std::fprintf(stderr, "hotpath: %g system calls a chunk\n", n);
        return false;
    }
    return true;
}

struct row {
    unsigned qps, step;
    double sender{}, sender_by_hand{}, receiver{}, receiver_by_hand{};

    double sender_ratio() const { return sender / sender_by_hand; }
    double receiver_ratio() const { return receiver / receiver_by_hand; }
    double both() const { return sender + receiver; }

    bool measure(const char* self) {
        const std::string ours = "ours" + std::to_string(qps), hand = "hand" + std::to_string(qps);
        sender = instructions(self, ours.c_str(), step, "sender_step");
        sender_by_hand = instructions(self, hand.c_str(), step, "sender_step");
        receiver = instructions(self, ours.c_str(), step, "receiver_step");
        receiver_by_hand = instructions(self, hand.c_str(), step, "receiver_step");
        return sender > 0 && sender_by_hand > 0 && receiver > 0 && receiver_by_hand > 0;
    }
};

int table(const char* self) {
    row rows[] = {{1, most_step}, {1, 8}, {4, most_step}};
    std::printf("instructions per 64 KiB chunk, null backend\n%-4s %-6s %8s %8s %6s %9s %8s %6s\n", "QPs", "a step", "sender",
                "by hand", "", "receiver", "by hand", "");
    for (row& r : rows) {
        if (!r.measure(self)) {
            std::fprintf(stderr, "hotpath: valgrind is needed (Debian: valgrind)\n");
            return 1;
        }
        std::printf("%-4u %-6u %8.1f %8.1f %6.2f %9.1f %8.1f %6.2f\n", r.qps, r.step, r.sender, r.sender_by_hand,
                    r.sender_ratio(), r.receiver, r.receiver_by_hand, r.receiver_ratio());
    }
    if (!audit(self)) return 1;
    std::printf("no allocation, lock or system call per chunk\n");
    std::printf(
        "BENCH hotpath sender_ratio=%.2f receiver_ratio=%.2f instructions=%.0f sender_ratio_8=%.2f receiver_ratio_8=%.2f "
        "instructions_8=%.0f "
        "instructions_4qp=%.0f\n",
        rows[0].sender_ratio(), rows[0].receiver_ratio(), rows[0].both(), rows[1].sender_ratio(), rows[1].receiver_ratio(),
        rows[1].both(), rows[2].both());
    return 0;
}

}  // namespace hotpath

int main(int argc, char** argv) {
    if (argc == 4) {
        hotpath::step = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
        if (hotpath::step == 0 || hotpath::step > hotpath::most_step) {
            std::fprintf(stderr, "hotpath: STEP is 1 to %u\n", hotpath::most_step);
            return 2;
        }
        return hotpath::one(argv[1], std::strtoull(argv[2], nullptr, 10));
    }
    char self[512]{};
    if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    return hotpath::table(self);
}
