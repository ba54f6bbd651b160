#pragma once
/// \file
/// Buffers in a GPU's memory, behind staged ends, for a rank of `cluster`. `Gpu` is a real one, or pretends: it allocates and
/// copies memory, and makes copy engines and the compute.

#include "cluster.hpp"

#include <vccl/coll/staged_ends.hpp>

#include "../staging/pretend_engine.hpp"

#include <optional>

namespace coll_test {

template <class Gpu>
class gpu_place {
public:
    /// A stretch of GPU memory as large as the host's vector that it mirrors, somewhat off the alignment of vectors.
    struct memory_type {
        std::shared_ptr<Gpu> gpu;
        std::byte* at{};
        std::unique_ptr<staged_memory> views;
        memory_type() = default;
        memory_type(const memory_type&) = delete;
        ~memory_type() {
            if (at) gpu->free(at);
        }
        memory_view view() { return views->view(); }
        memory_view view(std::uint64_t offset, std::uint64_t bytes) { return views->view(offset, bytes); }
    };
    template <class Mesh>
    using ends_type = staged_ends<typename Mesh::sender, typename Mesh::receiver, typename Gpu::engine>;
    template <class Mesh>
    using communicator_type =
        communicator<typename ends_type<Mesh>::sender, typename ends_type<Mesh>::receiver, typename Gpu::compute, manual_clock>;

    template <class Context>
    void take(Context&, memory_type& m, std::vector<std::byte>& bytes) {
        if (m.at) m.gpu->free(m.at);
        m.gpu = gpu_;
        m.at = gpu_->allocate(bytes.size());
        m.views = std::make_unique<staged_memory>(m.at, bytes.size());
    }
    void to_place(memory_type& m, const std::vector<std::byte>& bytes) { gpu_->copy(m.at, bytes.data(), bytes.size()); }
    void from_place(memory_type& m, std::vector<std::byte>& bytes) { gpu_->copy(bytes.data(), m.at, bytes.size()); }

    template <class Context, class Mesh>
    auto communicate(Context& c, Mesh& mesh, std::uint32_t rank, std::uint32_t ranks, manual_clock clock) {
        gpu_->clock(clock);
        auto made = ends_type<Mesh>::make(c, mesh.ends(), mesh.limits().piece_bytes, 4, [&] { return gpu_->make_engine(); });
        need(made ? status{} : made.error(), "staged ends");
        const auto links = (*made)->links();
        const std::uint64_t bytes = communicator_type<Mesh>::scratch_bytes(links.rings.size(), ranks, mesh.limits());
        scratch_.gpu = gpu_;
        scratch_.at = gpu_->allocate(bytes);
        scratch_.views = std::make_unique<staged_memory>(scratch_.at, bytes);
        ends_ = std::move(*made);
        return std::make_unique<communicator_type<Mesh>>(rank, ranks, links, scratch_.view(), mesh.limits(), gpu_->make_compute(),
                                                         clock);
    }
    Gpu& gpu() noexcept { return *gpu_; }

private:
    std::shared_ptr<Gpu> gpu_ = std::make_shared<Gpu>();
    memory_type scratch_;
    std::shared_ptr<void> ends_;
};

/// Combines under a manual clock, as late as it may: the result is not there before done() says so.
class pretend_compute {
public:
    struct bench {
        std::uint64_t fails_at{~std::uint64_t{0}};  ///< this piece of work fails
        std::uint64_t given{};
    };
    pretend_compute(bench& b, manual_clock clock) : bench_(&b), clock_(clock) {}
    std::uint64_t combine(const combine_work& w) noexcept { return give({w, nullptr, nullptr, 0, {}}); }
    std::uint64_t copy(void* to, const void* from, std::uint64_t bytes) noexcept { return give({{}, to, from, bytes, {}}); }
    bool done(std::uint64_t ticket) noexcept {
        while (!jobs_.empty() && clock_.now() >= jobs_.front().ends && done_ + 1 != bench_->fails_at) {
            const job& j = jobs_.front();
            if (j.to)
                std::memcpy(j.to, j.from, j.bytes);
            else
                reduce(j.work.type, j.work.op, j.work.to, j.work.a, j.work.b, j.work.count);
            jobs_.pop_front();
            ++done_;
        }
        return ticket <= done_;
    }
    status health() const noexcept { return done_ + 1 == bench_->fails_at ? status{errc::io_error, 700} : status{}; }

private:
    struct job {
        combine_work work;
        void* to;
        const void* from;
        std::uint64_t bytes;
        nanoseconds ends;
    };
    std::uint64_t give(job j) noexcept {
        const nanoseconds start = jobs_.empty() || jobs_.back().ends < clock_.now() ? clock_.now() : jobs_.back().ends;
        j.ends = start + nanoseconds{5'000 + static_cast<std::int64_t>((j.work.count * 4 + j.bytes) / 20)};
        jobs_.push_back(j);
        return ++bench_->given;
    }

    bench* bench_;
    manual_clock clock_;
    std::deque<job> jobs_;
    std::uint64_t done_{};
};

/// Host memory that plays a GPU's.
class pretend_gpu {
public:
    using engine = vccl_test::pretend_engine;
    using compute = pretend_compute;
    std::byte* allocate(std::size_t bytes) {
        arenas_.push_back(std::make_unique<std::byte[]>(bytes));
        return arenas_.back().get();
    }
    void free(std::byte* p) {
        std::erase_if(arenas_, [p](const auto& a) { return a.get() == p; });
    }
    void copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
    void clock(manual_clock c) { clock_ = c; }
    result<engine> make_engine() {
        benches_.push_back(std::make_unique<vccl_test::engine_bench>());
        benches_.back()->device = reinterpret_cast<const std::byte*>(std::uintptr_t{4096});  // anywhere
        benches_.back()->device_bytes = std::size_t{1} << 47;
        return engine(*benches_.back(), *clock_);
    }
    compute make_compute() { return compute(work, *clock_); }

    pretend_compute::bench work;

private:
    std::vector<std::unique_ptr<std::byte[]>> arenas_;
    std::vector<std::unique_ptr<vccl_test::engine_bench>> benches_;
    std::optional<manual_clock> clock_;
};

}  // namespace coll_test
