/// \file
/// Instructions per message through the NCCL net plugin's table, counted by callgrind: irecv, isend and the tests that find
/// them done, eight of each outstanding, failover on over two ports, no fault, on a null backend that completes everything while it
/// is posted. The opponent is NCCL's own net_ib, counted the same way over a provider that completes at once (NCCL 2.30.7): 1179
/// instructions with one QP, 1383 with its failover on, 1767 with two ports and failover.
///
///   nccl_net                     runs itself under callgrind; prints the table and the BENCH line
///   nccl_net MODE MESSAGES STEP  one measured loop: single, or groups of eight receives with tags (`grouped`), or `fruitless`
///                                tests of a receive that cannot end yet

#include "../../examples/nccl_net/network_of.hpp"
#include "../hotpath/callgrind.hpp"

#include <vccl/model/shapes.hpp>
#include <vccl/testing/loopback.hpp>

#include <unistd.h>
#include <cstring>

extern "C" const nccl_abi::net<11> ncclNetPlugin_v11;

namespace nccl_net {

// The plugin's network over the null backend. It moves the bytes, since the tag lists must arrive; messages are therefore short.
using null_backend = vccl::testing::loopback<true>;

std::unique_ptr<network> make_soft_network(const settings& s) {
    settings mine = s;
    mine.address = "127.0.0.1";
    mine.threads = 0;
    return std::make_unique<network_of<null_backend>>(mine, std::vector<null_backend>(1), vccl::make_cluster(1, 1, 2, 1),
                                                      vccl::host_id{0});
}
std::unique_ptr<network> make_ibv_network(const settings& s) { return make_soft_network(s); }

namespace {

constexpr std::size_t message_bytes = 256;  // above what is inlined
constexpr unsigned outstanding = 8;  // groups

const nccl_abi::net<11>& table = ncclNetPlugin_v11;

void must(code c) {
    if (c != code::success) {
        std::fprintf(stderr, "nccl_net: code %d\n", static_cast<int>(c));
        std::exit(1);
    }
}

struct loop {
    void *context{}, *listener{}, *sender{}, *receiver{}, *memory{};
    std::vector<std::byte> bytes = std::vector<std::byte>(2 * outstanding * max_group * message_bytes);
    unsigned group;
    void *sends[outstanding * max_group]{}, *receives[outstanding]{};
    std::uint64_t sent{}, sent_done{}, received{}, received_done{};  // messages; groups

    explicit loop(unsigned g) : group(g) {
        must(table.init(&context, 1, nullptr, nullptr, nullptr));
        char handle[nccl_abi::handle_bytes];
        must(table.listen(context, 0, handle, &listener));
        while (!sender || !receiver) {
            if (!sender) must(table.connect(context, 0, handle, &sender, nullptr));
            if (!receiver) must(table.accept(listener, &receiver, nullptr));
        }
        must(table.register_memory(sender, bytes.data(), bytes.size(), nccl_abi::pointer_host, &memory));
    }

    void receive() {
        void *data[max_group], *memories[max_group];
        std::size_t sizes[max_group];
        int tags[max_group];
        for (unsigned i = 0; i < group; ++i) {
            data[i] = &bytes[(received % outstanding * max_group + i) * message_bytes];
            sizes[i] = message_bytes;
            tags[i] = static_cast<int>(i);
            memories[i] = memory;
        }
        void*& r = receives[received % outstanding];
        must(table.irecv(receiver, static_cast<int>(group), data, sizes, tags, memories, nullptr, &r));
        received += r != nullptr;
    }
    /// Returns: false if no receive asks for it yet.
    bool send() {
        void*& r = sends[sent % (outstanding * group)];
        std::byte* from = &bytes[(outstanding * max_group + sent % (outstanding * group)) * message_bytes];
        must(table.isend(sender, from, message_bytes, static_cast<int>(sent % group), memory, nullptr, &r));
        sent += r != nullptr;
        return r != nullptr;
    }

    /// As NCCL's proxy does: post what there is room for, ask about the oldest.
    __attribute__((noinline)) void message_step() {
        while (received < received_done + outstanding) receive();
        while (sent < sent_done + outstanding * group && send()) {}
        int done = 0, sizes[max_group];
        for (unsigned i = 0; i < group && sent_done < sent; ++i) {
            must(table.test(sends[sent_done % (outstanding * group)], &done, sizes));
            sent_done += done != 0;
        }
        if (received_done < received) {
            must(table.test(receives[received_done % outstanding], &done, sizes));
            received_done += done != 0;
        }
    }
    __attribute__((noinline)) void message_step_fruitless(void* request) {
        int done = 0;
        must(table.test(request, &done, nullptr));
    }

    void run(std::uint64_t messages) {
        for (const std::uint64_t goal = received_done + messages / group; received_done < goal;) message_step();
    }
    void run_fruitless(std::uint64_t tests) {
        received = received_done = 0;
        receive();
        for (std::uint64_t i = 0; i < tests; ++i) message_step_fruitless(receives[0]);
    }
};

int one(const std::string& mode, std::uint64_t messages) {
    loop l(mode == "grouped" ? max_group : 1);
    if (mode == "fruitless")
        l.run_fruitless(messages);
    else
        l.run(messages);
    std::fflush(nullptr);
    ::_exit(0);  // what closing costs is nobody's concern here
}

int report(const char* self) {
    const double single = hotpath::instructions(self, "single", 1, "message_step"),
                 grouped = hotpath::instructions(self, "grouped", 1, "message_step"),
                 fruitless = hotpath::instructions(self, "fruitless", 1, "message_step_fruitless");
    ::setenv("VCCL_NET_LANES", "1", 1);
    const double bare = hotpath::instructions(self, "single", 1, "message_step");
    if (single <= 0 || grouped <= 0 || fruitless <= 0 || bare <= 0) {
        std::fprintf(stderr, "nccl_net: valgrind is needed (Debian: valgrind)\n");
        return 1;
    }
    std::printf(
        "instructions per message, both ends together, this loop's included, null backend\n"
        "one receive a group      %8.0f\neight receives a group   %8.0f\na test that finds nothing%8.0f\nwithout failover        "
        " %8.0f\n",
        single, grouped, fruitless, bare);
    std::printf(
        "BENCH nccl_net instructions=%.0f grouped=%.0f fruitless=%.0f failover=%.3f to_net_ib=%.2f to_net_ib_two_ports=%.2f\n",
        single, grouped, fruitless, single / bare, single / 1179, single / 1767);
    return 0;
}

}  // namespace

}  // namespace nccl_net

int main(int argc, char** argv) {
    if (argc == 4) return nccl_net::one(argv[1], std::strtoull(argv[2], nullptr, 10));
    ::setenv("VCCL_NET_BACKEND", "soft", 1);
    char self[512]{};
    if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    return nccl_net::report(self);
}
