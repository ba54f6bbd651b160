/// A stranger's program: whatever way it found the headers, they compile, link and run.
#include <vccl/base/clock.hpp>
#include <vccl/verbs/backend.hpp>

#include <cstdio>

int main() {
    if (vccl::steady_clock{}.now() <= vccl::nanoseconds{}) return 1;
    std::printf("hello from vccl %d.%d.%d\n", VCCL_VERSION_MAJOR, VCCL_VERSION_MINOR, VCCL_VERSION_PATCH);
    return 0;
}
