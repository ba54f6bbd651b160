/// \file
/// Every collective against an independent reference: types, operations, odd counts, 1 to 16 ranks, in and out of place.

#include "cluster.hpp"
#include "expected.hpp"

#include <doctest/doctest.h>

using namespace coll_test;

namespace {

constexpr element_type types[] = {element_type::float32, element_type::float16, element_type::bfloat16, element_type::int32,
                                  element_type::int64};
constexpr reduce_op ops[] = {reduce_op::sum, reduce_op::max, reduce_op::min};
constexpr std::uint64_t counts[] = {0, 1, 3, 64, 1023, 5000};

using world = soft_cluster<>;

bool same(const std::byte* a, const std::vector<std::byte>& b) { return std::equal(b.begin(), b.end(), a); }

struct shape {
    unsigned hosts, gpus, rings;
};
constexpr shape shapes[] = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {2, 2, 2}, {5, 1, 1}, {7, 1, 1}, {2, 4, 2}, {2, 8, 1}};

cluster_options options_of(const shape& s) {
    cluster_options o;
    o.hosts = s.hosts;
    o.gpus = o.nics = s.gpus;
    o.rings = s.rings;
    return o;
}

void check_all_reduce(world& w, element_type t, reduce_op op, std::uint64_t count, bool in_place) {
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    const std::uint64_t bytes = count * size_of(t);
    w.buffers(bytes, bytes);
    for (std::uint32_t r = 0; r < n; ++r) fill(t, (in_place ? w.ranks[r].out : w.ranks[r].in).data(), r, 0, count);
    const status s = w.run([&](world::rank& r, std::uint32_t) {
        return r.comm->all_reduce((in_place ? r.out_memory : r.in_memory).view(), r.out_memory.view(), count, t, op);
    });
    CHECK_MESSAGE(s, "errc ", int(s.code), " detail ", s.detail, " extra ", s.extra, " count ", count);
    const auto wanted = combination(t, op, n, 0, count);
    for (std::uint32_t r = 0; r < n; ++r) {
        CHECK(same(w.ranks[r].out.data(), wanted));
        if (!in_place) CHECK(same(w.ranks[r].in.data(), elements(t, r, 0, count)));
    }
}

void check_reduce_scatter(world& w, element_type t, reduce_op op, std::uint64_t count, bool in_place) {
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    const std::uint64_t bytes = count * size_of(t);
    w.buffers(n * bytes, bytes);
    for (std::uint32_t r = 0; r < n; ++r) fill(t, w.ranks[r].in.data(), r, 0, n * count);
    const status s = w.run([&](world::rank& r, std::uint32_t me) {
        return r.comm->reduce_scatter(r.in_memory.view(), in_place ? r.in_memory.view(me * bytes, bytes) : r.out_memory.view(),
                                      count, t, op);
    });
    CHECK_MESSAGE(s, "errc ", int(s.code), " detail ", s.detail, " extra ", s.extra, " count ", count);
    for (std::uint32_t r = 0; r < n; ++r) {
        const std::byte* const at = in_place ? w.ranks[r].in.data() + r * bytes : w.ranks[r].out.data();
        CHECK(same(at, combination(t, op, n, r * count, count)));
        for (std::uint32_t b = 0; b < n; ++b)
            if (b != r || !in_place) CHECK(same(w.ranks[r].in.data() + b * bytes, elements(t, r, b * count, count)));
    }
}

void check_all_gather(world& w, element_type t, std::uint64_t count, bool in_place) {
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    const std::uint64_t bytes = count * size_of(t);
    w.buffers(bytes, n * bytes);
    for (std::uint32_t r = 0; r < n; ++r)
        fill(t, in_place ? w.ranks[r].out.data() + r * bytes : w.ranks[r].in.data(), r, 0, count);
    const status s = w.run([&](world::rank& r, std::uint32_t me) {
        return r.comm->all_gather(in_place ? r.out_memory.view(me * bytes, bytes) : r.in_memory.view(), r.out_memory.view(),
                                  count, t);
    });
    CHECK_MESSAGE(s, "errc ", int(s.code), " detail ", s.detail, " extra ", s.extra, " count ", count);
    for (std::uint32_t r = 0; r < n; ++r)
        for (std::uint32_t b = 0; b < n; ++b) CHECK(same(w.ranks[r].out.data() + b * bytes, elements(t, b, 0, count)));
}

void check_broadcast(world& w, element_type t, std::uint64_t count, std::uint32_t root, bool in_place) {
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    const std::uint64_t bytes = count * size_of(t);
    w.buffers(bytes, bytes);
    fill(t, in_place ? w.ranks[root].out.data() : w.ranks[root].in.data(), root, 0, count);
    const status s = w.run([&](world::rank& r, std::uint32_t) {
        return r.comm->broadcast((in_place ? r.out_memory : r.in_memory).view(), r.out_memory.view(), count, t, root);
    });
    CHECK_MESSAGE(s, "errc ", int(s.code), " detail ", s.detail, " extra ", s.extra, " count ", count);
    for (std::uint32_t r = 0; r < n; ++r) CHECK(same(w.ranks[r].out.data(), elements(t, root, 0, count)));
}

}  // namespace

TEST_CASE("All-reduce gives every rank the combination of all, in every type and size, with every operation") {
    for (const shape& s : shapes) {
        CAPTURE(s.hosts * s.gpus);
        world w(options_of(s));
        for (const std::uint64_t count : counts)
            for (const element_type t : types)
                for (const reduce_op op : ops) check_all_reduce(w, t, op, count, (count + static_cast<unsigned>(t)) % 2 == 0);
    }
}

TEST_CASE("Reduce-scatter gives every rank its block of the combination of all") {
    for (const shape& s : shapes) {
        CAPTURE(s.hosts * s.gpus);
        world w(options_of(s));
        for (const std::uint64_t count : counts)
            for (const element_type t : types)
                for (const reduce_op op : ops)
                    check_reduce_scatter(w, t, op, count / 3, (count + static_cast<unsigned>(op)) % 2 == 0);
    }
}

TEST_CASE("All-gather gives every rank the blocks of all, in the order of ranks") {
    for (const shape& s : shapes) {
        CAPTURE(s.hosts * s.gpus);
        world w(options_of(s));
        for (const std::uint64_t count : counts)
            for (const element_type t : types) check_all_gather(w, t, count, (count + static_cast<unsigned>(t)) % 2 == 0);
    }
}

TEST_CASE("Broadcast gives every rank the root's elements, whoever the root is") {
    for (const shape& s : shapes) {
        CAPTURE(s.hosts * s.gpus);
        world w(options_of(s));
        for (const std::uint64_t count : counts)
            for (std::uint32_t root = 0; root < s.hosts * s.gpus; root += 3)
                check_broadcast(w, types[root % 5], count, root, count % 2 == 0);
    }
}

TEST_CASE("An all-reduce that is small enough to be gathered has the bits that its ring would have given") {
    constexpr std::uint64_t count = 341;
    const auto bits_of = [&](unsigned hosts, unsigned gpus, unsigned rings, std::uint32_t piece, element_type t, reduce_op op) {
        cluster_options o = options_of({hosts, gpus, rings});
        o.limits = {.piece_bytes = piece, .least_piece_bytes = 64, .lap_pieces = 4};
        world w(o);
        w.buffers(count * 8, count * 8);
        std::uint32_t state = 1;  // bits of all kinds: sums that depend on their order, infinities, NaNs
        for (auto& r : w.ranks)
            for (std::size_t i = 0; i < count * 8; ++i)
                r.in[i] = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
        REQUIRE(w.run([&](world::rank& r, std::uint32_t) {
            return r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), count, t, op);
        }));
        for (auto& r : w.ranks) CHECK(std::equal(r.out.begin(), r.out.begin() + count * size_of(t), w.ranks[0].out.begin()));
        return std::vector<std::byte>(w.ranks[0].out.begin(), w.ranks[0].out.begin() + count * size_of(t));
    };
    for (const auto& s : {shape{3, 1, 1}, shape{2, 2, 2}, shape{5, 1, 1}})
        for (const element_type t : types)
            for (const reduce_op op : ops)  // two laps of pieces of 128 bytes are too little memory to gather in
                CHECK(bits_of(s.hosts, s.gpus, s.rings, 128, t, op) == bits_of(s.hosts, s.gpus, s.rings, 4096, t, op));
}
