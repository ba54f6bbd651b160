#pragma once
// The command line that the collective examples share.
#include "../p2p/script.hpp"

#include <vccl/verbs/soft/options.hpp>

#include <CLI/CLI.hpp>

#include <string>

namespace coll_example {

using namespace vccl;

using p2p::user_error;

/// A mistake in the command line that shows only when more is known: the program ends as with any other one.
struct wrong_command : user_error {
    using user_error::user_error;
};

/// Says why the program ends. Returns: the exit status.
inline int complain(const char* program, const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", program, e.what());
    return dynamic_cast<const wrong_command*>(&e) ? 2 : 1;
}

/// Which options there are besides those that all have: only such as have an effect.
struct choices {
    bool sizes{};      ///< sizes, elements, checks and a picture; else the rounds have one size
    bool operation{};  ///< something is combined
    bool rings{};      ///< it runs over rings
};

struct options {
    std::uint32_t ranks{4}, hosts{2};   ///< of a job that this program starts itself
    std::uint64_t least{8}, most{4U << 20};
    unsigned factor{4};
    unsigned iterations{5}, warmup{1};
    bool every{};                       ///< check the result of every iteration
    std::string place{"both"};
    std::string type{"float32"}, op{"sum"};
    unsigned rings{1};
    std::uint32_t piece{256U << 10};
    std::uint64_t rate{0};
    std::string script;
    bool ibv{};                         ///< real verbs, not the software RNIC
    std::string devices;                ///< of ibv: prefixes, one for each host that this machine plays
    std::string fabric{"coll"};
    std::string results{"out"};
    double patience{60};
};

/// What all ranks must have been given alike, as words of a command line.
inline std::string common_words(const options& o) {
    std::string words = "-n " + std::to_string(o.iterations) + " --piece " + std::to_string(o.piece) + " -b " +
                        std::to_string(o.least) + " -e " + std::to_string(o.most) + " -f " + std::to_string(o.factor) + " -w " +
                        std::to_string(o.warmup) + " --place " + o.place + " -d " + o.type + " -o " + o.op + " --rings " +
                        std::to_string(o.rings);
    if (o.every) words += " --every";
    return words;
}

/// Options that make sense where there are sizes, elements and a picture.
inline void add_sizes(CLI::App& app, options& o, const choices& can) {
    app.add_option("-b,--min-bytes", o.least, "smallest size")->transform(CLI::AsSizeValue(false))->default_str("8");
    app.add_option("-e,--max-bytes", o.most, "largest size, up to 1GiB")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30))
        ->default_str("4MiB");
    app.add_option("-f,--factor", o.factor, "from one size to the next")->check(CLI::Range(2U, 1U << 20))->capture_default_str();
    app.add_option("-w,--warmup", o.warmup, "iterations before them")->check(CLI::Range(0U, 1000000U))->capture_default_str();
    app.add_flag("--every", o.every, "check the result of every iteration, not of one");
    app.add_option("--place", o.place, "out, in or both: out of place, in place")
        ->check(CLI::IsMember({"out", "in", "both"}))
        ->capture_default_str();
    app.add_option("-d,--type", o.type, "float32, float16, bfloat16, int32, int64")
        ->check(CLI::IsMember({"float32", "float16", "bfloat16", "int32", "int64"}))
        ->capture_default_str();
    if (can.operation)
        app.add_option("-o,--op", o.op, "sum, max, min")->check(CLI::IsMember({"sum", "max", "min"}))->capture_default_str();
    if (can.rings)
        app.add_option("--rings", o.rings, "rings, each entering a host at another NIC")
            ->check(CLI::Range(1U, 8U))
            ->capture_default_str();
    app.add_option("--results", o.results, "folder for the picture of rank 0's ring")->capture_default_str();
}

/// Returns: -1 to go on, or the exit status: 0 after --help, 2 after a mistake.
inline int parse_options(int count, char** arguments, options& o, const std::string& name, const std::string& what,
                         const choices& can) {
    CLI::App app(
        what +
            "\n\nWithout a launcher it starts its ranks itself, as processes of this host; under torchrun, mpirun or srun it is "
            "one of\n"
            "theirs (set VCCL_SECRET). The ranks stand on --hosts hosts of a software fabric, a GPU, a NIC and two ports each; "
            "with\n"
            "--backend ibv, on this machine's RDMA devices.",
        name);
    app.footer("Exit status: 0 if every element was right, 1 if not, 2 for a wrong command line.\n\n  " + name +
               (can.sizes ? " -b 8 -e 64MiB" : " --ranks 4 -n 20") + "\n  " + name + (can.sizes ? " -b 64MiB -e 64MiB" : "") +
               " -n 10 --rate 400MB/s --fail 'at=30% down A.nic0.p0; at=60% up A.nic0.p0'\n"
               "  VCCL_SECRET=$(openssl rand -hex 32) mpirun -x VCCL_SECRET -n 4 " +
               name + "\n  " + name +
               " --backend ibv --devices mlx5_ --fail 'at=40% down mlx5_0:1; at=70% up mlx5_0:1'\n"
               "  VCCL_SECRET=$(openssl rand -hex 32) torchrun --no-python --nproc-per-node 4 " +
               name);
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    std::string rate, backend{"soft"};
    app.add_option("--backend", backend, "soft: the software RNIC; ibv: real verbs (rdma-core)")
        ->check(CLI::IsMember({"soft", "ibv"}))
        ->capture_default_str();
    app.add_option("--devices", o.devices,
                   "ibv: use only devices whose name begins with this; a,b: as two hosts of this machine");
    app.add_option("-r,--ranks", o.ranks, "ranks, if no launcher says")
        ->check(CLI::Range(1U, verbs::soft_options::most_processes))
        ->capture_default_str();
    app.add_option("--hosts", o.hosts, "hosts over which they are spread")
        ->check(CLI::Range(1U, verbs::soft_options::most_processes))
        ->capture_default_str();
    if (can.sizes) add_sizes(app, o, can);
    app.add_option("-n,--iterations", o.iterations, can.sizes ? "timed iterations of each size" : "timed rounds")
        ->check(CLI::Range(1U, 1000000U))
        ->capture_default_str();
    app.add_option("--piece", o.piece, "bytes of a chunk at most, a multiple of 64")
        ->transform(CLI::AsSizeValue(false))
        ->default_str("256KiB");
    app.add_option("--rate", rate, "rate of each software port, such as 400MB/s; 0: unlimited")->default_str("0");
    app.add_option("--fail", o.script,
                   "fault script, STEP; STEP; …, each at=PERCENT% COMMAND; percent of all " +
                       std::string(can.sizes ? "bytes" : "rounds") +
                       "; on soft, a command of vccl-fabric; "
                       "on ibv, down PORT and up PORT (ip link); on both, run SHELL-COMMAND");
    app.add_option("--fabric", o.fabric, "name of the software fabric; break it with vccl-fabric -f NAME")->capture_default_str();
    app.add_option("--patience", o.patience, "seconds that ranks wait for each other")
        ->check(CLI::Range(0.1, 86400.0))
        ->capture_default_str();
    try {
        app.parse(count, arguments);
        o.ibv = backend == "ibv";
        for (const char* soft_only : {"--hosts", "--rate", "--fabric"})
            if (o.ibv && app.count(soft_only) != 0)
                throw CLI::ValidationError(soft_only, "is for --backend soft; with ibv it would have no effect");
        if (!o.ibv && !o.devices.empty())
            throw CLI::ValidationError("--devices", "needs --backend ibv; the software RNIC has no devices to choose from");
        if (o.least > o.most) throw CLI::ValidationError("--min-bytes", "is larger than --max-bytes");
        if (!rate.empty() && !p2p::parse_rate(rate, o.rate))
            throw CLI::ValidationError("--rate", "\"" + rate + "\" is not a rate; write for example 400MB/s or 2GB/s");
        if (o.piece == 0 || o.piece % 64 != 0) throw CLI::ValidationError("--piece", "is not a multiple of 64");
        if (o.script == "none") o.script.clear();
        (void)p2p::parse_script(o.script);
    } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; } catch (const user_error& e) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
        return 2;
    }
    return -1;
}

}  // namespace coll_example
