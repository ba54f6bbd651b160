// reduce_scatter: block r of the combination of all ranks' elements at rank r. reduce_scatter --help says how.
#include "../coll_common/perf.hpp"

using namespace coll_example;

int main(int count, char** arguments) {
    const collective c{"reduce_scatter", "Reduce-scatter over a ring, with sizes, times and checks in the manner of nccl-tests.",
                       false, true, true};
    return play(
        count, arguments, c,
        [](auto& comm, pages& in, pages& out, std::uint64_t n, element_type t, reduce_op op, bool in_place, auto& j) {
            const std::uint64_t block = n * size_of(t);
            return comm.reduce_scatter(in.view(0, block * j.ranks()),
                                       in_place ? in.view(j.rank() * block, block) : out.view(0, block), n, t, op);
        },
        [](pages& in, pages&, std::uint64_t n, element_type t, bool, auto& j) {
            fill(t, in.data(), n * j.ranks(), [&](std::uint64_t i) { return number(j.rank(), i); });
        },
        [](pages& in, pages& out, std::uint64_t n, element_type t, reduce_op op, bool in_place, auto& j) {
            const std::uint64_t first = j.rank() * n;
            return wrong(t, in_place ? in.data() + first * size_of(t) : out.data(), n,
                         [&](std::uint64_t i) { return combined_number(op, j.ranks(), first + i); });
        });
}
