/// \file
/// Instructions per chunk, counted by callgrind: vccl's sender and receiver against a hand-written verbs loop that does
/// the same writes, grants, receives and polls on the same null backend, in the same batches. The null backend completes
/// everything while it is posted and moves no payload, so what is counted is the code above the verbs.
///
///   hotpath                  runs itself under callgrind and prints the table and the BENCH line
///   hotpath MODE CHUNKS      one measured loop: ours, hand, ours_sender, …

#include <vccl/model/shapes.hpp>
#include <vccl/testing/loopback.hpp>
#include <vccl/vccl.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace {

using namespace vccl;

std::uint64_t allocations = 0;

}  // namespace

void* operator new(std::size_t n) {
    ++allocations;
    if (void* p = std::malloc(n)) return p;
    throw std::bad_alloc{};
}
void operator delete(void* p) noexcept { std::free(p); }  // NOLINT
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using backend = testing::loopback<false>;
constexpr std::uint32_t chunk_bytes = 64 * 1024;
constexpr unsigned outstanding = 8;


template <unsigned Qps, class... Extra>
struct pair {
    using sender = host_sender<backend, sibling_port, qp_group<Qps>, rollback_fifo<64>, on_completion<counters>, Extra...>;
    using receiver = host_receiver<backend, sibling_port, qp_group<Qps>, on_completion<counters>, Extra...>;

    backend wire;
    topology shape = make_cluster(2, 1, 2, 1);
    host_context<backend> a{wire, shape}, b{wire, shape};
    sender tx{a, gpu_id{0}, channel_id{0}};
    receiver rx{b, gpu_id{1}, channel_id{0}};
    std::vector<std::byte> bytes = std::vector<std::byte>(chunk_bytes);
    memory from, to;

    bool connect() {
        auto blob_a = tx.local_info(), blob_b = rx.local_info();
        if (!blob_a || !blob_b || !tx.begin_connect(*blob_b) || !rx.begin_connect(*blob_a)) return false;
        for (unsigned i = 0; i < 1'000'000 && !(tx.connected() && rx.connected()); ++i) {
            tx.progress();
            rx.progress();
        }
        auto m = a.register_memory(bytes.data(), bytes.size()), n = b.register_memory(bytes.data(), bytes.size());
        if (!m || !n) return false;
        from = std::move(*m);
        to = std::move(*n);
        return tx.connected() && rx.connected();
    }

    __attribute__((noinline)) void receiver_step(std::uint64_t goal) {
        while (rx.next().value < goal && rx.next().value - rx.received().value < outstanding)
            if (!rx.recv(to.view())) std::abort();
        rx.progress();
    }
    __attribute__((noinline)) void sender_step(std::uint64_t goal) {
        while (tx.next().value < goal && tx.next().value - tx.acknowledged().value < 2 * outstanding)
            if (!tx.send(from.view())) std::abort();
        tx.progress();
    }
    void run(std::uint64_t chunks) {
        const std::uint64_t goal = rx.received().value + chunks;
        while (rx.received().value < goal) {
            receiver_step(goal);
            sender_step(goal);
        }
    }
};

/// What an engineer would write for this one purpose: one QP a lane, the same ring of grants, the same batches.
template <unsigned Qps>
struct by_hand {
    struct slot {
        std::uint64_t sequence, addr;
        std::uint32_t length, key;
        std::uint64_t acked, pad[4];
    };
    static constexpr std::uint64_t ring_mask = 255;

    backend wire;
    backend::port port{*wire.open("p")};
    backend::cq tx_cq{*port.create_cq(1024)}, rx_cq{*port.create_cq(1024)};
    std::vector<backend::qp> tx_qp, rx_qp;
    std::vector<slot> ring = std::vector<slot>(256), staged = std::vector<slot>(256);
    std::vector<std::byte> bytes = std::vector<std::byte>(chunk_bytes);

    // sender
    std::uint64_t posted = 0, sent = 0, acked = 0, in_queue[Qps]{}, tx_marks[Qps]{};
    struct record { std::uint64_t addr; std::uint32_t length; } fifo[64]{};
    // receiver
    std::uint64_t recv_posted = 0, granted = 0, received = 0, seen_bytes = 0, rx_marks = 0, rx_retired = 0;
    unsigned owed[Qps]{};
    std::uint8_t parts_left[256]{};
    std::uint64_t tx_chunks = 0, tx_bytes = 0, rx_chunks = 0;

    bool connect() {
        qp_limits l{256, 256, 256};
        for (unsigned i = 0; i < Qps; ++i) {
            tx_qp.push_back(std::move(*port.create_qp(tx_cq, l)));
            rx_qp.push_back(std::move(*port.create_qp(rx_cq, l)));
        }
        for (unsigned i = 0; i < Qps; ++i) {
            auto up = [](backend::qp& q, qpn peer) {
                qp_peer p{};
                p.number = peer;
                return q.to_init() && q.to_ready_to_receive(p, {}) && q.to_ready_to_send(psn{0}, {});
            };
            if (!up(tx_qp[i], rx_qp[i].number()) || !up(rx_qp[i], tx_qp[i].number())) return false;
            recv_work r{};
            r.wr_id = i;
            for (unsigned n = 0; n < 96; ++n)
                if (!rx_qp[i].post_recv(std::span<const recv_work>(&r, 1))) return false;
        }
        for (slot& s : ring) s.sequence = ~std::uint64_t{0};
        return true;
    }

    __attribute__((noinline)) void receiver_step(std::uint64_t goal) {
        while (recv_posted < goal && recv_posted - received < outstanding) {
            parts_left[recv_posted & ring_mask] = Qps;
            ++recv_posted;
        }
        completion c[32];
        const auto n = rx_cq.poll(c, 32);
        for (unsigned i = 0; i < *n; ++i) {
            if (c[i].status != wc_status::success) std::abort();
            if (c[i].op != completion_op::recv_write_imm) { rx_retired = c[i].wr_id; continue; }
            const unsigned q = static_cast<unsigned>(c[i].wr_id);
            if (++owed[q] == 16) {
                recv_work r[16];
                for (auto& one : r) one.wr_id = q;
                if (!rx_qp[q].post_recv(r)) std::abort();
                owed[q] = 0;
            }
            seen_bytes += c[i].byte_len;
            --parts_left[c[i].immediate & ring_mask];
        }
        while (received != recv_posted && parts_left[received & ring_mask] == 0) {
            ++received;
            ++rx_chunks;
        }
        if (granted != recv_posted) {
            const std::uint64_t first = granted;
            while (granted != recv_posted && (granted == first || (granted & ring_mask) != 0)) {
                slot& s = staged[granted & ring_mask];
                s.sequence = granted;
                s.addr = reinterpret_cast<std::uint64_t>(bytes.data());
                s.length = chunk_bytes;
                s.key = 7;
                s.acked = received;
                ++granted;
            }
            work w{};
            w.op = work_op::write;
            w.local_addr = reinterpret_cast<std::uint64_t>(&staged[first & ring_mask]);
            w.remote_addr = reinterpret_cast<std::uint64_t>(&ring[first & ring_mask]);
            w.length = static_cast<std::uint32_t>((granted - first) * sizeof(slot));
            w.lkey = lkey{1};
            w.rkey = rkey{2};
            w.wr_id = ++rx_marks | std::uint64_t{1} << 32;
            w.flags = w.length <= 256 ? work_flags::inlined : work_flags::none;
            if ((rx_marks & 31) == 0) w.flags = w.flags | work_flags::signaled;
            if (!rx_qp[0].post(w)) std::abort();
        }
    }
    __attribute__((noinline)) void sender_step(std::uint64_t goal) {
        while (sent < goal && sent - acked < 2 * outstanding) {
            fifo[sent & 63] = {reinterpret_cast<std::uint64_t>(bytes.data()), chunk_bytes};
            ++sent;
        }
        completion c[32];
        const auto n = tx_cq.poll(c, 32);
        for (unsigned i = 0; i < *n; ++i) {
            if (c[i].status != wc_status::success) std::abort();
            const unsigned q = static_cast<unsigned>(c[i].wr_id >> 56);
            in_queue[q] = tx_marks[q] - (c[i].wr_id & 0xffffffffffffff);
        }
        while (posted != sent) {
            const slot& s = ring[posted & ring_mask];
            if (std::atomic_ref(const_cast<std::uint64_t&>(s.sequence)).load(std::memory_order_acquire) != posted) break;
            for (; acked < s.acked; ++acked) {
                ++tx_chunks;
                tx_bytes += fifo[acked & 63].length;
            }
            const record& r = fifo[posted & 63];
            if (r.length > s.length) std::abort();
            const std::uint32_t each = r.length / Qps;
            for (unsigned p = 0; p < Qps; ++p) {
                if (in_queue[p] >= 250) return;
                work w{};
                w.op = work_op::write_imm;
                w.local_addr = r.addr + p * each;
                w.remote_addr = s.addr + p * each;
                w.length = each;
                w.lkey = lkey{1};
                w.rkey = rkey{s.key};
                w.immediate = static_cast<std::uint32_t>(posted);
                w.wr_id = ++tx_marks[p] | std::uint64_t{p} << 56;
                ++in_queue[p];
                if ((tx_marks[p] & 63) == 0) w.flags = work_flags::signaled;
                if (!tx_qp[p].post(w)) std::abort();
            }
            ++posted;
        }
    }
    void run(std::uint64_t chunks) {
        const std::uint64_t goal = received + chunks;
        while (received < goal) {
            receiver_step(goal);
            sender_step(goal);
        }
    }
};

template <class Loop>
int measured(std::uint64_t chunks) {
    auto loop = std::make_unique<Loop>();
    if (!loop->connect()) {
        std::fprintf(stderr, "hotpath: the two ends did not connect\n");
        return 1;
    }
    loop->run(1000);
    const std::uint64_t before = allocations;
    loop->run(chunks);
    if (allocations != before) {
        std::fprintf(stderr, "hotpath: %llu allocations on the hot path\n", static_cast<unsigned long long>(allocations - before));
        return 1;
    }
    return 0;
}

int one(const std::string& mode, std::uint64_t chunks) {
    if (mode == "ours1") return measured<pair<1>>(chunks);
    if (mode == "ours4") return measured<pair<4>>(chunks);
    if (mode == "hand1") return measured<by_hand<1>>(chunks);
    if (mode == "hand4") return measured<by_hand<4>>(chunks);
    std::fprintf(stderr, "hotpath: no mode %s\n", mode.c_str());
    return 2;
}

/// Instructions inside `function` (and what it calls), from a run of callgrind; negative when there is no valgrind.
double instructions(const char* self, const char* mode, std::uint64_t chunks, const char* function) {
    char command[1024];
    std::snprintf(command, sizeof command,
                  "valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*%s*' %s %s %llu 2>&1 | sed -n 's/.*Collected : //p'",
                  function, self, mode, static_cast<unsigned long long>(chunks));
    std::FILE* pipe = ::popen(command, "r");
    if (!pipe) return -1;
    char line[64]{};
    const bool ok = std::fgets(line, sizeof line, pipe) != nullptr;
    ::pclose(pipe);
    return ok ? std::atof(line) : -1;
}
/// The difference of two lengths: what start-up costs falls out.
double per_chunk(const char* self, const char* mode, const char* function) {
    constexpr std::uint64_t few = 2000, many = 12000;
    const double a = instructions(self, mode, few, function), b = instructions(self, mode, many, function);
    return a < 0 || b < 0 ? -1 : (b - a) / static_cast<double>(many - few);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3) return one(argv[1], std::strtoull(argv[2], nullptr, 10));
    char self[512]{};
    if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    double tx[2], rx[2], hand_tx[2], hand_rx[2];
    std::printf("instructions per 64 KiB chunk, %u outstanding, null backend\n", outstanding);
    std::printf("%-6s %10s %10s %10s %10s %8s %8s\n", "QPs", "sender", "by hand", "receiver", "by hand", "tx", "rx");
    for (int i = 0; i < 2; ++i) {
        const char* ours = i == 0 ? "ours1" : "ours4";
        const char* hand = i == 0 ? "hand1" : "hand4";
        tx[i] = per_chunk(self, ours, "sender_step");
        rx[i] = per_chunk(self, ours, "receiver_step");
        hand_tx[i] = per_chunk(self, hand, "sender_step");
        hand_rx[i] = per_chunk(self, hand, "receiver_step");
        if (tx[i] <= 0 || hand_tx[i] <= 0) {
            std::fprintf(stderr, "hotpath: valgrind is needed (package valgrind)\n");
            return 1;
        }
        std::printf("%-6d %10.0f %10.0f %10.0f %10.0f %8.2f %8.2f\n", i == 0 ? 1 : 4, tx[i], hand_tx[i], rx[i], hand_rx[i], tx[i] / hand_tx[i], rx[i] / hand_rx[i]);
    }
    std::printf("BENCH hotpath sender_ratio=%.2f receiver_ratio=%.2f instructions=%.0f instructions_4qp=%.0f\n", tx[0] / hand_tx[0],
                rx[0] / hand_rx[0], tx[0] + rx[0], tx[1] + rx[1]);
    return 0;
}
