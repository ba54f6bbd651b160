// all_to_all: block p of every rank at rank p. all_to_all --help says how.
#include "../coll_common/perf.hpp"

using namespace coll_example;

int main(int count, char** arguments) {
    const collective c{"all_to_all", "All-to-all between all pairs, with sizes, times and checks in the manner of nccl-tests.",
                       true, false, true};
    return play(
        count, arguments, c,
        [](auto& comm, pages& in, pages& out, std::uint64_t n, element_type t, reduce_op, bool in_place, auto& j) {
            const std::uint64_t all = n * size_of(t) * j.ranks();
            return comm.all_to_all((in_place ? out : in).view(0, all), out.view(0, all), n, t);
        },
        [](pages& in, pages& out, std::uint64_t n, element_type t, bool in_place, auto& j) {
            fill(t, out.data(), n * j.ranks(), [](std::uint64_t) { return 5; });
            fill(t, (in_place ? out : in).data(), n * j.ranks(),
                 [&](std::uint64_t i) { return number(j.rank(), i * (1 + i / n)); });
        },
        [](pages&, pages& out, std::uint64_t n, element_type t, reduce_op, bool, auto& j) {
            return wrong(t, out.data(), n * j.ranks(), [&](std::uint64_t i) {
                const std::uint64_t at = j.rank() * n + i % n;  // where it lay at its sender
                return number(static_cast<std::uint32_t>(i / n), at * (1 + at / n));
            });
        });
}
