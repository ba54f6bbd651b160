#pragma once
/// \file
/// Two hosts in one process under a manual clock: a sender on A, a receiver on B, a fabric between them, and a user at
/// each end who sends and receives numbered chunks and checks every byte that arrives.

#include <vccl/model/shapes.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vccl_test {

using namespace vccl;
using namespace vccl::literals;

/// Counts and keeps what happened.
struct journal {
    using policy_axis = axis::completion;
    std::vector<channel_event> events;
    std::vector<chunk_report> chunks;
    std::vector<immediate> arrivals;  ///< of parts, as they came in, old news included
    void on_polled(const completion& c) noexcept {
        if (c.op == completion_op::recv_write_imm && c.status == wc_status::success) arrivals.push_back({c.immediate});
    }
    void on_done(const chunk_report& r) noexcept { chunks.push_back(r); }
    std::size_t arrivals_at_failover{};  ///< when the last one was announced
    void on_event(const channel_event& e) noexcept {
        events.push_back(e);
        if (e.what == channel_event::kind::failed_over) arrivals_at_failover = arrivals.size();
    }
    unsigned count(channel_event::kind k) const {
        unsigned n = 0;
        for (const auto& e : events) n += e.what == k;
        return n;
    }
    /// The first event of a kind, or none.
    const channel_event* first(channel_event::kind k) const {
        for (const auto& e : events)
            if (e.what == k) return &e;
        return nullptr;
    }
};

struct world_options {
    unsigned nics{2}, ports{2};
    verbs::soft_options fabric{};
    endpoint_options tx{}, rx{};
    std::uint32_t chunk{64 * 1024};
    unsigned buffers{16};
};

template <class Sender, class Receiver, class Nic = verbs::soft>
struct world {
    using endpoint_clock = manual_clock;

    world_options o;
    verbs::soft_fabric fabric;
    host_context<Nic> a, b;
    std::unique_ptr<Sender> tx;
    std::unique_ptr<Receiver> rx;
    std::shared_ptr<testing::memory_oob_link> oob;
    std::vector<std::byte> out, in;
    std::vector<std::byte> sender_blob, receiver_blob;
    memory out_memory, in_memory;
    std::uint64_t sent{}, checked{}, wrong{}, late{};
    std::vector<std::uint32_t> sizes;   ///< of each chunk sent
    nanoseconds pass_time{2'000};       ///< how much time one pass of both ends takes

    static verbs::soft_fabric make(const world_options& o) {
        verbs::soft_options f = o.fabric;
        f.manual_time = true;
        if (f.latency.count == 0) f.latency = 2_us;
        if (f.bytes_per_second == 0) f.bytes_per_second = 10'000'000'000;
        auto made = verbs::soft_fabric::create(make_cluster(2, o.nics, o.ports, 2), f);
        if (!made) throw std::runtime_error("no fabric: errc " + std::to_string(static_cast<int>(made.error().code)));
        return std::move(*made);
    }

    explicit world(world_options options = {})
        : o(options), fabric(make(o)), a(Nic(*fabric.host("A")), fabric.shape()), b(Nic(*fabric.host("B")), fabric.shape()) {
        o.tx.seed = 11;
        o.rx.seed = 22;
        tx = std::make_unique<Sender>(a, gpu_id{0}, channel_id{7}, o.tx, typename Sender::port_policy{}, journal{},
                                      typename Sender::log_type{}, detect{}, fabric.clock());
        rx = std::make_unique<Receiver>(b, gpu_id{2}, channel_id{7}, o.rx, typename Receiver::port_policy{}, journal{},
                                        typename Receiver::failback_type{}, detect{}, fabric.clock());
        out.resize(std::size_t{o.chunk} * o.buffers);
        in.resize(std::size_t{o.chunk} * o.buffers);
    }

    status connect() {
        auto blob_tx = tx->local_info();
        if (!blob_tx) return blob_tx.error();
        auto blob_rx = rx->local_info();
        if (!blob_rx) return blob_rx.error();
        sender_blob = *blob_tx;
        receiver_blob = *blob_rx;
        oob = testing::memory_oob::last();
        if (status s = tx->begin_connect(*blob_rx); !s) return s;
        if (status s = rx->begin_connect(*blob_tx); !s) return s;
        auto m = a.register_memory(out.data(), out.size());
        auto n = b.register_memory(in.data(), in.size());
        if (!m || !n) return m ? n.error() : m.error();
        out_memory = std::move(*m);
        in_memory = std::move(*n);
        return {};
    }

    static std::byte byte_of(std::uint64_t s, std::uint64_t i) noexcept {
        return static_cast<std::byte>((s * 131 + i * 7 + i / 251) & 0xff);
    }

    void pass() {
        tx->progress();
        rx->progress();
        fabric.advance(pass_time);
    }
    /// Passes until `done`, at most for `limit` of fabric time.
    bool until(const std::function<bool()>& done, nanoseconds limit = 20_s) {
        const nanoseconds end = fabric.now() + limit;
        while (!done()) {
            if (fabric.now() >= end) return false;
            pass();
        }
        return true;
    }
    bool run() {
        return until([&] { return tx->connected() && rx->connected(); });
    }

    /// The users: keep the pipe full up to chunk `goal`, check what arrives. `size` of each chunk by its number.
    void users(std::uint64_t goal, const std::function<std::uint32_t(std::uint64_t)>& size) {
        for (; checked < rx->received().value; ++checked) {
            const auto bytes = rx->outcome(sequence{checked});
            if (!bytes || *bytes != sizes[checked]) {
                ++wrong;
                continue;
            }
            std::byte* p = in.data() + checked % o.buffers * o.chunk;
            for (std::uint64_t i = 0; i < *bytes; ++i) wrong += p[i] != byte_of(checked, i);
            std::fill(p, p + o.chunk, consumed);  // what was read is marked, so that a late write shows
        }
        while (rx->next().value < goal && rx->next().value - checked < o.buffers) {
            const std::uint64_t s = rx->next().value;
            if (s >= o.buffers) late += touched(s);
            if (!rx->recv(in_memory.view(s % o.buffers * o.chunk, o.chunk))) break;
        }
        while (sent < goal && sent - tx->acknowledged().value < o.buffers) {
            const std::uint32_t n = size(sent);
            std::byte* p = out.data() + sent % o.buffers * o.chunk;
            for (std::uint32_t i = 0; i < n; ++i) p[i] = byte_of(sent, i);
            if (!tx->send(out_memory.view(sent % o.buffers * o.chunk, n))) break;
            sizes.push_back(n);
            ++sent;
        }
    }
    /// Was the buffer of chunk `s`, consumed and not posted again, written since?
    bool touched(std::uint64_t s) const {
        const std::byte* p = in.data() + s % o.buffers * o.chunk;
        return std::any_of(p, p + o.chunk, [](std::byte b) { return b != consumed; });
    }
    static constexpr std::byte consumed{0xee};
    /// Transfers `goal` chunks in all; `every` runs before each pass. True if all arrived in time.
    bool transfer(
        std::uint64_t goal, const std::function<void()>& every = [] {}, nanoseconds limit = 60_s) {
        return transfer_of(
            goal, [this](std::uint64_t) { return o.chunk; }, every, limit);
    }
    bool transfer_of(
        std::uint64_t goal, const std::function<std::uint32_t(std::uint64_t)>& size, const std::function<void()>& every = [] {},
        nanoseconds limit = 60_s) {
        const nanoseconds end = fabric.now() + limit;
        while (checked < goal || tx->acknowledged().value < goal) {
            if (fabric.now() >= end) return false;
            if (!tx->health() || !rx->health()) return false;
            every();
            users(goal, size);
            pass();
        }
        return true;
    }
    status command(const std::string& text) { return fabric.command(text); }

    /// Lets fabric time pass with both ends at work, in steps of `step`.
    void rest(nanoseconds span, nanoseconds step = 100_us) {
        const nanoseconds usual = std::exchange(pass_time, step);
        const nanoseconds end = fabric.now() + span;
        while (fabric.now() < end) pass();
        pass_time = usual;
    }
    /// How many consumed buffers that were not posted again have been written since.
    std::uint64_t touched_since() const {
        std::uint64_t n = 0;
        const std::uint64_t next = rx->next().value;
        for (std::uint64_t s = next > o.buffers ? next - o.buffers : 0; s < checked; ++s) n += touched(s);
        return n;
    }
    verbs::soft_port_status port(std::string_view name) const {
        for (const auto& row : fabric.status())
            if (row.name.view() == name) return row;
        throw std::runtime_error("no such port");
    }

    static connection_blob read_blob(const std::vector<std::byte>& raw) {
        connection_blob b{};
        std::memcpy(static_cast<void*>(&b), raw.data(), std::min(raw.size(), sizeof b));
        return b;
    }
    /// A control message of this connection, as the peer would seal it.
    control_message forged(control_kind k, unsigned lane) const {
        control_message m{};
        m.magic = control_message::magic_value;
        m.version = wire_version;
        m.kind = k;
        m.lane = static_cast<std::uint8_t>(lane);
        m.connection = (read_blob(sender_blob).nonce ^ read_blob(receiver_blob).nonce) * 0x9e3779b97f4a7c15u;
        return m;
    }
    static std::vector<std::byte> bytes_of(const control_message& m, std::size_t bytes) {
        std::vector<std::byte> raw(bytes);
        std::memcpy(raw.data(), &m, std::min(bytes, sizeof m));
        return raw;
    }
    void tell_sender(const control_message& m) { oob->to_caller.push_back(bytes_of(m, m.size())); }
    void tell_receiver(const control_message& m) { oob->to_listener.push_back(bytes_of(m, m.size())); }
};

template <unsigned Qps = 1, class Failback = hold_down<1>, class Port = sibling_port, class Log = rollback_fifo<64>>
using soft_world = world<host_sender<verbs::soft, Port, qp_group<Qps>, Log, journal, manual_clock, testing::memory_oob, Failback>,
                         host_receiver<verbs::soft, Port, qp_group<Qps>, journal, manual_clock, testing::memory_oob, Failback>>;

}  // namespace vccl_test
