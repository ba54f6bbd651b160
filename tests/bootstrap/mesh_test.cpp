/// \file
/// Ranks that meet over TCP and then work together in real time: a mesh over the bootstrap, a collective, an orderly end; and
/// the same over a way of the user's own, without any bootstrap.

#include <vccl/bootstrap/tcp.hpp>
#include <vccl/coll/host_mesh.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr nanoseconds limit = 60_s;
using mesh = host_mesh<host_sender<verbs::soft, sibling_port>, host_receiver<verbs::soft, sibling_port>>;
using proxied_mesh = host_mesh<host_sender<verbs::soft, sibling_port, on_completion<counters>, proxy_thread>,
                               host_receiver<verbs::soft, sibling_port, on_completion<counters>, proxy_thread>>;

/// A way of the user's own: a table in memory.
class blackboard {
public:
    explicit blackboard(std::uint32_t ranks) : ranks_(ranks), boxes_(ranks) {}
    result<std::vector<parcel>> exchange(std::uint32_t rank, std::vector<parcel> out) {
        std::unique_lock lock(mutex_);
        for (parcel& p : out) boxes_[p.peer].push_back({rank, p.tag, std::move(p.bytes)});
        meet(lock);
        std::vector<parcel> mine = std::move(boxes_[rank]);
        boxes_[rank].clear();
        meet(lock);
        return mine;
    }

private:
    void meet(std::unique_lock<std::mutex>& lock) {
        const unsigned round = round_;
        if (++here_ == ranks_) {
            here_ = 0;
            ++round_;
            all_here_.notify_all();
        }
        all_here_.wait(lock, [&] { return round_ != round; });
    }
    std::uint32_t ranks_, here_{};
    unsigned round_{};
    std::vector<std::vector<parcel>> boxes_;
    std::mutex mutex_;
    std::condition_variable all_here_;
};
struct own_exchange {
    blackboard& board;
    std::uint32_t rank;
    result<std::vector<parcel>> exchange(std::vector<parcel> out, nanoseconds) { return board.exchange(rank, std::move(out)); }
};

/// The whole life of a rank, all at once with the others. `under_way` runs when the collective has begun.
template <class Mesh, class Connect, class UnderWay, class... Driver>
void live(verbs::soft_fabric& fabric, std::uint32_t rank, std::uint32_t ranks, Connect&& connect, UnderWay&& under_way,
          Driver&... driver) {
    constexpr std::uint64_t count = 30'000;
    auto host = fabric.host(fabric.shape().hosts[rank].name.view());
    REQUIRE(host);
    host_context<verbs::soft> context(*host, fabric.shape());
    std::vector<std::int32_t> numbers(count);
    for (std::uint64_t i = 0; i < count; ++i) numbers[i] = static_cast<std::int32_t>(i * (rank + 1));
    auto registered = context.register_memory(numbers.data(), count * 4);
    REQUIRE(registered);
    Mesh m(driver..., context, gpu_id{static_cast<std::uint16_t>(rank)}, rank, ranks, {.pairs = true});
    const status connected = connect(m);
    CHECK_MESSAGE(connected, "connect: errc ", int(connected.code), " detail ", connected.detail);
    if (!connected) return;
    auto comm = m.make_communicator();
    CHECK(comm.all_reduce(registered->view(), registered->view(), count, element_type::int32, reduce_op::sum));
    under_way(m);
    const status reduced = comm.wait(limit);
    CHECK_MESSAGE(reduced, "all_reduce: errc ", int(reduced.code));
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < count; ++i) wrong += numbers[i] != static_cast<std::int32_t>(i * (ranks * (ranks + 1) / 2));
    CHECK(wrong == 0);
    const status closed = m.close(limit);
    CHECK_MESSAGE(closed, "close: errc ", int(closed.code));
}

constexpr auto nothing_else = [](auto&) {};

void on_threads(std::uint32_t ranks, const std::function<void(std::uint32_t)>& each) {
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < ranks; ++r) threads.emplace_back([&, r] { each(r); });
    for (auto& t : threads) t.join();
}

}  // namespace

TEST_CASE("Ranks meet over TCP, work together, and close in order") {
    constexpr std::uint32_t ranks = 4;
    auto fabric = verbs::soft_fabric::create(make_cluster(ranks, 1, 2, 1));
    REQUIRE(fabric);
    auto listener = bootstrap_listener::open("127.0.0.1:0");
    REQUIRE(listener);
    const std::string root = listener->address();
    const auto secret = job_secret::random();
    REQUIRE(secret);
    on_threads(ranks, [&](std::uint32_t rank) {
        const job_place place{.rank = rank, .ranks = ranks, .root = root};
        auto b = rank == 0 ? tcp_bootstrap::join(place, std::move(*listener), *secret, limit)
                           : tcp_bootstrap::join(place, *secret, limit);
        REQUIRE(b);
        CHECK(b->own_host() == "127.0.0.1");
        live<mesh>(
            *fabric, rank, ranks, [&](mesh& m) { return m.connect(*b, limit); }, nothing_else);
    });
}

TEST_CASE("Ranks meet over a way of the user's own") {
    constexpr std::uint32_t ranks = 3;
    auto fabric = verbs::soft_fabric::create(make_cluster(ranks, 1, 2, 1));
    REQUIRE(fabric);
    blackboard board(ranks);
    on_threads(ranks, [&](std::uint32_t rank) {
        own_exchange x{board, rank};
        live<mesh>(
            *fabric, rank, ranks, [&](mesh& m) { return m.connect(x, limit); }, nothing_else);
    });
}

TEST_CASE("A rank with nothing to do connects and closes, and nobody waits for it") {
    constexpr std::uint32_t ranks = 3;
    for (int round = 0; round < 10; ++round) {
        auto fabric = verbs::soft_fabric::create(make_cluster(ranks, 1, 2, 1));
        REQUIRE(fabric);
        blackboard board(ranks);
        std::atomic<std::uint32_t> done{};
        on_threads(ranks, [&](std::uint32_t rank) {
            own_exchange x{board, rank};
            host_context<verbs::soft> context(*fabric->host(fabric->shape().hosts[rank].name.view()), fabric->shape());
            mesh m(context, gpu_id{static_cast<std::uint16_t>(rank)}, rank, ranks, {.pairs = true});
            const status connected = m.connect(x, 5_s), closed = connected ? m.close(5_s) : connected;
            done += closed.code == errc::ok;
        });
        REQUIRE(done == ranks);
    }
}

TEST_CASE("Ends that proxies drive carry a collective over a port that dies, and fail over while their users are elsewhere") {
    constexpr std::uint32_t ranks = 3;
    auto fabric = verbs::soft_fabric::create(make_cluster(ranks, 1, 2, 1));
    REQUIRE(fabric);
    blackboard board(ranks);
    on_threads(ranks, [&](std::uint32_t rank) {
        own_exchange x{board, rank};
        proxy driver;
        live<proxied_mesh>(
            *fabric, rank, ranks, [&](proxied_mesh& m) { return m.connect(x, limit); },
            [&](proxied_mesh& m) {
                if (rank != 0) return;
                REQUIRE(fabric->command("down A.nic0.p0"));
                std::uint64_t failovers = 0;
                const nanoseconds end = steady_clock{}.now() + limit;
                while (failovers == 0 && steady_clock{}.now() < end)  // nobody here drives the ends
                    m.each_receiver(
                        [&](const mesh_link&, auto& e) { failovers += e.handler().template get<counters>().failovers; });
                CHECK(failovers != 0);
            },
            driver);
    });
}
