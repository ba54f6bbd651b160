#pragma once
/// \file
/// What is measured: a vccl sender and receiver on the null backend, driven by one thread in steps, in a set-up that names
/// the policies.

#include "by_hand.hpp"

#include <vccl/model/shapes.hpp>
#include <vccl/stripe/compose.hpp>
#include <vccl/vccl.hpp>

#include <cstdlib>
#include <vector>

namespace hotpath {

using namespace vccl;

/// The policies of a pair; a set-up of one's own derives from it and hides some.
struct stock {
    using port = sibling_port;
    using handler = on_completion<counters>;
    using log = rollback_fifo<64>;
    using failback = hold_down<100>;
    using detection = detect;
    using clock = steady_clock;
    static constexpr unsigned ports = 1;  ///< that carry chunks at once: stripes
    static handler make_handler() { return {}; }
    static endpoint_options options() { return {}; }
};

/// A clock that stands still once the ends have connected: nothing is ever due but the chunks themselves.
struct still_clock {
    using policy_axis = axis::clock;
    static inline nanoseconds time{1'000'000'000};
    nanoseconds now() const noexcept { return time; }
};
struct still : stock {
    using clock = still_clock;
};

template <unsigned Qps, class Setup = stock>
class pair {
    using sender = striped_sender<backend, stripes<Setup::ports>, typename Setup::port, qp_group<Qps>, typename Setup::log,
                                  typename Setup::handler, typename Setup::detection, typename Setup::clock>;
    using receiver =
        striped_receiver<backend, stripes<Setup::ports>, typename Setup::port, qp_group<Qps>, typename Setup::handler,
                         typename Setup::failback, typename Setup::detection, typename Setup::clock>;

    backend wire_;
    topology shape_ = make_cluster(2, 1, 2, 1);
    host_context<backend> a_{wire_, shape_}, b_{wire_, shape_};
    sender tx_{a_, gpu_id{0}, channel_id{0}, Setup::options(), {}, Setup::make_handler()};
    receiver rx_{b_, gpu_id{1}, channel_id{0}, Setup::options(), {}, Setup::make_handler()};
    std::vector<std::byte> bytes_ = std::vector<std::byte>(pieces * chunk_bytes);
    memory memory_a_, memory_b_;
    memory_view from_[pieces], to_[pieces];

public:
    bool connect() {
        auto blob_a = tx_.local_info(), blob_b = rx_.local_info();
        if (!blob_a || !blob_b || !tx_.begin_connect(*blob_b) || !rx_.begin_connect(*blob_a)) return false;
        for (unsigned i = 0; i < 1'000'000 && !(tx_.connected() && rx_.connected()); ++i) {
            tx_.progress();
            rx_.progress();
            still_clock::time += nanoseconds{1000};
        }
        auto m = a_.register_memory(bytes_.data(), bytes_.size()), n = b_.register_memory(bytes_.data(), bytes_.size());
        if (!m || !n) return false;
        memory_a_ = std::move(*m);
        memory_b_ = std::move(*n);
        for (unsigned i = 0; i < pieces; ++i) {
            from_[i] = memory_a_.view(i * chunk_bytes, chunk_bytes);
            to_[i] = memory_b_.view(i * chunk_bytes, chunk_bytes);
        }
        return tx_.connected() && rx_.connected();
    }
    void run(std::uint64_t chunks) {
        const std::uint64_t goal = rx_.received().value + chunks;
        while (rx_.received().value < goal) {
            receiver_step(goal);
            sender_step(goal);
        }
    }

private:
    __attribute__((noinline)) void receiver_step(std::uint64_t goal) {
        std::uint64_t s = rx_.next().value;
        for (const std::uint64_t end = std::min({goal, rx_.received().value + 2 * step, s + step}); s < end; ++s)
            if (!rx_.recv(to_[s % pieces])) std::abort();
        rx_.progress();
    }
    __attribute__((noinline)) void sender_step(std::uint64_t goal) {
        std::uint64_t s = tx_.next().value;
        for (const std::uint64_t end = std::min(goal, tx_.acknowledged().value + 64); s < end; ++s)
            if (!tx_.send(from_[s % pieces])) std::abort();
        tx_.progress();
    }
};

}  // namespace hotpath
