/// \file
/// What the software NIC for rings adds to the backend beneath: instructions for an inline WRITE of 8 bytes over the software
/// RNIC in one process, posted as a work request and as a WQE, in batches of 16; and of each part. Counted by callgrind. And how long set-up calls
/// wait for a NIC that always has work.
///
///   ring_nic            prints the table and the BENCH line
///   ring_nic MODE N     one measured loop

#include "../hotpath/callgrind.hpp"
#include "setup_calls.hpp"

#include <vccl/device/ring_nic.hpp>
#include <vccl/verbs/soft.hpp>

#include <cstring>
#include <memory>

namespace {

using namespace vccl;
using namespace vccl::device;
using verbs::soft;

constexpr unsigned batch = 16;

struct ends {
    verbs::soft_fabric fabric = std::move(*verbs::soft_fabric::create(verbs::soft_topology(2, 1, 2, 1)));
    soft::port a = std::move(*fabric.host("A")->open("A.nic0.p0")), b = std::move(*fabric.host("B")->open("B.nic0.p0"));
    std::uint64_t words[2]{};
    soft::port::mr near_mr = std::move(*a.register_memory(&words[0], 8)), far_mr = std::move(*b.register_memory(&words[1], 8));
    soft::port::cq near_cq = std::move(*a.create_cq(64)), far_cq = std::move(*b.create_cq(64));
    soft::port::qp plain = std::move(*a.create_qp(near_cq, {.send_depth = 32})), far = std::move(*b.create_qp(far_cq, {}));
    ring_nic<soft> nic;
    ring_nic<soft>::qp ring_qp = std::move(*nic.create_qp(a, {32, 32}));

    template <class Qp>
    bool connect(Qp& near) {
        const auto here = a.query(), there = b.query();
        const qp_timers t{};
        return near.to_init() && far.to_init() &&
               near.to_ready_to_receive({far.number(), {}, there->address, 0, there->mtu}, t) &&
               far.to_ready_to_receive({near.number(), {}, here->address, 0, here->mtu}, t) && near.to_ready_to_send({}, t) &&
               far.to_ready_to_send({}, t);
    }
    std::uint64_t to() const { return reinterpret_cast<std::uintptr_t>(&words[1]); }
};

VCCL_NOINLINE void work_step(ends& e, std::uint64_t i) {
    work many[batch];
    for (unsigned n = 0; n < batch; ++n) {
        e.words[0] = i + n;
        work& w = many[n];
        w.local_addr = reinterpret_cast<std::uintptr_t>(&e.words[0]);
        w.remote_addr = e.to();
        w.rkey = e.far_mr.remote_key();
        w.length = 8;
        w.flags = work_flags::inlined | work_flags::signaled;
    }
    (void)e.plain.post(std::span<const work>(many));
    completion done[batch];
    for (unsigned polled = 0; polled < batch;) polled += e.near_cq.poll(done, batch).value_or(0);
}

struct poster {
    ring r;
    std::uint64_t next{}, polled{};
};
VCCL_NOINLINE void post_step(ends& e, poster& p, std::uint64_t i) {
    for (unsigned n = 0; n < batch; ++n, ++p.next)
        p.r.slot(p.next) = inline_write({p.r.qpn, static_cast<std::uint16_t>(p.next), wqe_flag::completion},
                                        {e.to(), e.far_mr.remote_key().value}, i + n);
    store<order::release, scope::system>(p.r.doorbell_record + send_record, encode_record(p.next));
    store<order::release, scope::system>(p.r.doorbell, encode_doorbell(p.next, p.r.qpn));
}
VCCL_NOINLINE void nic_step(ends& e) { (void)e.nic.progress(); }
VCCL_NOINLINE void poll_step(poster& p) {
    for (cqe_tail t; t = tail_of(load<order::acquire, scope::system>(&p.r.entry(p.polled).word[15])),
                     is_written(t, p.polled, p.r.cq_depth_log) && !is_error(t);)
        ++p.polled;
    store<order::release, scope::system>(p.r.cq_record, encode_cq_record(p.polled));
}

int work_loop(std::uint64_t writes) {
    const auto e = std::make_unique<ends>();
    if (!e->connect(e->plain)) return 1;
    for (std::uint64_t i = 0; i < writes; i += batch) work_step(*e, i);
    return e->words[1] >= writes - 1 ? 0 : 1;
}
int ring_loop(std::uint64_t writes) {
    const auto e = std::make_unique<ends>();
    if (!e->connect(e->ring_qp)) return 1;
    poster p{e->ring_qp.memory()};
    for (std::uint64_t i = 0; i < writes; i += batch) {
        post_step(*e, p, i);
        while (p.polled != p.next) {
            nic_step(*e);
            poll_step(p);
        }
    }
    return e->words[1] >= writes - 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 2) {
        const std::uint64_t writes = std::strtoull(argv[2], nullptr, 10);
        return std::strcmp(argv[1], "work") == 0 ? work_loop(writes) : ring_loop(writes);
    }
    const double work = hotpath::instructions(argv[0], "work", 0, "work_step");
    const double post = hotpath::instructions(argv[0], "ring", 0, "post_step");
    const double nic = hotpath::instructions(argv[0], "ring", 0, "nic_step");
    const double poll = hotpath::instructions(argv[0], "ring", 0, "poll_step");
    if (work <= 0 || post <= 0 || nic <= 0 || poll <= 0)
        return std::fprintf(stderr, "ring_nic: valgrind is needed (Debian: valgrind)\n"), 1;
    std::printf("instructions per inline WRITE of 8 bytes, batches of %u\n", batch);
    std::printf("%8.1f  as a work request: post and poll\n%8.1f  as a WQE: encode, and ring once a batch\n", work, post);
    std::printf("%8.1f  the NIC, the backend's %.1f included\n%8.1f  polling its CQE\n", nic, work, poll);
    const double setup = bench::busy_nic().slowest_ms(200);
    if (setup < 0) return std::fprintf(stderr, "ring_nic: the busy NIC could not be set up\n"), 1;
    std::printf("%8.1f  milliseconds, the slowest of 200 set-up calls while the NIC's thread always has work\n", setup);
    std::printf("BENCH ring_nic post=%.1f poll=%.1f nic=%.1f work=%.1f nic_to_work=%.2f setup_ms=%.1f\n", post, poll, nic, work,
                nic / work, setup);
    return 0;
}
