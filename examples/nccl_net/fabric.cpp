// nccl_net_fabric NAME HOSTS [NICS [PORTS [BYTES-PER-SECOND]]]: makes a software fabric for ranks to attach to, and carries out the
// fault commands that it reads, one a line, until its input ends. Says "ready" when ranks may start.
#include <vccl/base/status_text.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <string>

namespace {

/// Returns: the argument as a number, or `standard` where there is none; 0 where it is no number.
std::uint64_t number(int argc, char** argv, int at, std::uint64_t standard) {
    if (at >= argc) return standard;
    const std::string_view text = argv[at];
    std::uint64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc{} && end == text.data() + text.size() ? n : 0;
}

int complain(const std::string& what) {
    std::fprintf(stderr, "nccl_net_fabric: %s\n", what.c_str());
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3 || argc > 6) return complain("usage: nccl_net_fabric NAME HOSTS [NICS [PORTS [BYTES-PER-SECOND]]]");
    vccl::cluster_shape shape;
    const std::uint64_t hosts = number(argc, argv, 2, 0), nics = number(argc, argv, 3, 1), ports = number(argc, argv, 4, 2);
    if (hosts == 0 || hosts > 64 || nics == 0 || nics > 16 || ports == 0 || ports > 8)
        return complain("1 to 64 hosts, 1 to 16 NICs each, 1 to 8 ports a NIC");
    shape.hosts = static_cast<unsigned>(hosts);
    shape.nics_per_host = static_cast<unsigned>(nics);
    shape.ports_per_nic = static_cast<unsigned>(ports);
    shape.gpus_per_host = 1;
    shape.bytes_per_second = number(argc, argv, 5, 0);

    vccl::verbs::soft_options options;
    options.processes = 64;
    auto fabric = vccl::verbs::soft_fabric::create_shared(argv[1], vccl::make_cluster(shape), options);
    if (!fabric) return complain("cannot make the fabric \"" + std::string(argv[1]) + "\": " + vccl::describe(fabric.error()));
    std::puts("ready");
    std::fflush(stdout);

    for (std::string line; std::getline(std::cin, line);) {
        if (line.empty()) continue;
        const vccl::status s = fabric->command(line);
        std::printf("%s: %s\n", line.c_str(), s ? "done" : vccl::describe(s).c_str());
        std::fflush(stdout);
    }
}
