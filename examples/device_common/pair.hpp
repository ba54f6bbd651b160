#pragma once
/// \file
/// Two hosts in one process over a software fabric: a software NIC on a thread, and device senders on A with their receivers on
/// B, which another thread drives. With a CUDA compiler the queues are a GPU's, without one this process's.

#include <vccl/base/status_text.hpp>
#include <vccl/device/compose.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>
#if defined(__CUDACC__)
#include <vccl/device/gpu_space.cuh>
#endif

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace example {

using namespace vccl;
using namespace vccl::literals;
using device::device_result;
using device::outcome;

#if defined(__CUDACC__)
using space = device::gpu_space;
#else
using space = device::host_space;
#endif

inline void need(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}
inline void need(const status& s, const char* what) {
    if (s) return;
    std::fprintf(stderr, "%s: %s\n", what, describe(s).c_str());
    std::exit(1);
}
inline double seconds() { return static_cast<double>(steady_clock{}.now().count) * 1e-9; }

/// Bytes that device code and the NIC reach under one address.
struct window {
    unsigned char* bytes;
    std::size_t size;
    explicit window(std::size_t n) : bytes(static_cast<unsigned char*>(space::shared::allocate(n))), size(n) {
        need(bytes != nullptr, "out of memory");
    }
    window(const window&) = delete;
    ~window() { space::shared::free(bytes); }
};

/// Prints what happens to lanes.
struct narrator {
    using policy_axis = axis::completion;
    const char* who{};
    double begin{};
    void on_event(const channel_event& e) noexcept {
        using kind = channel_event::kind;
        const char* const what = e.what == kind::lane_failed     ? "a lane failed"
                                 : e.what == kind::failed_over   ? "failed over"
                                 : e.what == kind::lane_restored ? "a lane is back and answers"
                                 : e.what == kind::failed_back   ? "failed back"
                                 : e.what == kind::suspended     ? "no lane is left: waiting"
                                                                 : nullptr;
        if (!who || !what) return;
        std::printf("%8.3f s  %s: %s", seconds() - begin, who, what);
        if (e.what == kind::failed_over)
            std::printf(", %llu WQEs posted again, %llu had taken effect unacknowledged",
                        static_cast<unsigned long long>(e.replayed), static_cast<unsigned long long>(e.already_delivered));
        std::puts("");
    }
};

template <unsigned Qps>
using sender = device_sender<verbs::soft, channel_parity, qp_group<Qps>, rollback_fifo<128>, narrator, space>;
template <unsigned Qps>
using receiver = device_receiver<verbs::soft, channel_parity, qp_group<Qps>, narrator, hold_down<50>, space>;

/// `Qps` queues for each of `senders` senders; sender i has the i-th share of both windows and begins on port i mod ports.
template <unsigned Qps>
class pair {
public:
    pair(unsigned senders, unsigned ports, std::size_t share, bool tell = false, std::uint64_t bytes_per_second = 0)
        : fabric(make(ports, bytes_per_second)),
          a(*fabric.host("A"), fabric.shape()),
          b(*fabric.host("B"), fabric.shape()),
          out(senders * share),
          in(senders * share) {
        auto from = a.register_memory(out.bytes, out.size), to = b.register_memory(in.bytes, in.size);
        need(from && to, "cannot register memory");
        out_memory = std::move(*from);
        in_memory = std::move(*to);
#if defined(__CUDACC__)
        auto made = device::gpu_link::open(0);
        need(made.error(), "no GPU");
        link = std::move(*made);
        const space memory{link.get()};
#else
        const space memory{};
#endif
        nic_thread = std::thread([this] {
            while (!stop)
                if (!nic.progress()) std::this_thread::yield();
        });
        device_options o;
        o.signals = 32;
        o.timeout = 30_s;
        for (unsigned i = 0; i < senders; ++i) {
            const channel_id c{i};
            tx.push_back(std::make_unique<sender<Qps>>(a, nic, gpu_id{0}, c, out_memory.view(i * share, share), o,
                                                       channel_parity{}, narrator{tell ? "A" : nullptr, seconds()}, detect{},
                                                       steady_clock{}, memory));
            rx.push_back(std::make_unique<receiver<Qps>>(b, gpu_id{1}, c, in_memory.view(i * share, share), o, channel_parity{},
                                                         narrator{tell ? "B" : nullptr, seconds()}));
            const auto of_tx = tx[i]->local_info(), of_rx = rx[i]->local_info();
            need(of_tx.error(), "sender");
            need(of_rx.error(), "receiver");
            need(tx[i]->begin_connect(*of_rx), "connect");
            need(rx[i]->begin_connect(*of_tx), "connect");
        }
        service = std::thread([this] {
            while (!stop) {
                bool moved = false;
                for (auto& t : tx) moved |= t->progress();
                for (auto& r : rx) moved |= r->progress();
                ready = connected();
                if (!moved) std::this_thread::yield();
            }
        });
        for (const double until = seconds() + 20; !ready && seconds() < until;) std::this_thread::yield();
        need(ready, "the channels did not connect within 20 s");
    }
    ~pair() {
        stop = true;
        service.join();
        nic_thread.join();
    }

    verbs::soft_fabric fabric;
    host_context<verbs::soft> a, b;
    device::ring_nic<verbs::soft, space::shared> nic;
#if defined(__CUDACC__)
    owned<device::gpu_link> link;
#endif
    window out, in;
    memory out_memory, in_memory;
    std::vector<std::unique_ptr<sender<Qps>>> tx;
    std::vector<std::unique_ptr<receiver<Qps>>> rx;

private:
    static verbs::soft_fabric make(unsigned ports, std::uint64_t bytes_per_second) {
        verbs::soft_options o;
        o.bytes_per_second = bytes_per_second;
        auto made = verbs::soft_fabric::create(verbs::soft_topology(2, 1, ports, 1), o);
        need(made.error(), "fabric");
        return std::move(*made);
    }
    bool connected() const {
        for (auto& t : tx)
            if (!t->connected()) return false;
        for (auto& r : rx)
            if (!r->connected()) return false;
        return true;
    }

    std::atomic<bool> stop{}, ready{};
    std::thread nic_thread, service;
};

}  // namespace example
