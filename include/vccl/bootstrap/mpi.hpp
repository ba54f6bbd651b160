#pragma once
/// \file
/// `mpi_exchange`: parcels over an MPI communicator that the user gives; models parcel_exchange. Include it where mpi.h is found
/// and link MPI. Its calls are collective over the communicator and belong to the thread that may use MPI.

#include <vccl/base/clock.hpp>
#include <vccl/bootstrap/parcels.hpp>

#include <mpi.h>
#include <sched.h>

namespace vccl::inline v0 {

/// Sole user of its communicator while a call of exchange() runs.
class mpi_exchange {
public:
    /// The communicator must outlive it, and not be used by others during exchange(). Requires: MPI_Init was called.
    explicit mpi_exchange(MPI_Comm communicator) noexcept : comm_(communicator) {
        int rank = 0, ranks = 1;
        ok_ = MPI_Comm_rank(comm_, &rank) == MPI_SUCCESS && MPI_Comm_size(comm_, &ranks) == MPI_SUCCESS;
        rank_ = static_cast<std::uint32_t>(rank);
        ranks_ = static_cast<std::uint32_t>(ranks);
    }
    mpi_exchange(const mpi_exchange&) = delete;
    mpi_exchange& operator=(const mpi_exchange&) = delete;

    /// As MPI numbers and counts them in the communicator.
    /// @{
    std::uint32_t rank() const noexcept { return rank_; }
    std::uint32_t ranks() const noexcept { return ranks_; }
    /// @}

    /// Errors: invalid_argument (a parcel to nobody), too_large (2 GiB or more in all), io_error (MPI failed), timeout: both are
    /// final, and after a timeout MPI still holds the object's buffers, so it must stay until MPI is finalized or the job is ended.
    result<std::vector<parcel>> exchange(std::vector<parcel> parcels, nanoseconds timeout) {
        if (!ok_) return errc::io_error;
        const nanoseconds deadline = steady_clock{}.now() + timeout;
        std::vector<std::vector<std::byte>> packed(ranks_);
        for (const parcel& p : parcels) {
            if (p.peer >= ranks_) return status{errc::invalid_argument, subject::rank, p.peer};
            pack_parcel(packed[p.peer], rank_, p);
        }
        out_.clear();
        for (auto& list : {&out_counts_, &in_counts_, &out_offsets_, &in_offsets_}) list->assign(ranks_, 0);
        for (std::uint32_t r = 0; r < ranks_; ++r) {
            if (out_.size() + packed[r].size() > 0x7fffffff) return errc::too_large;
            out_offsets_[r] = static_cast<int>(out_.size());
            out_counts_[r] = static_cast<int>(packed[r].size());
            out_.insert(out_.end(), packed[r].begin(), packed[r].end());
        }
        MPI_Request request = MPI_REQUEST_NULL;
        if (MPI_Ialltoall(out_counts_.data(), 1, MPI_INT, in_counts_.data(), 1, MPI_INT, comm_, &request) != MPI_SUCCESS)
            return broken(errc::io_error);
        if (status s = wait(request, deadline); !s) return broken(s);
        std::uint64_t bytes = 0;
        for (std::uint32_t r = 0; r < ranks_; ++r) {
            if (in_counts_[r] < 0 || bytes > 0x7fffffff) return broken(errc::too_large);
            in_offsets_[r] = static_cast<int>(bytes);
            bytes += static_cast<std::uint64_t>(in_counts_[r]);
        }
        if (bytes > 0x7fffffff) return broken(errc::too_large);
        in_.resize(bytes);
        if (MPI_Ialltoallv(out_.data(), out_counts_.data(), out_offsets_.data(), MPI_BYTE, in_.data(), in_counts_.data(),
                           in_offsets_.data(), MPI_BYTE, comm_, &request) != MPI_SUCCESS)
            return broken(errc::io_error);
        if (status s = wait(request, deadline); !s) return broken(s);
        return unpack_parcels(in_, ranks_);
    }

private:
    static status wait(MPI_Request& request, nanoseconds deadline) noexcept {
        for (;;) {
            int done = 0;
            if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return errc::io_error;
            if (done) return {};
            if (steady_clock{}.now() >= deadline) return errc::timeout;
            ::sched_yield();
        }
    }
    status broken(status s) noexcept {
        ok_ = false;
        return s;
    }

    MPI_Comm comm_;
    std::uint32_t rank_{}, ranks_{1};
    bool ok_{};
    std::vector<std::byte> out_, in_;
    std::vector<int> out_counts_, in_counts_, out_offsets_, in_offsets_;
};
static_assert(parcel_exchange<mpi_exchange>);

}  // namespace vccl::inline v0
