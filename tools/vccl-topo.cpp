/// \file
/// vccl-topo: the lanes that each port policy picks for each GPU, and why; of this machine, of a file, of a regular cluster.
///
///     vccl-topo                                  vccl-topo --shape 2x8x2x8 --gpu A.gpu3 --stripes 2
///     vccl-topo --file cluster.topo              vccl-topo --hwloc dgx.xml --print

#include "topo_table.hpp"

#include <vccl/model/shapes.hpp>
#include <vccl/model/topology_hwloc.hpp>
#include <vccl/model/topology_print.hpp>
#include <vccl/model/topology_text.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

namespace {

using namespace vccl;

int complain(const std::string& what) {
    std::fprintf(stderr, "vccl-topo: %s\n", what.c_str());
    return 1;
}

struct choice {
    std::string file, xml, shape, gpu;
    unsigned channel{}, stripes{1};
    bool print{};
};

/// The topology that was asked for, or none and a sentence that says why.
result<topology> load(const choice& o, std::string& why) {
    if (!o.shape.empty()) {
        cluster_shape s;
        char rest = 0;
        if (std::sscanf(o.shape.c_str(), "%ux%ux%ux%u%c", &s.hosts, &s.nics_per_host, &s.ports_per_nic, &s.gpus_per_host,
                        &rest) != 4 ||
            s.hosts == 0 || s.nics_per_host == 0 || s.ports_per_nic == 0 || s.gpus_per_host == 0 || s.hosts > 64 ||
            s.nics_per_host > 64 || s.ports_per_nic > 8 || s.gpus_per_host > 64) {
            why = "--shape wants HOSTSxNICSxPORTSxGPUS, such as 2x8x2x8 (at most 64, 64, 8 and 64), not '" + o.shape + "'";
            return errc::parse_error;
        }
        return make_cluster(s);
    }
    if (!o.file.empty()) {
        std::ifstream in(o.file);
        if (o.file != "-" && !in) {
            why = "cannot read " + o.file;
            return errc::io_error;
        }
        std::istream& from = o.file == "-" ? std::cin : in;
        const std::string text(std::istreambuf_iterator<char>(from), {});
        topology_fault fault;
        auto t = parse_topology(text, &fault);
        if (!t) why = o.file + ": " + describe(fault);
        return t;
    }
    char host[64] = "host";
    (void)::gethostname(host, sizeof host - 1);
    auto t = topology_from_hwloc(host, o.xml.empty() ? nullptr : o.xml.c_str());
    if (!t) why = (o.xml.empty() ? "this machine: " : o.xml + ": ") + describe(t.error());
    return t;
}

}  // namespace

int main(int argc, char** argv) {
    choice o;
    CLI::App app{"The lanes that each port policy picks for each GPU, and why."};
    auto* source = app.add_option_group("source", "this machine, unless one of these is given");
    source->add_option("--file", o.file, "a topology as text; - for standard input");
    source->add_option("--hwloc", o.xml, "a machine as hwloc's XML: lstopo machine.xml");
    source->add_option("--shape", o.shape, "a regular cluster: HOSTSxNICSxPORTSxGPUS, each per the one before");
    source->require_option(0, 1);
    app.add_option("--gpu", o.gpu, "only this GPU");
    app.add_option("--channel", o.channel, "the channel's number: channel_parity looks at it");
    app.add_option("--stripes", o.stripes, "show the stripes of a striped channel, too")->check(CLI::Range(1u, max_stripes));
    app.add_flag("--print", o.print, "print the topology as text instead, to be edited and read back");
    CLI11_PARSE(app, argc, argv);

    std::string why;
    const auto t = load(o, why);
    if (!t) return complain(why);
    if (const status s = validate(*t); !s) return complain(describe(s));
    if (o.print) {
        std::fputs(print_topology(*t).c_str(), stdout);
        return 0;
    }
    if (t->gpus.empty()) return complain("no GPU is in it; where a channel begins is then a port of your choice");
    bool any = false;
    for (std::uint16_t g = 0; g < t->gpus.size(); ++g) {
        if (!o.gpu.empty() && t->gpus[g].name.view() != o.gpu) continue;
        std::printf("%s%s", any ? "\n" : "", vccl_topo::table_of(*t, gpu_id{g}, channel_id{o.channel}, o.stripes).c_str());
        any = true;
    }
    if (any) return 0;
    std::string names;
    for (const auto& g : t->gpus) names += " " + std::string(g.name.view());
    return complain("there is no GPU '" + o.gpu + "'; there are:" + names);
}
