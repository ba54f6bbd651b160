#pragma once
/// \file
/// What the software RNIC's tests share: an end (port, CQ, QP, registered memory) and a connected pair of them.

#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace soft_test {

using namespace vccl;
using namespace vccl::literals;
using verbs::soft;
using verbs::soft_fabric;
using verbs::soft_options;
using verbs::soft_topology;

inline soft_options by_hand(std::uint64_t seed = 1) {
    soft_options o;
    o.manual_time = true;
    o.seed = seed;
    return o;
}

/// Declared so that destruction releases QP and MR before CQ, and CQ before port.
struct end {
    std::vector<std::uint64_t> words;  ///< the registered memory
    soft::port port;
    soft::port::cq cq;
    soft::port::mr mr;
    soft::port::qp qp;
    port_attributes attributes;

    std::byte* bytes() { return reinterpret_cast<std::byte*>(words.data()); }
    std::uint64_t address(std::size_t offset = 0) const { return reinterpret_cast<std::uintptr_t>(words.data()) + offset; }
};

struct end_options {
    std::size_t bytes = 1 << 20;
    std::uint32_t cq_depth = 1024;
    qp_limits limits{};
    qp_timers timers{};
    psn first{0xfffff0};  ///< so that PSNs wrap early in every test
};

template <class T>
T take(result<T> r) {
    REQUIRE_MESSAGE(r.has_value(), "errc ", static_cast<int>(r.error().code), " detail ", r.error().detail);
    return std::move(*r);
}

inline end make_end(const soft& host, const char* port, const end_options& o = {}) {
    end e;
    e.words.resize(o.bytes / 8);
    e.port = take(host.open(port));
    e.attributes = take(e.port.query());
    e.cq = take(e.port.create_cq(o.cq_depth));
    e.mr = take(e.port.register_memory(e.words.data(), o.bytes));
    e.qp = take(e.port.create_qp(e.cq, o.limits));
    return e;
}

inline void join(end& one, const end& other, const end_options& o = {}) {
    const auto there = const_cast<end&>(other).port.query();
    REQUIRE(one.qp.to_init());
    REQUIRE(one.qp.to_ready_to_receive({other.qp.number(), o.first, there->address, 0, there->mtu}, o.timers));
    REQUIRE(one.qp.to_ready_to_send(o.first, o.timers));
}

struct pair {
    soft_fabric fabric;
    end a, b;
};

inline pair make_pair(const soft_options& options = by_hand(), const end_options& o = {}) {
    auto fabric = take(soft_fabric::create(soft_topology(2, 2, 2, 2), options));
    auto a = make_end(take(fabric.host("A")), "A.nic0.p0", o);
    auto b = make_end(take(fabric.host("B")), "B.nic0.p0", o);
    join(a, b, o);
    join(b, a, o);
    return {std::move(fabric), std::move(a), std::move(b)};
}

/// Runs all events that are due without moving the clock.
inline void settle(soft_fabric& f) {
    while (f.step()) {}
}

/// Runs until nothing is left to happen, moving the clock as far as it takes.
inline void run_dry(soft_fabric& f, nanoseconds most = 100_s) {
    const nanoseconds until = f.now() + most;
    for (auto at = f.next_event_at(); at <= until; at = f.next_event_at()) f.advance(at > f.now() ? at - f.now() : 0_ns);
}

inline std::vector<completion> drain(end& e) {
    std::vector<completion> all;
    completion some[16];
    for (;;) {
        auto n = e.cq.poll(some, 16);
        if (!n || *n == 0) return all;
        all.insert(all.end(), some, some + *n);
    }
}

inline work write(end& from, end& to, std::uint32_t length, std::uint64_t id = 1, std::size_t at = 0) {
    work w;
    w.wr_id = id;
    w.op = work_op::write;
    w.flags = work_flags::signaled;
    w.local_addr = from.address(at);
    w.remote_addr = to.address(at);
    w.length = length;
    w.lkey = from.mr.local_key();
    w.rkey = to.mr.remote_key();
    return w;
}
inline work with(work w, work_op op) {
    w.op = op;
    return w;
}
inline recv_work receive(end& e, std::uint64_t id, std::uint32_t length, std::size_t at = 0) {
    return {id, e.address(at), length, e.mr.local_key()};
}

inline void fill(end& e, std::uint64_t seed) {
    for (auto& w : e.words) w = verbs::soft_detail::mix(seed++);
}

}  // namespace soft_test
