#pragma once
/// \file
/// A registered region, a completion queue: owners of one libibverbs object each, released on destruction. Made by
/// `ibv_port`; `poll` is on the data path. One thread at a time per object.

#include <vccl/base/owned.hpp>
#include <vccl/verbs/backend.hpp>
#include <vccl/verbs/ibv/error.hpp>
#include <vccl/verbs/ibv/translate.hpp>

#include <infiniband/verbs.h>

#include <utility>

namespace vccl::inline v0::verbs {

/// Memory that the NIC may read and write.
class ibv_memory {
public:
    explicit ibv_memory(ibv_mr* mr) noexcept : mr_(mr) {}
    lkey local_key() const noexcept { return lkey{mr_->lkey}; }
    rkey remote_key() const noexcept { return rkey{mr_->rkey}; }

private:
    struct release {
        void operator()(ibv_mr* mr) const noexcept { ibv_dereg_mr(mr); }
    };
    owned<ibv_mr, release> mr_;
};

class ibv_queue {
public:
    /// Set, through the libibverbs object's context pointer, by the port that is told of an overrun.
    struct overrun_flag {
        bool set{false};
    };

    ibv_queue(ibv_cq* cq, owned<overrun_flag> overrun) noexcept : overrun_(std::move(overrun)), cq_(cq) {}

    /// Effects: takes up to `room` completions. Returns: how many; `cq_overrun` once entries were lost.
    result<unsigned> poll(completion* out, unsigned room) noexcept {
        ibv_wc batch[batch_size];
        unsigned taken = 0;
        for (;;) {
            const unsigned left = room - taken;
            const unsigned want = left < batch_size ? left : batch_size;
            const int got = ibv_poll_cq(cq_.get(), static_cast<int>(want), batch);
            if (got <= 0) return taken != 0 ? result<unsigned>{taken} : nothing(got);
            for (int i = 0; i < got; ++i) ibv_detail::fill(out[taken++], batch[i]);
            if (static_cast<unsigned>(got) < want || taken == room) [[likely]]
                return taken;
        }
    }

    ibv_cq* native() const noexcept { return cq_.get(); }

private:
    static constexpr unsigned batch_size = 16;

    result<unsigned> nothing(int got) const noexcept {
        if (got == 0 && !__atomic_load_n(&overrun_->set, __ATOMIC_RELAXED)) [[likely]]
            return 0U;
        return errc::cq_overrun;
    }

    struct release {
        void operator()(ibv_cq* cq) const noexcept { ibv_destroy_cq(cq); }
    };
    owned<overrun_flag> overrun_;  // outlives the CQ, whose events point to it
    owned<ibv_cq, release> cq_;
};

}  // namespace vccl::inline v0::verbs
