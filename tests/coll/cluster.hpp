#pragma once
/// \file
/// Hosts × GPUs in one process under a manual clock: one rank a GPU, with its own context, mesh and communicator, over one
/// software fabric. Collectives run in simulated time, and buffers are compared with what `expected.hpp` computes. A `Place`
/// says where the collective's buffers lie: in host memory, or in a GPU's, pretended (gpu_place.hpp) or real.

#include <vccl/coll/host_mesh.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/testing/memory_oob.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace coll_test {

using namespace vccl;
using namespace vccl::literals;

struct cluster_options {
    unsigned hosts{2}, gpus{1}, nics{1}, ports{2};
    unsigned rings{1};
    bool pairs{};
    verbs::soft_options fabric{};
    endpoint_options ends{};
    ring_limits limits{.piece_bytes = 1024, .least_piece_bytes = 128, .lap_pieces = 4};
};

inline void need(status s, const char* what) {
    if (!s) throw std::runtime_error(std::string(what) + ": errc " + std::to_string(static_cast<int>(s.code)));
}

/// Collectives work on the very bytes that the test fills and compares.
struct host_place {
    template <class Mesh>
    using communicator_type = typename Mesh::communicator_type;
    using memory_type = memory;

    template <class Context>
    void take(Context& c, memory& m, std::vector<std::byte>& bytes) {
        m = {};
        auto made = c.register_memory(bytes.data(), bytes.size());
        need(made ? status{} : made.error(), "register");
        m = std::move(*made);
    }
    void to_place(memory&, const std::vector<std::byte>&) {}
    void from_place(memory&, std::vector<std::byte>&) {}
    template <class Context, class Mesh>
    auto communicate(Context&, Mesh& mesh, std::uint32_t, std::uint32_t, manual_clock) {
        return std::unique_ptr<communicator_type<Mesh>>(new communicator_type<Mesh>(mesh.make_communicator()));
    }
};

template <class Tx, class Rx, class Place = host_place>
class cluster {
public:
    using mesh_type = host_mesh<Tx, Rx, manual_clock>;
    using communicator_type = typename Place::template communicator_type<mesh_type>;

    struct rank {
        std::unique_ptr<host_context<verbs::soft>> context;
        std::vector<std::byte> in, out;  // before the mesh: they must outlive its ends
        typename Place::memory_type in_memory, out_memory;
        std::unique_ptr<mesh_type> mesh;
        Place place;  // after the mesh: it may have ends over the mesh's
        std::unique_ptr<communicator_type> comm;
    };

    explicit cluster(const cluster_options& options) : o(options), fabric(make(options)), ranks(options.hosts * options.gpus) {
        std::vector<std::uint32_t> host_of_rank;
        for (unsigned r = 0; r < ranks.size(); ++r) host_of_rank.push_back(r / o.gpus);
        mesh_options m;
        m.ends = o.ends;
        if (m.ends.seed == 0) m.ends.seed = 77;
        m.rings = ring_orders(host_of_rank, o.rings);
        m.pairs = o.pairs;
        m.limits = o.limits;
        const auto n = static_cast<std::uint32_t>(ranks.size());
        for (std::uint32_t r = 0; r < n; ++r) {
            auto host = fabric.host(fabric.shape().hosts[r / o.gpus].name.view());
            need(host ? status{} : host.error(), "host");
            ranks[r].context = std::make_unique<host_context<verbs::soft>>(*host, fabric.shape());
            mesh_options own = m;
            own.ends.seed += std::uint64_t{r} << 32;
            const gpu_id gpu{static_cast<std::uint16_t>(r)};
            ranks[r].mesh = std::make_unique<mesh_type>(*ranks[r].context, gpu, r, n, own, fabric.clock());
        }
        connect();
    }

    cluster_options o;
    verbs::soft_fabric fabric;
    std::vector<rank> ranks;
    nanoseconds pass_time{2'000};

    /// Gives each rank buffers of so many bytes. They are registered anew only when they grow: a NIC that has lost an
    /// acknowledgement sends again, also what the peer has acknowledged as received.
    void buffers(std::size_t in, std::size_t out) {
        for (rank& r : ranks) {
            renew(r, r.in, r.in_memory, in, std::byte{0xa5});
            renew(r, r.out, r.out_memory, out, std::byte{0x5a});
        }
    }

    void pass() {
        bool moved = false;
        for (rank& r : ranks) moved |= r.comm ? r.comm->progress() : r.mesh->progress();
        // With nothing to do for anybody, time may run to the next packet; not further than the ends' timers like.
        const nanoseconds next = fabric.next_event_at() - fabric.now(), most{50'000};
        fabric.advance(moved || next < pass_time ? pass_time : next < most ? next : most);
    }
    bool until(const std::function<bool()>& done, nanoseconds limit = 60_s) {
        const nanoseconds end = fabric.now() + limit;
        while (!done()) {
            if (fabric.now() >= end) return false;
            pass();
        }
        return true;
    }
    /// Begins on every rank, and passes until all have ended or one has failed. `every` runs before each pass.
    status run(
        const std::function<status(rank&, std::uint32_t)>& begin, const std::function<void()>& every = [] {},
        nanoseconds limit = 60_s) {
        for (rank& r : ranks) {
            r.place.to_place(r.in_memory, r.in);
            r.place.to_place(r.out_memory, r.out);
        }
        for (std::uint32_t r = 0; r < ranks.size(); ++r)
            if (status s = begin(ranks[r], r); !s) return s;
        status why;
        const bool ended = until(
            [&] {
                every();
                bool all = true;
                for (rank& r : ranks) {
                    if (!r.comm->health()) why = r.comm->health();
                    all &= r.comm->done();
                }
                return all || !why;
            },
            limit);
        for (rank& r : ranks) {
            r.place.from_place(r.in_memory, r.in);
            r.place.from_place(r.out_memory, r.out);
        }
        return ended ? why : status{errc::timeout};
    }
    status command(const std::string& text) { return fabric.command(text); }

private:
    static void renew(rank& r, std::vector<std::byte>& bytes, typename Place::memory_type& m, std::size_t size, std::byte value) {
        if (size >= bytes.size()) {
            bytes.resize(size + 1);
            r.place.take(*r.context, m, bytes);
        }
        std::fill(bytes.begin(), bytes.end(), value);
    }

    static verbs::soft_fabric make(const cluster_options& o) {
        verbs::soft_options f = o.fabric;
        f.manual_time = true;
        if (f.latency.count == 0) f.latency = 2_us;
        if (f.bytes_per_second == 0) f.bytes_per_second = 10'000'000'000;
        auto made = verbs::soft_fabric::create(make_cluster(o.hosts, o.nics, o.ports, o.gpus), f);
        need(made ? status{} : made.error(), "fabric");
        return std::move(*made);
    }

    void connect() {
        std::vector<std::vector<parcel>> offers(ranks.size()), answers(ranks.size());
        const auto deliver = [](std::vector<std::vector<parcel>>& to, std::uint32_t from, std::vector<parcel>&& list) {
            for (parcel& p : list) to[p.peer].push_back({from, p.tag, std::move(p.bytes)});
        };
        for (std::uint32_t r = 0; r < ranks.size(); ++r) {
            auto list = ranks[r].mesh->offer();
            need(list ? status{} : list.error(), "offer");
            deliver(offers, r, std::move(*list));
        }
        for (std::uint32_t r = 0; r < ranks.size(); ++r) {
            auto list = ranks[r].mesh->answer(offers[r]);
            need(list ? status{} : list.error(), "answer");
            deliver(answers, r, std::move(*list));
        }
        for (std::uint32_t r = 0; r < ranks.size(); ++r) need(ranks[r].mesh->finish(answers[r]), "finish");
        const bool connected = until([&] {
            for (rank& r : ranks)
                if (!r.mesh->connected()) return false;
            return true;
        });
        need(connected ? status{} : status{errc::timeout}, "connect");
        for (std::uint32_t r = 0; r < ranks.size(); ++r)
            ranks[r].comm = ranks[r].place.communicate(*ranks[r].context, *ranks[r].mesh, r,
                                                       static_cast<std::uint32_t>(ranks.size()), fabric.clock());
    }
};

/// `Handler`: of the receivers, say a timeline.
template <class Handler = on_completion<counters>, class Failback = hold_down<1>, class Port = sibling_port,
          class Place = host_place>
using soft_cluster = cluster<host_sender<verbs::soft, Port, manual_clock, testing::memory_oob, Failback, on_completion<counters>>,
                             host_receiver<verbs::soft, Port, manual_clock, testing::memory_oob, Failback, Handler>, Place>;

}  // namespace coll_test
