// The NIC that is a kernel: senders' and receivers' payload in GPU memory, of one GPU or of two; ports die and return while
// kernels go on sending; and messages with immediates between two bare rings.

#include "check.hpp"
#include "nic_policies.hpp"

#include <vccl/device.cuh>
#include <vccl/device/gpu_nic.cuh>
#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace vccl;
using namespace vccl::literals;
using namespace vccl_gpu_test;

namespace {

/// Memory of one GPU.
struct gpu_bytes {
    unsigned char* at{};
    std::size_t size;
    int device;
    gpu_bytes(int on, std::size_t n) : size(n), device(on) {
        (void)cudaSetDevice(on);
        if (cudaMalloc(&at, n) != cudaSuccess || cudaMemset(at, 0, n) != cudaSuccess) std::abort();
        (void)cudaSetDevice(0);
    }
    ~gpu_bytes() { (void)cudaFree(at); }
    gpu_bytes(const gpu_bytes&) = delete;
};

/// A sends from memory of GPU 0 to memory of GPU `far`. `Rings`, `Space`: where the queues lie.
template <class Rings, class Space>
struct world {
    using kernel_nic = device::gpu_nic<verbs::soft, Rings>;
    using backend = typename kernel_nic::backend;
    using sender =
        device_sender<backend, sibling_port, qp_group<2>, rollback_fifo<128>, happenings, Space, kernel_rings<kernel_nic>>;
    using receiver = device_receiver<backend, sibling_port, qp_group<2>, happenings, hold_down<5>, device::gpu_space>;

    verbs::soft_fabric fabric;
    owned<kernel_nic> nic;
    host_context<backend> a, b;
    owned<device::gpu_link> link;
    gpu_bytes out, in;
    memory out_memory, in_memory;
    std::atomic<unsigned> moves{};
    std::unique_ptr<sender> tx;
    std::unique_ptr<receiver> rx;
    std::atomic<bool> stop{};
    std::thread service;
    cudaStream_t stream{};
    std::vector<unsigned char> sent;

    static verbs::soft_fabric make() {
        verbs::soft_options f;
        f.latency = 2_us;
        return std::move(*verbs::soft_fabric::create(make_cluster(2, 1, 2, 2), f));
    }
    world(int far, std::size_t bytes)
        : fabric(make()),
          nic(std::move(*kernel_nic::open(0))),
          a(backend(*nic, *fabric.host("A")), fabric.shape()),
          b(backend(*nic, *fabric.host("B")), fabric.shape()),
          link(std::move(*device::gpu_link::open(0))),
          out(0, bytes),
          in(far, bytes),
          sent(bytes) {
        for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<unsigned char>(i * 7 + i / 251 + 1);
        (void)cudaMemcpy(out.at, sent.data(), bytes, cudaMemcpyHostToDevice);
        (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        out_memory = std::move(*a.register_memory(out.at, bytes));
        in_memory = std::move(*b.register_memory(in.at, bytes));
        device_options o;
        o.timeout = 20_s;
        o.signals = 32;
        tx = std::make_unique<sender>(a, *nic, gpu_id{0}, channel_id{1}, out_memory.view(), o, sibling_port{}, happenings{&moves},
                                      detect{}, steady_clock{}, Space{link.get()});
        rx = std::make_unique<receiver>(b, gpu_id{2}, channel_id{1}, in_memory.view(), o);
    }
    bool start() {
        const auto of_tx = tx->local_info(), of_rx = rx->local_info();
        if (!of_tx || !of_rx || !tx->begin_connect(*of_rx) || !rx->begin_connect(*of_tx)) return false;
        for (int i = 0; i < 2'000'000 && !(tx->connected() && rx->connected()); ++i) {
            tx->progress();
            rx->progress();
        }
        if (!nic->run()) return false;
        service = std::thread([this] {
            while (!stop) {
                nic->progress();
                tx->progress();
                rx->progress();
            }
        });
        return tx->connected() && rx->connected();
    }
    ~world() {
        (void)cudaStreamSynchronize(stream);
        stop = true;
        if (service.joinable()) service.join();
        nic->pause();  // from here on memory may be freed
        (void)cudaStreamDestroy(stream);
        tx.reset();
        rx.reset();
    }
    std::vector<unsigned char> received() {
        std::vector<unsigned char> v(in.size);
        (void)cudaMemcpyAsync(v.data(), in.at, in.size, cudaMemcpyDeviceToHost, stream);
        (void)cudaStreamSynchronize(stream);
        return v;
    }
    std::uint64_t signal(std::uint32_t w) const { return rx->ref().peek(w); }
};

using in_host_memory = world<device::mapped_rings, device::gpu_space>;
using in_gpu_memory = world<device::gpu_rings, device::gpu_ring_space>;

struct results {
    std::uint64_t* word;
    unsigned count;
    explicit results(unsigned n) : word(static_cast<std::uint64_t*>(device::mapped_memory::allocate(8 * n))), count(n) {}
    results(const results&) = delete;  // freed by nobody: freeing waits for the NIC's kernel
    unsigned bad() const {
        unsigned n = 0;
        for (unsigned i = 0; i < count; ++i) n += !device::unpack(word[i]);
        return n;
    }
};

template <class Ref>
__global__ void all_operations(Ref tx, device::receiver_ref rx, std::uint64_t* out) {
    const auto note = [&](unsigned i, device::device_result r) {
        if (threadIdx.x == 0) out[i] = device::pack(r);
    };
    note(0, tx.put(warp_scope{}, 100, 100, 500001));
    note(1, tx.put_signal(warp_scope{}, 600000, 600000, 1000, 0, 1));
    note(2, tx.signal(warp_scope{}, 1, 7));
    note(3, tx.fetch_add(warp_scope{}, 2, 5));
    note(4, tx.fetch_add(warp_scope{}, 2, 6));
    note(5, tx.flush(warp_scope{}));
    note(6, rx.wait_signal(warp_scope{}, 0, 1));
    note(7, tx.get(warp_scope{}, 700000, 100, 3000));
    note(8, tx.flush(warp_scope{}));
}

template <class World>
void operations_to(int far) {
    World w(far, 1 << 20);
    GPU_REQUIRE(w.start());
    results r(9);
    all_operations<<<1, 32, 0, w.stream>>>(w.tx->ref(), w.rx->ref(), r.word);
    GPU_REQUIRE(cudaStreamSynchronize(w.stream) == cudaSuccess);
    GPU_CHECK(r.bad() == 0);
    const auto in = w.received();
    GPU_CHECK(std::memcmp(&in[100], &w.sent[100], 500001) == 0);
    GPU_CHECK(in[99] == 0 && in[500101] == 0);
    GPU_CHECK(std::memcmp(&in[600000], &w.sent[600000], 1000) == 0);
    GPU_CHECK(w.signal(0) == 1 && w.signal(1) == 7 && w.signal(2) == 11);
    std::vector<unsigned char> back(3000);
    (void)cudaMemcpyAsync(back.data(), w.out.at + 700000, 3000, cudaMemcpyDeviceToHost, w.stream);
    (void)cudaStreamSynchronize(w.stream);
    GPU_CHECK(std::memcmp(back.data(), &w.sent[100], 3000) == 0);
}

template <class Ref>
__global__ void keep_sending(Ref all, std::uint64_t* out, std::uint64_t begun, unsigned rounds, unsigned piece) {
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const auto tx = all.channel(warp);
    device::device_result worst{};
    const auto keep = [&](device::device_result r) {
        if (!r) worst = r;
    };
    for (unsigned i = 1; i <= rounds; ++i) {
        const std::uint64_t at = (std::uint64_t{warp} * 64 + i % 64) * piece;
        keep(tx.put_signal(warp_scope{}, at, at, piece, warp, begun + i));
        keep(tx.fetch_add(warp_scope{}, 24 + warp % all.channels(), i));
        if (i % 16 == 0) keep(tx.flush(warp_scope{}));
    }
    keep(tx.flush(warp_scope{}));
    if (threadIdx.x % 32 == 0) out[warp] = device::pack(worst);
}

unsigned schedules = 200;

/// Ports die and return, one after the other, while a kernel sends; nothing is lost, doubled or stuck.
template <class World>
void dying_ports_to(int far) {
    constexpr unsigned warps = 8, piece = 1024;
    World w(far, warps * 64 * piece);
    GPU_REQUIRE(w.start());
    results r(warps);
    std::uint64_t random = 0x9e3779b97f4a7c15u, sums[2]{}, sent = 0;  // never set back: signal words only grow
    const auto roll = [&](unsigned below) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<unsigned>((random >> 11) % below);
    };
    for (unsigned s = 0; s < schedules; ++s) {
        GPU_REQUIRE(cudaMemsetAsync(w.in.at, 0, w.in.size, w.stream) == cudaSuccess);
        const unsigned rounds = 100 + roll(100);
        keep_sending<<<4, 64, 0, w.stream>>>(w.tx->ref(), r.word, sent, rounds, piece);
        sent += rounds;
        static const char* const ports[] = {"A.nic0.p0", "A.nic0.p1", "B.nic0.p0", "B.nic0.p1"};
        const std::string port = ports[roll(4)];
        std::this_thread::sleep_for(std::chrono::microseconds(roll(3000)));
        GPU_CHECK(w.fabric.command("down " + port));
        std::this_thread::sleep_for(std::chrono::microseconds(roll(15000)));
        GPU_CHECK(w.fabric.command("up " + port));
        GPU_REQUIRE(cudaStreamSynchronize(w.stream) == cudaSuccess);
        for (unsigned i = 0; i < warps; ++i) sums[i % 2] += std::uint64_t{rounds} * (rounds + 1) / 2;
        GPU_REQUIRE(r.bad() == 0);
        for (unsigned i = 0; i < warps; ++i) GPU_REQUIRE_EQUAL(w.signal(i), sent);
        GPU_REQUIRE_EQUAL(w.signal(24), sums[0]);
        GPU_REQUIRE_EQUAL(w.signal(25), sums[1]);
        GPU_REQUIRE(w.received() == w.sent);
    }
    std::printf("    %u schedules, %u failovers and fail-backs\n", schedules, w.moves.load());
    GPU_CHECK(schedules < 10 || w.moves > 0);
}

/// A QP with its ring and a receive queue of four on either host, connected.
template <class Rings>
struct two_rings {
    using kernel_nic = device::gpu_nic<verbs::soft, Rings>;
    using backend = typename kernel_nic::backend;
    using port_type = typename kernel_nic::port_type;
    static constexpr unsigned bytes_of = 64, messages = 4000;

    verbs::soft_fabric fabric{std::move(*verbs::soft_fabric::create(verbs::soft_topology(2, 1, 2, 1), {}))};
    owned<kernel_nic> nic{std::move(*kernel_nic::open(0))};
    gpu_bytes out{0, bytes_of* messages}, in{0, bytes_of* messages};
    port_type near_port{std::move(*backend(*nic, *fabric.host("A")).open("A.nic0.p0"))};
    port_type far_port{std::move(*backend(*nic, *fabric.host("B")).open("B.nic0.p0"))};
    typename port_type::mr near_mr{std::move(*near_port.register_memory(out.at, out.size))};
    typename port_type::mr far_mr{std::move(*far_port.register_memory(in.at, in.size))};
    typename kernel_nic::qp a{std::move(*nic->create_qp(near_port, {16, 0, 4}))};
    typename kernel_nic::qp b{std::move(*nic->create_qp(far_port, {16, 0, 4}))};
    std::vector<unsigned char> sent = std::vector<unsigned char>(bytes_of * messages);
    cudaStream_t stream{};

    two_rings() {
        for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<unsigned char>(i * 7 + i / 251 + 1);
        (void)cudaMemcpy(out.at, sent.data(), sent.size(), cudaMemcpyHostToDevice);
        (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    bool start(const qp_timers& timers) {
        const auto here = near_port.query(), there = far_port.query();
        return here && there && a.to_init() && b.to_init() &&
               a.to_ready_to_receive({b.number(), psn{}, there->address, 0, there->mtu}, timers) &&
               b.to_ready_to_receive({a.number(), psn{}, here->address, 0, here->mtu}, timers) &&
               a.to_ready_to_send(psn{}, timers) && b.to_ready_to_send(psn{}, timers) && nic->run();
    }
    ~two_rings() {
        (void)cudaStreamSynchronize(stream);
        nic->pause();
        (void)cudaStreamDestroy(stream);
    }
    device::wqe_local from() const { return {reinterpret_cast<std::uintptr_t>(out.at), near_mr.local_key().value, bytes_of}; }
    device::wqe_remote to() const { return {reinterpret_cast<std::uintptr_t>(in.at), far_mr.remote_key().value}; }
};

__device__ bool passed(std::uint64_t begun) { return device::gpu_nic_detail::global_time() - begun > 20'000'000'000; }

/// One thread: posts a message a time, each with its number, and waits for its CQE. Returns the first error's syndrome.
__device__ device::syndrome send_numbered(const device::ring& r, device::wqe_remote to, device::wqe_local from,
                                          unsigned messages) {
    using namespace device;
    for (unsigned i = 0; i < messages; ++i, to.addr += from.length, from.addr += from.length) {
        r.slot(i) = write_imm({r.qpn, static_cast<std::uint16_t>(i), wqe_flag::completion}, to, from, i);
        store<order::release, scope::system>(&r.doorbell_record[send_record], encode_record(i + 1));
        store<order::release, scope::system>(r.doorbell, encode_doorbell(i + 1, r.qpn));
        const std::uint64_t begun = gpu_nic_detail::global_time();
        cqe_tail tail;
        do {
            tail = tail_of(load<order::acquire, scope::system>(&r.entry(i).word[15]));
            if (passed(begun)) return syndrome::transport_retry;
        } while (!is_written(tail, i, r.cq_depth_log));
        if (is_error(tail)) return decode(r.entry(i)).why;
        store<order::release, scope::system>(r.cq_record, encode_cq_record(i + 1));
    }
    return syndrome::none;
}
/// One thread: has receives posted and counts messages that came in order, with their number, length and first byte right.
__device__ unsigned receive_numbered(const device::ring& r, const unsigned char* in, unsigned bytes, unsigned messages) {
    device::receive_poster receives(r);
    unsigned good = 0;
    const std::uint64_t begun = device::gpu_nic_detail::global_time();
    for (unsigned i = 0; i < messages && !passed(begun);) {
        receives.post(1 + i % 4);
        device::arrival a;
        if (!receives.poll(a)) continue;
        const std::size_t at = std::size_t{i} * bytes;
        const auto first = reinterpret_cast<const volatile unsigned char*>(in)[at];
        good += a == device::arrival{i, bytes} && first == static_cast<unsigned char>(at * 7 + at / 251 + 1);
        ++i;
    }
    return good;
}
__global__ void immediates(device::ring a, device::ring b, device::wqe_remote to, device::wqe_local from, unsigned messages,
                           const unsigned char* in, std::uint64_t* out) {
    if (blockIdx.x == 0)
        out[0] = static_cast<std::uint64_t>(send_numbered(a, to, from, messages));
    else
        out[1] = receive_numbered(b, in, from.length, messages);
}
/// With a receiver that has receives, and then with one that has none.
template <class Rings>
void immediates_between() {
    using pair = two_rings<Rings>;
    pair w;
    results r(2);
    GPU_REQUIRE(w.start({.rnr_retry = 7, .min_rnr_timer = 1}));
    immediates<<<2, 1, 0, w.stream>>>(w.a.memory(), w.b.receives(), w.to(), w.from(), pair::messages, w.in.at, r.word);
    GPU_REQUIRE(cudaStreamSynchronize(w.stream) == cudaSuccess);
    GPU_CHECK(r.word[0] == 0);
    GPU_CHECK(r.word[1] == pair::messages);
    std::vector<unsigned char> got(w.sent.size());
    (void)cudaMemcpyAsync(got.data(), w.in.at, got.size(), cudaMemcpyDeviceToHost, w.stream);
    (void)cudaStreamSynchronize(w.stream);
    GPU_CHECK(got == w.sent);

    GPU_REQUIRE(w.a.to_error() && w.b.to_error() && w.a.to_reset() && w.b.to_reset());
    GPU_REQUIRE(w.start({.rnr_retry = 2, .min_rnr_timer = 1}));
    immediates<<<1, 1, 0, w.stream>>>(w.a.memory(), w.b.receives(), w.to(), w.from(), 1, w.in.at, r.word);
    GPU_REQUIRE(cudaStreamSynchronize(w.stream) == cudaSuccess);
    GPU_CHECK(static_cast<device::syndrome>(r.word[0]) == device::syndrome::rnr_retry);
}

/// 1 GB/s a port: eight megabytes take as many milliseconds, whatever kernels and copies take beside that.
template <class Ref>
__global__ void put_all(Ref tx, std::uint64_t bytes, std::uint64_t* out) {
    device::device_result r = tx.put(warp_scope{}, 0, 0, bytes);
    if (r) r = tx.flush(warp_scope{});
    if (threadIdx.x == 0) out[0] = device::pack(r);
}
void limited_rate() {
    constexpr std::uint64_t bytes = 8 << 20;
    in_host_memory w(0, bytes);
    w.nic->limit(1'000'000'000);
    GPU_REQUIRE(w.start());
    results r(1);
    const steady_clock clock;
    const nanoseconds begun = clock.now();
    put_all<<<1, 32, 0, w.stream>>>(w.tx->ref(), bytes, r.word);
    GPU_REQUIRE(cudaStreamSynchronize(w.stream) == cudaSuccess);
    GPU_CHECK(clock.now() - begun >= nanoseconds{8'300'000});
    GPU_CHECK(r.bad() == 0);
    GPU_CHECK(w.received() == w.sent);
}

/// The second GPU, if there is one that the first reaches.
int other_gpu() {
    int n = 0, can = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 2 || cudaDeviceCanAccessPeer(&can, 0, 1) != cudaSuccess || can == 0)
        return 0;
    (void)cudaSetDevice(0);
    const cudaError_t e = cudaDeviceEnablePeerAccess(1, 0);
    return e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    // A kernel that is loaded at its first launch would wait for the NIC's to end.
    (void)::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    need_gpu();
    read_arguments(argc, argv, &schedules);
    run("operations within one GPU", [] { operations_to<in_host_memory>(0); });
    run("ports die while a kernel sends, within one GPU", [] { dying_ports_to<in_host_memory>(0); });
    run("operations on rings in GPU memory", [] { operations_to<in_gpu_memory>(0); });
    run("ports die while a kernel sends, rings in GPU memory", [] { dying_ports_to<in_gpu_memory>(0); });
    run("immediates", [] { immediates_between<device::mapped_rings>(); });
    run("immediates on rings in GPU memory", [] { immediates_between<device::gpu_rings>(); });
    run("a rate", [] { limited_rate(); });
    if (other_gpu() == 0) {
        std::puts("no second GPU that the first reaches: not run between two");
        return finish();
    }
    run("operations to another GPU", [] { operations_to<in_host_memory>(1); });
    run("ports die while a kernel sends to another GPU", [] { dying_ports_to<in_host_memory>(1); });
    return finish();
}
