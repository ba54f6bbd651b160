/// \file
/// All-reduce (float32, sum) of the ranks of an mpirun, by this library over the software RNIC and by MPI's own, on the same buffers
/// in turn. busbw is what each rank must send, by time: 2 (n - 1) / n of the buffer. Medians over rounds of the slowest rank's time;
/// every result is compared. Started by bench/coll/run; without mpirun it is a job of one rank, which sends nothing.

#include <vccl/bootstrap/mpi.hpp>
#include <vccl/coll/host_mesh.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace vccl;
using namespace vccl::literals;
using mesh = host_mesh<host_sender<verbs::soft, sibling_port>, host_receiver<verbs::soft, sibling_port>>;

void need(const status& s, const char* what) {
    if (s) return;
    std::fprintf(stderr, "%s: errc %d detail %u\n", what, static_cast<int>(s.code), s.detail);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Exact in float32 for as many ranks as fit.
float element(std::uint32_t rank, std::uint64_t i) { return static_cast<float>((i * 7 + rank * 5) % 64); }
std::uint64_t wrong(const std::vector<float>& out, std::uint64_t count, std::uint32_t ranks) {
    std::uint64_t n = 0;
    const std::uint64_t step = count < 65'536 ? 1 : count / 65'536;  // of large ones, enough to see any piece
    for (std::uint64_t i = 0; i < count; i += step) {
        float sum = 0;
        for (std::uint32_t r = 0; r < ranks; ++r) sum += element(r, i);
        n += out[i] != sum;
    }
    return n;
}

class match {
public:
    match(const std::string& fabric_name, std::uint64_t most)
        : exchange_(MPI_COMM_WORLD),
          fabric_(common(fabric_name)),
          context_(*fabric_.host(fabric_.shape().hosts[exchange_.rank()].name.view()), fabric_.shape()),
          in_(most / 4),
          out_(most / 4),
          mesh_(context_, gpu_id{static_cast<std::uint16_t>(exchange_.rank())}, exchange_.rank(), exchange_.ranks(), {}) {
        for (std::uint64_t i = 0; i < in_.size(); ++i) in_[i] = element(exchange_.rank(), i);
        auto in = context_.register_memory(in_.data(), most), out = context_.register_memory(out_.data(), most);
        need(in.error(), "register");
        need(out.error(), "register");
        in_memory_ = std::move(*in);
        out_memory_ = std::move(*out);
        need(mesh_.connect(exchange_, 60_s), "connect");
        comm_.reset(new mesh::communicator_type(mesh_.make_communicator()));
    }
    std::uint32_t ranks() const { return exchange_.ranks(); }
    std::uint32_t rank() const { return exchange_.rank(); }

    void ours(std::uint64_t count) {
        need(comm_->all_reduce(in_memory_.view(0, count * 4), out_memory_.view(0, count * 4), count, element_type::float32,
                               reduce_op::sum),
             "all_reduce");
        need(comm_->wait(300_s), "all_reduce");
    }
    void mpi(std::uint64_t count) {
        MPI_Allreduce(in_.data(), out_.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    /// Microseconds of one, as the slowest rank sees it; wrong elements of all ranks in `bad`.
    template <class Once>
    double time(std::uint64_t count, unsigned times, std::uint64_t& bad, Once&& once) {
        std::fill(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(count), 0.0f);
        barrier();
        const nanoseconds begin = steady_clock{}.now();
        for (unsigned i = 0; i < times; ++i) once(count);
        double own = static_cast<double>((steady_clock{}.now() - begin).count) * 1e-3 / times, slowest = 0;
        std::uint64_t here = wrong(out_, count, ranks()), all = 0;
        barrier();
        MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        MPI_Allreduce(&here, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        bad += all;
        return slowest;
    }
    void close() {
        need(mesh_.close(60_s), "close");
        MPI_Barrier(MPI_COMM_WORLD);
    }

private:
    /// Neighbours may still need this rank's ends.
    void barrier() {
        MPI_Request request;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        for (int done = 0; done == 0;) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (!mesh_.progress()) ::sched_yield();
        }
    }
    verbs::soft_fabric common(const std::string& name) {
        auto made = exchange_.rank() == 0 ? verbs::soft_fabric::create_shared(name, make_cluster(exchange_.ranks(), 1, 2, 1))
                                          : errc::not_found;
        MPI_Barrier(MPI_COMM_WORLD);
        if (exchange_.rank() != 0) made = verbs::soft_fabric::attach(name);
        need(made.error(), "fabric");
        return std::move(*made);
    }

    mpi_exchange exchange_;
    verbs::soft_fabric fabric_;
    host_context<verbs::soft> context_;
    std::vector<float> in_, out_;
    memory in_memory_, out_memory_;
    mesh mesh_;
    std::unique_ptr<mesh::communicator_type> comm_;
};

int play(std::uint64_t most) {
    match m("bench_coll", most);
    const bool talks = m.rank() == 0;
    if (talks) {
        std::printf("%u ranks, float32 sum, out of place; us and busbw in GB/s\n", m.ranks());
        std::printf("%12s | %11s %8s | %11s %8s | %6s\n", "bytes", "vccl us", "busbw", "MPI us", "busbw", "ratio");
    }
    std::uint64_t bad = 0;
    double first = 0, last = 0;
    for (std::uint64_t bytes = 8;; bytes = std::min(bytes * 8, most)) {
        const std::uint64_t count = bytes / 4;
        const unsigned times = static_cast<unsigned>(std::clamp<std::uint64_t>((std::uint64_t{8} << 20) / bytes, 1, 100)),
                       rounds = bytes >= std::uint64_t{64} << 20 ? 3 : 5;
        std::vector<double> ours, mpis;
        for (unsigned r = 0; r <= rounds; ++r) {  // the first warms up
            const double a = m.time(count, times, bad, [&](std::uint64_t n) { m.ours(n); });
            const double b = m.time(count, times, bad, [&](std::uint64_t n) { m.mpi(n); });
            if (r == 0) continue;
            ours.push_back(a);
            mpis.push_back(b);
        }
        std::sort(ours.begin(), ours.end());
        std::sort(mpis.begin(), mpis.end());
        const double a = ours[rounds / 2], b = mpis[rounds / 2], share = 2.0 * (m.ranks() - 1) / m.ranks();
        const auto busbw = [&](double us) { return static_cast<double>(bytes) / us * 1e-3 * share; };
        if (talks) {
            std::printf("%12llu | %11.1f %8.3f | %11.1f %8.3f | %6.2f\n", static_cast<unsigned long long>(bytes), a, busbw(a), b,
                        busbw(b), b / a);
            std::fflush(stdout);
        }
        if (bytes == 8) first = b / a;
        last = b / a;
        if (bytes == most) break;
    }
    m.close();
    if (talks)
        std::printf("BENCH coll_mpi ranks=%u wrong=%llu ratio_8_bytes=%.2f ratio_%llu_mib=%.2f\n", m.ranks(),
                    static_cast<unsigned long long>(bad), first, static_cast<unsigned long long>(most >> 20), last);
    return bad != 0;
}

}  // namespace

int main(int count, char** arguments) {
    MPI_Init(&count, &arguments);
    const int mib = count > 1 ? std::atoi(arguments[1]) : 256;
    const int result = mib >= 1 && mib <= 1024 ? play(static_cast<std::uint64_t>(mib) << 20) : 2;
    if (result == 2) std::fprintf(stderr, "usage: coll_mpi [LARGEST SIZE IN MIB]\n");
    MPI_Finalize();
    return result;
}
