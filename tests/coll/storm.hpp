#pragma once
/// \file
/// A storm over a collective: one operation after the other under a schedule of random faults, all from one seed. Every
/// element is compared. Used by the storm test and by the program that runs many seeds.

#include "cluster.hpp"
#include "expected.hpp"

#include <cstdio>
#include <random>

namespace coll_test {

struct storm_result {
    std::string problem;  ///< empty: all was well
    std::vector<std::string> schedule;
    std::string what;     ///< the operations
    std::uint64_t failovers{}, failbacks{}, replayed{}, wrong{};
    bool touched{};       ///< a fault fell into an operation
};

namespace detail {

/// Begins on every rank what the seed says; `check` counts wrong bytes afterwards.
struct operation {
    std::string name;
    std::uint64_t in_bytes{}, out_bytes{};
    std::function<void(std::uint32_t rank, std::byte* in, std::byte* out)> fill;
    std::function<status(void* rank, std::uint32_t me)> begin;
    std::function<std::uint64_t(std::uint32_t rank, const std::byte* in, const std::byte* out)> wrong;
};

inline std::uint64_t differences(const std::byte* a, const std::vector<std::byte>& b) {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < b.size(); ++i) n += a[i] != b[i];
    return n;
}

template <class World, class Pick>
operation draw(World& w, Pick& pick, std::uint64_t most_elements) {
    using rank = typename World::rank;
    const auto n = static_cast<std::uint32_t>(w.ranks.size());
    const auto type = static_cast<element_type>(pick(5));
    const auto op = static_cast<reduce_op>(pick(3));
    const std::uint64_t size = size_of(type), count = 1 + pick(pick(3) == 0 ? 200 : most_elements / n);
    const bool in_place = pick(2) == 0;
    const auto root = static_cast<std::uint32_t>(pick(n));
    operation o;
    switch (pick(w.o.pairs ? 5 : 4)) {
        case 0:
            o.name = "all_reduce";
            o.in_bytes = o.out_bytes = count * size;
            o.fill = [=](std::uint32_t r, std::byte* in, std::byte* out) { fill(type, in_place ? out : in, r, 0, count); };
            o.begin = [=](void* p, std::uint32_t) {
                rank& r = *static_cast<rank*>(p);
                return r.comm->all_reduce((in_place ? r.out_memory : r.in_memory).view(), r.out_memory.view(), count, type, op);
            };
            o.wrong = [=](std::uint32_t, const std::byte*, const std::byte* out) {
                return differences(out, combination(type, op, n, 0, count));
            };
            break;
        case 1:
            o.name = "reduce_scatter";
            o.in_bytes = n * count * size;
            o.out_bytes = count * size;
            o.fill = [=](std::uint32_t r, std::byte* in, std::byte*) { fill(type, in, r, 0, n * count); };
            o.begin = [=](void* p, std::uint32_t me) {
                rank& r = *static_cast<rank*>(p);
                const std::uint64_t block = count * size;
                return r.comm->reduce_scatter(
                    r.in_memory.view(), in_place ? r.in_memory.view(me * block, block) : r.out_memory.view(), count, type, op);
            };
            o.wrong = [=](std::uint32_t r, const std::byte* in, const std::byte* out) {
                return differences(in_place ? in + r * count * size : out, combination(type, op, n, r * count, count));
            };
            break;
        case 2:
            o.name = "all_gather";
            o.in_bytes = count * size;
            o.out_bytes = n * count * size;
            o.fill = [=](std::uint32_t r, std::byte* in, std::byte* out) {
                fill(type, in_place ? out + r * count * size : in, r, 0, count);
            };
            o.begin = [=](void* p, std::uint32_t me) {
                rank& r = *static_cast<rank*>(p);
                const std::uint64_t block = count * size;
                return r.comm->all_gather(in_place ? r.out_memory.view(me * block, block) : r.in_memory.view(),
                                          r.out_memory.view(), count, type);
            };
            o.wrong = [=](std::uint32_t, const std::byte*, const std::byte* out) {
                std::uint64_t bad = 0;
                for (std::uint32_t b = 0; b < n; ++b) bad += differences(out + b * count * size, elements(type, b, 0, count));
                return bad;
            };
            break;
        case 3:
            o.name = "broadcast";
            o.in_bytes = o.out_bytes = count * size;
            o.fill = [=](std::uint32_t r, std::byte* in, std::byte* out) { fill(type, in_place ? out : in, r, 0, count); };
            o.begin = [=](void* p, std::uint32_t) {
                rank& r = *static_cast<rank*>(p);
                return r.comm->broadcast((in_place ? r.out_memory : r.in_memory).view(), r.out_memory.view(), count, type, root);
            };
            o.wrong = [=](std::uint32_t, const std::byte*, const std::byte* out) {
                return differences(out, elements(type, root, 0, count));
            };
            break;
        default:
            o.name = "all_to_all";
            o.in_bytes = o.out_bytes = n * count * size;
            o.fill = [=](std::uint32_t r, std::byte* in, std::byte* out) {
                for (std::uint32_t p = 0; p < n; ++p) fill(type, (in_place ? out : in) + p * count * size, r, p * 1000, count);
            };
            o.begin = [=](void* p, std::uint32_t) {
                rank& r = *static_cast<rank*>(p);
                return r.comm->all_to_all((in_place ? r.out_memory : r.in_memory).view(), r.out_memory.view(), count, type);
            };
            o.wrong = [=](std::uint32_t r, const std::byte*, const std::byte* out) {
                std::uint64_t bad = 0;
                for (std::uint32_t p = 0; p < n; ++p)
                    bad += differences(out + p * count * size, elements(type, p, r * 1000, count));
                return bad;
            };
    }
    o.name += " of " + std::to_string(count) + (in_place ? " in place" : "");
    return o;
}

}  // namespace detail

struct storm_sizes {
    std::uint32_t pieces[3]{256, 1024, 8192};
    std::uint32_t least_piece{64};
    std::uint64_t elements{40'000};  ///< of all ranks' blocks, at most
};

template <class World = soft_cluster<>>
storm_result storm(std::uint64_t seed, bool talk = false, const storm_sizes& sizes = {}) {
    std::mt19937_64 random(seed);
    auto pick = [&](std::uint64_t n) { return random() % n; };
    using world = World;
    storm_result r;

    cluster_options o;
    constexpr unsigned shapes[][2] = {{2, 1}, {3, 1}, {2, 2}, {4, 1}, {2, 3}, {2, 4}};
    const auto& shape = shapes[pick(std::size(shapes))];
    o.hosts = shape[0];
    o.gpus = o.nics = shape[1];
    o.rings = static_cast<unsigned>(1 + pick(2));
    o.pairs = pick(2) == 0;
    o.fabric.seed = seed;
    o.fabric.latency = nanoseconds{500 + static_cast<std::int64_t>(pick(10'000))};
    o.fabric.on_port_down = static_cast<verbs::port_down_behaviour>(pick(4));
    o.ends.timers.timeout = static_cast<std::uint8_t>(6 + pick(6));
    o.ends.timers.retry_count = static_cast<std::uint8_t>(pick(7));
    o.ends.first_lane = static_cast<unsigned>(pick(2));
    o.ends.window = 1u << (2 + pick(5));
    o.ends.seed = seed;
    o.limits.piece_bytes = sizes.pieces[pick(3)];
    o.limits.least_piece_bytes = pick(2) == 0 ? o.limits.piece_bytes : sizes.least_piece;
    o.limits.lap_pieces = static_cast<std::uint32_t>(1 + pick(6));
    world w(o);
    w.buffers(1 << 20, 1 << 20);
    w.pass_time = nanoseconds{1'000 + static_cast<std::int64_t>(pick(10'000))};

    auto say = [&](const std::string& what) {
        r.schedule.push_back(std::to_string(w.fabric.now().count / 1000) + "us " + what);
        if (talk) std::printf("  %s\n", r.schedule.back().c_str());
    };
    const char* const breaks[][2] = {
        {"down %", "up %"},           {"cable-down %", "cable-up %"}, {"loss % 30%", "clear %"},
        {"loss % 3%", "clear %"},     {"reorder % 10%", "clear %"},   {"dup % 10%", "clear %"},
        {"delay % 300us", "clear %"}, {"hang %", "clear %"},          {"drop-acks %", "clear %"},
        {"no-event %", "clear %"},    {"error %", "clear %"},         {"flap % 700us 900us 5x", "clear %"},
        {"partial % 3", "clear %"},   {"gid-change %", "clear %"}};
    struct heal {
        nanoseconds at;
        std::string text;
    };
    std::vector<heal> heals;
    nanoseconds next_fault = w.fabric.now() + nanoseconds{static_cast<std::int64_t>(pick(300'000))};
    unsigned faults = 1 + static_cast<unsigned>(pick(4));
    const auto every = [&] {
        const nanoseconds now = w.fabric.now();
        for (std::size_t i = 0; i < heals.size();) {
            if (heals[i].at > now) {
                ++i;
                continue;
            }
            say(heals[i].text);
            if (!w.command(heals[i].text)) r.problem = "command refused: " + heals[i].text;
            heals.erase(heals.begin() + static_cast<std::ptrdiff_t>(i));
        }
        if (faults == 0 || now < next_fault) return;
        --faults;
        r.touched = true;
        const auto& ports = w.fabric.shape().ports;
        const std::string port(ports[pick(ports.size())].name.view());
        const auto& form = breaks[pick(std::size(breaks))];
        const auto text = [&](std::string s) {
            s.replace(s.find('%'), 1, port);
            return s;
        };
        say(text(form[0]));
        if (!w.command(text(form[0]))) r.problem = "command refused: " + text(form[0]);
        const std::int64_t span = 50'000 + static_cast<std::int64_t>(pick(pick(3) == 0 ? 400'000'000 : 4'000'000));
        heals.push_back({now + nanoseconds{span}, text(form[1])});
        next_fault = now + nanoseconds{static_cast<std::int64_t>(pick(pick(2) == 0 ? 100'000 : 5'000'000))};
    };

    // Operations as long as faults are to come, so that each meets one.
    for (unsigned done = 0; done < 3 || (faults != 0 && done < 60); ++done) {
        const detail::operation op = detail::draw(w, pick, sizes.elements);
        if (done < 8) r.what += (done == 0 ? "" : ", ") + op.name;
        w.buffers(op.in_bytes, op.out_bytes);
        for (std::uint32_t k = 0; k < w.ranks.size(); ++k) op.fill(k, w.ranks[k].in.data(), w.ranks[k].out.data());
        const status s = w.run([&](typename world::rank& k, std::uint32_t me) { return op.begin(&k, me); }, every);
        if (!s) {
            r.problem = op.name + ": errc " + std::to_string(static_cast<int>(s.code)) + " after " + std::to_string(done);
            return r;
        }
        for (std::uint32_t k = 0; k < w.ranks.size(); ++k) r.wrong += op.wrong(k, w.ranks[k].in.data(), w.ranks[k].out.data());
        if (r.wrong != 0) {
            r.problem = op.name + ": " + std::to_string(r.wrong) + " wrong bytes";
            return r;
        }
        if (!r.problem.empty()) return r;
    }
    for (auto& k : w.ranks) {
        k.mesh->each_receiver([&](const mesh_link&, auto& e) {
            r.failovers += e.handler().template get<counters>().failovers;
            r.failbacks += e.handler().template get<counters>().failbacks;
        });
        k.mesh->each_sender([&](const mesh_link&, auto& e) { r.replayed += e.handler().template get<counters>().replayed; });
    }
    return r;
}

}  // namespace coll_test
