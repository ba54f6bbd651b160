#pragma once
/// \file
/// A sender made by hand, on one lane: it speaks the wire formats to a real receiver, and may say anything in them.

#include "world.hpp"

#include <optional>

namespace vccl_test {

template <unsigned Qps>
class puppet {
public:
    using receiver =
        host_receiver<verbs::soft, sibling_port, qp_group<Qps>, journal, manual_clock, testing::memory_oob, hold_down<1>>;

    verbs::soft_fabric fabric;
    host_context<verbs::soft> b;
    std::unique_ptr<receiver> rx;
    std::vector<std::byte> room;  ///< where the receiver receives
    memory room_memory;
    lane<verbs::soft> lane0;
    connection_blob own{}, peer{};

    explicit puppet(endpoint_options options = {})
        : fabric(make()),
          b(*fabric.host("B"), fabric.shape()),
          room(1 << 20),
          words_(4096),
          port_(*fabric.host("A")->open(std::string_view("A.nic0.p0"))) {
        options.lanes = 1;
        options.seed = 22;
        rx = std::make_unique<receiver>(b, gpu_id{2}, channel_id{7}, options, sibling_port{}, journal{}, hold_down<1>{}, detect{},
                                        fabric.clock());
        ring_mr_.emplace(std::move(*port_.register_memory(words_.data(), words_.size() * sizeof(ack_line))));
    }
    ~puppet() { rx.reset(); }

    /// Connects and says hello.
    bool start() {
        auto blob = rx->local_info();
        if (!blob) return false;
        std::memcpy(static_cast<void*>(&peer), blob->data(), std::min(blob->size(), sizeof peer));
        lane_shape shape{};
        shape.group = Qps;
        shape.send_depth = 64;
        if (!lane0.create(port_, 0, shape, 5)) return false;
        own = peer;
        own.role = endpoint_role::sender;
        own.nonce = 77;
        own.can_replay = 1;
        own.ring_addr = reinterpret_cast<std::uint64_t>(words_.data());
        own.ring_depth = max_window;
        own.lane[0].end = *lane0.end();
        own.lane[0].ring_rkey = ring_mr_->remote_key().value;
        if (!rx->begin_connect(encode_blob(own)) || !lane0.connect(peer.lane[0].end) || !oob_.connect(peer.oob, peer.secret))
            return false;
        auto m = b.register_memory(room.data(), room.size());
        if (!m) return false;
        room_memory = std::move(*m);
        tell(message(control_kind::hello));
        for (int i = 0; i < 1000 && !rx->connected(); ++i) pass();
        return rx->connected();
    }

    control_message message(control_kind k) const {
        control_message m{};
        m.magic = control_message::magic_value;
        m.version = wire_version;
        m.kind = k;
        m.connection = (own.nonce ^ peer.nonce) * 0x9e3779b97f4a7c15u;
        m.epoch = 1;
        m.generation = 1;
        return m;
    }
    void tell(const control_message& m, std::size_t bytes = 0) {
        bytes = std::min(bytes != 0 ? bytes : m.size(), sizeof m);
        (void)oob_.send(std::as_bytes(std::span(&m, 1)).first(bytes));
        (void)oob_.advance({});
    }
    /// The next message from the receiver, if there is one.
    bool hear(control_message& m) { return oob_.receive(std::as_writable_bytes(std::span(&m, 1))) != 0; }

    const cts_words& grant(std::uint64_t s) const {
        return reinterpret_cast<const cts_slot*>(words_.data() + 1)[s % max_window].words;
    }

    /// WRITE_WITH_IMM of `bytes` bytes to where the grant of `s` says, or to `at` behind it, with any immediate.
    status write(std::uint64_t s, immediate imm, std::uint32_t bytes, unsigned queue = 0, std::int64_t at = 0) {
        work w{};
        w.op = work_op::write_imm;
        w.local_addr = reinterpret_cast<std::uint64_t>(words_.data());
        w.lkey = ring_mr_->local_key();
        w.length = bytes;
        w.remote_addr = grant(s).addr + static_cast<std::uint64_t>(at);
        w.rkey = rkey{cts_words::rkey_of(grant(s).room)};
        w.immediate = imm.raw;
        return lane0.post(queue, wr_kind::data, w, true);
    }
    status send(std::uint32_t bytes, unsigned queue) {
        work w{};
        w.op = work_op::send;
        w.local_addr = reinterpret_cast<std::uint64_t>(words_.data());
        w.lkey = ring_mr_->local_key();
        w.length = bytes;
        return lane0.post(queue, wr_kind::data, w, true);
    }

    void pass(nanoseconds step = nanoseconds{2'000}) {
        rx->progress();
        completion c[16];
        if (auto n = lane0.poll(c, 16))
            for (unsigned i = 0; i < *n; ++i) {
                const wr_id id{c[i].wr_id};
                if (id.kind() == wr_kind::control_recv && c[i].status == wc_status::success)
                    (void)lane0.repost_control(id.mark());
            }
        fabric.advance(step);
    }
    void passes(int n, nanoseconds step = nanoseconds{2'000}) {
        while (n-- > 0) pass(step);
    }

private:
    static verbs::soft_fabric make() {
        verbs::soft_options f;
        f.manual_time = true;
        f.latency = 2_us;
        return std::move(*verbs::soft_fabric::create(make_cluster(2, 2, 2, 2), f));
    }

    std::vector<ack_line> words_;  // its own: the CTS ring behind one line, as the receiver writes it
    verbs::soft::port port_;
    std::optional<verbs::soft::port::mr> ring_mr_;
    testing::memory_oob oob_;
};

}  // namespace vccl_test
