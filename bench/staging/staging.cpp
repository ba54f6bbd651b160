/// GPU memory of one process to GPU memory of another through staging, over the software RNIC, against two opponents of the
/// same run: the copies alone (GPU to page-locked memory and on to the GPU, pipelined slice by slice, no network), and the
/// same channels from host memory to host memory (no GPU). A message is split over as many channels as there are threads at
/// each end, since a software RNIC moves bytes on the processors that use it. Medians over rounds.

#include "../ends/two_ends.hpp"

#include <vccl/staging/cuda_engine.hpp>
#include <vccl/staging/receiver.hpp>
#include <vccl/staging/sender.hpp>
#include <vccl/verbs/soft.hpp>

#include <thread>

namespace {

using namespace ends;
using tx_type = host_sender<verbs::soft, no_backup>;
using rx_type = host_receiver<verbs::soft, no_backup>;

constexpr unsigned rounds = 7, most_threads = 4;
constexpr std::uint32_t slice = 1u << 19;
constexpr unsigned slots = 8;
constexpr std::uint64_t sizes[] = {std::uint64_t{16} << 20, std::uint64_t{64} << 20, std::uint64_t{256} << 20};

/// What the two processes share: a board for each channel, a place where all threads meet, and the figures.
struct shared {
    std::atomic<unsigned> arrived;
    double copies[std::size(sizes)], host[std::size(sizes)], staged[std::size(sizes)];
    bool gpu;
    board channel[most_threads];
};

void good(cudaError_t e, const char* what) {
    if (e != cudaSuccess) give_up(std::string(what) + ": " + cudaGetErrorString(e));
}
std::byte* device_memory_of(std::uint64_t bytes) {
    void* p = nullptr;
    good(cudaMalloc(&p, bytes), "cudaMalloc");
    return static_cast<std::byte*>(p);
}
double rate(std::uint64_t bytes, nanoseconds took) { return double(bytes) / double(took.count); }

/// GB/s of the copies alone.
double copies_alone(std::uint64_t bytes) {
    std::byte *from = device_memory_of(bytes), *to = device_memory_of(bytes);
    auto down = take(cuda_engine::create(0), "engine"), up = take(cuda_engine::create(0), "engine");
    auto ring = take(down.allocate(std::size_t{slice} * slots), "ring");
    std::vector<double> each;
    std::uint64_t first = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        const nanoseconds start = now();
        const std::uint64_t n = bytes / slice;
        std::uint64_t read = 0, written = 0, freed = 0;
        while (freed != n) {
            if (read != n && read - freed < slots) {
                (void)take(down.read(ring.data() + read % slots * slice, from + read * slice, slice), "copy");
                ++read;
            }
            if (written != read && take(down.done(first + written), "copy")) {
                (void)take(up.write(to + written * slice, ring.data() + written % slots * slice, slice), "copy");
                ++written;
            }
            if (freed != written && take(up.done(first + freed), "copy")) ++freed;
        }
        first += n;
        each.push_back(rate(bytes, now() - start));
    }
    good(cudaFree(from), "cudaFree");
    good(cudaFree(to), "cudaFree");
    return median(each);
}

/// One thread of one process: its channel, its part of each message.
class worker {
public:
    worker(shared& all, const std::string& fabric, unsigned me, unsigned threads, bool sends)
        : all_(all), me_(me), threads_(threads), sends_(sends), fabric_(take(verbs::soft_fabric::attach(fabric), "attach")) {
        const topology& t = fabric_.shape();
        const char* host = sends ? "A" : "B";
        context_ = std::make_unique<host_context<verbs::soft>>(take(fabric_.host(host), host), t);
        const std::string port = std::string(host) + ".nic" + std::to_string(me) + ".p0";
        const port_id primary = take(t.find_port(port), "port");
        bytes_.resize(sizes[std::size(sizes) - 1] / threads);
        memory_ = take(context_->register_memory(bytes_.data(), bytes_.size()), "memory");
        device_ = device_memory_of(bytes_.size());
        if (sends)
            tx_ = std::make_unique<tx_type>(*context_, primary, channel_id{me});
        else
            rx_ = std::make_unique<rx_type>(*context_, primary, channel_id{me});
    }
    void run() {
        if (sends_) {
            connect(*tx_, all_.channel[me_], 0);
            rounds_of(*tx_, all_.host, [this](std::uint64_t n) { send_from_host(n); });
            staged_sender<tx_type, cuda_engine> s(*context_, *tx_, take(cuda_engine::create(0), "engine"), {slice, slots});
            check(s.open(), "open");
            rounds_of(s, all_.staged, [&](std::uint64_t n) { check(s.wait(take(s.send(device_, n), "send"), 60_s), "send"); });
        } else {
            connect(*rx_, all_.channel[me_], 1);
            rounds_of(*rx_, all_.host, [this](std::uint64_t n) { receive_in_host(n); });
            staged_receiver<rx_type, cuda_engine> r(*context_, *rx_, take(cuda_engine::create(0), "engine"), {slice, slots});
            check(r.open(), "open");
            rounds_of(r, all_.staged, [&](std::uint64_t n) { check(r.wait(take(r.recv(device_, n), "recv"), 60_s), "receive"); });
        }
    }

private:
    /// Every size, every round, all threads of both processes at once; the first receiving thread takes the time.
    template <class End, class Part>
    void rounds_of(End& end, double* figure, Part&& part) {
        for (unsigned i = 0; i < std::size(sizes); ++i) {
            std::vector<double> each;
            for (unsigned round = 0; round < rounds; ++round) {
                meet(end);
                const nanoseconds start = now();
                part(sizes[i] / threads_);
                meet(end);
                each.push_back(rate(sizes[i], now() - start));
            }
            if (!sends_ && me_ == 0) figure[i] = median(each);
        }
    }
    /// Waits for all threads; the end goes on meanwhile: an acknowledgement may still be due.
    template <class End>
    void meet(End& end) {
        const unsigned wanted = ++meetings_ * 2 * threads_;
        all_.arrived.fetch_add(1);
        wait_for([&] { return end.progress(), all_.arrived.load() >= wanted; }, 60_s, "the other threads");
    }
    void send_from_host(std::uint64_t bytes) {
        sequence last{};
        for (std::uint64_t at = 0; at < bytes;) {
            if (const auto s = tx_->send(memory_.view(at, slice))) {
                last = *s;
                at += slice;
            } else {
                tx_->progress();
            }
        }
        check(tx_->wait(last, 60_s), "send");
    }
    void receive_in_host(std::uint64_t bytes) {
        for (std::uint64_t at = 0, end = rx_->next().value + bytes / slice; rx_->received().value < end;) {
            if (rx_->next().value < end && rx_->next().value - rx_->received().value < slots) {
                (void)take(rx_->recv(memory_.view(at, slice)), "recv");
                at += slice;
            }
            rx_->progress();
            check(rx_->health(), "receiver");
        }
    }

    shared& all_;
    unsigned me_, threads_, meetings_{};
    bool sends_;
    verbs::soft_fabric fabric_;
    std::unique_ptr<host_context<verbs::soft>> context_;
    std::vector<std::byte> bytes_;
    memory memory_;
    std::byte* device_{};
    std::unique_ptr<tx_type> tx_;
    std::unique_ptr<rx_type> rx_;
};

void side(shared& all, const std::string& fabric, unsigned threads, bool sends) {
    std::vector<std::unique_ptr<worker>> workers;
    for (unsigned i = 0; i < threads; ++i) workers.push_back(std::make_unique<worker>(all, fabric, i, threads, sends));
    std::vector<std::thread> run;
    for (auto& w : workers) run.emplace_back([&w] { w->run(); });
    for (std::thread& t : run) t.join();
}

shared* new_shared() {
    void* p = ::mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) give_up("mmap");
    return ::new (p) shared{};
}

}  // namespace

int main() {
    // Everything of CUDA happens in children: a process that has used it must not fork.
    double floor = 9, host = 9;
    std::printf("%7s %8s | %12s %12s %12s | %9s %9s\n", "threads", "MiB", "copies GB/s", "host GB/s", "staged GB/s", "/ copies",
                "/ host");
    for (const unsigned threads : {1u, 2u, most_threads}) {
        shared& all = *new_shared();
        family f;
        const std::string name = "bench-staging-" + std::to_string(::getpid()) + "-" + std::to_string(threads);
        verbs::soft_options options;
        options.ring_bytes = 8u << 20;
        auto fabric =
            take(verbs::soft_fabric::create_shared(name, verbs::soft_topology(2, most_threads, 1, 1), options), "fabric");
        f.start([&] {
            int n = 0;
            all.gpu = cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
            for (unsigned i = 0; all.gpu && i < std::size(sizes); ++i) all.copies[i] = copies_alone(sizes[i]);
        });
        f.join();
        if (!all.gpu) {
            std::puts("BENCH staging skipped=1 why=no_GPU");
            return 0;
        }
        f.start([&] { side(all, name, threads, true); });
        f.start([&] { side(all, name, threads, false); });
        f.join();
        floor = host = 9;
        for (unsigned i = 0; i < std::size(sizes); ++i) {
            const double staged = all.staged[i], alone = all.copies[i], plain = all.host[i];
            std::printf("%7u %8llu | %12.2f %12.2f %12.2f | %9.3f %9.3f\n", threads,
                        static_cast<unsigned long long>(sizes[i] >> 20), alone, plain, staged, staged / alone, staged / plain);
            std::fflush(stdout);
            floor = std::min(floor, staged / alone);
            host = std::min(host, staged / plain);
        }
    }
    std::printf("BENCH staging ratio_copies=%.3f ratio_host=%.3f\n", floor, host);
}
