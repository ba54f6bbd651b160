/// \file
/// A peer that lies to a real receiver and a real sender: control messages, immediates, grants and acknowledgements, with time in
/// between. Either end may end its channel; neither may crash, touch other memory, or complete what was not sent.
/// The input is a list of records: a kind, a length, bytes.

#include "../host/puppet.hpp"

#include <cstdlib>

using namespace vccl_test;

namespace {

struct reader {
    const std::uint8_t* at;
    std::size_t left;
    std::uint8_t byte() {
        if (left == 0) return 0;
        --left;
        return *at++;
    }
    void fill(void* to, std::size_t n) {
        n = n < left ? n : left;
        std::memcpy(to, at, n);
        at += n;
        left -= n;
    }
};

/// Fields of a message from the input, within a frame that is not refused at once.
control_message message(reader& in, control_message frame, unsigned lanes) {
    control_message m = frame;
    m.kind = static_cast<control_kind>(in.byte() % 20);
    m.lane = static_cast<std::uint8_t>(in.byte() % (lanes + 1));
    m.epoch = in.byte();
    m.generation = in.byte() % 8;
    m.number = in.byte();
    m.cause = in.byte();
    m.count = in.byte();
    m.sequence = in.byte();
    for (unsigned l = 0; l < max_lanes; ++l) m.dead_generation[l] = l < 8 ? in.byte() % 8 : m.dead_generation[l - 8];
    in.fill(m.arrived, in.byte() % 64);
    return m;
}

void against_a_receiver(reader in) {
    endpoint_options o;
    o.give_up_after = 1_s;
    puppet<4> p(o);
    if (!p.start()) std::abort();
    for (std::uint64_t i = 0; i < 4; ++i) (void)p.rx->recv(p.room_memory.view(i * 65536, 65536));
    p.passes(30);
    while (in.left != 0) {
        switch (in.byte() % 4) {
            case 0: p.tell(message(in, p.message(control_kind::hello), 1), in.byte() % 8 == 0 ? 1 + in.byte() : 0); break;
            case 1: {
                immediate imm{};
                in.fill(&imm.raw, sizeof imm.raw);
                if (in.byte() % 2 != 0)
                    imm = immediate::make(1, in.byte() % 5, in.byte() % 8, 1 + in.byte() % 8, in.byte() % 8 == 0);
                (void)p.write(in.byte() % 4, imm, in.byte() * 300u, in.byte() % 4);
                break;
            }
            case 2: (void)p.lane0.send_control(message(in, p.message(control_kind::hello), 1)); break;
            default: p.passes(in.byte() % 8, nanoseconds{in.byte() * 1000});
        }
        p.pass();
    }
    p.passes(20);
    const auto& told = p.rx->handler().chunks;
    if (told.size() > 4 || told.size() != p.rx->received().value) std::abort();
    for (std::size_t i = 0; i < told.size(); ++i)
        if (told[i].sequence.value != i) std::abort();
}

void against_a_sender(reader in) {
    world_options o;
    o.chunk = 4096;
    o.buffers = 8;
    o.tx.give_up_after = o.rx.give_up_after = 1_s;
    soft_world<> w(o);
    if (!w.connect() || !w.run()) std::abort();
    for (unsigned i = 0; i < 4; ++i) (void)w.tx->send(w.out_memory.view(std::uint64_t{i} * 4096, 4096));
    auto* ack = reinterpret_cast<ack_line*>(soft_world<>::read_blob(w.sender_blob).ring_addr);
    auto* slots = reinterpret_cast<cts_slot*>(ack + 1);
    while (in.left != 0) {
        switch (in.byte() % 4) {
            case 0: {
                const control_message m = message(in, w.forged(control_kind::hello, 0), 2);
                w.oob->to_caller.push_back(w.bytes_of(m, m.size() < sizeof m ? m.size() : sizeof m));
                break;
            }
            case 1: {
                const std::uint64_t s = in.byte() % 6;
                cts_words g{s,
                            w.in_memory.view(0, 4096).addr() + (in.byte() % 4 == 0 ? in.byte() * 512u : 0u),
                            cts_words::make_room(in.byte() * 32u, w.in_memory.region()->remote[0].value ^ (in.byte() % 8 == 0)),
                            cts_words::make_binding(in.byte() % 3, in.byte() % 3, in.byte() % 3),
                            in.byte() % 6u,
                            0};
                g.check = check_of(g) ^ (in.byte() % 8 == 0);
                slots[s].words = g;
                break;
            }
            case 2:
                in.byte() % 4 == 0 ? void(ack->acked = in.byte() % 6) : in.fill(&slots[in.byte() % 8], sizeof(cts_slot));
                break;
            default: w.pass_time = nanoseconds{1 + in.byte() * 1000};
        }
        w.pass();
    }
    for (int i = 0; i < 20; ++i) w.pass();
    if (w.tx->acknowledged().value > 4 || w.tx->handler().chunks.size() != w.tx->acknowledged().value) std::abort();
    if (!w.rx->handler().chunks.empty()) std::abort();  // nothing was posted there
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const reader rest{data + 1, size - 1 < 400 ? size - 1 : 400};
    if (data[0] % 2 == 0)
        against_a_receiver(rest);
    else
        against_a_sender(rest);
    return 0;
}
