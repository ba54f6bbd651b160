// Mode 3: kernels post on rings in mapped host memory, a CPU thread is the NIC. The same operations, faults and failovers as in
// the host build.
#include "storm.cuh"

using namespace vccl_gpu_test;

namespace {

template <class Ref, class Scope>
__global__ void all_operations(Ref tx, device::receiver_ref rx, std::uint64_t* out, Scope who) {
    const auto note = [&](unsigned i, device_result r) {
        if (threadIdx.x == 0) out[i] = device::pack(r);
    };
    note(0, tx.put(who, 100, 100, 5000));
    note(1, tx.put_signal(who, 6000, 6000, 1000, 0, 1));
    note(2, tx.signal(who, 1, 7));
    note(3, tx.fetch_add(who, 2, 5));
    std::uint64_t old = 0;
    note(4, tx.fetch_add(who, 2, 6, old).what == outcome::ok && old == 5 ? device_result{} : device_result{outcome::error});
    note(5, tx.flush(who));
    note(6, rx.wait_signal(who, 0, 1));
    note(7, tx.get(who, 16384, 100, 3000));
    note(8, tx.flush(who));
}

template <class Scope>
void operations() {
    world<1> w;
    GPU_REQUIRE(w.start());
    results r(9);
    const unsigned threads = std::is_same_v<Scope, thread_scope> ? 1 : std::is_same_v<Scope, warp_scope> ? 32 : 128;
    all_operations<<<1, threads>>>(w.tx->ref(), w.rx->ref(), r.word, Scope{});
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(r.bad() == 0);
    GPU_CHECK(std::memcmp(w.in.bytes + 100, w.out.bytes + 100, 5000) == 0);
    GPU_CHECK(std::memcmp(w.in.bytes + 6000, w.out.bytes + 6000, 1000) == 0);
    GPU_CHECK(std::memcmp(w.out.bytes + 16384, w.in.bytes + 100, 3000) == 0);
    GPU_CHECK(w.signal(0) == 1 && w.signal(1) == 7 && w.signal(2) == 11);
}

/// Warp w of the grid sends its own stretch in pieces, with signals and additions, over the channels in turn.
template <class Ref>
__global__ void send_pieces(Ref all, std::uint64_t* out, unsigned rounds, unsigned piece, bool threads_too) {
    const unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const auto tx = all.channel(warp);
    const std::uint64_t base = std::uint64_t{warp} * rounds * piece;
    device_result worst{};
    const auto keep = [&](device_result r) {
        if (!r) worst = r;
    };
    for (unsigned i = 0; i < rounds; ++i) {
        const std::uint64_t at = base + std::uint64_t{i} * piece;
        keep(tx.put_signal(warp_scope{}, at, at, piece, warp % 24, i + 1));
        if (threads_too) keep(tx.fetch_add(thread_scope{}, 24 + warp % all.channels(), 1));
        if (i % 16 == 15) keep(tx.flush(warp_scope{}));
    }
    keep(tx.flush(warp_scope{}));
    if (lane == 0) out[warp] = device::pack(worst);
}

template <unsigned Qps>
void contended() {
    constexpr unsigned warps = 24, rounds = 64, piece = 512;
    world<Qps> w(warps * rounds * piece);
    GPU_REQUIRE(w.start());
    results r(warps);
    send_pieces<<<6, 128>>>(w.tx->ref(), r.word, rounds, piece, true);
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(r.bad() == 0);
    GPU_CHECK(w.wrong(warps * rounds * piece) == 0);
    std::uint64_t sum = 0;
    for (unsigned q = 0; q < Qps; ++q) sum += w.signal(24 + q);
    GPU_CHECK(sum == warps * rounds * 32);
}

unsigned schedules = 200;

void dying_ports() {
    world<2> w(storm::warps * 64 * storm::piece);
    GPU_REQUIRE(w.start());
    storm::run(w, w.tx->ref(), schedules);
}

template <class Ref>
__global__ void one_put(Ref tx, std::uint64_t* out, std::uint64_t to, std::uint64_t from, std::uint64_t bytes, unsigned puts) {
    for (unsigned i = 0; i < puts; ++i) {
        const device_result r = tx.put(thread_scope{}, to, from, bytes);
        if (!r) {
            out[0] = device::pack(r);
            return;
        }
    }
    out[0] = device::pack(tx.flush(thread_scope{}));
}
template <class Ref>
__global__ void one_addition(Ref tx, std::uint64_t* out) {
    (void)tx.fetch_add(thread_scope{}, 0, 3);
    out[0] = device::pack(tx.flush(thread_scope{}));
}

template <class World, class Launch>
device_result outcome_of(World&, Launch&& launch) {
    results r(1);
    launch(r.word);
    if (!GPU_CHECK(cudaDeviceSynchronize() == cudaSuccess)) return {};
    return device::unpack(r.word[0]);
}

void out_of_bounds() {
    {
        world<1> w(1 << 16);
        GPU_REQUIRE(w.start());
        const auto r = outcome_of(w, [&](std::uint64_t* o) { one_put<<<1, 1>>>(w.tx->ref(), o, (1 << 16) - 4, 0, 8, 1); });
        GPU_CHECK(r.what == outcome::error && r.why == syndrome::remote_access);
    }
    world<1> w(1 << 16);
    GPU_REQUIRE(w.start());
    const auto r = outcome_of(w, [&](std::uint64_t* o) { one_put<<<1, 1>>>(w.tx->ref(), o, 0, (1 << 16) - 4, 8, 1); });
    GPU_CHECK(r.what == outcome::error && r.why == syndrome::local_protection);
}
void dead_service() {
    world<1> w(1 << 16, 300_ms);
    GPU_REQUIRE(w.start());
    w.service = false;
    sleep_us(1000);
    GPU_CHECK(w.command("down A.nic0.p0"));
    auto r = outcome_of(w, [&](std::uint64_t* o) { one_put<<<1, 1>>>(w.tx->ref(), o, 0, 0, 8, 1); });
    GPU_CHECK(r.what == outcome::timeout);
    r = outcome_of(w, [&](std::uint64_t* o) { one_put<<<1, 1>>>(w.tx->ref(), o, 0, 0, 8, 1000); });  // a full ring
    GPU_CHECK(r.what == outcome::timeout);
    w.service = true;
    r = outcome_of(w, [&](std::uint64_t* o) { one_put<<<1, 1>>>(w.tx->ref().within(10'000'000'000), o, 0, 0, 8, 1); });
    GPU_CHECK(r);
}
void abort_word() {
    world<1> w(1 << 16, 60_s);
    GPU_REQUIRE(w.start());
    w.service = false;
    sleep_us(1000);
    GPU_CHECK(w.command("down A.nic0.p0"));
    results r(1);
    one_put<<<1, 1>>>(w.tx->ref(), r.word, 0, 0, 8, 1);
    sleep_us(5000);
    w.tx->abort_kernels();
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(device::unpack(r.word[0]).what == outcome::aborted);
}
void nic_faults() {
    const auto with = [](const device::ring_faults& f) {
        faulty_rings::faults = f;
        world<1> w(1 << 16);
        device_result r{};
        if (GPU_CHECK(w.start())) r = outcome_of(w, [&](std::uint64_t* o) { one_addition<<<1, 1>>>(w.tx->ref(), o); });
        GPU_CHECK(w.signal(0) == 3);
        faulty_rings::faults = {};
        return r.what;
    };
    GPU_CHECK(with({.lost_doorbells = 1, .record_after = 50_us}) == outcome::ok);
    GPU_CHECK(with({.lost_doorbells = 1}) == outcome::moved);
    GPU_CHECK(with({.cqe_delay = 2_ms}) == outcome::ok);
    GPU_CHECK(with({.cq_overrun = true}) == outcome::moved);
}
void dead_peer() {
    world<1> w(1 << 16, 60_s);
    GPU_REQUIRE(w.start());
    w.stop = true;
    w.service_thread.join();
    w.nic_thread.join();
    w.rx.reset();
    w.stop = false;
    w.nic_thread = std::thread([&w] {
        while (!w.stop) w.nic.progress();
    });
    w.service_thread = std::thread([&w] {
        while (!w.stop) w.tx->progress();
    });
    const auto r = outcome_of(w, [&](std::uint64_t* o) { one_put<<<1, 1>>>(w.tx->ref(), o, 0, 0, 8, 1); });
    GPU_CHECK(r.what == outcome::aborted);
}

}  // namespace

int main(int argc, char** argv) {
    need_gpu();
    read_arguments(argc, argv, &schedules);
    run("operations at thread scope", operations<thread_scope>);
    run("operations at warp scope", operations<warp_scope>);
    run("operations at block scope", operations<block_scope>);
    run("24 warps on one queue", contended<1>);
    run("24 warps on four queues", contended<4>);
    run("ports die under a running kernel", dying_ports);
    run("fault: out of bounds", out_of_bounds);
    run("fault: dead service, full ring", dead_service);
    run("fault: abort word", abort_word);
    run("fault: lost doorbell, late CQE, CQ overrun", nic_faults);
    run("fault: dead peer", dead_peer);
    return finish();
}
