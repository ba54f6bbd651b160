// rank PLUGIN VERSION MODE MESSAGES SEED [CALLS]: one end of a test, a process as NCCL's would be: it loads the plugin, exchanges
// handles with the other rank over descriptor 3, and drives the table. Messages go both ways at once, in groups of one to eight with
// tags, in another order than received; every byte is compared. Says how far it is, and at last what became of it:
// `RESULT ok`, `RESULT error CODE DURING`, or `RESULT wrong WHAT`.
//   traffic   messages both ways, then an orderly end
//   pause     the same, with a while in the middle in which nobody calls the plugin
//   abandon   leaves with requests on their way
//   connect   only connects
//   silent    rank 1 never looks for rank 0, which calls it
//   misused   calls with arguments that mean nothing, then traffic
//   damaged   as if the handle were of another version
//   long      a message larger than its receive
#include "net_api.hpp"

#include <sys/socket.h>
#include <unistd.h>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

namespace {

using namespace nccl_test;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t largest = 96 << 10;
constexpr unsigned group_size = 8, groups = 8;
constexpr int peer_fd = 3;

struct ended {
    std::string how;
};
[[noreturn]] void end(const std::string& how) { throw ended{how}; }

void must(code c, const char* during) {
    if (c != code::success) end("error " + std::to_string(static_cast<int>(c)) + " " + during);
}

void log_line(nccl_abi::log_level level, unsigned long, const char*, int, const char* format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "%s %s\n", level == nccl_abi::log_level::warn ? "WARN" : "INFO", line);
}

/// Waits for the other rank: neither is ahead of the other afterwards.
void meet(const char* during) {
    char c = 'x';
    if (::write(peer_fd, &c, 1) != 1 || ::read(peer_fd, &c, 1) != 1) end(std::string("wrong the other rank is gone ") + during);
}

/// What both ranks know of the groups of one direction.
struct plan {
    struct message {
        std::size_t bytes;
        int tag;
    };
    struct group {
        std::vector<message> messages;  // in the order of the receives
        std::vector<unsigned> sending_order;
    };

    explicit plan(std::uint64_t seed) : random(seed) {}
    group next() {
        group g;
        const unsigned n = random() % 3 == 0 ? 1 + static_cast<unsigned>(random() % group_size) : 1;
        for (unsigned i = 0; i < n; ++i) {
            const std::size_t sizes[] = {0, 1, 8, 100, 4096, 1 + random() % largest, largest};
            g.messages.push_back({sizes[random() % 7], static_cast<int>(random() % 1000) * 8 + static_cast<int>(i)});
            g.sending_order.push_back(i);
        }
        std::shuffle(g.sending_order.begin(), g.sending_order.end(), random);
        return g;
    }
    std::mt19937_64 random;
};

void fill(std::byte* at, std::size_t bytes, std::uint64_t key) {
    std::uint64_t word = key * 0x9e3779b97f4a7c15u + 1;
    for (std::size_t i = 0; i < bytes; i += 8) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        std::memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

struct pending {
    plan::group what;
    std::uint64_t number{};
    std::vector<void*> requests;  // one a message at the sender, one at the receiver
    unsigned begun{};  // sender: messages given to isend
    bool used{};
};

struct end_of_link {
    net_api& net;
    std::uint64_t total;
    void* comm{};
    std::vector<std::byte> bytes = std::vector<std::byte>(groups * group_size * largest);
    void* memory{};
    plan script;
    pending flying[groups];
    std::uint64_t next{}, done{};

    end_of_link(net_api& n, std::uint64_t seed, std::uint64_t messages) : net(n), total(messages), script(seed) {}
    std::byte* place(std::uint64_t number, unsigned i) { return bytes.data() + (number % groups * group_size + i) * largest; }
    bool over() const { return done == total; }
    void begin_next() {
        pending& p = flying[next % groups];
        if (p.used || next == total) return;
        p = {script.next(), next, {}, 0, true};
        ++next;
    }

    void step_sending() {
        begin_next();
        for (std::uint64_t n = done; n < next; ++n) {
            pending& p = flying[n % groups];
            while (p.begun < p.what.messages.size()) {
                const unsigned i = p.what.sending_order[p.begun];
                const plan::message& m = p.what.messages[i];
                fill(place(n, i), m.bytes, n * group_size + i);
                void* request = nullptr;
                must(net.isend(comm, place(n, i), m.bytes, m.tag, memory, &request), "isend");
                if (!request) return finish_sending();
                p.requests.push_back(request);
                ++p.begun;
            }
        }
        finish_sending();
    }
    void finish_sending() {
        pending& p = flying[done % groups];
        if (!p.used || p.begun < p.what.messages.size()) return;
        while (!p.requests.empty()) {
            int is_done = 0, size = -1;
            must(net.test(p.requests.back(), &is_done, &size), "test of a send");
            if (!is_done) return;
            const unsigned i = p.what.sending_order[p.requests.size() - 1];
            if (size != static_cast<int>(p.what.messages[i].bytes)) end("wrong size of a send");
            p.requests.pop_back();
        }
        p.used = false;
        ++done;
    }

    void step_receiving() {
        begin_next();
        for (std::uint64_t n = done; n < next; ++n) {
            pending& p = flying[n % groups];
            if (!p.requests.empty()) continue;
            void *data[group_size], *memories[group_size], *request = reinterpret_cast<void*>(1);
            std::size_t sizes[group_size];
            int tags[group_size];
            const auto count = static_cast<int>(p.what.messages.size());
            for (unsigned i = 0; i < p.what.messages.size(); ++i) {
                std::memset(place(n, i), 0xee, largest);
                data[i] = place(n, i);
                sizes[i] = largest;
                tags[i] = p.what.messages[i].tag;
                memories[i] = memory;
            }
            must(net.irecv(comm, count, data, sizes, tags, memories, &request), "irecv");
            if (!request) break;
            p.requests.push_back(request);
        }
        pending& p = flying[done % groups];
        if (!p.used || p.requests.empty()) return;
        int is_done = 0, sizes[group_size] = {};
        must(net.test(p.requests[0], &is_done, sizes), "test of a receive");
        if (!is_done) return;
        for (unsigned i = 0; i < p.what.messages.size(); ++i) compare(p, i, sizes[i]);
        p.used = false;
        ++done;
    }
    void compare(const pending& p, unsigned i, int size) {
        const std::size_t bytes = p.what.messages[i].bytes;
        const std::string which = "message " + std::to_string(p.number) + "/" + std::to_string(i);
        if (size != static_cast<int>(bytes)) end("wrong size of " + which);
        std::vector<std::byte> expected(largest, std::byte{0xee});
        fill(expected.data(), bytes, p.number * group_size + i);
        if (std::memcmp(expected.data(), place(p.number, i), largest) != 0) end("wrong bytes in " + which);
    }
};

class rank {
public:
    rank(net_api net, std::string mode, std::uint64_t messages, std::uint64_t seed, unsigned self)
        : net_(std::move(net)),
          mode_(std::move(mode)),
          self_(self),
          sending_(net_, seed + self, messages),
          receiving_(net_, seed + 1 - self, messages) {}

    void run() {
        must(net_.init(log_line), "init");
        int count = 0;
        must(net_.devices(&count), "devices");
        for (int d = 0; d < count; ++d) {
            newest_properties p{};
            must(net_.properties(d, &p), "properties");
            std::printf("device %d %s nic=%llu port=%d mbit=%d pointers=%d recvs=%d\n", d, p.name,
                        static_cast<unsigned long long>(p.guid), p.port, p.mbit_per_second, p.pointers, p.max_recvs);
        }
        connect();
        if (mode_ == "misused") misuse();
        if (mode_ == "traffic" || mode_ == "misused" || mode_ == "pause" || mode_ == "abandon") traffic();
        if (mode_ == "long") too_long();
        if (mode_ != "abandon") meet("at the end");
        close();
    }

private:
    void connect() {
        char mine[nccl_abi::handle_bytes], theirs[nccl_abi::handle_bytes];
        void* listener = nullptr;
        must(net_.listen(0, mine, &listener), "listen");
        if (mode_ == "damaged") mine[8] = 77;
        if (::write(peer_fd, mine, sizeof mine) != sizeof mine ||
            ::recv(peer_fd, theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs)
            end("wrong no handle");
        if (mode_ == "silent" && self_ == 1) {
            meet("with nothing said");
            end("ok");
        }
        while (!sending_.comm || !receiving_.comm) {
            const auto begin = clock_type::now();
            if (!sending_.comm) must(net_.connect(0, theirs, &sending_.comm), "connect");
            if (!receiving_.comm) must(net_.accept(listener, &receiving_.comm), "accept");
            slowest_ = std::max(slowest_, clock_type::now() - begin);
            std::this_thread::yield();
        }
        must(net_.close_listen(listener), "close_listen");
        for (end_of_link* l : {&sending_, &receiving_}) {
            must(net_.register_memory(l->comm, l->bytes.data(), l->bytes.size(), nccl_abi::pointer_host, &l->memory),
                 "register_memory");
            void* again = nullptr;  // a piece of it, as NCCL does before each operation
            must(net_.register_memory(l->comm, l->bytes.data() + 64, 4096, nccl_abi::pointer_host, &again),
                 "register_memory again");
            if (again != l->memory) end("wrong: the piece was registered anew");
            must(net_.deregister(l->comm, again), "deregister of a piece");
        }
        std::printf("connected, slowest step %lld us\n",
                    static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(slowest_).count()));
    }

    void traffic() {
        unsigned told = 0;
        while (!sending_.over() || !receiving_.over()) {
            if (!sending_.over()) sending_.step_sending();
            if (!receiving_.over()) receiving_.step_receiving();
            const auto percent = static_cast<unsigned>(100 * receiving_.done / receiving_.total);
            if (percent >= told) {
                std::printf("progress %u\n", told);
                std::fflush(stdout);
                if (mode_ == "pause" && told == 50) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                if (mode_ == "abandon" && told == 50) return;
                told += 10;
            }
            if (++steps_ % 64 == 0) std::this_thread::yield();
        }
        void* flush = this;
        int size = 1;
        void* data = receiving_.bytes.data();
        must(net_.iflush(receiving_.comm, 1, &data, &size, &receiving_.memory, &flush), "iflush");
        for (int done = 0; flush && !done;) must(net_.test(flush, &done, nullptr), "test of a flush");
    }

    /// Each is an error, and changes nothing.
    void misuse() {
        const auto refused = [](const char* what, code c) {
            if (c == code::success) end(std::string("wrong: accepted ") + what);
        };
        constexpr int too_many = static_cast<int>(group_size) + 1;
        int count = 0, done = 0, size = 8, tags[too_many] = {};
        std::size_t bytes[too_many] = {};
        char handle[nccl_abi::handle_bytes];
        void *out = nullptr, *data = receiving_.bytes.data(), *unknown = &size, *buffers[too_many] = {}, *memories[too_many] = {};
        newest_properties p{};
        must(net_.devices(&count), "devices");
        for (const int device : {-1, count}) {
            refused("a device that does not exist", net_.properties(device, &p));
            refused("to listen at none", net_.listen(device, handle, &out));
            refused("to connect from none", net_.connect(device, handle, &out));
        }
        std::memset(handle, 0x5a, sizeof handle);
        refused("a handle of somebody else's", net_.connect(0, handle, &out));
        for (const int kind : {nccl_abi::pointer_cuda, nccl_abi::pointer_dmabuf})
            refused("GPU memory", net_.register_memory(sending_.comm, data, 4096, kind, &out));
        refused("a dma-buf", net_.register_dmabuf(sending_.comm, data, 4096, nccl_abi::pointer_cuda, 0, -1, &out));
        refused("to deregister what is not registered", net_.deregister(sending_.comm, unknown));
        for (const int n : {-1, 0, too_many})
            refused("a group of that size", net_.irecv(receiving_.comm, n, buffers, bytes, tags, memories, &out));
        refused("no request", net_.test(nullptr, &done, &size));
        if (out) end("wrong: something was made");
    }

    void too_long() {
        void* data = receiving_.bytes.data();
        std::size_t room = 100;
        int tag = 5, done = 0;
        void *send = nullptr, *recv = nullptr;
        while (!recv) must(net_.irecv(receiving_.comm, 1, &data, &room, &tag, &receiving_.memory, &recv), "irecv");
        while (!send) must(net_.isend(sending_.comm, sending_.bytes.data(), 101, tag, sending_.memory, &send), "isend");
        code of_send = code::success, of_recv = code::success;
        while (of_send == code::success || of_recv == code::success) {
            if (of_send == code::success) of_send = net_.test(send, &done, nullptr);
            if (done) end("wrong: the send was called done");
            if (of_recv == code::success) of_recv = net_.test(recv, &done, nullptr);
            if (done) end("wrong: the receive was called done");
        }
        meet("after the message");
        end("error " + std::to_string(static_cast<int>(of_send)) + " long");
    }

    void close() {
        for (end_of_link* l : {&sending_, &receiving_}) must(net_.deregister(l->comm, l->memory), "deregister");
        std::memset(receiving_.bytes.data(), 0, receiving_.bytes.size());  // NCCL frees it here
        must(net_.close_send(sending_.comm), "close_send");
        must(net_.close_recv(receiving_.comm), "close_recv");
        if (net_.finalize) must(net_.finalize(), "finalize");
    }

    net_api net_;
    std::string mode_;
    unsigned self_;
    end_of_link sending_, receiving_;
    clock_type::duration slowest_{};
    std::uint64_t steps_{};
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7) return 2;
    try {
        rank(load(argv[1], std::atoi(argv[2])), argv[3], std::strtoull(argv[4], nullptr, 10), std::strtoull(argv[5], nullptr, 10),
             static_cast<unsigned>(std::atoi(argv[6])))
            .run();
        std::printf("RESULT ok\n");
        return 0;
    } catch (const ended& e) {
        std::printf("RESULT %s\n", e.how.c_str());
        std::fflush(stdout);
        std::_Exit(e.how.starts_with("error") ? 1 : 3);  // as a job that NCCL has failed: nothing is closed
    } catch (const std::exception& e) {
        std::printf("RESULT wrong %s\n", e.what());
        return 3;
    }
}
