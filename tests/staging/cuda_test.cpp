/// Staging through a real GPU, over the software RNIC under manual time. Without a GPU every case says so and is skipped.

#include "staged_world.hpp"
#ifdef VCCL_HAVE_CUPTI
#include "kernel_count.hpp"
#endif

#include <vccl/staging/cuda_memory.hpp>

using namespace vccl_test;

namespace {

bool have_gpu() {
    int n = 0;
    const bool some = cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
    if (!some) (void)cudaGetLastError();
    return some;
}
#define NEEDS_GPU                            \
    if (!have_gpu()) {                       \
        MESSAGE("SKIP: no GPU to run this"); \
        return;                              \
    }

void good(cudaError_t e) { REQUIRE(e == cudaSuccess); }

/// GPU memory, and how to fill and read it without a kernel.
struct gpu_buffer {
    std::byte* p{};
    std::size_t bytes;
    explicit gpu_buffer(std::size_t n) : bytes(n) { good(cudaMalloc(reinterpret_cast<void**>(&p), n)); }
    gpu_buffer(const gpu_buffer&) = delete;
    ~gpu_buffer() { (void)cudaFree(p); }
    void free_now() {
        (void)cudaFree(p);
        p = nullptr;
    }
};
struct user_stream {
    cudaStream_t s{};
    user_stream() { good(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
    user_stream(const user_stream&) = delete;
    ~user_stream() { (void)cudaStreamDestroy(s); }
};

cuda_engine engine() {
    auto e = cuda_engine::create(0);
    REQUIRE(e);
    return std::move(*e);
}

using world_type = soft_world<1, hold_down<1>>;
struct gpu_channel {
    world_type w{staged_ends<world_type, cuda_engine>::shape()};
};
struct gpu_world : gpu_channel, staged_ends<world_type, cuda_engine> {
    using gpu_channel::w;
    gpu_world() : staged_ends(w, engine(), engine(), {}) {}
};

}  // namespace

TEST_CASE("On two streams, without blocking the host, every message is the one that the stream wrote: 200 seeded port faults") {
    NEEDS_GPU
#ifdef VCCL_HAVE_CUPTI
    const bool counted = gpu_activity::begin();
#endif
    constexpr unsigned messages = 6;
    constexpr std::size_t bytes = 5 * slice + 1234;
    std::vector<std::vector<std::byte>> pattern(messages, std::vector<std::byte>(bytes));
    for (unsigned m = 0; m < messages; ++m)
        for (std::size_t i = 0; i < bytes; ++i) pattern[m][i] = static_cast<std::byte>(m * 37 + i * 7 + i / 251);
    std::byte *pinned_out{}, *pinned_in{};
    good(cudaHostAlloc(reinterpret_cast<void**>(&pinned_out), messages * bytes, 0));
    good(cudaHostAlloc(reinterpret_cast<void**>(&pinned_in), messages * bytes, 0));
    for (unsigned m = 0; m < messages; ++m) std::memcpy(pinned_out + m * bytes, pattern[m].data(), bytes);
    std::uint64_t failovers = 0, random = 88172645463325252u;
    for (unsigned seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        gpu_world x;
        gpu_buffer from(bytes), to(bytes);
        user_stream a, b;
        std::memset(pinned_in, 0, messages * bytes);
        // One buffer at each end for all messages: only the order of the streams keeps them apart.
        for (unsigned m = 0; m < messages; ++m) {
            good(cudaMemcpyAsync(from.p, pinned_out + m * bytes, bytes, cudaMemcpyHostToDevice, a.s));
            REQUIRE(x.s.send_on(a.s, from.p, bytes));
            REQUIRE(x.r.recv_on(b.s, to.p, bytes));
            good(cudaMemcpyAsync(pinned_in + m * bytes, to.p, bytes, cudaMemcpyDeviceToHost, b.s));
        }
        const std::uint64_t at = random % (messages * 6);
        const char* port = (random >> 32) % 2 ? "down A.nic0.p0" : "down B.nic0.p0";
        bool down = false;
        REQUIRE(x.until([&] { return x.r.ended(sequence{messages - 1}) && x.s.ended(sequence{messages - 1}); },
                        [&] {
                            if (down || x.w.rx->received().value < at) return;
                            down = true;
                            REQUIRE(x.w.command(port));
                        }));
        good(cudaStreamSynchronize(a.s));
        good(cudaStreamSynchronize(b.s));
        for (unsigned m = 0; m < messages; ++m) CHECK(std::memcmp(pinned_in + m * bytes, pattern[m].data(), bytes) == 0);
        failovers += x.w.rx->handler().count(event::failed_over);
    }
    CHECK(failovers > 150);
    MESSAGE("failovers: ", failovers);
    (void)cudaFreeHost(pinned_out);
    (void)cudaFreeHost(pinned_in);
#ifdef VCCL_HAVE_CUPTI
    if (counted) {
        gpu_activity::flush();
        MESSAGE("kernels: ", gpu_activity::kernels.load(), ", copies: ", gpu_activity::copies.load());
        CHECK(gpu_activity::kernels == 0);
        CHECK(gpu_activity::copies > 200 * messages * 2);
    }
#endif
}

TEST_CASE("Memory of the host, of nobody, or beyond its end is refused at the call") {
    NEEDS_GPU
    gpu_world x;
    gpu_buffer device(slice);
    std::vector<std::byte> host(16);
    CHECK(x.s.send(host.data(), 16).error().code == errc::invalid_argument);
    CHECK(x.s.send(reinterpret_cast<void*>(0x1000), 16).error().code == errc::invalid_argument);
    CHECK(x.s.send(device.p, std::uint64_t{1} << 40).error().code == errc::out_of_range);
    CHECK(x.r.recv(host.data(), 16).error().code == errc::invalid_argument);
    CHECK(x.s.send(device.p, slice));
}

TEST_CASE("A device that is not there gives an error, no crash") {
    CHECK(cuda_engine::create(1000).error().code == errc::no_device);
}

TEST_CASE("GPU memory freed in flight ends the channel with CUDA's number; nothing is called received") {
    NEEDS_GPU
    gpu_world x;
    gpu_buffer from(64 * slice), to(64 * slice);
    REQUIRE(x.s.send(from.p, from.bytes));
    REQUIRE(x.r.recv(to.p, to.bytes));  // not on a stream: cudaFree waits for those that are held
    REQUIRE(x.until([&] { return x.w.rx->received().value > 4; }));
    from.free_now();
    REQUIRE(x.until([&] { return !x.s.health() && !x.r.health(); }));
    CHECK(x.s.health().code == errc::io_error);
    CHECK(x.s.health().detail != 0);
    CHECK(x.r.health().code == errc::aborted);
    CHECK(!x.r.ended(sequence{0}));
}

TEST_CASE("Aborting with a message under way lets the streams go") {
    NEEDS_GPU
    user_stream a, b;
    gpu_buffer from(64 * slice), to(64 * slice);
    {
        gpu_world x;
        REQUIRE(x.s.send_on(a.s, from.p, from.bytes));
        REQUIRE(x.r.recv_on(b.s, to.p, to.bytes));
        REQUIRE(x.until([&] { return x.w.rx->received().value > 4; }));
        x.s.abort();
        x.r.abort();
    }
    good(cudaStreamSynchronize(a.s));
    good(cudaStreamSynchronize(b.s));
}

TEST_CASE("Where the backend has no dma-buf, registering GPU memory says so") {
    world_options o;
    soft_world<> w(o);
    CHECK(register_device(w.a, nullptr, 1).error().code == errc::unsupported);
}
