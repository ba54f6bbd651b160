#pragma once
/// \file
/// Two connected ends on the guest's RoCE ports, for tests that play both hosts in one process. Test thread only.

#include <vccl/base/clock.hpp>
#include <vccl/verbs/ibv.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace guest {

using namespace vccl;
using namespace vccl::literals;
using backend = verbs::ibv;

/// The value, or the end of this test case with the status in its message.
template <class T>
T must(result<T> r) {
    const status why = r.error();
    REQUIRE_MESSAGE(r, "errc " << int(why.code) << ", detail " << why.detail);
    return std::move(*r);
}
inline void must(status s) { REQUIRE_MESSAGE(s, "errc " << int(s.code) << ", detail " << s.detail); }

inline bool have_rdma() { return backend{.devices = "rxe_a0"}.discover().has_value(); }

/// The guest's network in a test case that breaks it; whole again however the test case ends.
class network_faults {
public:
    network_faults() = default;
    network_faults(const network_faults&) = delete;
    ~network_faults() {
        if (broken_) CHECK(run("mend"));
    }
    /// Effects: as tests/guest/fault with these arguments. Returns: whether it was done.
    bool fault(const char* what) {
        broken_ = true;
        return run(what);
    }

private:
    static bool run(const char* what) {
        const char* const tool = std::getenv("VCCL_GUEST_FAULT");
        return tool != nullptr && std::system((std::string(tool) + ' ' + what).c_str()) == 0;
    }
    bool broken_{false};
};

/// Repeats `attempt` until it holds; false at the deadline. Sleeps in between: the guest may have one processor.
template <class Attempt>
bool eventually(Attempt attempt, nanoseconds limit = 5_s) {
    const steady_clock clock;
    for (const nanoseconds end = clock.now() + limit; clock.now() < end; ::usleep(20))
        if (attempt()) return true;
    return attempt();
}

struct end {
    explicit end(const char* device, const qp_limits& limits = {}, std::size_t bytes = 1 << 20, const backend& way = {})
        : memory(bytes),
          port(must(way.open(device))),
          cq(must(port.create_cq(2 * (limits.send_depth + limits.recv_depth)))),
          qp(must(port.create_qp(cq, limits))),
          mr(must(port.register_memory(memory.data(), memory.size()))) {}

    std::uint64_t address(std::size_t offset = 0) const { return reinterpret_cast<std::uint64_t>(memory.data()) + offset; }
    qp_peer as_peer() {
        const port_attributes here = must(port.query());
        return {qp.number(), first_psn, here.address, here.lid, here.mtu};
    }
    void connect(const qp_peer& peer, const qp_timers& timers = {}) {
        must(qp.to_reset());
        must(qp.to_init());
        must(qp.to_ready_to_receive(peer, timers));
        must(qp.to_ready_to_send(first_psn, timers));
    }
    /// One completion; nothing when none comes in time.
    std::optional<completion> next(nanoseconds limit = 5_s) {
        completion c;
        return eventually([&] { return must(cq.poll(&c, 1)) == 1; }, limit) ? std::optional{c} : std::nullopt;
    }
    bool event(async_event::kind wanted, nanoseconds limit = 5_s) {
        return eventually([&] { return must(port.next_event()).what == wanted; }, limit);
    }
    void drain_events() {
        while (must(port.next_event()).what != async_event::kind::none) {}
    }
    work write_to(const end& far, std::uint32_t length, std::uint64_t wr_id = 1) const {
        work w;
        w.wr_id = wr_id;
        w.local_addr = address();
        w.remote_addr = far.address();
        w.length = length;
        w.lkey = mr.local_key();
        w.rkey = far.mr.remote_key();
        w.flags = work_flags::signaled;
        return w;
    }

    std::vector<unsigned char> memory;
    backend::port port;
    backend::port::cq cq;
    backend::port::qp qp;
    backend::port::mr mr;
    psn first_psn{0x123456};
};

/// Host a's port of a rail and host b's, connected.
struct pair {
    explicit pair(unsigned rail = 0, const qp_timers& t = {}, const qp_limits& limits = {})
        : timers(t), a(("rxe_a" + std::to_string(rail)).c_str(), limits), b(("rxe_b" + std::to_string(rail)).c_str(), limits) {
        connect();
    }
    void connect() {
        const qp_peer of_a = a.as_peer(), of_b = b.as_peer();
        a.connect(of_b, timers);
        b.connect(of_a, timers);
    }
    qp_timers timers;
    end a, b;
};

/// A host of the guest with a GPU that is not there at each port.
inline topology host(const char* letter) {
    topology t = must(backend{.devices = (std::string("rxe_") + letter).c_str()}.discover());
    for (std::uint16_t g = 0; g < t.nics.size(); ++g) {
        topology::gpu& made = t.gpus.emplace_back();
        made.name = std::string_view("gpu" + std::to_string(g));
        for (std::uint16_t n = 0; n < t.nics.size(); ++n) made.to_nic.push_back(n == g ? path::nearest : path::same_numa);
    }
    return t;
}

}  // namespace guest
