// EXPECT: vccl: every handler of an on_completion needs on_done, on_polled, on_event or on_error, each noexcept and of the form in policy/completion.hpp
#include <vccl/policy/completion.hpp>

namespace {

struct may_throw {
    using policy_axis = vccl::axis::completion;
    void on_done(const vccl::chunk_report&) {}
};

}  // namespace

vccl::on_completion<vccl::counters, may_throw> never_made;
