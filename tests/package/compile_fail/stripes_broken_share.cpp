// EXPECT: vccl: a share policy needs a constant levels and std::uint64_t rate(const stripe_view&) const noexcept
#include <vccl/stripe/compose.hpp>
#include <vccl/verbs/soft.hpp>

struct half {
    using policy_axis = vccl::axis::share;
    static constexpr bool levels = true;
    std::uint64_t rate(const vccl::stripe_view& v) const { return v.rate / 2; }  // may throw
};
using wrong = vccl::striped_sender<vccl::verbs::soft, vccl::stripes<2>, half>;
wrong* p;
