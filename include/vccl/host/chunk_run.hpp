#pragma once
/// \file
/// What the sender's hot loop over fresh chunks, and its walk over all others, make work requests of. Owner thread of the
/// sender.

#include <vccl/channel/backlog.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/model/work.hpp>

#include <bit>

namespace vccl::inline v0::detail {

/// What a run needs to know of the lane and epoch that grants name; made anew when they name others.
template <class Lane>
struct chunk_run {
    std::uint64_t binding{};
    Lane* on{};             ///< null: no plan
    std::uint32_t port{};   ///< the lane's, in every registration
    std::uint64_t mark{};   ///< a `posting` as the word that it is
    work write{};

    VCCL_COLD void make(std::uint64_t bound, Lane& lane, unsigned slot, posting posted) noexcept {
        *this = {bound, &lane, slot, std::bit_cast<std::uint64_t>(posted), {}};
        write.op = work_op::write_imm;
    }
};

/// Effects: makes `w` the WRITE of part `p` of a chunk, `offset` bytes into its receive.
inline void aim(work& w, const outgoing& o, const chunk_cut& cut, unsigned p, const cts_words& grant, std::uint64_t offset,
                std::uint64_t s) noexcept {
    const std::uint64_t at = std::uint64_t{p} * cut.part_bytes;
    w.local_addr = o.addr + at;
    w.remote_addr = grant.addr + offset + at;
    w.length = o.too_long ? 0 : static_cast<std::uint32_t>(o.length - at < cut.part_bytes ? o.length - at : cut.part_bytes);
    w.immediate = immediate::make(grant.epoch(), s, p, cut.parts, o.too_long).raw;
    w.flags = o.flags;
}

/// The QP, of `qps`, of a part of chunk `s`.
constexpr unsigned queue_of(std::uint64_t s, unsigned part, unsigned qps) noexcept {
    return static_cast<unsigned>((s + part) % qps);
}
/// Does chunk `s`, as it went out last, have a WR on that QP?
constexpr bool has_wr_on(unsigned qp, unsigned qps, std::uint64_t s, const outgoing& o) noexcept {
    const unsigned parts = o.too_long ? 1 : cut_chunk(o.length, qps).parts;
    for (unsigned p = 0; p < parts; ++p)
        if (queue_of(s, p, qps) == qp && !(o.arrived >> p & 1)) return true;
    return false;
}

}  // namespace vccl::inline v0::detail
