#pragma once
/// \file
/// A queue over two lanes and the simplest NIC that can consume it: it executes WQEs by copying within the process. Windows,
/// signal words and rings all lie here. One thread, unless a test starts more.

#include <vccl/device/queue.hpp>
#include <vccl/device/queue_service.hpp>
#include <vccl/device/ring_consumer.hpp>
#include <vccl/device/ring_memory.hpp>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace vccl_test {

using namespace vccl;
using namespace vccl::device;

/// Executes what a ring holds, at once and in order.
struct copying_nic {
    ring_consumer at;
    std::uint64_t completed{};      ///< WQEs that got a CQE
    std::uint64_t stop_before{~0ull};  ///< executes no WQE from this hardware index on
    std::uint64_t fail_at{~0ull};   ///< gives this hardware index an error CQE
    syndrome failure{syndrome::transport_retry};
    bool silent{};                  ///< executes, but writes no CQE
    bool failed{};
    std::uint64_t executed{};
    std::vector<wqe_fields> seen;

    explicit copying_nic(const ring& r, std::uint64_t index = 0) : at(r, index), completed(index), executed(index) {}

    bool pass() {
        (void)at.take_doorbell(at.doorbell(), completed);
        bool any = false;
        while (at.has_more() && at.next() < stop_before) {
            const fetched_wqe w = at.fetch();
            any = true;
            seen.push_back(w.fields);
            syndrome why = failed ? syndrome::flushed : w.verdict.why;
            if (w.index == fail_at) why = failure;
            if (why == syndrome::none) execute(w);
            failed |= why != syndrome::none;
            ++executed;
            if (silent) continue;
            if (why != syndrome::none || (w.fields.head.flags & wqe_flag::completion) != 0)
                at.complete({at.memory().qpn, w.fields.opcode, 0, why, 0}, w.index);
            completed = w.index + 1;
        }
        return any;
    }
    static void execute(const fetched_wqe& w) {
        const wqe_fields& f = w.fields;
        auto* const remote = reinterpret_cast<std::uint64_t*>(f.remote.addr);
        auto* const local = reinterpret_cast<unsigned char*>(f.local.addr);
        switch (static_cast<wqe_opcode>(f.opcode)) {
            case wqe_opcode::write:
                if (f.inlined) {
                    std::uint64_t value = 0;
                    for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{inline_byte(w.block[0], w.block[1], i)} << (8 * i);
                    store<order::release, scope::system>(remote, value);
                } else {
                    std::memcpy(remote, local, f.local.length);
                }
                break;
            case wqe_opcode::read: std::memcpy(local, remote, f.local.length); break;
            case wqe_opcode::fetch_add: (void)fetch_add<order::acq_rel, scope::system>(remote, f.operand[0]); break;
            default: break;
        }
    }
};

template <queue_space Space>
struct rig_in {
    static constexpr unsigned lanes = 2;
    static constexpr std::uint32_t signals = 8;
    static constexpr std::size_t window_bytes = 1 << 16;

    queue_words words{};
    kernel_words told{};
    host_words host{};
    std::vector<std::uint64_t> notes;
    std::uint64_t sums[signals]{};
    std::uint64_t scratch{};
    alignas(64) std::uint64_t word[signals]{};  ///< the peer's signal words
    std::vector<unsigned char> window, remote;
    ring_memory<heap_memory> rings[lanes];
    std::unique_ptr<copying_nic> nic[lanes];
    queue_view view{};
    queue_service<Space> service;
    std::int64_t time{};
    std::uint64_t passes{};
    std::function<void()> on_pass;
    host_wait waiting{this, [](void* self) { static_cast<rig_in*>(self)->pass(); },
                      [](void* self) { return static_cast<rig_in*>(self)->time; }};

    explicit rig_in(std::uint32_t depth = 16, std::uint64_t start = 0, std::uint16_t hardware = 0)
        : notes(depth), window(window_bytes), remote(window_bytes), service(&view) {
        view.words = &words;
        view.told = &told;
        view.host = &host;
        view.notes = notes.data();
        view.sums = sums;
        view.scratch = reinterpret_cast<std::uint64_t>(&scratch);
        view.window = reinterpret_cast<std::uint64_t>(window.data());
        view.remote = reinterpret_cast<std::uint64_t>(remote.data());
        view.signals = reinterpret_cast<std::uint64_t>(word);
        view.signal_count = signals;
        view.wait = &waiting;
        for (unsigned l = 0; l < lanes; ++l) {
            rings[l] = std::move(*ring_memory<heap_memory>::make(depth, 2 * depth));
            rings[l].view().qpn = 100 + l;
            view.rings[l] = {rings[l].view(), 10 + l, 20 + l, 30 + l, 40 + l};
            nic[l] = std::make_unique<copying_nic>(rings[l].view(), l == 0 ? hardware : 0);
        }
        view.depth_log = rings[0].view().depth_log;
        service.open(0, 1, view.rings[0].ring.qpn, start, hardware);
    }
    rig_in(const rig_in&) = delete;

    void pass() {
        ++passes;
        time += 1000;
        if (on_pass) on_pass();
        for (auto& n : nic)
            if (n) n->pass();
        (void)service.adopt();
    }
    deadline within(std::int64_t ns) const { return {&waiting, ns}; }
};
using rig = rig_in<host_space>;

}  // namespace vccl_test
