// moe: dispatch and combine of a mixture of experts, tokens of 7168 bfloat16, top 8, four experts a rank at least. moe --help
// says how.
#include "../coll_common/job.hpp"
#include "../coll_common/numbers.hpp"
#include "../p2p/background_command.hpp"

#include <vccl/coll/moe.hpp>

using namespace coll_example;

namespace {

constexpr std::uint32_t hidden = 7168, tokens = 128, top_k = 8;

struct figures {
    std::uint64_t dispatch_ns{}, combine_ns{}, rows{}, wrong{};
};

template <class Exchange>
std::uint64_t finish(Exchange& x, const options& o) {
    const nanoseconds begin = steady_clock{}.now(), deadline = begin + seconds(o.patience);
    for (unsigned idle = 0; !x.done();) {
        idle = x.progress() ? 0 : idle + 1;
        if (!x.health()) throw failure("the exchange failed", x.health());
        if (idle > 64) {
            ::sched_yield();
            if (steady_clock{}.now() > deadline) throw failure("the exchange did not end", errc::timeout);
        }
    }
    return static_cast<std::uint64_t>((steady_clock{}.now() - begin).count);
}

/// Element i of a token: the same in each expert's output, so that the sum counts the ranks that a token went to.
std::uint16_t element_of(std::uint32_t rank, std::uint32_t token, std::uint32_t i, std::uint32_t times) {
    return static_cast<std::uint16_t>(element(element_type::bfloat16, times * (1 + number(rank, token * 31 + i))));
}

template <class Network>
int play(const options& o, const job_place& place, tcp_bootstrap exchange) {
    job<Network> j(o, place, std::move(exchange), true);
    j.connect();
    auto comm = j.ends().make_communicator();
    using moe = moe_exchange<typename job<Network>::mesh::communicator_type>;
    const std::uint32_t per_rank = j.ranks() * 4 < top_k ? (top_k + j.ranks() - 1) / j.ranks() : 4;
    const moe_shape shape{.experts = per_rank * j.ranks(), .top_k = top_k, .tokens = tokens, .token_bytes = hidden * 2};
    const std::uint64_t bytes = moe::scratch_bytes(shape, j.ranks());
    pages& scratch = j.memory(bytes);
    moe x(comm, shape, scratch.view(0, bytes));
    if (!x.health()) throw failure("cannot exchange", x.health());

    const auto steps = p2p::parse_script(o.script);
    j.check(steps);
    p2p::background_command beside;
    std::size_t next_step = 0;
    std::vector<std::uint16_t> own(std::size_t{tokens} * hidden), out(own.size());
    std::vector<std::uint32_t> experts(std::size_t{tokens} * top_k);
    for (std::uint32_t t = 0; t < tokens; ++t)
        for (std::uint32_t i = 0; i < hidden; ++i) own[std::size_t{t} * hidden + i] = element_of(j.rank(), t, i, 1);
    figures mine;
    for (unsigned n = 0; n < o.iterations; ++n) {
        for (std::uint32_t t = 0; t < tokens; ++t)  // eight different ones, other ones each time
            for (std::uint32_t k = 0; k < top_k; ++k) experts[t * top_k + k] = (t * 7 + n * 5 + j.rank() * 3 + k) % shape.experts;
        j.barrier();
        beside.attend();
        for (; j.rank() == 0 && next_step < steps.size() && steps[next_step].share * o.iterations <= n; ++next_step) {
            std::printf("# *  %s\n", steps[next_step].command.c_str());
            beside.start(j.network().command(steps[next_step].command));
        }
        if (const status s = x.dispatch(own.data(), tokens, experts); !s) throw failure("cannot dispatch", s);
        mine.dispatch_ns += finish(x, o);
        mine.rows += x.rows();
        if (const status s = x.combine(out.data(), element_type::bfloat16); !s) throw failure("cannot combine", s);
        mine.combine_ns += finish(x, o);
        for (std::uint32_t t = 0; t < tokens; ++t) {
            std::uint64_t ranks = 0;  // a bit each
            for (std::uint32_t k = 0; k < top_k; ++k) ranks |= std::uint64_t{1} << shape.owner(experts[t * top_k + k], j.ranks());
            const auto times = static_cast<std::uint32_t>(std::popcount(ranks));
            for (std::uint32_t i = 0; i < hidden; ++i)
                mine.wrong += out[std::size_t{t} * hidden + i] != element_of(j.rank(), t, i, times);
        }
    }
    std::uint64_t failovers = 0;
    j.ends().each_receiver([&](const mesh_link&, auto& e) { failovers += e.handler().template get<counters>().failovers; });
    figures all;
    for (const figures& f : j.gather(mine)) {
        all.dispatch_ns = std::max(all.dispatch_ns, f.dispatch_ns);
        all.combine_ns = std::max(all.combine_ns, f.combine_ns);
        all.rows += f.rows;
        all.wrong += f.wrong;
    }
    std::uint64_t all_failovers = 0;
    for (const std::uint64_t f : j.gather(failovers)) all_failovers += f;
    if (const status s = j.ends().close(seconds(o.patience)); !s) throw failure("cannot close in order", s);
    j.barrier();
    if (j.rank() != 0) return 0;
    const double n = o.iterations, moved = static_cast<double>(all.rows) * hidden * 2 / j.ranks();
    std::printf("# %u ranks, %u experts, %u tokens a rank of %u bfloat16, top %u\n", j.ranks(), shape.experts, tokens, hidden,
                top_k);
    std::printf("# dispatch %.1f us, %.3f GB/s a rank; combine %.1f us, %.3f GB/s a rank\n",
                static_cast<double>(all.dispatch_ns) / n / 1e3, moved / static_cast<double>(all.dispatch_ns),
                static_cast<double>(all.combine_ns) / n / 1e3, moved / static_cast<double>(all.combine_ns));
    std::printf("RESULT %s op=moe ranks=%u wrong=%llu failovers=%llu\n", all.wrong == 0 ? "ok" : "wrong", j.ranks(),
                static_cast<unsigned long long>(all.wrong), static_cast<unsigned long long>(all_failovers));
    return all.wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
    options o;
    if (const int status =
            parse_options(count, arguments, o, "moe",
                          "Dispatch and combine of a mixture of experts: 128 tokens a rank of 7168 bfloat16, top 8.", {});
        status >= 0)
        return status;
    try {
        return run_job(
            o,
            [&](const job_place& place, tcp_bootstrap exchange) {
                return with_network(o, [&]<class Network>() { return play<Network>(o, place, std::move(exchange)); });
            },
            [] {});
    } catch (const std::exception& e) { return complain("moe", e); }
}
