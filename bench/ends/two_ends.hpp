#pragma once
/// \file
/// What the benches of two processes share: a piece of memory that both see, blobs exchanged through it, a raw verbs pair
/// to compare with, and the channel under test.

#include <vccl/base/status_text.hpp>
#include <vccl/vccl.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace ends {

using namespace vccl;
using namespace vccl::literals;

[[noreturn]] inline void give_up(const std::string& what, status s = {}) {
    std::fprintf(stderr, "%s%s%s\n", what.c_str(), s ? "" : ": ", s ? "" : describe(s).c_str());
    std::_Exit(1);
}
template <class T>
T take(result<T> r, const char* what) {
    if (!r) give_up(what, r.error());
    return std::move(*r);
}
inline void check(status s, const char* what) {
    if (!s) give_up(what, s);
}

inline nanoseconds now() { return steady_clock{}.now(); }
inline double median(std::vector<double> v) {
    if (v.empty()) return 0;
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}
inline double largest(const std::vector<double>& v) { return v.empty() ? 0 : *std::max_element(v.begin(), v.end()); }

/// Spins for a while, then lets others run: some of these machines have one processor. A patient one naps, so that a kernel
/// that moves the packets on the same processors gets them.
struct patience {
    bool naps{};
    unsigned idle{};
    void nothing() {
        if (++idle <= 64) return;
        if (naps) {
            const timespec nap{0, 10'000};
            ::nanosleep(&nap, nullptr);
        } else {
            ::sched_yield();
        }
    }
    void something() { idle = 0; }
};

inline constexpr unsigned max_events = 8192;

/// One end's half of the shared memory.
struct board_side {
    std::atomic<unsigned> blob_bytes;
    std::byte blob[4096];
    std::atomic<unsigned> raw_ready, ready;
    std::byte raw[256];
    std::atomic<unsigned> events;
    channel_event event[max_events];
    std::atomic<std::uint64_t> chunks;
};
struct board {
    board_side side[2];
    std::atomic<unsigned> order;   ///< what the driver wants; 0: go on
    std::atomic<unsigned> done[2];
    double figure[16];
};

inline board* shared_board() {
    void* p = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) give_up("mmap");
    return ::new (p) board{};
}

inline void wait_for(const std::function<bool()>& done, nanoseconds limit, const char* what, bool nap = false) {
    const nanoseconds end = now() + limit;
    patience idle;
    while (!done()) {
        if (now() > end) give_up(std::string("waited in vain for ") + what);
        if (nap)
            ::usleep(200);
        else
            idle.nothing();
    }
}

/// Runs each function in a process of its own, ends them when the driver (this process) is done or one of them fails.
class family {
public:
    ~family() {
        for (pid_t p : children_) {
            ::kill(p, SIGKILL);
            ::waitpid(p, nullptr, 0);
        }
    }
    void start(const std::function<void()>& f) {
        const pid_t p = ::fork();
        if (p < 0) give_up("fork");
        if (p == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            f();
            std::_Exit(0);
        }
        children_.push_back(p);
    }
    /// Returns false if one of them has failed.
    bool well() {
        for (pid_t p : children_) {
            int s = 0;
            if (::waitpid(p, &s, WNOHANG) == p && !(WIFEXITED(s) && WEXITSTATUS(s) == 0)) return false;
        }
        return true;
    }
    void join() {
        for (pid_t p : children_) {
            int s = 0;
            ::waitpid(p, &s, 0);
            if (!(WIFEXITED(s) && WEXITSTATUS(s) == 0)) give_up("a process of the bench failed");
        }
        children_.clear();
    }

private:
    std::vector<pid_t> children_;
};

/// A plain RC pair, as a verbs programmer would make one; the opponent.
template <class B>
class raw_end {
public:
    struct address {
        qpn number;
        std::uint64_t addr;
        rkey key;
        gid where;
        std::uint16_t lid;
        std::uint32_t mtu;
    };

    raw_end(B backend, const port_name& name, std::size_t bytes, board& b, unsigned me)
        : port_(take(backend.open(name), "open")),
          cq_(take(port_.create_cq(512), "create_cq")),
          qp_(take(port_.create_qp(cq_, {128, 16, 64}), "create_qp")),
          bytes_(bytes),
          memory_(static_cast<std::byte*>(
              ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))),
          mr_(take(port_.register_memory(memory_, bytes), "register_memory")) {
        const auto a = take(port_.query(), "query");
        const address mine{qp_.number(), reinterpret_cast<std::uint64_t>(memory_), mr_.remote_key(), a.address, a.lid, a.mtu};
        check(qp_.to_init(), "INIT");
        std::memcpy(b.side[me].raw, &mine, sizeof mine);
        b.side[me].raw_ready = 1;
        wait_for([&] { return b.side[1 - me].raw_ready >= 1; }, 20_s, "the peer's address");
        std::memcpy(static_cast<void*>(&peer_), b.side[1 - me].raw, sizeof peer_);
        qp_peer p{};
        p.number = peer_.number;
        p.address = peer_.where;
        p.lid = peer_.lid;
        p.mtu = std::min(a.mtu, peer_.mtu);
        check(qp_.to_ready_to_receive(p, {}), "RTR");
        check(qp_.to_ready_to_send(psn{0}, {}), "RTS");
        b.side[me].raw_ready = 2;
        wait_for([&] { return b.side[1 - me].raw_ready >= 2; }, 20_s, "the peer's QP");
    }

    /// Half the round trip of an 8-byte inlined WRITE that the far end polls for and answers, as ib_write_lat does.
    double ping(unsigned times, bool first) {
        std::vector<double> each;
        auto& word = *reinterpret_cast<std::uint64_t*>(memory_);
        for (std::uint64_t i = 1; i <= times; ++i) {
            const nanoseconds start = now();
            if (first) put(base_ + i);
            patience idle;
            while (std::atomic_ref(word).load(std::memory_order_acquire) != base_ + i) {
                drain();
                idle.nothing();
            }
            if (!first)
                put(base_ + i);
            else
                each.push_back(static_cast<double>((now() - start).count) / 2000.0);
        }
        base_ += times;
        return median(each);
    }

    /// Bytes per second of WRITEs of `size`, `depth` outstanding, as ib_write_bw does.
    double stream(std::uint32_t size, unsigned depth, std::uint64_t total) {
        const std::uint64_t count = total / size;
        std::uint64_t posted = 0, done = 0;
        const nanoseconds start = now();
        patience idle{true};
        while (done < count) {
            while (posted < count && posted - done < depth) {
                work w{};
                w.flags = work_flags::signaled;
                w.local_addr = reinterpret_cast<std::uint64_t>(memory_) + posted % depth * size;
                w.remote_addr = peer_.addr + posted % depth * size;
                w.length = size;
                w.lkey = mr_.local_key();
                w.rkey = peer_.key;
                check(qp_.post(w), "post");
                ++posted;
            }
            const unsigned n = drain();
            done += n;
            n ? idle.something() : idle.nothing();
        }
        return static_cast<double>(count * size) * 1e9 / static_cast<double>((now() - start).count);
    }
    unsigned drain() {
        completion c[16];
        const unsigned n = take(cq_.poll(c, 16), "poll");
        for (unsigned i = 0; i < n; ++i)
            if (c[i].status != wc_status::success) give_up("a raw write failed");
        return n;
    }

private:
    void put(std::uint64_t value) {
        work w{};
        w.flags = work_flags::inlined | (value % 16 == 0 ? work_flags::signaled : work_flags::none);
        w.local_addr = reinterpret_cast<std::uint64_t>(&value);
        w.remote_addr = peer_.addr;
        w.length = 8;
        w.rkey = peer_.key;
        check(qp_.post(w), "post");
        drain();
    }

    typename B::port port_;
    typename B::port::cq cq_;
    typename B::port::qp qp_;
    std::size_t bytes_;
    std::byte* memory_;
    typename B::port::mr mr_;
    address peer_{};
    std::uint64_t base_{};
};

/// The other ports of the host, in order: a machine of single-port NICs without GPUs.
struct every_port {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology& t, port_id primary, channel_id) const noexcept {
        for (std::uint16_t i = 0; i < t.ports.size(); ++i)
            if (port_id{i} != primary && t.host_of(port_id{i}) == t.host_of(primary)) return port_id{i};
        return errc::no_port;
    }
};

/// Puts events on the board, for the driver.
struct to_board {
    using policy_axis = axis::completion;
    board_side* side{};
    void on_done(const chunk_report&) noexcept { side->chunks.fetch_add(1, std::memory_order_relaxed); }
    void on_event(const channel_event& e) noexcept {
        const unsigned n = side->events.load(std::memory_order_relaxed);
        if (n < max_events) side->event[n] = e;
        side->events.store(n + 1, std::memory_order_release);
    }
};

template <class B, class... Ps>
using sender_of = host_sender<B, every_port, to_board, rollback_fifo<64>, Ps...>;
template <class B, class... Ps>
using receiver_of = host_receiver<B, every_port, to_board, hold_down<10>, Ps...>;

template <class Endpoint>
void connect(Endpoint& e, board& b, unsigned me) {
    const auto blob = take(e.local_info(), "local_info");
    std::memcpy(b.side[me].blob, blob.data(), blob.size());
    b.side[me].blob_bytes = static_cast<unsigned>(blob.size());
    wait_for([&] { return b.side[1 - me].blob_bytes != 0; }, 20_s, "the peer's blob");
    check(e.connect(std::span<const std::byte>(b.side[1 - me].blob, b.side[1 - me].blob_bytes), 20_s), "connect");
}

}  // namespace ends
