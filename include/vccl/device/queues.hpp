#pragma once
/// \file
/// Owns the memory of a device sender's queues, and makes what kernels see of it. Set-up and service thread.

#include <vccl/device/options.hpp>
#include <vccl/device/queue_service.hpp>

namespace vccl::inline v0::device {

/// Everything of `Count` queues that both sides reach: mapped memory, registered as scratch.
template <unsigned Count>
struct shared_words {
    kernel_words told[Count]{};  ///< by queue: what the service tells kernels
    host_words host{};  ///< abort, for all queues
    std::uint64_t scratch[Count]{};  ///< by queue: where a probe or an atomic's old value lands
};

/// Made by a device sender, and as long-lived.
template <queue_space Space, unsigned Count>
class queues {
public:
    /// Allocates nothing yet.
    explicit queues(Space space = {}) noexcept : space_(space) {}
    queues(const queues&) = delete;
    VCCL_COLD ~queues() {
        if (shared_) Space::shared::free(shared_);
        if (notes_) space_.free_local(notes_);
        if (local_) space_.free_local(local_);
        if (views_) space_.free_local(views_);
    }

    /// Effects: allocates for rings of `depth` slots. Errors: no_memory.
    VCCL_COLD status make(std::uint32_t depth, const host_wait* wait) noexcept {
        using shared = typename Space::shared;
        shared_ = static_cast<shared_words<Count>*>(shared::allocate(sizeof(shared_words<Count>)));
        notes_ = static_cast<std::uint64_t*>(space_.allocate_local(sizeof(std::uint64_t) * Count * depth));
        local_ = static_cast<local_words*>(space_.allocate_local(sizeof(local_words)));
        views_ = static_cast<queue_view*>(space_.allocate_local(sizeof view));
        if (!shared_ || !notes_ || !local_ || !views_) return errc::no_memory;
        for (unsigned q = 0; q < Count; ++q) {
            queue_view& v = view[q];
            v.words = &local_->queue[q];
            v.told = &shared_->told[q];
            v.host = &shared_->host;
            v.notes = notes_ + q * depth;
            v.sums = local_->sums[q];
            v.scratch = reinterpret_cast<std::uint64_t>(&shared_->scratch[q]);
            v.depth_log = static_cast<std::uint32_t>(std::countr_zero(depth));
            v.wait = wait;
            service[q] = queue_service<Space>(&v, space_);
        }
        return {};
    }
    /// Effects: the views that kernels have become what `view` says.
    VCCL_COLD void publish() noexcept { space_.upload(views_, view, sizeof view); }
    /// Null until prepared; where kernels read, so the address never changes.
    const queue_view* published() const noexcept { return views_; }
    /// Effects: every wait of a kernel on these queues ends. Any thread.
    void abort() noexcept {
        if (shared_) store<order::release, scope::system>(&shared_->host.abort, std::uint64_t{1});
    }
    /// What the endpoint registers with its ports, as scratch.
    /// @{
    void* registered() noexcept { return shared_; }
    static constexpr std::size_t registered_bytes = sizeof(shared_words<Count>);
    /// @}

    queue_view view[Count]{};  ///< the host's copy
    queue_service<Space> service[Count];  ///< by queue: looks at completions, moves the queue to another ring

private:
    struct local_words {
        queue_words queue[Count];
        std::uint64_t sums[Count][max_signal_words];
    };

    [[no_unique_address]] Space space_;
    shared_words<Count>* shared_{};
    std::uint64_t* notes_{};
    local_words* local_{};
    queue_view* views_{};
};

}  // namespace vccl::inline v0::device
