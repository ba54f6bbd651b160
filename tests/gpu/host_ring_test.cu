// Mode 4: kernels ask through a ring in host memory, the proxy posts. The same operations, faults and failovers.
#include "storm.cuh"

#include <vccl/device/host_ring.hpp>

using namespace vccl_gpu_test;

namespace {

struct ring_world : world<2, exclusive_queue, rollback_fifo<128>, device::host_space> {
    using base = world<2, exclusive_queue, rollback_fifo<128>, device::host_space>;
    host_ring<base::sender, device::gpu_space> ring;

    static host_ring_options options(nanoseconds timeout, std::uint32_t words) {
        host_ring_options o;
        o.timeout = timeout;
        o.words = words;
        return o;
    }
    explicit ring_world(std::size_t bytes = 1 << 20, nanoseconds timeout = 20_s, std::uint32_t words = 4096)
        : base(bytes), ring(*tx, options(timeout, words), device::gpu_space{link.get()}) {}
    ~ring_world() { halt(); }  // before the ring goes
    bool begin() {
        drive = [this] { ring.progress(); };
        return static_cast<bool>(ring.open()) && start();
    }
};

using ring_ref = decltype(ring_world::ring)::ref_type;

template <class Ref, class Scope>
__global__ void all_operations(Ref tx, device::receiver_ref rx, std::uint64_t* out, Scope who) {
    const auto note = [&](unsigned i, device_result r) {
        if (threadIdx.x == 0) out[i] = device::pack(r);
    };
    note(0, tx.put(who, 100, 100, 5000));
    note(1, tx.put_signal(who, 6000, 6000, 1000, 0, 1));
    note(2, tx.signal(who, 1, 7));
    note(3, tx.flush(who));
    note(4, rx.wait_signal(who, 0, 1));
    note(5, tx.get(who, 16384, 100, 3000));
    note(6, tx.flush(who));
}
template <class Scope>
void operations() {
    ring_world w;
    GPU_REQUIRE(w.begin());
    results r(7);
    const unsigned threads = std::is_same_v<Scope, thread_scope> ? 1 : std::is_same_v<Scope, warp_scope> ? 32 : 128;
    all_operations<<<1, threads>>>(w.ring.ref(), w.rx->ref(), r.word, Scope{});
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(r.bad() == 0);
    GPU_CHECK(std::memcmp(w.in.bytes + 100, w.out.bytes + 100, 5000) == 0);
    GPU_CHECK(std::memcmp(w.in.bytes + 6000, w.out.bytes + 6000, 1000) == 0);
    GPU_CHECK(std::memcmp(w.out.bytes + 16384, w.in.bytes + 100, 3000) == 0);
    GPU_CHECK(w.signal(0) == 1 && w.signal(1) == 7);
}

__global__ void add_from_all_threads(ring_ref tx, std::uint64_t* out, unsigned rounds) {
    device_result worst{};
    for (unsigned i = 0; i < rounds; ++i)
        if (const device_result r = tx.channel(blockIdx.x).fetch_add(thread_scope{}, blockIdx.x % 2, 1); !r) worst = r;
    const device_result r = tx.channel(blockIdx.x).flush(block_scope{});
    if (threadIdx.x == 0) out[blockIdx.x] = device::pack(!worst ? worst : r);
}
void from_all_threads() {
    ring_world w(1 << 20, 20_s, 256);  // a small ring: credit runs out all the time
    GPU_REQUIRE(w.begin());
    results r(8);
    add_from_all_threads<<<8, 128>>>(w.ring.ref(), r.word, 20);
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(r.bad() == 0);
    GPU_CHECK(w.signal(0) == 4 * 128 * 20 && w.signal(1) == 4 * 128 * 20);
}

unsigned schedules = 200;
void dying_ports() {
    ring_world w(storm::warps * 64 * storm::piece);
    GPU_REQUIRE(w.begin());
    storm::run(w, w.ring.ref(), schedules);
}

template <class Ref>
__global__ void puts(Ref tx, std::uint64_t* out, std::uint64_t to, unsigned count) {
    device_result r{};
    for (unsigned i = 0; i < count && r; ++i) r = tx.put(thread_scope{}, to, 0, 8);
    out[0] = device::pack(!r ? r : tx.flush(thread_scope{}));
}
void faults() {
    {
        ring_world w(1 << 16);
        GPU_REQUIRE(w.begin());
        results r(1);
        puts<<<1, 1>>>(w.ring.ref(), r.word, (1 << 16) - 4, 1);
        GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        const auto got = device::unpack(r.word[0]);
        GPU_CHECK(got.what == outcome::error && got.why == syndrome::remote_access);
    }
    ring_world w(1 << 16, 300_ms);
    GPU_REQUIRE(w.begin());
    results r(1);
    w.service = false;  // a dead proxy
    sleep_us(1000);
    puts<<<1, 1>>>(w.ring.ref(), r.word, 0, 1);
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(device::unpack(r.word[0]).what == outcome::timeout);
    puts<<<1, 1>>>(w.ring.ref(), r.word, 0, 5000);  // a full ring
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(device::unpack(r.word[0]).what == outcome::timeout);
    puts<<<1, 1>>>(w.ring.ref().within(60'000'000'000), r.word, 0, 1);
    sleep_us(3000);
    w.ring.abort_kernels();
    GPU_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    GPU_CHECK(device::unpack(r.word[0]).what == outcome::aborted);
}

}  // namespace

int main(int argc, char** argv) {
    need_gpu();
    read_arguments(argc, argv, &schedules);
    run("operations at thread scope", operations<thread_scope>);
    run("operations at warp scope", operations<warp_scope>);
    run("operations at block scope", operations<block_scope>);
    run("1024 threads on a small ring", from_all_threads);
    run("ports die under a running kernel", dying_ports);
    run("faults", faults);
    return finish();
}
