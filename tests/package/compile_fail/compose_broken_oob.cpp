// EXPECT: vccl: an out-of-band channel needs listen, connect, advance, send, receive and close, all noexcept; see host/oob.hpp
#include <vccl/host/compose.hpp>
#include <vccl/testing/loopback.hpp>

namespace {

struct silent {
    using policy_axis = vccl::axis::oob;
    void close() noexcept {}
};

}  // namespace

using tx = vccl::host_sender<vccl::testing::loopback<false>, silent>;
tx* never_made{};
