#pragma once
/// \file
/// How long set-up calls wait for a software NIC whose thread always has work: rings that are kept full with WRITEs of 64 KiB.

#include <vccl/base/clock.hpp>
#include <vccl/device/ring_nic.hpp>
#include <vccl/verbs/soft.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace bench {

using namespace vccl;
using namespace vccl::device;
using verbs::soft;

class busy_nic {
public:
    busy_nic() {
        const auto here = a_.query(), there = b_.query();
        for (unsigned i = 0; i < rings; ++i) {
            auto at =
                std::make_unique<end>(end{std::move(*nic_.create_qp(a_, {depth, depth})), std::move(*b_.create_qp(cq_, {}))});
            const qp_timers t{};
            good_ &= at->qp.to_init() && at->far.to_init() &&
                     at->qp.to_ready_to_receive({at->far.number(), {}, there->address, 0, there->mtu}, t) &&
                     at->far.to_ready_to_receive({at->qp.number(), {}, here->address, 0, here->mtu}, t) &&
                     at->qp.to_ready_to_send({}, t) && at->far.to_ready_to_send({}, t);
            ends_.push_back(std::move(at));
        }
        threads_.emplace_back([this] {
            while (!stop_)
                if (!nic_.progress()) std::this_thread::yield();
        });
        threads_.emplace_back([this] {
            while (!stop_) {
                for (auto& e : ends_) post(*e);
                std::this_thread::yield();
            }
        });
    }
    ~busy_nic() {
        stop_ = true;
        for (std::thread& t : threads_) t.join();
    }

    /// Of `calls` on a QP that carries nothing, the slowest, in milliseconds; negative if the set-up failed.
    double slowest_ms(unsigned calls) {
        auto idle = nic_.create_qp(a_, {depth, depth});
        if (!good_ || !idle) return -1;
        const steady_clock clock;
        std::int64_t most = 0;
        for (unsigned i = 0; i < calls; ++i) {
            for (const std::uint64_t before = done_; done_ == before;) std::this_thread::yield();  // the NIC is at it
            const nanoseconds begin = clock.now();
            if (!idle->to_reset()) return -1;
            most = std::max(most, (clock.now() - begin).count);
        }
        return static_cast<double>(most) * 1e-6;
    }

private:
    static constexpr std::uint32_t rings = 8, depth = 64, bytes = 64 << 10;
    struct end {
        ring_nic<soft>::qp qp;
        soft::port::qp far;
        std::uint64_t next{}, polled{};
    };
    void post(end& e) {
        const ring r = e.qp.memory();
        for (; e.next - e.polled < depth / 2; ++e.next)
            r.slot(e.next) = write({r.qpn, static_cast<std::uint16_t>(e.next), wqe_flag::completion},
                                   {reinterpret_cast<std::uintptr_t>(to_.data()), far_mr_.remote_key().value},
                                   {reinterpret_cast<std::uintptr_t>(from_.data()), near_mr_.local_key().value, bytes});
        store<order::release, scope::system>(r.doorbell_record + send_record, encode_record(e.next));
        store<order::release, scope::system>(r.doorbell, encode_doorbell(e.next, r.qpn));
        for (cqe_tail c; c = tail_of(load<order::acquire, scope::system>(&r.entry(e.polled).word[15])),
                         is_written(c, e.polled, r.cq_depth_log) && !is_error(c);)
            ++e.polled, ++done_;
        store<order::release, scope::system>(r.cq_record, encode_cq_record(e.polled));
    }

    std::vector<char> from_ = std::vector<char>(bytes), to_ = std::vector<char>(bytes);
    verbs::soft_fabric fabric_ = std::move(*verbs::soft_fabric::create(verbs::soft_topology(2, 1, 2, 1)));
    soft::port a_ = std::move(*fabric_.host("A")->open("A.nic0.p0")), b_ = std::move(*fabric_.host("B")->open("B.nic0.p0"));
    soft::port::mr near_mr_ = std::move(*a_.register_memory(from_.data(), bytes)),
                   far_mr_ = std::move(*b_.register_memory(to_.data(), bytes));
    soft::port::cq cq_ = std::move(*b_.create_cq(64));
    ring_nic<soft> nic_;
    std::vector<std::unique_ptr<end>> ends_;
    std::atomic<std::uint64_t> done_{};
    std::atomic<bool> stop_{};
    bool good_{true};
    std::vector<std::thread> threads_;
};

}  // namespace bench
