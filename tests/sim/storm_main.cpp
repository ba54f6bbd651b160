/// \file
/// sim_storm: many storms of two real endpoints on the software fabric; see program.hpp.

#include "program.hpp"
#include "storm_sim.hpp"

int main(int argc, char** argv) {
    vccl_sim::storm_sim sim;
    return vccl_sim::simulate(sim, "sim_storm", argc, argv);
}
