// The `main` of test programs that need the guest's ports: elsewhere they say so and leave with 77, ctest's sign for "skipped".
#define DOCTEST_CONFIG_IMPLEMENT
#include "endpoints.hpp"

#include <cstdio>

int main(int argc, char** argv) {
    if (!guest::have_rdma()) {
        std::puts("skipped: no RDMA device rxe_a0; start it with tests/guest/run (see tests/guest/README.md)");
        return 77;
    }
    return doctest::Context(argc, argv).run();
}
