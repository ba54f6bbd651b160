/// \file
/// Collectives over GPU memory, with a GPU that pretends: copies and combinations take time, and read and write at the last
/// moment. The same world on a real GPU: tests/gpu/coll_test.cu.

#include "gpu_place.hpp"
#include "storm.hpp"

#include <doctest/doctest.h>

using namespace coll_test;

namespace {
using world = soft_cluster<on_completion<counters>, hold_down<1>, sibling_port, gpu_place<pretend_gpu>>;

status sum(world& w, std::uint64_t count) {
    w.buffers(count * 4, count * 4);
    for (std::uint32_t r = 0; r < w.ranks.size(); ++r) fill(element_type::int32, w.ranks[r].in.data(), r, 0, count);
    return w.run([&](world::rank& r, std::uint32_t) {
        return r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), count, element_type::int32, reduce_op::sum);
    });
}
}  // namespace

TEST_CASE("Every type and operation over GPU memory, at odd counts, gives what host memory gives") {
    for (const unsigned hosts : {2u, 3u}) {
        cluster_options o;
        o.hosts = hosts;
        world w(o);
        for (const element_type t :
             {element_type::float32, element_type::float16, element_type::bfloat16, element_type::int32, element_type::int64})
            for (const reduce_op op : {reduce_op::sum, reduce_op::max, reduce_op::min})
                for (const std::uint64_t count : {1u, 1023u, 5000u}) {
                    w.buffers(count * size_of(t), count * size_of(t));
                    for (std::uint32_t r = 0; r < hosts; ++r) fill(t, w.ranks[r].in.data(), r, 0, count);
                    REQUIRE(w.run([&](world::rank& r, std::uint32_t) {
                        return r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), count, t, op);
                    }));
                    const auto wanted = combination(t, op, hosts, 0, count);
                    for (auto& r : w.ranks) CHECK(std::equal(wanted.begin(), wanted.end(), r.out.begin()));
                }
    }
}

TEST_CASE("Whatever fails during whichever collective over GPU memory, it ends at every rank with every element right") {
    const std::uint64_t last = std::getenv("VCCL_QUICK") ? 10 : 50;
    std::uint64_t failovers = 0, replayed = 0, touched = 0;
    for (std::uint64_t seed = 1001; seed <= 1000 + last; ++seed) {
        const storm_result r = storm<world>(seed);
        failovers += r.failovers;
        replayed += r.replayed;
        touched += r.touched;
        CHECK_MESSAGE(r.problem.empty(), "seed ", seed, ": ", r.problem, "\n  ", r.what);
    }
    CHECK(touched == last);
    CHECK(failovers > last / 2);
    CHECK(replayed > last / 2);
}

TEST_CASE("A GPU that fails ends the collective at every rank, with its status where it failed") {
    cluster_options o;
    o.hosts = 3;
    world w(o);
    REQUIRE(sum(w, 5000));
    pretend_compute::bench& work = w.ranks[1].place.gpu().work;
    work.fails_at = work.given + 3;
    CHECK(!sum(w, 5000));
    CHECK(w.until([&] { return !w.ranks[0].comm->health() && !w.ranks[1].comm->health() && !w.ranks[2].comm->health(); }));
    CHECK(w.ranks[1].comm->health().code == errc::io_error);
    CHECK(w.ranks[1].comm->health().detail == 700);
}

TEST_CASE("A GPU that fails while nothing is on the wire ends the operation, too") {
    cluster_options o;
    o.hosts = 1;
    world w(o);
    w.buffers(4000, 4000);
    w.ranks[0].place.gpu().work.fails_at = 1;
    const status s = w.run([&](world::rank& r, std::uint32_t) {
        return r.comm->all_gather(r.in_memory.view(), r.out_memory.view(), 1000, element_type::int32);
    });
    CHECK(s.code == errc::io_error);
}

TEST_CASE("Ends that are not staged refuse GPU memory that no NIC knows") {
    soft_cluster<> w(cluster_options{});
    std::vector<std::byte> bytes(4096);
    staged_memory pretended(bytes.data(), bytes.size());
    REQUIRE(w.ranks[0].comm->all_reduce(pretended.view(), pretended.view(), 1024, element_type::int32, reduce_op::sum));
    CHECK(w.until([&] { return !w.ranks[0].comm->health(); }));
    CHECK(w.ranks[0].comm->health().code == errc::not_registered);
}
