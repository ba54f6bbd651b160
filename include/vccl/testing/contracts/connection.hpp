#pragma once
/// \file
/// Two connected QPs with their memory and completion queues, as the contracts use them. Owner thread only.

#include <vccl/testing/contracts/fixture.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vccl::inline v0::testing {

/// Ends the case when `s` is an error.
inline void must(status s, const std::string& what) {
    if (!s) FAIL(what << " failed: errc " << int(s.code) << ", detail " << s.detail);
}
/// The value; the end of the case when there is none.
template <class T>
T must(result<T> r, const std::string& what) {
    must(r.error(), what);
    return std::move(*r);
}

/// Sizes and timers of a connection under test.
struct connection_shape {
    qp_limits limits{.send_depth = 64, .recv_depth = 64, .inline_bytes = 64};
    std::uint32_t cq_depth{512};
    std::size_t bytes{64 * 1024};
    qp_timers timers{};
};

/// Timers under which a SEND without a receive waits for ever: the way to keep WRs outstanding on every backend.
inline constexpr qp_timers endless_rnr{.timeout = 14, .retry_count = 2, .rnr_retry = 7, .min_rnr_timer = 12};

template <class F>
struct endpoint {
    using port_type = typename F::backend::port;

    port_type& port;
    std::vector<unsigned char> memory;
    std::optional<typename port_type::cq> cq;
    std::optional<typename port_type::mr> mr;
    std::optional<typename port_type::qp> qp;
    std::vector<completion> done;  ///< everything polled so far, in order

    endpoint(port_type& p, const connection_shape& shape) : port(p), memory(shape.bytes) {
        cq.emplace(must(port.create_cq(shape.cq_depth), "create_cq"));
        mr.emplace(must(port.register_memory(memory.data(), memory.size()), "register_memory"));
        qp.emplace(must(port.create_qp(*cq, shape.limits), "create_qp"));
    }

    std::uint64_t address(std::size_t offset) const noexcept { return reinterpret_cast<std::uint64_t>(memory.data() + offset); }

    void collect() {
        completion some[32];
        for (;;) {
            const unsigned n = must(cq->poll(some, 32), "poll");
            done.insert(done.end(), some, some + n);
            if (n == 0) return;
        }
    }

    void fill(unsigned char seed) {
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<unsigned char>(seed + i * 131 + (i >> 8) * 31);
    }
    void clear(unsigned char value) { std::fill(memory.begin(), memory.end(), value); }

    std::uint64_t word(std::size_t offset) const noexcept {
        std::uint64_t v;
        std::memcpy(&v, memory.data() + offset, sizeof v);
        return v;
    }
    void set_word(std::size_t offset, std::uint64_t v) noexcept { std::memcpy(memory.data() + offset, &v, sizeof v); }

    result<unsigned> post_recv(std::uint64_t wr_id, std::size_t offset, std::uint32_t length) {
        const recv_work r{.wr_id = wr_id, .addr = address(offset), .length = length, .lkey = mr->local_key()};
        return qp->post_recv({&r, 1});
    }
    void must_post_recv(std::uint64_t wr_id, std::size_t offset, std::uint32_t length) {
        REQUIRE(must(post_recv(wr_id, offset, length), "post_recv") == 1);
    }
};

/// `a` is local and initiates; `b` is remote.
template <class F>
struct connection {
    F& fixture;
    connection_shape shape;
    endpoint<F> a, b;

    explicit connection(F& f, const connection_shape& s = {}) : connection(f, f.local(), f.remote(), s) {}
    connection(F& f, typename F::backend::port& local, typename F::backend::port& remote, const connection_shape& s)
        : fixture(f), shape(s), a(local, s), b(remote, s) {
        connect();
    }

    /// The ladder of both ends, from RESET; fresh PSNs each time.
    void connect() {
        const psn from_a{fresh_psn()}, from_b{fresh_psn()};
        must(a.qp->to_init(), "to_init");
        must(b.qp->to_init(), "to_init");
        must(a.qp->to_ready_to_receive(peer(b, from_b), shape.timers), "to_ready_to_receive");
        must(b.qp->to_ready_to_receive(peer(a, from_a), shape.timers), "to_ready_to_receive");
        must(a.qp->to_ready_to_send(from_a, shape.timers), "to_ready_to_send");
        must(b.qp->to_ready_to_send(from_b, shape.timers), "to_ready_to_send");
    }

    /// Fences both QPs, forgets their completions and connects them anew.
    void rebuild() {
        for (endpoint<F>* e : {&a, &b}) must(e->qp->to_error(), "to_error");
        for (endpoint<F>* e : {&a, &b}) must(e->qp->to_reset(), "to_reset");
        collect();
        a.done.clear();
        b.done.clear();
        connect();
    }

    /// Whom the other side of `e` connects to.
    qp_peer peer(endpoint<F>& e, psn first) {
        const port_attributes own = must(e.port.query(), "query");
        const port_attributes other = must((&e == &a ? b : a).port.query(), "query");
        return {.number = e.qp->number(),
                .first_psn = first,
                .address = own.address,
                .lid = own.lid,
                .mtu = std::min(own.mtu, other.mtu)};
    }
    std::uint32_t mtu() { return std::min(must(a.port.query(), "query").mtu, must(b.port.query(), "query").mtu); }

    void collect() {
        a.collect();
        b.collect();
    }
    /// Waits until `e` has seen `n` completions in all.
    bool await(endpoint<F>& e, std::size_t n, nanoseconds limit = patience) {
        return wait_until(
            fixture,
            [&] {
                collect();
                return e.done.size() >= n;
            },
            limit);
    }

    /// A signaled WR of `a` that touches `length` bytes at `here` in a's memory and `there` in b's.
    work make(work_op op, std::size_t here, std::size_t there, std::uint32_t length, std::uint64_t wr_id = 0) const {
        return {.wr_id = wr_id,
                .local_addr = a.address(here),
                .remote_addr = b.address(there),
                .length = length,
                .lkey = a.mr->local_key(),
                .rkey = b.mr->remote_key(),
                .op = op,
                .flags = work_flags::signaled};
    }

    /// Posts on `a` and waits for its completion. Returns: that completion.
    completion run(const work& w) {
        const std::size_t before = a.done.size();
        must(a.qp->post(w), "post");
        REQUIRE(await(a, before + 1));
        CHECK(a.done[before].wr_id == w.wr_id);
        CHECK(a.done[before].qp == a.qp->number());
        return a.done[before];
    }

    /// Checks that a chunk can be moved now.
    void must_carry(std::uint32_t length = 5000) {
        const unsigned char seed = static_cast<unsigned char>(fresh_psn());
        a.fill(seed);
        b.clear(static_cast<unsigned char>(~seed));
        REQUIRE(run(make(work_op::write, 0, 0, length, 4711)).status == wc_status::success);
        CHECK(std::equal(a.memory.begin(), a.memory.begin() + length, b.memory.begin()));
    }

private:
    /// Any 24-bit number, another one each time.
    static std::uint32_t fresh_psn() noexcept {
        static std::uint32_t state = 0x9e3779;
        state = state * 1664525 + 1013904223;
        return state >> 8;
    }
};

}  // namespace vccl::inline v0::testing
