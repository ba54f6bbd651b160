/// \file
/// What is refused, what ends a communicator, and that it ends at all ranks.

#include "cluster.hpp"
#include "expected.hpp"

#include <doctest/doctest.h>

using namespace coll_test;

namespace {

using world = soft_cluster<>;

cluster_options options_of(unsigned hosts, bool pairs) {
    cluster_options o;
    o.hosts = hosts;
    o.pairs = pairs;
    return o;
}

}  // namespace

TEST_CASE("A view that does not fit its count is refused, and nothing has begun") {
    world w(options_of(2, true));
    w.buffers(400, 400);
    auto& r = w.ranks[0];
    auto& c = *r.comm;
    const memory_view in = r.in_memory.view(0, 400), out = r.out_memory.view(0, 400);
    CHECK(c.all_reduce(in, out, 101, element_type::float32, reduce_op::sum).code == errc::invalid_argument);
    CHECK(c.all_gather(in, out, 51, element_type::float32).code == errc::invalid_argument);
    CHECK(c.reduce_scatter(in, out, 51, element_type::float32, reduce_op::max).code == errc::invalid_argument);
    CHECK(c.broadcast(in, out, 10, element_type::int32, 2).code == errc::invalid_argument);
    CHECK(c.all_to_all(in, out, 26, element_type::int64).code == errc::invalid_argument);
    CHECK(c.all_reduce({}, out, 1, element_type::float32, reduce_op::sum).code == errc::not_registered);
    CHECK(c.all_reduce(in.part(0, 404), out, 1, element_type::float32, reduce_op::sum).code == errc::out_of_range);
    CHECK(c.all_reduce(in, out, ~std::uint64_t{0} / 4, element_type::float32, reduce_op::sum).code == errc::invalid_argument);
    const transfer nobody[] = {{2, in}};
    CHECK(c.exchange(nobody, {}).code == errc::invalid_argument);
    const transfer own[] = {{0, in}};
    CHECK(c.exchange(own, {}).code == errc::invalid_argument);
    CHECK(c.done());
    CHECK(c.health());
}

TEST_CASE("One operation at a time") {
    world w(options_of(2, false));
    w.buffers(400, 400);
    auto& r = w.ranks[0];
    CHECK(r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), 100, element_type::float32, reduce_op::sum));
    CHECK_FALSE(r.comm->done());
    CHECK(r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), 100, element_type::float32, reduce_op::sum).code ==
          errc::busy);
    const transfer to[] = {{1, r.in_memory.view()}};
    CHECK(r.comm->exchange(to, {}).code == errc::busy);
}

TEST_CASE("Without ends between all pairs there is no exchange") {
    world w(options_of(2, false));
    w.buffers(400, 400);
    auto& r = w.ranks[0];
    const transfer to[] = {{1, r.in_memory.view()}};
    CHECK(r.comm->exchange(to, {}).code == errc::unsupported);
    CHECK(r.comm->all_to_all(r.in_memory.view(), r.out_memory.view(), 1, element_type::float32).code == errc::unsupported);
}

TEST_CASE("A wait ends at its deadline, and the operation goes on") {
    world w(options_of(2, false));
    w.buffers(400, 400);
    auto& a = w.ranks[0];
    auto& b = w.ranks[1];
    for (auto& r : w.ranks) fill(element_type::float32, r.in.data(), &r == &a ? 0 : 1, 0, 100);
    CHECK(a.comm->all_reduce(a.in_memory.view(), a.out_memory.view(), 100, element_type::float32, reduce_op::sum));
    CHECK(a.comm->wait({0}).code == errc::timeout);
    CHECK(b.comm->all_reduce(b.in_memory.view(), b.out_memory.view(), 100, element_type::float32, reduce_op::sum));
    CHECK(w.until([&] { return a.comm->done() && b.comm->done(); }));
    CHECK(a.comm->wait({0}));
    CHECK(std::memcmp(a.out.data(), combination(element_type::float32, reduce_op::sum, 2, 0, 100).data(), 400) == 0);
}

TEST_CASE("Counts that differ between ranks end the communicator everywhere, with the sizes in the status") {
    world w(options_of(3, false));
    w.buffers(4000, 4000);
    const status s = w.run([&](world::rank& r, std::uint32_t me) {
        return r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), me == 1 ? 900 : 1000, element_type::float32,
                                  reduce_op::sum);
    });
    CHECK_FALSE(s);
    CHECK(w.until([&] { return !w.ranks[0].comm->health() && !w.ranks[1].comm->health() && !w.ranks[2].comm->health(); }));
    unsigned told = 0;
    for (auto& r : w.ranks) {
        const errc c = r.comm->health().code;
        CHECK((c == errc::policy_mismatch || c == errc::message_too_long || c == errc::aborted));
        told += c != errc::aborted;
        CHECK(r.comm->wait(1_s).code == c);
        CHECK(r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), 1, element_type::float32, reduce_op::sum).code == c);
    }
    CHECK(told >= 1);
}

TEST_CASE("Transfers of different sizes at their two ends are an error at the receiving one") {
    world w(options_of(2, true));
    w.buffers(4000, 4000);
    const transfer send[] = {{1, w.ranks[0].in_memory.view(0, 900)}}, receive[] = {{0, w.ranks[1].out_memory.view(0, 800)}};
    CHECK(w.ranks[0].comm->exchange(send, {}));
    CHECK(w.ranks[1].comm->exchange({}, receive));
    CHECK(w.until([&] { return !w.ranks[1].comm->health(); }));
    CHECK(w.ranks[1].comm->health().code == errc::message_too_long);
    CHECK(w.until([&] { return !w.ranks[0].comm->health(); }));
}

TEST_CASE("A rank that gives up ends the operation at all others; none takes a part for the whole") {
    world w(options_of(4, false));
    constexpr std::uint64_t count = 20'000;
    w.buffers(count * 4, count * 4);
    unsigned passes = 0;
    const status s = w.run(
        [&](world::rank& r, std::uint32_t) {
            return r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), count, element_type::int32, reduce_op::sum);
        },
        [&] {
            if (++passes == 20) w.ranks[2].comm->abort();
        });
    CHECK_FALSE(s);
    CHECK(w.until([&] {
        for (auto& r : w.ranks)
            if (r.comm->health()) return false;
        return true;
    }));
    for (auto& r : w.ranks) {
        CHECK(r.comm->health().code == errc::aborted);
        CHECK_FALSE(r.comm->done());
    }
}

TEST_CASE("A rank whose process is gone ends the operation at all others") {
    world w(options_of(4, false));
    w.buffers(80'000, 80'000);
    unsigned passes = 0;
    for (auto& r : w.ranks)
        CHECK(r.comm->all_reduce(r.in_memory.view(), r.out_memory.view(), 20'000, element_type::int32, reduce_op::sum));
    CHECK(w.until([&] {
        if (++passes == 20) {
            { const auto gone = std::move(w.ranks[1]); }  // destroyed in order; moving the next one over it is not
            w.ranks.erase(w.ranks.begin() + 1);
        }
        for (auto& r : w.ranks)
            if (r.comm->health()) return false;
        return true;
    }));
}

TEST_CASE("A rank that is done may close in order while others are still at work") {
    for (const bool exchange : {false, true}) {
        world w(options_of(3, true));
        w.buffers(12'000, 12'000);
        // What rank 2 lacks, it gets from rank 1 alone, and it stands still; rank 0 is done as soon as rank 1 has its part.
        auto &first = w.ranks[0], &middle = w.ranks[1], &last = w.ranks[2];
        const transfer one[] = {{1, first.in_memory.view(0, 8000)}}, two[] = {{0, middle.out_memory.view(0, 8000)}},
                       three[] = {{2, middle.in_memory.view(0, 8000)}}, four[] = {{1, last.out_memory.view(0, 8000)}};
        if (exchange) {
            CHECK(first.comm->exchange(one, {}));
            CHECK(middle.comm->exchange(three, two));
            CHECK(last.comm->exchange({}, four));
        } else {
            for (auto& r : w.ranks)
                CHECK(r.comm->broadcast(r.in_memory.view(), r.out_memory.view(), 2000, element_type::int32, 0));
        }
        bool closing = false;
        for (int i = 0; i < 1000; ++i) {
            first.comm->progress();
            middle.comm->progress();
            w.fabric.advance(1_us);
            if (first.comm->done() && !closing) {
                closing = true;
                first.mesh->each_sender([](const mesh_link&, auto& e) { (void)e.close({0}); });
            }
        }
        REQUIRE(closing);
        CHECK_FALSE(middle.comm->done());
        CHECK(w.until([&] { return !middle.comm->health() || (middle.comm->done() && last.comm->done()); }));
        CHECK_MESSAGE(middle.comm->health(), "errc ", int(middle.comm->health().code));
    }
}

TEST_CASE("What a mesh is given is checked: rings, ranks, offers") {
    auto fabric = verbs::soft_fabric::create(make_cluster(2, 1, 2, 1), {.manual_time = true});
    REQUIRE(fabric);
    auto host = fabric->host("A");
    REQUIRE(host);
    host_context<verbs::soft> context(*host, fabric->shape());
    using mesh = world::mesh_type;
    mesh_options o;
    o.rings = {{0, 1, 1}};
    CHECK(mesh(context, gpu_id{0}, 0, 3, o, fabric->clock()).offer().error().code == errc::invalid_argument);
    o.rings = {};
    CHECK(mesh(context, gpu_id{0}, 3, 3, o, fabric->clock()).offer().error().code == errc::invalid_argument);
    o.limits.piece_bytes = 100;
    CHECK(mesh(context, gpu_id{0}, 0, 2, o, fabric->clock()).offer().error().code == errc::invalid_argument);
    o.limits = {};
    mesh m(context, gpu_id{0}, 0, 2, o, fabric->clock());
    CHECK(m.answer({}).error().code == errc::not_connected);
    CHECK(m.offer());
    CHECK(m.offer().error().code == errc::already_connected);
    CHECK(m.answer({}).error().code == errc::wrong_peer);
    CHECK(m.answer({{1, 0, {std::byte{1}}}}).error().code == errc::bad_blob);
    CHECK(m.answer({{0, 0, std::vector<std::byte>(300)}}).error().code == errc::wrong_peer);
    CHECK(m.answer({{1, 5, std::vector<std::byte>(300)}}).error().code == errc::wrong_peer);
    CHECK(m.answer({{1, mesh_link::pairs, std::vector<std::byte>(300)}}).error().code == errc::wrong_peer);
    CHECK(m.answer({{1, 0, std::vector<std::byte>(300)}}).error().code == errc::bad_blob);
    std::vector<std::byte> far(300);
    far[298] = std::byte{9};
    const status s = m.answer({{1, 0, far}}).error();
    CHECK(s.code == errc::no_port);
    CHECK(s.detail == 9);
    CHECK(m.finish({}).code == errc::wrong_peer);
}

TEST_CASE("Rings enter a host at different GPUs") {
    const std::uint32_t hosts[] = {0, 0, 0, 0, 1, 1, 1, 1};
    const auto rings = ring_orders(hosts, 2);
    CHECK(rings[0] == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(rings[1] == std::vector<std::uint32_t>{2, 3, 0, 1, 6, 7, 4, 5});
    const std::uint32_t mixed[] = {7, 3, 7, 3};
    CHECK(ring_orders(mixed, 1)[0] == std::vector<std::uint32_t>{0, 2, 1, 3});
}

TEST_CASE("A piece of a view stays inside it") {
    world w(options_of(1, false));
    w.buffers(100, 100);
    const memory_view v = w.ranks[0].in_memory.view(10, 50);
    CHECK(v.part(5, 45).check());
    CHECK(v.part(5, 45).addr() == v.addr() + 5);
    CHECK(v.part(50, 0).check());
    CHECK(v.part(5, 46).check().code == errc::out_of_range);
    CHECK(v.part(51, 0).check().code == errc::out_of_range);
    CHECK(v.part(~std::uint64_t{0}, 2).check().code == errc::out_of_range);
}
