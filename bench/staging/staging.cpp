/// GPU memory of one process to GPU memory of another through staging, over the software RNIC, against three opponents of the
/// same run: the copies alone, the same with one copy by a processor in between (floors.hpp), and the same channels from host
/// memory to host memory (no GPU). A message is split over as many channels as there are threads at each end, since a software
/// RNIC moves bytes on the processors that use it: once, if the rings lie in the fabric's memory, else twice. Medians over
/// rounds.

#include "floors.hpp"

#include <vccl/staging/receiver.hpp>
#include <vccl/staging/sender.hpp>
#include <vccl/verbs/soft.hpp>

namespace {

using namespace floors;
using tx_type = host_sender<verbs::soft, no_backup>;
using rx_type = host_receiver<verbs::soft, no_backup>;

constexpr unsigned most_threads = 8;
constexpr std::uint32_t host_chunk = 1u << 19;
constexpr std::uint64_t sizes[] = {std::uint64_t{16} << 20, std::uint64_t{64} << 20, std::uint64_t{256} << 20};

/// What the two processes share: a board for each channel, a place where all threads meet, and the figures.
struct shared {
    std::atomic<unsigned> arrived;
    double copies[std::size(sizes)], by_processor[std::size(sizes)], host[std::size(sizes)], staged[std::size(sizes)];
    bool gpu;
    staging_options cut;
    board channel[most_threads];
};

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
            staged_sender<tx_type, cuda_engine> s(*context_, *tx_, take(cuda_engine::create(0), "engine"), all_.cut);
            check(s.open(), "open");
            rounds_of(s, all_.staged, [&](std::uint64_t n) { check(s.wait(take(s.send(device_, n), "send"), 60_s), "send"); });
        } else {
            connect(*rx_, all_.channel[me_], 1);
            rounds_of(*rx_, all_.host, [this](std::uint64_t n) { receive_in_host(n); });
            staged_receiver<rx_type, cuda_engine> r(*context_, *rx_, take(cuda_engine::create(0), "engine"), all_.cut);
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
            if (const auto s = tx_->send(memory_.view(at, host_chunk))) {
                last = *s;
                at += host_chunk;
            } else {
                tx_->progress();
            }
        }
        check(tx_->wait(last, 60_s), "send");
    }
    void receive_in_host(std::uint64_t bytes) {
        for (std::uint64_t at = 0, end = rx_->next().value + bytes / host_chunk; rx_->received().value < end;) {
            if (rx_->next().value < end && rx_->next().value - rx_->received().value < slots) {
                (void)take(rx_->recv(memory_.view(at, host_chunk)), "recv");
                at += host_chunk;
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

/// One table row a size, both processes anew. Returns false where there is no GPU.
bool compare(unsigned threads, bool fabric_memory, const staging_options& cut, double* best, double* best_by_processor) {
    shared& all = *new_shared();
    all.cut = cut;
    family f;
    const std::string name = "bench-staging-" + std::to_string(::getpid());
    verbs::soft_options options;
    options.ring_bytes = 8u << 20;
    options.memory_bytes = fabric_memory ? std::uint64_t{cut.slice_bytes} * (cut.slots + 1) : 0;
    auto fabric = take(verbs::soft_fabric::create_shared(name, verbs::soft_topology(2, most_threads, 1, 1), options), "fabric");
    // Everything of CUDA happens in children: a process that has used it must not fork.
    f.start([&] {
        int n = 0;
        all.gpu = cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
        for (unsigned i = 0; all.gpu && i < std::size(sizes); ++i) {
            all.copies[i] = copies_alone(sizes[i]);
            all.by_processor[i] = through_host(threads, sizes[i], cut.slice_bytes, cut.edge_bytes, true);
        }
    });
    f.join();
    if (!all.gpu) return false;
    f.start([&] { side(all, name, threads, true); });
    f.start([&] { side(all, name, threads, false); });
    f.join();
    for (unsigned i = 0; i < std::size(sizes); ++i) {
        const double staged = all.staged[i], alone = all.copies[i], once = all.by_processor[i];
        std::printf("%7u %6s %5u %5u %5u %5llu | %8.2f %8.2f %8.2f %8.2f | %9.3f %9.3f\n", threads,
                    fabric_memory ? "once" : "twice", cut.slice_bytes >> 10, cut.edge_bytes >> 10, cut.slots,
                    static_cast<unsigned long long>(sizes[i] >> 20), alone, once, all.host[i], staged, staged / alone,
                    staged / once);
        std::fflush(stdout);
        best[i] = std::max(best[i], staged / alone);
        best_by_processor[i] = std::max(best_by_processor[i], staged / once);
    }
    return true;
}

}  // namespace

/// `staging [THREADS SLICE_KIB EDGE_KIB SLOTS]`: that row alone.
int main(int argc, char** argv) {
    double best[std::size(sizes)]{}, best_by_processor[std::size(sizes)]{};
    std::puts("                                      |      GB/s, through host memory      |    staged over");
    std::puts("threads  moved slice edges slots   MiB |   copies +1 by CPU   host   staged |   copies  +1 by CPU");
    const auto row = [&](unsigned threads, bool fabric_memory, const staging_options& cut) {
        if (compare(threads, fabric_memory, cut, best, best_by_processor)) return;
        std::puts("BENCH staging skipped=1 why=no_GPU");
        std::exit(0);
    };
    if (argc == 5) {
        const auto number = [&](int i) { return static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10)); };
        if (number(1) == 0 || number(1) > most_threads) give_up("threads: 1 to " + std::to_string(most_threads));
        row(number(1), true, {number(2) << 10, number(4), number(3) << 10});
    } else {
        for (const unsigned threads : {1u, 4u, most_threads})
            for (const bool fabric_memory : {false, true}) row(threads, fabric_memory, {});
    }
    std::printf("BENCH staging");
    for (unsigned i = 0; i < std::size(sizes); ++i)
        std::printf(" ratio_%llu=%.3f", static_cast<unsigned long long>(sizes[i] >> 20), best[i]);
    std::printf(" ratio_copies=%.3f ratio_by_processor=%.3f\n", *std::min_element(best, best + std::size(sizes)),
                *std::min_element(best_by_processor, best_by_processor + std::size(sizes)));
}
