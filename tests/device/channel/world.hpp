#pragma once
/// \file
/// A device sender on host A and a device receiver on B over a software fabric with a manual clock. A kernel is code that runs
/// inline in a test: whenever it has to wait, everything else makes a pass.

#include <vccl/device/compose.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/verbs/soft.hpp>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace vccl_test {

using namespace vccl;
using namespace vccl::literals;
using device::device_result;
using device::outcome;
using device::syndrome;

struct journal {
    using policy_axis = axis::completion;
    std::vector<channel_event> events;
    void on_event(const channel_event& e) noexcept { events.push_back(e); }
    unsigned count(channel_event::kind k) const {
        unsigned n = 0;
        for (const auto& e : events) n += e.what == k;
        return n;
    }
};

struct world_options {
    unsigned nics{2}, ports{2};
    verbs::soft_options fabric{};
    device_options tx{}, rx{};
    std::size_t window{1 << 20};
};

template <class Sender, class Receiver, class Nic = verbs::soft>
struct world {
    using nic_type = typename Sender::policies::source;

    world_options o;
    verbs::soft_fabric fabric;
    host_context<Nic> a, b;
    nic_type nic;
    std::vector<unsigned char> out, in;
    memory out_memory, in_memory;
    std::unique_ptr<Sender> tx;
    std::unique_ptr<Receiver> rx;
    std::shared_ptr<testing::memory_oob_link> oob;
    nanoseconds pass_time{2'000};
    std::function<void()> every;  ///< runs before each pass
    bool service{true};           ///< false: nobody drives the sender
    device::host_wait waiting{this, [](void* self) { static_cast<world*>(self)->pass(); },
                              [](void* self) { return static_cast<world*>(self)->fabric.now().count; }};

    static verbs::soft_fabric make(const world_options& o) {
        verbs::soft_options f = o.fabric;
        f.manual_time = true;
        if (f.latency.count == 0) f.latency = 2_us;
        if (f.bytes_per_second == 0) f.bytes_per_second = 10'000'000'000;
        auto made = verbs::soft_fabric::create(make_cluster(2, o.nics, o.ports, 2), f);
        if (!made) throw std::runtime_error("no fabric");
        return std::move(*made);
    }
    explicit world(world_options options = {})
        : o(options),
          fabric(make(o)),
          a(Nic(*fabric.host("A")), fabric.shape()),
          b(Nic(*fabric.host("B")), fabric.shape()),
          nic(fabric.clock()),
          out(o.window),
          in(o.window) {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(i * 7 + i / 251);
        out_memory = std::move(*a.register_memory(out.data(), out.size()));
        in_memory = std::move(*b.register_memory(in.data(), in.size()));
        o.tx.channel.seed = 11;
        o.rx.channel.seed = 22;
        o.tx.wait = o.rx.wait = &waiting;
        tx = std::make_unique<Sender>(a, nic, gpu_id{0}, channel_id{7}, out_memory.view(), o.tx, typename Sender::port_policy{},
                                      journal{}, detect{}, fabric.clock());
        rx = std::make_unique<Receiver>(b, gpu_id{2}, channel_id{7}, in_memory.view(), o.rx, typename Receiver::port_policy{},
                                        journal{}, typename Receiver::policies::failback{}, detect{}, fabric.clock());
    }
    status connect() {
        auto blob_tx = tx->local_info();
        if (!blob_tx) return blob_tx.error();
        auto blob_rx = rx->local_info();
        if (!blob_rx) return blob_rx.error();
        oob = testing::memory_oob::last();
        if (status s = tx->begin_connect(*blob_rx); !s) return s;
        if (status s = rx->begin_connect(*blob_tx); !s) return s;
        return until([&] { return tx->connected() && rx->connected(); }) ? status{} : status{errc::timeout};
    }
    void pass() {
        if (every) every();
        if (service && tx) tx->progress();
        if (rx) rx->progress();
        nic.progress();
        fabric.advance(pass_time);
    }
    bool until(const std::function<bool()>& done, nanoseconds limit = 20_s) {
        const nanoseconds end = fabric.now() + limit;
        while (!done()) {
            if (fabric.now() >= end) return false;
            pass();
        }
        return true;
    }
    void rest(nanoseconds span) {
        const nanoseconds usual = std::exchange(pass_time, 100_us), end = fabric.now() + span;
        while (fabric.now() < end) pass();
        pass_time = usual;
    }
    status command(const std::string& text) { return fabric.command(text); }
};

template <unsigned Qps = 1, class Failback = hold_down<1>, class Port = sibling_port, class Log = rollback_fifo<64>>
using soft_world = world<device_sender<verbs::soft, Port, qp_group<Qps>, Log, journal, manual_clock, testing::memory_oob>,
                         device_receiver<verbs::soft, Port, qp_group<Qps>, journal, manual_clock, testing::memory_oob, Failback>>;

}  // namespace vccl_test
