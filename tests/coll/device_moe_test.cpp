/// \file
/// Dispatch and combine by device code, over device queues (mode 2) and over host rings (mode 4), in simulated time: "kernels" run
/// inline, and whenever one waits, everything else makes a pass. Every result is compared, also while ports die and return.

#include "cluster.hpp"

#include <vccl/coll/device_moe.hpp>
#include <vccl/device/compose.hpp>
#include <vccl/device/host_ring.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

using namespace coll_test;

namespace {

using tx_type = device_sender<verbs::soft, sibling_port, qp_group<2>, rollback_fifo<32>, on_completion<counters>, manual_clock,
                              testing::memory_oob>;
using rx_type = device_receiver<verbs::soft, sibling_port, qp_group<2>, on_completion<counters>, manual_clock,
                                testing::memory_oob, hold_down<1>>;
using mesh_type = device_mesh<tx_type, rx_type>;
using ring_type = host_ring<tx_type>;

struct over_queues {
    using ref_type = tx_type::ref_type;
    static constexpr bool rings = false;
};
struct over_host_rings {
    using ref_type = ring_type::ref_type;
    static constexpr bool rings = true;
};

template <class Way>
struct world {
    using moe_type = device_moe<mesh_type, typename Way::ref_type>;
    struct rank {
        std::unique_ptr<host_context<verbs::soft>> context;
        std::unique_ptr<mesh_type::source> nic;
        std::unique_ptr<mesh_type> mesh;
        std::vector<std::unique_ptr<ring_type>> rings;
        owned<moe_type> moe;
        struct alignas(16) chunk {
            std::byte bytes[16];
        };
        std::vector<chunk> tokens, out;
        std::vector<std::uint32_t> experts;
    };

    moe_layout layout;
    verbs::soft_fabric fabric;
    std::vector<rank> ranks;
    std::function<void()> every = [] {};
    device::host_wait waiting{this, [](void* self) { static_cast<world*>(self)->pass(); },
                              [](void* self) { return static_cast<world*>(self)->fabric.now().count; }};

    world(const moe_layout& l, std::uint64_t seed, verbs::port_down_behaviour down = {})
        : layout(l), fabric(make(l.ranks, seed, down)), ranks(l.ranks) {
        device_options ends;
        ends.wait = &waiting;
        ends.timeout = 30_s;
        std::vector<std::vector<parcel>> boxes(l.ranks);
        for (std::uint32_t r = 0; r < l.ranks; ++r) {
            auto host = fabric.host(fabric.shape().hosts[r].name.view());
            need(host ? status{} : host.error(), "host");
            ranks[r].context = std::make_unique<host_context<verbs::soft>>(*host, fabric.shape());
            ranks[r].nic = std::make_unique<mesh_type::source>(fabric.clock());
            ends.channel.seed = seed + (std::uint64_t{r} << 32);
            ranks[r].mesh = std::make_unique<mesh_type>(*ranks[r].context, *ranks[r].nic, gpu_id{static_cast<std::uint16_t>(r)},
                                                        r, l.ranks, moe_type::mesh_options_of(l, ends), fabric.clock());
            auto blobs = ranks[r].mesh->offer();
            need(blobs ? status{} : blobs.error(), "offer");
            for (parcel& p : *blobs) boxes[p.peer].push_back({r, p.tag, std::move(p.bytes)});
        }
        for (std::uint32_t r = 0; r < l.ranks; ++r) need(ranks[r].mesh->answer(boxes[r]), "answer");
        const nanoseconds end = fabric.now() + 20_s;
        const auto connected = [&] {
            for (rank& r : ranks)
                if (!r.mesh->connected()) return false;
            return true;
        };
        while (!connected() && fabric.now() < end) pass();
        need(connected() ? status{} : status{errc::timeout}, "connect");
        for (rank& r : ranks) {
            if constexpr (Way::rings) {
                r.rings.resize(l.ranks);
                for (std::uint32_t p = 0; p < l.ranks; ++p) {
                    if (p == r.mesh->rank()) continue;
                    host_ring_options o;
                    o.words = 256;
                    o.wait = &waiting;
                    o.timeout = 30_s;
                    r.rings[p] = std::make_unique<ring_type>(r.mesh->to(p), o);
                    need(r.rings[p]->open(), "ring");
                }
            }
            auto made = moe_type::make(*r.mesh, layout, [&](std::uint32_t p) {
                if constexpr (Way::rings)
                    return r.rings[p]->ref();
                else
                    return r.mesh->to(p).ref();
            });
            need(made ? status{} : made.error(), "moe");
            r.moe = std::move(*made);
            r.tokens.resize(std::size_t{layout.shape.tokens} * layout.shape.token_bytes / 16);
            r.out.resize(std::size_t{layout.shape.tokens} * layout.result_bytes / 16);
            r.experts.resize(std::size_t{layout.shape.tokens} * layout.shape.top_k);
        }
    }
    static verbs::soft_fabric make(std::uint32_t ranks, std::uint64_t seed, verbs::port_down_behaviour down) {
        verbs::soft_options f;
        f.manual_time = true;
        f.seed = seed;
        f.latency = 2_us;
        f.bytes_per_second = 10'000'000'000;
        f.on_port_down = down;
        auto made = verbs::soft_fabric::create(make_cluster(ranks, 1, 2, 1), f);
        need(made ? status{} : made.error(), "fabric");
        return std::move(*made);
    }
    void pass() {
        every();
        for (rank& r : ranks) {
            if (r.rings.empty()) {
                r.mesh->progress();
            } else {
                for (auto& ring : r.rings)
                    if (ring) ring->progress();
                for (std::uint32_t p = 0; p < layout.ranks; ++p)
                    if (p != r.mesh->rank()) r.mesh->from(p).progress();
            }
            r.nic->progress();
        }
        fabric.advance(2_us);
    }

    static std::int32_t word(std::uint32_t rank, std::uint32_t token, std::uint32_t i, std::uint32_t round) {
        return static_cast<std::int32_t>(rank * 1'000'003 + token * 4099 + i * 17 + round * 7);
    }
    /// Each expert adds each word, multiplied by its number + 1.
    struct experts_of {
        const moe_layout& layout;
        void operator()(warp_scope, const moe_token& t) const {
            const auto* const in = reinterpret_cast<const std::uint32_t*>(t.bytes);
            auto* const out = reinterpret_cast<std::uint32_t*>(t.result);
            for (std::uint32_t i = 0; i < layout.result_bytes / 4; ++i) {
                out[i] = 0;
                for (std::uint32_t k = 0; k < layout.shape.top_k; ++k)
                    if (t.experts[k] != moe_shape::no_expert)
                        out[i] += in[i % (layout.shape.token_bytes / 4)] * (t.experts[k] + 1);
            }
        }
    };

    /// A whole round at all ranks. Returns: wrong words; all ones if an operation failed.
    template <class Pick>
    std::uint64_t round(std::uint32_t number, Pick& pick) {
        const moe_shape& s = layout.shape;
        std::vector<std::uint32_t> counts;
        for (std::uint32_t r = 0; r < layout.ranks; ++r) {
            counts.push_back(static_cast<std::uint32_t>(pick(s.tokens + 1)));
            auto* const w = reinterpret_cast<std::int32_t*>(ranks[r].tokens.data());
            for (std::uint32_t t = 0; t < counts[r]; ++t) {
                for (std::uint32_t i = 0; i < s.token_bytes / 4; ++i) w[t * s.token_bytes / 4 + i] = word(r, t, i, number);
                for (std::uint32_t k = 0; k < s.top_k; ++k)
                    ranks[r].experts[t * s.top_k + k] =
                        pick(5) == 0 ? moe_shape::no_expert : static_cast<std::uint32_t>(pick(s.experts));
            }
        }
        bool good = true;
        const auto each_stream = [&](auto&& f) {
            for (std::uint32_t r = 0; r < layout.ranks; ++r)
                for (std::uint32_t p = 0; p < layout.ranks; ++p)
                    for (std::uint32_t part = 0; part < layout.parts; ++part)
                        good = good && static_cast<bool>(f(ranks[r].moe->ref(), r, p, part));
        };
        each_stream([&](auto m, std::uint32_t r, std::uint32_t p, std::uint32_t part) {
            return m.dispatch(warp_scope{}, p, part, number, ranks[r].tokens.data(), counts[r], ranks[r].experts.data());
        });
        each_stream([&](auto m, std::uint32_t, std::uint32_t p, std::uint32_t part) {
            return m.serve(warp_scope{}, p, part, number, experts_of{layout});
        });
        each_stream(
            [&](auto m, std::uint32_t, std::uint32_t p, std::uint32_t part) { return m.collect(warp_scope{}, p, part, number); });
        if (!good) return ~std::uint64_t{0};
        std::uint64_t wrong = 0;
        for (std::uint32_t r = 0; r < layout.ranks; ++r)
            for (std::uint32_t t = 0; t < counts[r]; ++t) {
                auto* const out = ranks[r].out.data() + std::size_t{t} * layout.result_bytes / 16;
                ranks[r].moe->ref().add_up(warp_scope{}, t, out, element_type::int32);
                std::uint32_t factor = 0;
                for (std::uint32_t k = 0; k < s.top_k; ++k) {
                    const std::uint32_t e = ranks[r].experts[t * s.top_k + k];
                    factor += e == moe_shape::no_expert ? 0 : e + 1;
                }
                for (std::uint32_t i = 0; i < layout.result_bytes / 4; ++i) {
                    const auto in = static_cast<std::uint32_t>(word(r, t, i % (s.token_bytes / 4), number));
                    wrong += reinterpret_cast<const std::uint32_t*>(out)[i] != in * factor;
                }
            }
        return wrong;
    }
    std::uint64_t failovers() {
        std::uint64_t n = 0;
        for (rank& r : ranks)
            for (std::uint32_t p = 0; p < layout.ranks; ++p)
                if (p != r.mesh->rank()) n += r.mesh->from(p).handler().template get<counters>().failovers;
        return n;
    }
};

moe_layout layout_of(std::uint32_t ranks, std::uint32_t parts) {
    return {{.experts = 4 * ranks, .top_k = 4, .tokens = 21, .token_bytes = 112}, 224, ranks, parts};
}

template <class Way>
void check_without_faults() {
    for (const std::uint32_t ranks : {1u, 2u, 4u})
        for (const std::uint32_t parts : {1u, 2u}) {
            world<Way> w(layout_of(ranks, parts), 5);
            std::mt19937_64 random(ranks);
            auto pick = [&](std::uint64_t n) { return random() % n; };
            for (std::uint32_t round = 1; round <= 4; ++round) CHECK(w.round(round, pick) == 0);
        }
}
template <class Way>
void check_with_faults(std::uint64_t first, std::uint64_t last) {
    std::uint64_t failovers = 0;
    for (std::uint64_t seed = first; seed <= last; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        auto pick = [&](std::uint64_t n) { return random() % n; };
        world<Way> w(layout_of(static_cast<std::uint32_t>(2 + pick(2)), static_cast<std::uint32_t>(1 + pick(2))), seed,
                     static_cast<verbs::port_down_behaviour>(pick(4)));
        nanoseconds next = w.fabric.now() + nanoseconds{static_cast<std::int64_t>(pick(100'000))};
        std::string heal;
        unsigned faults = 4;
        w.every = [&] {
            if (w.fabric.now() < next) return;
            next = w.fabric.now() + nanoseconds{20'000 + static_cast<std::int64_t>(pick(300'000))};
            if (!heal.empty()) {
                CHECK(w.fabric.command(std::exchange(heal, "")));
            } else if (faults != 0) {
                --faults;
                const auto& ports = w.fabric.shape().ports;
                const std::string port(ports[pick(ports.size())].name.view());
                constexpr const char* forms[][2] = {{"down ", "up "}, {"cable-down ", "cable-up "}};
                const auto& form = forms[pick(2)];
                CHECK(w.fabric.command(form[0] + port));
                heal = form[1] + port;
            }
        };
        for (std::uint32_t round = 1; round <= 3 || (faults != 0 && round < 40); ++round) CHECK(w.round(round, pick) == 0);
        failovers += w.failovers();
    }
    CHECK(failovers > (last - first + 1) / 2);
}

}  // namespace

TEST_CASE("Kernels dispatch tokens and combine what the experts make of them, over device queues") {
    check_without_faults<over_queues>();
}
TEST_CASE("Kernels dispatch and combine over host rings") { check_without_faults<over_host_rings>(); }
TEST_CASE("Ports die and return while kernels dispatch and combine over device queues: every sum is right") {
    check_with_faults<over_queues>(1, std::getenv("VCCL_QUICK") ? 10 : 50);
}
TEST_CASE("Ports die and return while kernels dispatch and combine over host rings: every sum is right") {
    check_with_faults<over_host_rings>(101, std::getenv("VCCL_QUICK") ? 110 : 150);
}

TEST_CASE("What does not fit is refused before anything is sent, and a row that is none before an expert sees it") {
    world<over_queues> w(layout_of(2, 1), 3);
    auto& a = w.ranks[0];
    const auto m = a.moe->ref();
    std::fill(a.experts.begin(), a.experts.end(), 0u);
    using device::outcome;
    CHECK(m.dispatch(warp_scope{}, 1, 0, 1, a.tokens.data(), 22, a.experts.data()).what == outcome::error);
    a.experts[5] = 8;
    CHECK(m.dispatch(warp_scope{}, 1, 0, 1, a.tokens.data(), 21, a.experts.data()).what == outcome::error);
    CHECK(w.ranks[1].mesh->from(0).ref().peek(0) == 0);
    // A peer of another opinion: more rows than there can be; then a row for an expert that is elsewhere.
    CHECK(a.mesh->to(1).ref().signal(warp_scope{}, 0, (std::uint64_t{1} << 32) + 22));
    CHECK(a.mesh->to(1).ref().flush(warp_scope{}));
    unsigned seen = 0;
    const auto look = [&](warp_scope, const moe_token&) { ++seen; };
    CHECK(w.ranks[1].moe->ref().serve(warp_scope{}, 0, 0, 1, look).what == outcome::error);
    auto* const row = reinterpret_cast<std::uint32_t*>(a.mesh->out(1));
    for (unsigned k = 0; k < 4; ++k) row[1 + k] = 0;  // an expert of rank 0
    CHECK(a.mesh->to(1).ref().signal(warp_scope{}, 0, (std::uint64_t{2} << 32) + 1));
    CHECK(a.mesh->to(1).ref().put_signal(warp_scope{}, 0, 0, w.layout.shape.row_bytes(), 1, (std::uint64_t{2} << 32) + 1));
    CHECK(a.mesh->to(1).ref().flush(warp_scope{}));
    CHECK(w.ranks[1].moe->ref().serve(warp_scope{}, 0, 0, 2, look).what == outcome::error);
    CHECK(seen == 0);
    using moe = world<over_queues>::moe_type;
    CHECK(moe::make(*a.mesh, layout_of(3, 1), [&](std::uint32_t p) { return a.mesh->to(p).ref(); }).error().code ==
          errc::invalid_argument);
}
