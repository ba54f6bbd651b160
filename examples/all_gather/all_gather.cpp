// all_gather: all ranks' blocks at every rank. all_gather --help says how.
#include "../coll_common/perf.hpp"

using namespace coll_example;

int main(int count, char** arguments) {
    const collective c{"all_gather", "All-gather over a ring, with sizes, times and checks in the manner of nccl-tests.", false,
                       false, true};
    return play(
        count, arguments, c,
        [](auto& comm, pages& in, pages& out, std::uint64_t n, element_type t, reduce_op, bool in_place, auto& j) {
            const std::uint64_t block = n * size_of(t);
            return comm.all_gather(in_place ? out.view(j.rank() * block, block) : in.view(0, block),
                                   out.view(0, block * j.ranks()), n, t);
        },
        [](pages& in, pages& out, std::uint64_t n, element_type t, bool in_place, auto& j) {
            fill(t, out.data(), n * j.ranks(), [](std::uint64_t) { return 5; });
            fill(t, in_place ? out.data() + j.rank() * n * size_of(t) : in.data(), n,
                 [&](std::uint64_t i) { return number(j.rank(), i); });
        },
        [](pages&, pages& out, std::uint64_t n, element_type t, reduce_op, bool, auto& j) {
            return wrong(t, out.data(), n * j.ranks(),
                         [&](std::uint64_t i) { return number(static_cast<std::uint32_t>(i / n), i % n); });
        });
}
