// The backend of docs/cookbook.md passes the contract suite, and carries a channel.
#include "in_process.hpp"

#include <vccl/base/clock.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/testing/contracts.hpp>
#include <vccl/testing/loopback.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/vccl.hpp>

#include <string>
#include <vector>

namespace {

using namespace vccl;
using namespace vccl::literals;

struct one_process {
    using backend = own::in_process;
    backend shared;
    backend::port a = *shared.open("A"), b = *shared.open("B");
    backend::port& local() { return a; }
    backend::port& remote() { return b; }
    void drive() {}
    nanoseconds now() const { return steady_clock{}.now(); }
};

}  // namespace

TYPE_TO_STRING(one_process);
VCCL_BACKEND_CONTRACTS(one_process);

TEST_CASE("queues deeper than any NIC has are refused, up to the largest number") {
    verbs::completion_ring ring(5);
    completion c{};
    for (unsigned i = 0; i < 5; ++i) ring.push(c);
    CHECK(ring.take(&c, 1).has_value());
    auto port = *testing::loopback<>{}.open("any");
    auto cq = *port.create_cq(5);
    for (const std::uint32_t depth : {(1u << 22) + 1, 1u << 31, (1u << 31) + 1, 0xffffffffu}) {
        CAPTURE(depth);
        CHECK_THROWS_AS(verbs::completion_ring{depth}, std::bad_alloc);
        CHECK_EQ(port.create_cq(depth).error().code, errc::invalid_argument);
        CHECK_EQ(port.create_qp(cq, {.recv_depth = depth}).error().code, errc::invalid_argument);
    }
}

TEST_CASE("a channel over a backend of one's own brings every byte in order") {
    own::in_process shared;
    const topology t = make_cluster(2, 1, 2, 1);
    host_context<own::in_process> a(shared, t), b(shared, t);
    std::vector<unsigned> out(4096), in(4096);
    const memory from = *a.register_memory(out.data(), out.size() * sizeof(unsigned));
    const memory to = *b.register_memory(in.data(), in.size() * sizeof(unsigned));
    host_sender<own::in_process, testing::memory_oob> tx(a, gpu_id{0}, channel_id{1});
    host_receiver<own::in_process, testing::memory_oob> rx(b, gpu_id{1}, channel_id{1});
    const auto mine = tx.local_info(), theirs = rx.local_info();
    REQUIRE(mine.has_value());
    REQUIRE(theirs.has_value());
    REQUIRE(rx.begin_connect(*mine));
    REQUIRE(tx.begin_connect(*theirs));
    const auto until = [&](auto&& done) {
        for (unsigned pass = 0; !done() && pass < 1'000'000; ++pass) tx.progress(), rx.progress();
        return done();
    };
    REQUIRE(until([&] { return tx.connected() && rx.connected(); }));
    for (unsigned i = 0; i < 100; ++i) {
        for (unsigned k = 0; k < out.size(); ++k) out[k] = i * 100'000 + k;
        REQUIRE(rx.recv(to.view()).has_value());
        const auto s = tx.send(from.view());
        REQUIRE(s.has_value());
        REQUIRE(until([&] { return tx.ended(*s) && rx.ended(*s); }));
        REQUIRE(in == out);
    }
    rx.abort();
    tx.abort();
}
