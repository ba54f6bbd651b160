/// Staging and direct registration on a real GPU with everything that a user can get wrong: memory freed in flight, streams
/// destroyed, memory of another GPU. Over the software RNIC under manual time; no kernel runs.

#include "../host/world.hpp"
#include "check.hpp"

#include <vccl/staging/cuda_memory.hpp>
#include <vccl/staging/receiver.hpp>
#include <vccl/staging/sender.hpp>

using namespace vccl_gpu_test;
using namespace vccl_test;

namespace {

constexpr std::uint32_t slice = 64 * 1024;
constexpr std::size_t large = 64 * std::size_t{slice};

bool good(cudaError_t e) { return GPU_CHECK(e == cudaSuccess); }

struct gpu_buffer {
    std::byte* p{};
    explicit gpu_buffer(std::size_t bytes, int device = 0) {
        good(cudaSetDevice(device));
        good(cudaMalloc(reinterpret_cast<void**>(&p), bytes));
        good(cudaSetDevice(0));
    }
    gpu_buffer(const gpu_buffer&) = delete;
    ~gpu_buffer() { free_now(); }
    void free_now() {
        (void)cudaFree(p);
        p = nullptr;
    }
};
struct user_stream {
    cudaStream_t s{};
    user_stream() { good(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
    user_stream(const user_stream&) = delete;
    ~user_stream() { destroy_now(); }
    void destroy_now() {
        if (s) good(cudaStreamDestroy(s));
        s = nullptr;
    }
};

/// A channel under manual time with a staged end at each side.
struct staged_world {
    using channel = soft_world<1, hold_down<1>>;
    using sender = std::remove_reference_t<decltype(*channel{}.tx)>;
    using receiver = std::remove_reference_t<decltype(*channel{}.rx)>;
    channel w;
    staged_sender<sender, cuda_engine> s;
    staged_receiver<receiver, cuda_engine> r;

    staged_world()
        : s(w.a, *w.tx, std::move(*cuda_engine::create(0)), {slice, 8}),
          r(w.b, *w.rx, std::move(*cuda_engine::create(0)), {slice, 8}) {}
    bool begin() { return w.connect() && w.run() && s.open() && r.open(); }
    template <class Done>
    bool until(Done&& done) {
        for (const nanoseconds end = w.fabric.now() + 60_s; !done();) {
            if (w.fabric.now() >= end) return false;
            s.progress();
            r.progress();
            w.fabric.advance(w.pass_time);
        }
        return true;
    }
};

/// Which end a case is about.
enum class place { at_sender, at_receiver };

template <place Where>
void memory_freed_in_flight() {
    staged_world x;
    GPU_REQUIRE(x.begin());
    gpu_buffer from(large), to(large);
    GPU_REQUIRE(x.s.send(from.p, large));
    GPU_REQUIRE(x.r.recv(to.p, large));
    GPU_REQUIRE(x.until([&] { return x.w.rx->received().value > 4; }));
    (Where == place::at_sender ? from : to).free_now();
    GPU_REQUIRE(x.until([&] { return !x.s.health() && !x.r.health(); }));
    const status own = Where == place::at_sender ? x.s.health() : x.r.health();
    const status other = Where == place::at_sender ? x.r.health() : x.s.health();
    GPU_CHECK(own.code == errc::io_error && own.detail != 0);
    GPU_CHECK(other.code == errc::aborted);
    GPU_CHECK(!x.r.ended(sequence{0}));
    GPU_CHECK(!x.s.send(from.p, 1));
}

/// Its work is done all the same, as CUDA promises, and the message with it.
template <place Where>
void stream_destroyed_in_flight() {
    staged_world x;
    GPU_REQUIRE(x.begin());
    gpu_buffer from(large), to(large);
    user_stream a, b;
    std::vector<std::byte> bytes(large), got(large);
    for (std::size_t i = 0; i < large; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    good(cudaMemcpy(from.p, bytes.data(), large, cudaMemcpyHostToDevice));
    GPU_REQUIRE(x.s.send_on(a.s, from.p, large));
    GPU_REQUIRE(x.r.recv_on(b.s, to.p, large));
    GPU_REQUIRE(x.until([&] { return x.w.rx->received().value > 4; }));
    (Where == place::at_sender ? a : b).destroy_now();
    GPU_REQUIRE(x.until([&] { return x.s.ended(sequence{0}) && x.r.ended(sequence{0}); }));
    good(cudaMemcpy(got.data(), to.p, large, cudaMemcpyDeviceToHost));
    GPU_CHECK(got == bytes);
}

void memory_of_another_gpu() {
    int gpus = 0;
    good(cudaGetDeviceCount(&gpus));
    staged_world x;
    GPU_REQUIRE(x.begin());
    GPU_CHECK(cuda_engine::create(gpus).error().code == errc::no_device);
    GPU_CHECK(cuda_engine::create(-1).error().code == errc::no_device);
    std::vector<std::byte> host(16);
    GPU_CHECK(x.s.send(host.data(), 16).error().code == errc::invalid_argument);
    GPU_CHECK(x.r.recv(host.data(), 16).error().code == errc::invalid_argument);
    if (gpus < 2) {
        std::printf("SKIP: memory of another GPU needs two\n");
        return;
    }
    gpu_buffer other(slice, 1), own(slice, 0);
    GPU_CHECK(x.s.send(other.p, slice).error().code == errc::invalid_argument);
    GPU_CHECK(x.r.recv(other.p, slice).error().code == errc::invalid_argument);
    good(cudaSetDevice(1));  // which device is current does not matter
    user_stream of_other;
    GPU_CHECK(x.s.send_on(of_other.s, own.p, slice).error().code == errc::invalid_argument);
    GPU_CHECK(x.s.next() == sequence{0});
    GPU_CHECK(x.s.send(own.p, slice));
    GPU_CHECK(x.r.recv(own.p, slice));
    GPU_CHECK(x.until([&] { return x.r.ended(sequence{0}) && x.s.ended(sequence{0}); }));
    good(cudaSetDevice(0));
}

/// A backend whose ports take dma-bufs and look at them: the software RNIC cannot, and there is no other here. The
/// verbs call itself is not made.
struct seen_dmabuf {
    std::string kind;  ///< what the descriptor is
    std::int64_t size{};
    std::uint64_t offset{}, bytes{}, address{};
    std::vector<std::byte> behind;  ///< stands in for the memory
};
struct dmabuf_port : verbs::soft_port {
    static inline seen_dmabuf last;
    using verbs::soft_port::soft_port;
    dmabuf_port(verbs::soft_port p) noexcept : verbs::soft_port(std::move(p)) {}
    result<verbs::soft_mr> register_dmabuf(int fd, std::uint64_t offset, std::uint64_t bytes, std::uint64_t address) noexcept {
        char kind[64] = {};
        const auto n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), kind, sizeof kind - 1);
        last.kind.assign(kind, n < 0 ? 0 : std::size_t(n));
        last.size = ::lseek(fd, 0, SEEK_END);
        last.offset = offset;
        last.bytes = bytes;
        last.address = address;
        last.behind.resize(bytes);
        return register_memory(last.behind.data(), bytes);
    }
};
struct dmabuf_backend {
    using policy_axis = axis::verbs;
    using port = dmabuf_port;
    static constexpr backend_capabilities capabilities{.dmabuf = true};
    verbs::soft inner;
    result<topology> discover() const { return inner.discover(); }
    result<dmabuf_port> open(const port_name& name) const noexcept {
        auto p = inner.open(name);
        if (!p) return p.error();
        return dmabuf_port(std::move(*p));
    }
};
static_assert(verbs_backend<dmabuf_backend>);

void direct_registration() {
    soft_world<> plain;
    gpu_buffer some(slice);
    GPU_CHECK(register_device(plain.a, some.p, slice).error().code == errc::unsupported);

    auto fabric = verbs::soft_fabric::create(verbs::soft_topology(1, 1, 1, 1));
    GPU_REQUIRE(fabric);
    const dmabuf_backend backend{*fabric->host("A")};
    host_context<dmabuf_backend> context(backend, *backend.discover());
    GPU_REQUIRE(context.open(port_id{0}));
    int supported = 0;
    using attribute = CUresult (*)(int*, CUdevice_attribute, CUdevice);
    if (const auto ask = detail::driver_function<attribute>("cuDeviceGetAttribute"))
        GPU_CHECK(ask(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0) == CUDA_SUCCESS);
    constexpr std::size_t whole = 8 << 20;
    gpu_buffer buffer(whole);
    if (!supported) {
        GPU_CHECK(register_device(context, buffer.p, whole).error().code == errc::unsupported);
        std::printf("SKIP: this driver exports no dma-bufs\n");
        return;
    }
    {
        auto all = register_device(context, buffer.p, whole);
        GPU_REQUIRE(all);
        const auto& got = dmabuf_port::last;
        std::printf("dma-buf: %s, %lld bytes\n", got.kind.c_str(), static_cast<long long>(got.size));
        GPU_CHECK(got.kind.find("dmabuf") != std::string::npos);
        GPU_CHECK(got.size >= static_cast<std::int64_t>(whole));
        GPU_CHECK(got.offset == 0 && got.bytes == whole && got.address == reinterpret_cast<std::uint64_t>(buffer.p));
        GPU_CHECK((*all)->view(4096, 8).region()->device);
    }
    {
        auto part = register_device(context, buffer.p + 12288, 4096);
        GPU_REQUIRE(part);
        GPU_CHECK(dmabuf_port::last.offset == 12288 && dmabuf_port::last.bytes == 4096);
        GPU_CHECK(dmabuf_port::last.address == reinterpret_cast<std::uint64_t>(buffer.p) + 12288);
    }
    GPU_CHECK(register_device(context, buffer.p + 4096, whole).error().code == errc::out_of_range);
    std::vector<std::byte> host(64);
    GPU_CHECK(register_device(context, host.data(), 64).error().code == errc::invalid_argument);
    GPU_CHECK(register_device(context, nullptr, 64).error().code == errc::invalid_argument);
    GPU_CHECK(register_device(context, buffer.p, 0).error().code == errc::invalid_argument);
    int gpus = 0;
    good(cudaGetDeviceCount(&gpus));
    if (gpus < 2) return;
    gpu_buffer other(whole, 1);
    GPU_CHECK(register_device(context, other.p, whole));
}

}  // namespace

int main(int argc, char** argv) {
    read_arguments(argc, argv);
    need_gpu();
    run("memory of the sender freed in flight", memory_freed_in_flight<place::at_sender>);
    run("memory of the receiver freed in flight", memory_freed_in_flight<place::at_receiver>);
    run("a stream of the sender destroyed in flight", stream_destroyed_in_flight<place::at_sender>);
    run("a stream of the receiver destroyed in flight", stream_destroyed_in_flight<place::at_receiver>);
    run("memory and streams of another GPU, and GPUs that are not there", memory_of_another_gpu);
    run("direct registration up to the verbs call", direct_registration);
    return finish();
}
