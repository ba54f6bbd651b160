/// \file
/// sim_core: many schedules of the two protocol cores. `sim_core --table FROM TO` prints which events met which states, and the
/// moves between states that were seen, as check_table.py reads them.

#include "core_sim.hpp"
#include "program.hpp"

using namespace vccl_sim;

namespace {

void print_cells(const coverage& c) {
    for (unsigned e = 0; e < 2; ++e) {
        std::printf("\n%-13s", end_names[e].data());
        for (auto s : state_names) std::printf("%11s", s.data());
        for (auto s : health_names) std::printf(" |%10s", s.data());
        std::printf("\n");
        for (unsigned k = 1; k < coverage::events; ++k) {
            if (!speaks(e, static_cast<told>(k))) continue;
            std::printf("%-13s", told_names[k].data());
            for (unsigned s = 0; s < 7; ++s)
                if (c.channel[e][s][k] != 0 || reachable(e, static_cast<channel_state>(s), static_cast<told>(k)))
                    std::printf("%11" PRIu64, c.channel[e][s][k]);
                else
                    std::printf("%11s", "-");
            for (unsigned s = 0; s < 5; ++s) std::printf(" |%10" PRIu64, c.lane[e][s][k]);
            std::printf("\n");
        }
    }
}

void print_moves(const coverage& c) {
    auto moves = [](const char* of, unsigned e, const auto& table, const auto& names) {
        for (std::size_t k = 1; k < coverage::events; ++k)
            for (std::size_t a = 0; a < names.size(); ++a)
                for (std::size_t b = 0; b < names.size(); ++b)
                    if (table[e][k][a][b] != 0)
                        std::printf("move %s %s %s %s %s\n", end_names[e].data(), of, names[a].data(), told_names[k].data(),
                                    names[b].data());
    };
    for (unsigned e = 0; e < 2; ++e) {
        moves("channel", e, c.channel_moves, state_names);
        moves("lane", e, c.lane_moves, health_names);
    }
}

}  // namespace

int main(int argc, char** argv) {
    core_sim sim;
    const bool table = argc == 4 && std::strcmp(argv[1], "--table") == 0;
    const int status = simulate(sim, "sim_core", table ? argc - 1 : argc, table ? argv + 1 : argv);
    if (table) {
        print_cells(sim.seen);
        print_moves(sim.seen);
    }
    return status;
}
