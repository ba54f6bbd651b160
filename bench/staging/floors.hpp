#pragma once
/// \file
/// What bounds a transfer from GPU memory to GPU memory through host memory: the copies alone, pipelined slice by slice, and
/// the same with one copy by a processor in between (the software RNIC's own), which it cannot do without. In one process, without a
/// network. GB/s, medians over rounds.

#include "../ends/two_ends.hpp"

#include <vccl/staging/cuda_engine.hpp>
#include <vccl/staging/cut.hpp>
#include <vccl/verbs/soft/copy.hpp>

#include <thread>

namespace floors {

using namespace ends;

inline constexpr unsigned rounds = 7;
inline constexpr unsigned slots = 8;

inline void good(cudaError_t e, const char* what) {
    if (e != cudaSuccess) give_up(std::string(what) + ": " + cudaGetErrorString(e));
}
inline std::byte* device_memory_of(std::uint64_t bytes) {
    void* p = nullptr;
    good(cudaMalloc(&p, bytes), "cudaMalloc");
    return static_cast<std::byte*>(p);
}
inline double rate(std::uint64_t bytes, nanoseconds took) { return double(bytes) / double(took.count); }

/// One thread's part: GPU to host ring, from there to another ring if a processor copies, and to the GPU.
class line {
public:
    line(std::uint64_t bytes, std::uint32_t slice, std::uint32_t edge, bool by_processor)
        : bytes_(bytes),
          slice_(slice),
          edge_(edge),
          from_(device_memory_of(bytes)),
          to_(device_memory_of(bytes)),
          first_(take(down_.allocate(std::size_t{slice} * slots), "ring")) {
        if (by_processor) second_ = take(down_.allocate(std::size_t{slice} * slots), "ring");
    }
    ~line() {
        good(cudaFree(from_), "cudaFree");
        good(cudaFree(to_), "cudaFree");
    }
    void transfer() {
        std::uint64_t cut = 0;
        while (written_ != read_ || cut != bytes_) {
            while (cut != bytes_ && read_ - written_ != slots) {
                piece& p = of(read_);
                p.at = cut;
                p.bytes = next_slice(cut, bytes_ - cut, slice_, edge_);
                cut += p.bytes;
                (void)take(down_.read(in_ring(first_, read_++), from_ + p.at, p.bytes), "copy");
            }
            if (sent_ != read_ && take(down_.done(sent_), "copy")) {
                const piece& p = of(sent_);
                const std::byte* source = in_ring(first_, sent_);
                if (second_.data()) {
                    verbs::soft_detail::stream_bytes(in_ring(second_, sent_), source, p.bytes);
                    source = in_ring(second_, sent_);
                }
                (void)take(up_.write(to_ + p.at, source, p.bytes), "copy");
                ++sent_;
            }
            if (written_ != sent_ && take(up_.done(written_), "copy")) ++written_;
        }
    }

private:
    struct piece {
        std::uint64_t at;
        std::uint32_t bytes;
    };
    piece& of(std::uint64_t n) { return pieces_[n % slots]; }
    std::byte* in_ring(const staging_buffer& ring, std::uint64_t n) const { return ring.data() + n % slots * slice_; }

    std::uint64_t bytes_;
    std::uint32_t slice_, edge_;
    std::byte *from_, *to_;
    cuda_engine down_{take(cuda_engine::create(0), "engine")}, up_{take(cuda_engine::create(0), "engine")};
    staging_buffer first_, second_;
    piece pieces_[slots]{};
    std::uint64_t read_{}, sent_{}, written_{};  // slices of all transfers so far
};

/// `threads` lines at once, each with its part of the bytes.
inline double through_host(unsigned threads, std::uint64_t bytes, std::uint32_t slice, std::uint32_t edge, bool by_processor) {
    std::atomic<unsigned> arrived{};
    std::vector<double> each;
    const auto work = [&](unsigned me) {
        line mine(bytes / threads, slice, edge, by_processor);
        unsigned meetings = 0;
        const auto meet = [&] {
            const unsigned wanted = ++meetings * threads;
            arrived.fetch_add(1);
            wait_for([&] { return arrived.load() >= wanted; }, 60_s, "the other threads");
        };
        for (unsigned round = 0; round < rounds; ++round) {
            meet();
            const nanoseconds start = now();
            mine.transfer();
            meet();
            if (me == 0) each.push_back(rate(bytes, now() - start));
        }
    };
    std::vector<std::thread> run;
    for (unsigned i = 0; i < threads; ++i) run.emplace_back(work, i);
    for (std::thread& t : run) t.join();
    return median(each);
}

/// The most that the copies alone do, over sizes of slices: a larger one costs less, a smaller one begins earlier.
inline double copies_alone(std::uint64_t bytes) {
    double best = 0;
    for (const std::uint32_t slice : {512u << 10, 1u << 20, 2u << 20})
        best = std::max(best, through_host(1, bytes, slice, 0, false));
    return best;
}

}  // namespace floors
