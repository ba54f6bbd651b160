// Collectives whose elements a GPU combines: the kernels against the CPU's bits, then whole collectives over GPU memory through
// staged ends, under seeded schedules of port faults, against the same reference as on the CPU.
#include "check.hpp"

#include "../coll/gpu_place.hpp"
#include "../coll/storm.hpp"

#include <vccl/coll/cuda_compute.cuh>

#include <random>

using namespace vccl_gpu_test;
using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr element_type types[] = {element_type::float32, element_type::float16, element_type::bfloat16, element_type::int32,
                                  element_type::int64};
constexpr reduce_op ops[] = {reduce_op::sum, reduce_op::max, reduce_op::min};

/// GPU memory that says with its owner.
struct buffer {
    explicit buffer(std::size_t bytes) { cudaMalloc(reinterpret_cast<void**>(&at), bytes); }
    buffer(const buffer&) = delete;
    ~buffer() { cudaFree(at); }
    std::byte* at{};
};

bool wait(const cuda_compute& c, std::uint64_t ticket) {
    for (const nanoseconds end = steady_clock{}.now() + 10_s; !c.done(ticket);)
        if (!c.health() || steady_clock{}.now() > end) return false;
    return true;
}

bool is_nan(element_type t, const std::byte* at) {
    std::uint32_t wide = 0;
    std::uint16_t narrow = 0;
    std::memcpy(&narrow, at, 2);
    if (t == element_type::float16) return (narrow & 0x7fff) > 0x7c00;
    if (t == element_type::bfloat16) return (narrow & 0x7fff) > 0x7f80;
    if (t != element_type::float32) return false;
    std::memcpy(&wide, at, 4);
    return (wide & 0x7fffffff) > 0x7f800000;
}

/// Any bits at all, so infinities, NaNs and the smallest numbers, too; NaNs may differ in their own bits.
void kernels() {
    constexpr std::uint64_t most = 300'007, room = (most + 4) * 8;
    auto c = cuda_compute::create(0);
    GPU_REQUIRE(c);
    buffer a(room), b(room), to(room);
    std::vector<std::byte> x(room), y(room), expected(room), got(room);
    std::mt19937_64 random(1);
    for (auto* v : {&x, &y})
        for (std::size_t i = 0; i + 8 <= room; i += 8) {
            const std::uint64_t bits = random();
            std::memcpy(v->data() + i, &bits, 8);
        }
    for (const element_type t : types)
        for (const reduce_op op : ops)
            for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{1023}, most})
                for (const unsigned offset : {0u, 1u})     // in elements: on the alignment of vectors, and not
                    for (const unsigned alias : {0u, 1u, 2u}) {  // `to`: of its own, `a`, `b`
                        const std::size_t size = size_of(t), at = offset * size, bytes = count * size;
                        std::byte* const out = alias == 0 ? to.at : alias == 1 ? a.at : b.at;
                        cudaMemcpy(a.at, x.data(), room, cudaMemcpyHostToDevice);
                        cudaMemcpy(b.at, y.data(), room, cudaMemcpyHostToDevice);
                        cudaMemset(to.at, 0x5a, room);
                        const std::uint64_t ticket = c->combine({out + at, a.at + at, b.at + at, count, t, op});
                        GPU_REQUIRE(wait(*c, ticket));
                        cudaMemcpy(got.data(), out, room, cudaMemcpyDeviceToHost);
                        if (alias == 0)
                            std::fill(expected.begin(), expected.end(), std::byte{0x5a});
                        else
                            expected = alias == 1 ? x : y;
                        reduce(t, op, expected.data() + at, x.data() + at, y.data() + at, count);
                        std::uint64_t wrong = 0;
                        for (std::size_t i = 0; i + size <= room; i += size)
                            wrong += std::memcmp(&got[i], &expected[i], size) != 0 &&
                                     !(i >= at && i < at + bytes && is_nan(t, &got[i]) && is_nan(t, &expected[i]));
                        if (!GPU_CHECK(wrong == 0))
                            std::printf("  type %d op %d count %llu offset %u alias %u: %llu wrong\n", int(t), int(op),
                                        static_cast<unsigned long long>(count), offset, alias,
                                        static_cast<unsigned long long>(wrong));
                    }
}

void copies_and_errors() {
    auto c = cuda_compute::create(0);
    GPU_REQUIRE(c);
    GPU_CHECK(c->done(0));
    buffer a(4096), b(4096);
    std::vector<std::byte> x(4096, std::byte{7}), y(4096);
    cudaMemcpy(a.at, x.data(), 4096, cudaMemcpyHostToDevice);
    GPU_CHECK(wait(*c, c->copy(b.at, a.at, 4096)));
    cudaMemcpy(y.data(), b.at, 4096, cudaMemcpyDeviceToHost);
    GPU_CHECK(x == y);
    GPU_CHECK(wait(*c, c->copy(b.at, a.at, 0)));
    GPU_CHECK(wait(*c, c->combine({b.at, a.at, a.at, 0, element_type::int32, reduce_op::sum})));
    GPU_CHECK(c->health());
    GPU_CHECK(cuda_compute::create(999).error().code == errc::no_device);
    const std::uint64_t bad = c->copy(b.at, a.at, ~std::uint64_t{0} / 2);  // no memory is so large
    GPU_CHECK(!c->done(bad));
    GPU_CHECK(!c->health());
}

/// The GPU of a rank of the cluster: the ranks take this machine's in turn.
class real_gpu {
public:
    using engine = cuda_engine;
    using compute = cuda_compute;
    real_gpu() {
        static int next = 0;
        int n = 1;
        cudaGetDeviceCount(&n);
        device_ = next++ % n;
    }
    std::byte* allocate(std::size_t bytes) {
        const detail::current_device current(device_);
        void* p = nullptr;
        coll_test::need(cudaMalloc(&p, bytes) == cudaSuccess ? status{} : status{errc::no_memory}, "GPU memory");
        return static_cast<std::byte*>(p);
    }
    void free(std::byte* p) { cudaFree(p); }
    void copy(void* to, const void* from, std::size_t bytes) { cudaMemcpy(to, from, bytes, cudaMemcpyDefault); }
    void clock(manual_clock) {}
    result<engine> make_engine() { return cuda_engine::create(device_); }
    compute make_compute() {
        auto c = cuda_compute::create(device_);
        coll_test::need(c ? status{} : c.error(), "cuda_compute");
        return std::move(*c);
    }

private:
    int device_{};
};
using gpu_cluster = coll_test::soft_cluster<on_completion<counters>, hold_down<1>, sibling_port, coll_test::gpu_place<real_gpu>>;

unsigned schedules = 50;

/// The GPU takes its own time, so a schedule here is not a function of its seed alone; what must hold is.
void faults() {
    std::uint64_t failovers = 0, failbacks = 0, replayed = 0, touched = 0;
    const nanoseconds begin = steady_clock{}.now();
    for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
        const auto r = coll_test::storm<gpu_cluster>(seed, false, {.pieces = {1024, 8192, 32768}, .least_piece = 1024});
        if (!GPU_CHECK(r.problem.empty()))
            std::printf("  seed %llu: %s (%s)\n", static_cast<unsigned long long>(seed), r.problem.c_str(), r.what.c_str());
        failovers += r.failovers;
        failbacks += r.failbacks;
        replayed += r.replayed;
        touched += r.touched;
    }
    std::printf("  %u schedules in %.1f s: %llu with faults, %llu failovers, %llu fail-backs, %llu chunks replayed\n", schedules,
                static_cast<double>((steady_clock{}.now() - begin).count) / 1e9, static_cast<unsigned long long>(touched),
                static_cast<unsigned long long>(failovers), static_cast<unsigned long long>(failbacks),
                static_cast<unsigned long long>(replayed));
    GPU_CHECK(touched == schedules);
    GPU_CHECK(failovers * 2 > schedules || schedules < 10);  // a few need not have met a port in use
}

}  // namespace

int main(int argc, char** argv) {
    need_gpu();
    read_arguments(argc, argv, &schedules);
    run("kernels give the CPU's bits", kernels);
    run("copies, nothing, and errors", copies_and_errors);
    run("collectives over GPU memory while ports die", faults);
    return finish();
}
