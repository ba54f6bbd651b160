// device_moe: dispatch and combine of a mixture of experts by device code: tokens of 7168 bfloat16's size, top 8, put and tail on one
// queue. All ranks live in this process, each on a host of its own; ports die and return while they work, and every sum is checked.
//
//     device_moe [--host-ring] [RANKS [SCHEDULES]]       without a GPU: threads (mode 2); with nvcc: kernels (mode 3)
//
// --host-ring: device code asks through a ring, and the host posts (mode 4). A schedule is eight rounds and a port's outage. Exit status:
// 0 if every sum was right, 1 if not, 2 for a wrong command line or under a launcher.
#include "../device_common/arguments.hpp"
#include "../device_common/launch.hpp"
#include "../device_common/pair.hpp"

#include <vccl/bootstrap/place.hpp>
#include <vccl/coll/device_moe.hpp>
#include <vccl/device/host_ring.hpp>

#include <random>

namespace {

using namespace example;

constexpr unsigned queues = 2, rounds = 8;
constexpr std::uint32_t tokens = 64, top_k = 8, token_bytes = 7168 * 2;
using tx_type = device_sender<verbs::soft, sibling_port, qp_group<queues>, rollback_fifo<128>, on_completion<counters>, space>;
using rx_type = device_receiver<verbs::soft, sibling_port, qp_group<queues>, on_completion<counters>, hold_down<5>, space>;
using mesh_type = device_mesh<tx_type, rx_type>;
// The queues behind a host ring are the host's own.
using asked_tx = device_sender<verbs::soft, sibling_port, qp_group<queues>, rollback_fifo<128>, on_completion<counters>>;
using asked_mesh = device_mesh<asked_tx, rx_type, space>;
using ring_type = host_ring<asked_tx, space>;

/// Of rank, token, place and round.
VCCL_HOST_DEVICE inline std::uint32_t word(std::uint32_t rank, std::uint32_t token, std::uint32_t i, std::uint32_t round) {
    return rank * 1'000'003 + token * 4099 + i * 17 + round * 7;
}
VCCL_HOST_DEVICE inline std::uint32_t expert_of(const moe_shape& s, std::uint32_t rank, std::uint32_t token, std::uint32_t k,
                                                std::uint32_t round) {
    return (token * 7 + round * 5 + rank * 3 + k) % s.experts;  // eight different ones
}

/// An expert multiplies each word by its number + 1; here all those of a token at this rank at once.
struct experts {
    moe_shape s;
    VCCL_HOST_DEVICE void operator()(warp_scope who, const moe_token& t) const {
        std::uint32_t factor = 0;
        for (std::uint32_t k = 0; k < s.top_k; ++k)
            if (t.experts[k] != moe_shape::no_expert) factor += t.experts[k] + 1;
        for (std::uint32_t i = who.rank(); i < s.token_bytes / 4; i += detail::width_of(who))
            reinterpret_cast<std::uint32_t*>(t.result)[i] = reinterpret_cast<const std::uint32_t*>(t.bytes)[i] * factor;
    }
};

/// What device code reaches of all ranks.
template <class Streams>
struct job {
    Streams* streams;  ///< by rank
    std::byte *tokens, *out;
    std::uint32_t* chosen;
    std::uint64_t* failed;
    std::uint32_t round;

    VCCL_HOST_DEVICE std::byte* tokens_of(std::uint32_t rank) const {
        return tokens + std::uint64_t{rank} * ::tokens * token_bytes;
    }
    VCCL_HOST_DEVICE std::byte* out_of(std::uint32_t rank) const { return out + std::uint64_t{rank} * ::tokens * token_bytes; }
};
/// A warp for each stream of each rank.
template <class Streams>
struct exchange_tokens {
    job<Streams> j;
    VCCL_HOST_DEVICE void operator()(unsigned block, unsigned) const {
        const moe_layout layout = j.streams[0].layout();
        const std::uint32_t part = block % layout.parts, peer = block / layout.parts % layout.ranks,
                            rank = block / layout.parts / layout.ranks;
        const Streams m = j.streams[rank];
        const warp_scope who{};
        auto r = m.dispatch(who, peer, part, j.round, j.tokens_of(rank), tokens, j.chosen + std::uint64_t{rank} * tokens * top_k);
        if (r) r = m.serve(who, peer, part, j.round, experts{layout.shape});
        if (r) r = m.collect(who, peer, part, j.round);
        if (!r && who.rank() == 0) device::store<device::order::relaxed, device::scope::system>(j.failed, pack(r));
    }
};
/// A warp for each rank and eighth token.
template <class Streams>
struct add_up {
    job<Streams> j;
    VCCL_HOST_DEVICE void operator()(unsigned rank, unsigned warp) const {
        for (std::uint32_t t = warp; t < tokens; t += 8)
            j.streams[rank].add_up(warp_scope{}, t, j.out_of(rank) + std::uint64_t{t} * token_bytes, element_type::int32);
    }
};

template <class Mesh, class TxRef>
class machine {
public:
    using moe_type = device_moe<Mesh, TxRef>;
    using streams = typename moe_type::ref_type;
    static constexpr bool asks = !std::is_same_v<TxRef, typename Mesh::sender::ref_type>;

    explicit machine(std::uint32_t ranks)
        : layout_{{.experts = 8 * ranks, .top_k = top_k, .tokens = tokens, .token_bytes = token_bytes},
                  token_bytes,
                  ranks,
                  queues},
          fabric_(make(ranks)),
          tokens_(std::size_t{ranks} * tokens * token_bytes),
          out_(tokens_.size),
          chosen_(std::size_t{ranks} * tokens * top_k * 4),
          streams_(ranks * sizeof(streams)),
          failed_(8) {
#if defined(__CUDACC__)
        auto made = device::gpu_link::open(0);
        need(made.error(), "no GPU");
        link_ = std::move(*made);
        const space memory{link_.get()};
#else
        const space memory{};
#endif
        std::vector<std::vector<parcel>> boxes(ranks);
        device_options ends;
        ends.timeout = 60_s;
        for (std::uint32_t r = 0; r < ranks; ++r) {
            contexts_.push_back(std::make_unique<host_context<verbs::soft>>(*fabric_.host(fabric_.shape().hosts[r].name.view()),
                                                                            fabric_.shape()));
            const auto options = moe_type::mesh_options_of(layout_, ends);
            meshes_.push_back(std::make_unique<Mesh>(*contexts_[r], nic_, gpu_id{static_cast<std::uint16_t>(r)}, r, ranks,
                                                     options, steady_clock{}, memory));
            auto blobs = meshes_[r]->offer();
            need(blobs.error(), "offer");
            for (parcel& p : *blobs) boxes[p.peer].push_back({r, p.tag, std::move(p.bytes)});
        }
        for (std::uint32_t r = 0; r < ranks; ++r) need(meshes_[r]->answer(boxes[r]), "answer");
        for (const double until = seconds() + 20; !connected();) {
            for (auto& m : meshes_) m->progress();
            nic_.progress();
            need(seconds() < until, "the ranks did not connect within 20 s");
        }
        for (std::uint32_t r = 0; r < ranks; ++r) {
            [[maybe_unused]] std::vector<ring_type*> own(ranks);
            if constexpr (asks)
                for (std::uint32_t p = 0; p < ranks; ++p) {
                    if (p == r) continue;
                    host_ring_options o;
                    o.timeout = 60_s;
                    rings_.push_back(std::make_unique<ring_type>(meshes_[r]->to(p), o, memory));
                    need(rings_.back()->open(), "ring");
                    own[p] = rings_.back().get();
                }
            auto m = moe_type::make(*meshes_[r], layout_, [&](std::uint32_t p) {
                if constexpr (asks)
                    return own[p]->ref();
                else
                    return meshes_[r]->to(p).ref();
            });
            need(m.error(), "moe");
            moes_.push_back(std::move(*m));
            ::new (reinterpret_cast<streams*>(streams_.bytes) + r) streams(moes_[r]->ref());
        }
        nic_thread_ = std::thread([this] {
            while (!stop_)
                if (!nic_.progress()) std::this_thread::yield();
        });
        service_ = std::thread([this] {
            while (!stop_) {
                bool moved = false;
                for (auto& m : meshes_) moved |= m->progress();
                for (auto& r : rings_) moved |= r->progress();
                if (!moved) std::this_thread::yield();
            }
        });
    }
    ~machine() {
        stop_ = true;
        if (service_.joinable()) service_.join();
        nic_thread_.join();
    }

    /// Returns: seconds of device code.
    double round(std::uint32_t number) {
        const moe_shape& s = layout_.shape;
        for (std::uint32_t r = 0; r < layout_.ranks; ++r)
            for (std::uint32_t t = 0; t < tokens; ++t) {
                auto* const w = reinterpret_cast<std::uint32_t*>(tokens_.bytes) + (std::size_t{r} * tokens + t) * token_bytes / 4;
                for (std::uint32_t i = 0; i < token_bytes / 4; ++i) w[i] = word(r, t, i, number);
                for (std::uint32_t k = 0; k < top_k; ++k)
                    reinterpret_cast<std::uint32_t*>(chosen_.bytes)[(std::size_t{r} * tokens + t) * top_k + k] =
                        expert_of(s, r, t, k, number);
            }
        const job<streams> j{reinterpret_cast<streams*>(streams_.bytes),      reinterpret_cast<std::byte*>(tokens_.bytes),
                             reinterpret_cast<std::byte*>(out_.bytes),        reinterpret_cast<std::uint32_t*>(chosen_.bytes),
                             reinterpret_cast<std::uint64_t*>(failed_.bytes), number};
        const double begin = seconds();
        need(launched(layout_.ranks * layout_.ranks * layout_.parts, 1, exchange_tokens<streams>{j}).wait(), "a kernel failed");
        const auto r = device::unpack(*j.failed);
        if (!r) std::fprintf(stderr, "%s (%s)\n", text(r.what), text(r.why));
        need(static_cast<bool>(r), "an operation of device code failed");
        need(launched(layout_.ranks, 8, add_up<streams>{j}).wait(), "a kernel failed");
        const double took = seconds() - begin;
        for (std::uint32_t rank = 0; rank < layout_.ranks; ++rank)
            for (std::uint32_t t = 0; t < tokens; ++t) {
                std::uint32_t factor = 0;
                for (std::uint32_t k = 0; k < top_k; ++k) factor += expert_of(s, rank, t, k, number) + 1;
                const auto* const w =
                    reinterpret_cast<const std::uint32_t*>(out_.bytes) + (std::size_t{rank} * tokens + t) * token_bytes / 4;
                for (std::uint32_t i = 0; i < token_bytes / 4; ++i)
                    if (w[i] != word(rank, t, i, number) * factor) ++wrong;
            }
        return took;
    }
    verbs::soft_fabric& fabric() { return fabric_; }
    const moe_layout& layout() const { return layout_; }
    /// Ends the service, so that what its ends have counted can be read.
    std::uint64_t failovers() {
        stop_ = true;
        service_.join();
        std::uint64_t n = 0;
        for (auto& m : meshes_)
            for (std::uint32_t p = 0; p < layout_.ranks; ++p)
                if (p != m->rank()) n += m->from(p).handler().template get<counters>().failovers;
        return n;
    }
    std::uint64_t wrong{};

private:
    static verbs::soft_fabric make(std::uint32_t ranks) {
        auto made = verbs::soft_fabric::create(make_cluster(ranks, 1, 2, 1));
        need(made.error(), "fabric");
        return std::move(*made);
    }
    bool connected() const {
        for (auto& m : meshes_)
            if (!m->connected()) return false;
        return true;
    }

    moe_layout layout_;
    verbs::soft_fabric fabric_;
    std::vector<std::unique_ptr<host_context<verbs::soft>>> contexts_;
    typename Mesh::source nic_;
#if defined(__CUDACC__)
    owned<device::gpu_link> link_;
#endif
    window tokens_, out_, chosen_, streams_, failed_;
    std::vector<std::unique_ptr<Mesh>> meshes_;
    std::vector<std::unique_ptr<ring_type>> rings_;
    std::vector<owned<moe_type>> moes_;
    std::atomic<bool> stop_{};
    std::thread nic_thread_, service_;
};

/// A port goes down some time into the rounds of a schedule and comes back some time later, or is still down when the next one goes.
template <class Mesh, class TxRef>
int play(std::uint32_t ranks, unsigned schedules, const char* what) {
    machine<Mesh, TxRef> m(ranks);
    const std::string name_of_mode = std::string(what) + (std::is_same_v<space, device::host_space> ? ", threads" : ", kernels");
    prepare<exchange_tokens<typename machine<Mesh, TxRef>::streams>>();
    prepare<add_up<typename machine<Mesh, TxRef>::streams>>();
    std::uint32_t number = 0;
    double quiet = 0, all = 0, longest = 0;
    for (unsigned i = 0; i < rounds; ++i) {
        const double took = m.round(++number);
        quiet += i == 0 ? 0 : took;  // the first warms up
    }
    const double each = quiet / (rounds - 1);
    for (unsigned s = 1; s <= schedules; ++s) {
        std::mt19937_64 random(s);
        const auto& ports = m.fabric().shape().ports;
        const std::string port(ports[random() % ports.size()].name.view());
        const double down = each * rounds * static_cast<double>(random() % 1000) / 1000,
                     up = down + each * static_cast<double>(random() % 4000) / 1000;
        std::thread breaker([&] {
            std::this_thread::sleep_for(std::chrono::duration<double>(down));
            need(m.fabric().command("down " + port), "fabric");
            std::this_thread::sleep_for(std::chrono::duration<double>(up - down));
            need(m.fabric().command("up " + port), "fabric");
        });
        for (unsigned i = 0; i < rounds; ++i) {
            const double took = m.round(++number);
            all += took;
            if (took > longest) longest = took;
        }
        breaker.join();
    }
    const std::uint64_t failovers = m.failovers();
    const moe_shape& shape = m.layout().shape;
    std::printf("%s: %u ranks, %u tokens a rank of %u bytes, top %u of %u experts: dispatch and combine %.0f us a round\n",
                name_of_mode.c_str(), ranks, shape.tokens, shape.token_bytes, shape.top_k, shape.experts, each * 1e6);
    std::printf("%u outages in %u rounds: %.0f us a round, the longest %.0f us\n", schedules, schedules * rounds,
                schedules == 0 ? 0 : all / (schedules * rounds) * 1e6, longest * 1e6);
    std::printf("RESULT %s op=device_moe ranks=%u schedules=%u wrong=%llu failovers=%llu round_us=%.0f\n",
                m.wrong == 0 ? "ok" : "wrong", ranks, schedules, static_cast<unsigned long long>(m.wrong),
                static_cast<unsigned long long>(failovers), each * 1e6);
    return m.wrong != 0;
}

}  // namespace

int main(int argc, char** argv) {
    arguments words(argc, argv, "device_moe [--host-ring] [RANKS 1-16 [SCHEDULES 0-1000000]]");
    const bool ask = words.flag("--host-ring");
    const auto ranks = words.number<std::uint32_t>(3, 1, 16), schedules = words.number<std::uint32_t>(4, 0, 1'000'000);
    if (words.done()) return words.status();
    std::string why;
    const auto place = read_job_place(process_environment, why);
    if (place ? place->ranks != 1 : place.error().code != errc::not_found) {
        std::fprintf(stderr,
                     "device_moe: a launcher has started this as one of several ranks, but all ranks of it live in one "
                     "process; start it without mpirun, torchrun or srun\n");
        return 2;
    }
    if (ask) return play<asked_mesh, ring_type::ref_type>(ranks, schedules, "host rings");
    return play<mesh_type, tx_type::ref_type>(ranks, schedules, "device queues");
}
