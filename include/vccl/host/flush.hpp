#pragma once
/// \file
/// The flush of chunks in GPU memory (G9): a READ of a chunk's last bytes through the NIC that wrote them; what it returns
/// lies behind the writes. Owner thread of the receiver.

#include <vccl/channel/ledger.hpp>
#include <vccl/host/memory.hpp>
#include <vccl/qp/lane.hpp>

namespace vccl::inline v0::detail {

/// Which chunk each flush under way is for.
class flushes {
public:
    /// Effects: room for so many lanes. Returns: false when memory ran out.
    VCCL_COLD bool make(unsigned lanes) noexcept {
        chunk_.reset(new (std::nothrow) of_lane[lanes]{});
        return static_cast<bool>(chunk_);
    }
    /// Effects: posts the READ of chunk `s` on the lane's flush QP, into `scratch`. `port`: of the lane, in every registration.
    template <class Lane>
    status begin(Lane& lane, unsigned port, std::uint64_t s, const incoming& c, std::uint64_t& scratch, lkey key) noexcept {
        work w{};
        w.op = work_op::read;
        w.length = c.bytes < sizeof scratch ? c.bytes : std::uint32_t{sizeof scratch};
        w.remote_addr = c.addr + c.bytes - w.length;
        w.rkey = c.region->remote[port];
        w.local_addr = reinterpret_cast<std::uint64_t>(&scratch);
        w.lkey = key;
        if (!lane.room(Lane::flush_index)) return errc::would_block;
        chunk_[lane.id()].of_flush[(lane.account(Lane::flush_index).posted + 1) % max_window] = s;
        return lane.post(Lane::flush_index, wr_kind::flush, w, true);
    }
    /// The chunk of the n-th flush of a lane's generation.
    std::uint64_t chunk(unsigned lane, std::uint64_t n) const noexcept { return chunk_[lane].of_flush[n % max_window]; }

private:
    struct of_lane {  // a class: nvcc makes of a new array of arrays what g++ does not take
        std::uint64_t of_flush[max_window];
    };
    owned_array<of_lane> chunk_;
};

}  // namespace vccl::inline v0::detail
