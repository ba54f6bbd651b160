#pragma once
/// \file
/// What the two software RNIC throughput benchmarks share: one memcpy stream as the opponent, buffers much larger than
/// the caches, connected ends, and the median of several rounds in which opponent and RNIC take turns.

#include <vccl/verbs/soft.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <sched.h>
#include <sys/mman.h>

namespace soft_bench {

using namespace vccl;
using namespace vccl::literals;
using verbs::soft;
using verbs::soft_fabric;

inline constexpr std::size_t chunk = 1u << 20, chunks = 256, bytes = chunk * chunks;
inline constexpr int rounds = 9;

[[noreturn]] inline void give_up(const char* what, status s) {
    std::fprintf(stderr, "%s failed: errc %d, detail %u\n", what, static_cast<int>(s.code), s.detail);
    std::exit(1);
}
template <class T>
T take(result<T> r, const char* what) {
    if (!r) give_up(what, r.error());
    return std::move(*r);
}
inline void check(status s, const char* what) {
    if (!s) give_up(what, s);
}

/// Touched once, so that page faults are not measured.
class buffer {
public:
    buffer()
        : at_(static_cast<unsigned char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        if (at_ == MAP_FAILED) give_up("mmap", errc::no_memory);
        std::memset(at_, 1, bytes);
    }
    ~buffer() { ::munmap(at_, bytes); }
    buffer(const buffer&) = delete;
    buffer& operator=(const buffer&) = delete;
    unsigned char* data() const { return at_; }
    std::uint64_t address(std::size_t i) const { return reinterpret_cast<std::uintptr_t>(at_) + i * chunk; }

private:
    unsigned char* at_;
};

inline double seconds_since(nanoseconds start) { return static_cast<double>((steady_clock{}.now() - start).count) * 1e-9; }

/// Bytes per second of copying one buffer into the other, chunk by chunk.
inline double memcpy_rate(const buffer& from, const buffer& to) {
    const auto start = steady_clock{}.now();
    for (std::size_t i = 0; i < chunks; ++i) {
        std::memcpy(to.data() + i * chunk, from.data() + i * chunk, chunk);
        asm volatile("" ::: "memory");
    }
    return static_cast<double>(bytes) / seconds_since(start);
}

inline double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/// One side: port, CQ, QP, a large buffer.
struct end {
    buffer memory;
    soft::port port;
    soft::port::cq cq;
    soft::port::mr mr;
    soft::port::qp qp;

    end(const soft& host, const char* name)
        : port(take(host.open(name), "open")),
          cq(take(port.create_cq(1024), "create_cq")),
          mr(take(port.register_memory(memory.data(), bytes), "register_memory")),
          qp(take(port.create_qp(cq, {}), "create_qp")) {}
};

/// What a peer must know.
struct end_info {
    qp_peer peer;
    std::uint64_t address{};
    rkey key{};
};
inline end_info describe(end& e) {
    const auto a = take(e.port.query(), "query");
    return {{e.qp.number(), psn{7}, a.address, a.lid, a.mtu}, e.memory.address(0), e.mr.remote_key()};
}
inline void connect(end& e, const end_info& other) {
    check(e.qp.to_init(), "INIT");
    check(e.qp.to_ready_to_receive(other.peer, {}), "RTR");
    check(e.qp.to_ready_to_send(psn{7}, {}), "RTS");
}

/// Polls hard, but lets others run when nothing has come for a while: the machine may have fewer cores than pollers.
class patience {
public:
    void nothing() {
        if (++empty_ % 256 == 0) ::sched_yield();
    }

private:
    unsigned empty_{};
};

inline void wait_for(end& e, unsigned completions) {
    completion out[64];
    patience idle;
    while (completions != 0) {
        const unsigned n = take(e.cq.poll(out, completions < 64 ? completions : 64), "poll");
        for (unsigned i = 0; i < n; ++i)
            if (out[i].status != wc_status::success)
                give_up("a work request", {errc::lane_failed, static_cast<unsigned>(out[i].status)});
        completions -= n;
        if (n == 0) idle.nothing();
    }
}

/// Bytes per second of writing the whole buffer, `depth` chunks in flight.
inline double write_rate(end& e, const end_info& to, unsigned depth) {
    const auto start = steady_clock{}.now();
    unsigned flying = 0;
    for (std::size_t i = 0; i < chunks; ++i) {
        work w;
        w.op = work_op::write;
        w.flags = work_flags::signaled;
        w.local_addr = e.memory.address(i);
        w.remote_addr = to.address + i * chunk;
        w.length = chunk;
        w.lkey = e.mr.local_key();
        w.rkey = to.key;
        check(e.qp.post(w), "post");
        if (++flying == depth) {
            wait_for(e, 1);
            --flying;
        }
    }
    wait_for(e, flying);
    return static_cast<double>(bytes) / seconds_since(start);
}

}  // namespace soft_bench
