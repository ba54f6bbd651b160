#pragma once
// Two ends over a software fabric, A posting into a ring that a ring NIC consumes. The poster here is as plain as can be: one
// thread, no credit, so that tests can also do what a queue never would.

#include <vccl/device/ring_nic.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace ring_test {

using namespace vccl;
using namespace vccl::device;
using namespace vccl::literals;
using verbs::soft;
using verbs::soft_fabric;
using verbs::soft_options;

template <class T>
T take(result<T> r) {
    REQUIRE_MESSAGE(r.has_value(), "errc ", static_cast<int>(r.error().code), " detail ", r.error().detail);
    return std::move(*r);
}

/// A CQE as a test wants to see it.
struct seen {
    std::uint16_t index{};
    syndrome why{};
    std::uint8_t vendor{};
    std::uint32_t bytes{};
    std::uint8_t opcode{};
    std::uint32_t qpn{};
};

class poster {
public:
    explicit poster(const ring& r, std::uint64_t index = 0, std::uint64_t entry = 0) : ring_(r), next_(index), polled_(entry) {}

    std::uint64_t next() const { return next_; }
    wqe_head head(std::uint8_t flags = wqe_flag::completion) const {
        return {ring_.qpn, static_cast<std::uint16_t>(next_), flags};
    }
    void put(const wqe_block& b) { ring_.slot(next_++) = b; }
    void put(const wqe_pair& p) {
        put(p.block[0]);
        put(p.block[1]);
    }
    void record() { store<order::release, scope::system>(ring_.doorbell_record + send_record, encode_record(next_)); }
    void knock(std::uint64_t value) { store<order::release, scope::system>(ring_.doorbell, value); }
    void ring_it() {
        record();
        knock(encode_doorbell(next_, ring_.qpn));
    }
    bool poll_one(seen& out) {
        cqe64& slot = ring_.entry(polled_);
        const cqe_tail tail = tail_of(load<order::acquire, scope::system>(&slot.word[15]));
        if (!is_written(tail, polled_, ring_.cq_depth_log)) return false;
        const cqe_body body = decode(slot);
        out = {tail.wqe_index, body.why, body.vendor, body.byte_count, body.wqe_opcode, body.qpn};
        CHECK(is_error(tail) == (body.why != syndrome::none));
        ++polled_;
        return true;
    }
    void tell() { store<order::release, scope::system>(ring_.cq_record, encode_cq_record(polled_)); }
    std::vector<seen> poll() {
        std::vector<seen> all;
        for (seen s; poll_one(s);) all.push_back(s);
        tell();
        return all;
    }

private:
    ring ring_;
    std::uint64_t next_, polled_;
};

inline soft_options by_hand() {
    soft_options o;
    o.manual_time = true;
    return o;
}

struct world_options {
    ring_limits limits{16, 0};
    std::size_t bytes{1 << 16};
    soft_options fabric{by_hand()};
    qp_timers timers{};
    std::uint64_t index{}, entry{};  ///< where the ring starts
};

using manual_nic = ring_nic<soft, heap_memory, manual_clock>;

/// A: port, registered memory, ring QP. B: port, registered memory, verbs QP. Connected.
template <class Nic = manual_nic>
struct world {
    world_options options;
    soft_fabric fabric;
    std::vector<std::uint64_t> near_words, far_words;
    soft::port a, b;
    soft::port::mr near_mr, far_mr;
    soft::port::cq far_cq;
    soft::port::qp far_qp;
    Nic nic;
    typename Nic::qp qp;
    poster post;

    template <class Clock>
    world(const world_options& o, soft_fabric f, Clock clock)
        : options(o),
          fabric(std::move(f)),
          near_words(o.bytes / 8),
          far_words(o.bytes / 8),
          a(take(take(fabric.host("A")).open("A.nic0.p0"))),
          b(take(take(fabric.host("B")).open("B.nic0.p0"))),
          near_mr(take(a.register_memory(near_words.data(), o.bytes))),
          far_mr(take(b.register_memory(far_words.data(), o.bytes))),
          far_cq(take(b.create_cq(64))),
          far_qp(take(b.create_qp(far_cq, {}))),
          nic(clock),
          qp(take(nic.create_qp(a, o.limits))),
          post(qp.memory(), o.index, o.entry) {
        REQUIRE(qp.start_at(o.index, o.entry));
        connect();
    }
    void connect() {
        const auto here = take(a.query()), there = take(b.query());
        const psn first{0xfffff0};
        REQUIRE(qp.to_init());
        REQUIRE(far_qp.to_init());
        REQUIRE(qp.to_ready_to_receive({far_qp.number(), first, there.address, 0, there.mtu}, options.timers));
        REQUIRE(far_qp.to_ready_to_receive({qp.number(), first, here.address, 0, here.mtu}, options.timers));
        REQUIRE(qp.to_ready_to_send(first, options.timers));
        REQUIRE(far_qp.to_ready_to_send(first, options.timers));
    }

    unsigned char* near_bytes() { return reinterpret_cast<unsigned char*>(near_words.data()); }
    unsigned char* far_bytes() { return reinterpret_cast<unsigned char*>(far_words.data()); }
    wqe_remote there(std::size_t at) const {
        return {reinterpret_cast<std::uintptr_t>(far_words.data()) + at, far_mr.remote_key().value};
    }
    wqe_local here(std::size_t at, std::uint32_t length) const {
        return {reinterpret_cast<std::uintptr_t>(near_words.data()) + at, near_mr.local_key().value, length};
    }

    /// Runs NIC and fabric until nothing moves that is due now.
    void settle() {
        do {
            while (nic.progress() || fabric.step()) {}
            (void)far_qp.state();
        } while (nic.progress());
    }
    /// Moves the clock on by up to `most`, from event to event.
    void pass_time(nanoseconds most) {
        const nanoseconds until = fabric.now() + most;
        settle();
        while (fabric.now() < until) {
            const nanoseconds at = fabric.next_event_at();
            const nanoseconds to = at < until ? at : until;
            fabric.advance(to > fabric.now() ? to - fabric.now() : 1_ns);
            settle();
        }
    }
};

inline world<> make_world(const world_options& o = {}) {
    auto fabric = take(soft_fabric::create(verbs::soft_topology(2, 1, 2, 1), o.fabric));
    const manual_clock clock = fabric.clock();
    return world<>(o, std::move(fabric), clock);
}

}  // namespace ring_test
