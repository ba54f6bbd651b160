// libFuzzer's entry: any bytes as the contents of a ring. Build the target `fuzz_ring_nic` with clang.

#define DOCTEST_CONFIG_IMPLEMENT
#include "feed.hpp"

#include <cstdlib>

namespace {
struct asserts {
    doctest::Context context;
    asserts() {
        context.setAsDefaultForAssertsOutOfTestCases();
        context.setAssertHandler([](const doctest::AssertData& a) {
            if (a.m_failed) std::abort();
        });
    }
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    static const asserts handled;
    ring_test::feed(data, size);
    return 0;
}
