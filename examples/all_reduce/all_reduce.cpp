// all_reduce: sums (or max, min) of all ranks' elements at every rank. all_reduce --help says how; docs/collectives.md.
#include "../coll_common/perf.hpp"

using namespace coll_example;

int main(int count, char** arguments) {
    const collective c{"all_reduce", "All-reduce over a ring, with sizes, times and checks in the manner of nccl-tests.", false,
                       true, false};
    return play(
        count, arguments, c,
        [](auto& comm, pages& in, pages& out, std::uint64_t n, element_type t, reduce_op op, bool in_place, auto&) {
            const std::uint64_t bytes = n * size_of(t);
            return comm.all_reduce((in_place ? out : in).view(0, bytes), out.view(0, bytes), n, t, op);
        },
        [](pages& in, pages& out, std::uint64_t n, element_type t, bool in_place, auto& j) {
            fill(t, (in_place ? out : in).data(), n, [&](std::uint64_t i) { return number(j.rank(), i); });
        },
        [](pages&, pages& out, std::uint64_t n, element_type t, reduce_op op, bool, auto& j) {
            return wrong(t, out.data(), n, [&](std::uint64_t i) { return combined_number(op, j.ranks(), i); });
        });
}
