#pragma once
/// \file
/// The account of one QP's WRs, so that "drained" is a fact, and runs of posts that enter it as one. Owner thread of the
/// lane only.

#include <vccl/model/work.hpp>
#include <vccl/model/wr_id.hpp>
#include <vccl/verbs/backend.hpp>

namespace vccl::inline v0 {

/// What one QP has taken and given back. Unsignaled WRs are retired by the next completion of their QP.
struct wr_account {
    std::uint64_t posted{};
    std::uint64_t retired{};
    std::uint32_t receives{};        ///< receive WRs outstanding

    std::uint64_t in_queue() const noexcept { return posted - retired; }
    bool drained() const noexcept { return posted == retired && receives == 0; }
    /// A completion named the WR that was the `mark`-th (modulo 2^36): it and all before it are done.
    void retire(std::uint64_t mark) noexcept { retired += (mark - retired) & wr_id::mark_mask; }
};

/// What lane::post() looks up each time, looked up once for a run of posts on one QP. post() makes the next wr_id in the work
/// request that is used again and again; lane::end_run() closes the account.
template <class Qp>
struct post_run {
    Qp& qp;
    std::uint64_t signal_mask;
    std::uint64_t credit;  ///< so many may be posted

    VCCL_ALWAYS_INLINE status post(work& w) const noexcept {
        const std::uint64_t id = w.wr_id + (std::uint64_t{1} << wr_id::mark_shift);
        w.wr_id = id;
        if ((id & signal_mask) == 0) [[unlikely]]
            ask(w);
        return qp.post(w);
    }
    VCCL_COLD static void ask(work& w) noexcept { w.flags = w.flags | work_flags::signaled; }
};

}  // namespace vccl::inline v0
