/// \file
/// Open MPI's side of the comparison; two ranks, rank 0 sends. bench/peers_guest/measure runs it over UCX.
///
///   mpi_peer measure            bw mpi SIZE MIB-A-SECOND, lat mpi MICROSECONDS, rate mpi MESSAGES-A-SECOND
///   mpi_peer stream SECONDS     64 KiB messages, 8 outstanding; a count twice a second

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int most = 4 << 20;
std::vector<char> memory(std::size_t{most} * 8);

/// `count` messages of `size` bytes from rank 0 to rank 1, `depth` outstanding, and a word back; seconds.
double stream(int rank, int size, int count, int depth) {
    std::vector<MPI_Request> open(static_cast<std::size_t>(depth), MPI_REQUEST_NULL);
    const double start = MPI_Wtime();
    for (int i = 0; i < count; ++i) {
        char* at = memory.data() + std::size_t(i % depth) * std::size_t(size);
        MPI_Request& one = open[static_cast<std::size_t>(i % depth)];
        MPI_Wait(&one, MPI_STATUS_IGNORE);
        rank == 0 ? MPI_Isend(at, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &one)
                  : MPI_Irecv(at, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &one);
    }
    MPI_Waitall(depth, open.data(), MPI_STATUSES_IGNORE);
    char word = 0;
    rank == 0 ? MPI_Recv(&word, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
              : MPI_Send(&word, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

void ping(int rank, int size, int times) {
    for (int i = 0; i < 2 * times; ++i)
        if (i % 2 == rank)
            MPI_Send(memory.data(), size, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD);
        else
            MPI_Recv(memory.data(), size, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void measure(int rank) {
    for (const int size : {64, 1024, 8192, 65536, 1 << 20, most}) {
        const int count = std::clamp(2 * most / size, 8, 1000);
        stream(rank, size, 8, 8);
        const double took = stream(rank, size, count, 8);
        if (rank == 0) std::printf("bw mpi %d %.3f\n", size, double(count) * size / took / (1 << 20));
    }
    ping(rank, 8, 50);
    const double start = MPI_Wtime();
    ping(rank, 8, 500);
    if (rank == 0) std::printf("lat mpi %.2f\n", (MPI_Wtime() - start) * 1e6 / 1000);
    const double took = stream(rank, 64, 2000, 64);
    if (rank == 0) std::printf("rate mpi %.0f\n", 2000 / took);
}

void go_on(int rank, double seconds) {
    double told = MPI_Wtime();
    const double start = told;
    for (long count = 0;; count += 8) {
        const double now = MPI_Wtime();
        char on = now - start < seconds;
        rank == 0 ? MPI_Send(&on, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD)
                  : MPI_Recv(&on, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!on) return;
        stream(rank, 65536, 8, 8);
        if (rank == 0 && now - told > 0.5) {
            std::printf("%.3f chunks %ld\n", now - start, count);
            std::fflush(stdout);
            told = now;
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "measure")
        measure(rank);
    else if (what == "stream" && argc == 3)
        go_on(rank, std::atof(argv[2]));
    else
        std::fprintf(stderr, "mpi_peer measure | stream SECONDS\n");
    MPI_Finalize();
}
