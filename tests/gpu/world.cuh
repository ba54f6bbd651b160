#pragma once
/// \file
/// A device sender and a receiver in one process over a software fabric in real time: kernels post, a CPU thread is the NIC,
/// another drives both endpoints.

#include "check.hpp"

#include <vccl/device.cuh>
#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace vccl_gpu_test {

using namespace vccl;
using namespace vccl::literals;
using device::device_result;
using device::outcome;
using device::syndrome;

struct happenings {
    using policy_axis = axis::completion;
    std::atomic<unsigned>* failed_over{};
    std::atomic<unsigned>* failed_back{};
    void on_event(const channel_event& e) noexcept {
        if (e.what == channel_event::kind::failed_over && failed_over) ++*failed_over;
        if (e.what == channel_event::kind::failed_back && failed_back) ++*failed_back;
    }
};

/// Faults of the first QP's NIC.
struct faulty_rings {
    using policy_axis = axis::rings;
    static inline device::ring_faults faults{};
    struct source : device::ring_nic<verbs::soft, device::mapped_memory> {
        using ring_nic::ring_nic;
        bool done{};
        result<qp> create_qp(port_type& port, const device::ring_limits& limits) noexcept {
            auto made = ring_nic::create_qp(port, limits);
            if (made && !std::exchange(done, true)) (void)made->inject(faults);
            return made;
        }
    };
};

/// Registered memory that the CPU's NIC and kernels reach under one address.
struct window {
    unsigned char* bytes;
    std::size_t size;
    explicit window(std::size_t n) : bytes(static_cast<unsigned char*>(device::mapped_memory::allocate(n))), size(n) {}
    ~window() { device::mapped_memory::free(bytes); }
    window(const window&) = delete;
};

/// `Space`: where the queues' words lie; in host memory if kernels post through a host ring.
template <unsigned Qps, class Sharing = shared_by_gpu, class Log = rollback_fifo<128>, class Space = device::gpu_space>
struct world {
    using sender = device_sender<verbs::soft, sibling_port, qp_group<Qps>, Log, happenings, Sharing, Space, faulty_rings>;
    using receiver = device_receiver<verbs::soft, sibling_port, qp_group<Qps>, happenings, hold_down<5>, device::gpu_space>;
    using ref = typename sender::ref_type;

    verbs::soft_fabric fabric;
    host_context<verbs::soft> a, b;
    typename faulty_rings::source nic;
    owned<device::gpu_link> link;
    window out, in;
    memory out_memory, in_memory;
    std::atomic<unsigned> failed_over{}, failed_back{};
    std::unique_ptr<sender> tx;
    std::unique_ptr<receiver> rx;
    std::atomic<bool> stop{}, service{true};
    std::function<void()> drive = [this] { tx->progress(); };
    std::thread nic_thread, service_thread;

    static verbs::soft_fabric make() {
        verbs::soft_options f;
        f.latency = 2_us;
        auto made = verbs::soft_fabric::create(make_cluster(2, 1, 2, 2), f);
        if (!made) std::abort();
        return std::move(*made);
    }
    explicit world(std::size_t bytes = 1 << 20, nanoseconds timeout = 20_s, qp_timers timers = {})
        : fabric(make()),
          a(*fabric.host("A"), fabric.shape()),
          b(*fabric.host("B"), fabric.shape()),
          link(std::move(*device::gpu_link::open(0))),
          out(bytes),
          in(bytes) {
        for (std::size_t i = 0; i < bytes; ++i) out.bytes[i] = static_cast<unsigned char>(i * 7 + i / 251 + 1);
        out_memory = std::move(*a.register_memory(out.bytes, bytes));
        in_memory = std::move(*b.register_memory(in.bytes, bytes));
        device_options o;
        o.timeout = timeout;
        o.signals = 32;
        o.channel.timers = timers;
        tx = std::make_unique<sender>(a, nic, gpu_id{0}, channel_id{1}, out_memory.view(), o, sibling_port{},
                                      happenings{&failed_over, &failed_back}, detect{}, steady_clock{}, space());
        rx = std::make_unique<receiver>(b, gpu_id{2}, channel_id{1}, in_memory.view(), o);
    }
    Space space() {
        if constexpr (std::is_same_v<Space, device::gpu_space>)
            return {link.get()};
        else
            return {};
    }
    bool start() {
        nic_thread = std::thread([this] {
            while (!stop) nic.progress();
        });
        const auto of_tx = tx->local_info(), of_rx = rx->local_info();
        if (!of_tx || !of_rx || !tx->begin_connect(*of_rx) || !rx->begin_connect(*of_tx)) return false;
        for (int i = 0; i < 2'000'000 && !(tx->connected() && rx->connected()); ++i) {
            tx->progress();
            rx->progress();
        }
        service_thread = std::thread([this] {
            while (!stop) {
                if (service) drive();
                rx->progress();
            }
        });
        return tx->connected() && rx->connected();
    }
    ~world() { halt(); }
    void halt() {
        (void)cudaDeviceSynchronize();
        stop = true;
        if (service_thread.joinable()) service_thread.join();
        if (nic_thread.joinable()) nic_thread.join();
    }
    bool command(const std::string& text) { return static_cast<bool>(fabric.command(text)); }
    std::uint64_t signal(std::uint32_t w) const { return rx->ref().peek(w); }
    /// How many bytes that arrived differ from where they came from, of [0, upto).
    std::size_t wrong(std::size_t upto) const {
        std::size_t n = 0;
        for (std::size_t i = 0; i < upto; ++i) n += in.bytes[i] != out.bytes[i];
        return n;
    }
};

/// Results of kernels: mapped, one per warp or so, 1 for success.
struct results {
    std::uint64_t* word;
    unsigned count;
    explicit results(unsigned n) : word(static_cast<std::uint64_t*>(device::mapped_memory::allocate(8 * n))), count(n) {}
    ~results() { device::mapped_memory::free(word); }
    results(const results&) = delete;
    unsigned bad() const {
        unsigned n = 0;
        for (unsigned i = 0; i < count; ++i) n += !device::unpack(word[i]);
        return n;
    }
};

inline void sleep_us(unsigned us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

}  // namespace vccl_gpu_test
