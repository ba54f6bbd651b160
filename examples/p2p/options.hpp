#pragma once
// The command line.
#include "rendezvous.hpp"
#include "script.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace p2p {

enum class role : char { both = '*', a = 'A', b = 'B' };
enum class backend_kind : std::uint8_t { soft, ibv };

struct options {
    p2p::role role{p2p::role::both};
    backend_kind backend{backend_kind::soft};
    std::string listen, connect;
    std::string file, output, results{"out"};
    std::uint64_t size{256U << 20};
    std::uint64_t chunk{1U << 20};
    std::uint64_t rate{400'000'000};  ///< bytes a second of each port of the software fabric; 0: as fast as it can
    std::string script{"at=40% down A.nic0.p0; at=70% up A.nic0.p0"};
    bool script_given{};
    std::string fabric{"p2p"};
    std::string devices, port;
    unsigned lanes{8};
    unsigned first_lane{0};
    double give_up{30};
    double patience{30};  ///< for the other role to appear, and again for it to be ready
    bool started{};       ///< by the program itself: report in records
    std::vector<std::string> words;  ///< the command line, for the children
};

inline vccl::nanoseconds seconds(double s) { return {static_cast<std::int64_t>(s * 1e9)}; }

/// Returns: -1 to go on, or the exit status: 0 after --help, 2 after a mistake.
inline int parse_options(int count, char** arguments, options& o) {
    CLI::App app(
        "Moves a file from A to B over RDMA while ports die and come back; nothing is lost, duplicated or corrupted.\n\n"
        "Without --role it plays both roles, in two processes on this host. With --role, start B in one terminal and A in\n"
        "another. A and B have two dual-port NICs each; on --backend soft they are A.nic0.p0 … B.nic1.p1, and\n"
        "\"vccl-fabric down A.nic0.p0\" in a further terminal takes a port down by hand.",
        "p2p");
    app.footer(
        "Exit status: 0 if every byte arrived exactly once and unchanged, 1 if not, 2 for a wrong command line.\n\n"
        "  p2p                                                         256 MiB, a port dies at 40 % and returns at 70 %\n"
        "  p2p --file movie.mkv --output copy.mkv --fail none --rate 50MB/s      break it by hand with vccl-fabric\n"
        "  p2p --role B --listen 127.0.0.1:7471      and      p2p --role A --connect 127.0.0.1:7471 --file movie.mkv\n"
        "  p2p --backend ibv --devices mlx5_ --fail 'at=40% down mlx5_0:1; at=70% up mlx5_0:1'");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    std::string role, backend{"soft"}, rate;
    app.add_option("--backend", backend, "soft: the software RNIC; ibv: real verbs (rdma-core)")
        ->check(CLI::IsMember({"soft", "ibv"}))
        ->capture_default_str();
    app.add_option("--file", o.file, "what A sends; by default generated data");
    app.add_option("--size", o.size, "bytes of generated data, such as 256MiB")
        ->transform(CLI::AsSizeValue(false))
        ->default_str("256MiB");
    app.add_option("--output", o.output, "where B writes the file; by default it is checked and dropped");
    app.add_option("--results", o.results, "folder for the picture (p2p.svg) and the Perfetto trace (p2p-trace.json)")
        ->capture_default_str();
    app.add_option("--fail", o.script,
                   "fault script, STEP; STEP; …, each at=PERCENT% COMMAND; none: break it by hand. On soft, any\ncommand of "
                   "vccl-fabric; on ibv, down PORT and up PORT (ip link); on both, run SHELL-COMMAND")
        ->default_str("'" + o.script + "' on soft, none on ibv");
    app.add_option("--rate", rate, "rate of each software port, such as 400MB/s; 0: unlimited")->default_str("400MB/s");
    app.add_option("--chunk", o.chunk, "bytes of a chunk, 1 to 64MiB")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(1U, 64U << 20))
        ->default_str("1MiB");
    app.add_option("--role", role, "play only this role: A sends, B receives")->check(CLI::IsMember({"A", "B"}));
    auto* listen = app.add_option("--listen", o.listen, "with --role: wait for the other role at HOST:PORT");
    app.add_option("--connect", o.connect, "with --role: find the other role at HOST:PORT")->excludes(listen);
    app.add_option("--fabric", o.fabric, "name of the software fabric")->capture_default_str();
    app.add_option("--devices", o.devices, "ibv: use only devices whose name begins with this; for both roles on one host: A,B");
    app.add_option("--port", o.port, "with --role: its primary port; by default the first");
    app.add_option("--lanes", o.lanes, "at most so many lanes, the primary included")
        ->check(CLI::Range(1U, 8U))
        ->capture_default_str();
    app.add_option("--first-lane", o.first_lane, "prefer this lane: 1 sends everything over the first backup")
        ->check(CLI::Range(0U, 7U));
    app.add_option("--give-up", o.give_up, "seconds without any lane after which the transfer fails")
        ->check(CLI::Range(0.1, 86400.0))
        ->capture_default_str();
    app.add_option("--patience", o.patience, "seconds to wait for the other role, and again for all until it is ready")
        ->check(CLI::Range(0.1, 86400.0))
        ->capture_default_str();
    app.add_flag("--started", o.started)->group("");
    try {
        app.parse(count, arguments);
        o.role = role.empty() ? p2p::role::both : static_cast<p2p::role>(role[0]);
        o.backend = backend == "ibv" ? backend_kind::ibv : backend_kind::soft;
        o.script_given = app.count("--fail") != 0;
        if (!o.script_given && o.backend == backend_kind::ibv) o.script.clear();
        if (o.script == "none") o.script.clear();
        if (o.role == p2p::role::both && (!o.listen.empty() || !o.connect.empty()))
            throw CLI::ValidationError("--listen and --connect", "need --role A or --role B");
        if (o.role == p2p::role::both && !o.port.empty())
            throw CLI::ValidationError("--port", "names a port of one role; it needs --role A or --role B");
        if (!o.listen.empty()) (void)parse_endpoint(o.listen);
        if (!o.connect.empty() && parse_endpoint(o.connect).port == "0") throw user_error("0 is no port to connect to");
        if (o.role != p2p::role::both && o.listen.empty() && o.connect.empty())
            throw CLI::ValidationError("--role", "needs --listen HOST:PORT or --connect HOST:PORT");
        for (const char* soft_only : {"--rate", "--fabric"})
            if (o.backend == backend_kind::ibv && app.count(soft_only) != 0)
                throw CLI::ValidationError(soft_only, "is for --backend soft; with ibv it would have no effect");
        if (o.backend == backend_kind::soft && !o.devices.empty())
            throw CLI::ValidationError("--devices", "needs --backend ibv; the software RNIC has no devices to choose from");
        if (!rate.empty() && !parse_rate(rate, o.rate))
            throw CLI::ValidationError("--rate", "\"" + rate + "\" is not a rate; write for example 400MB/s or 2GB/s");
        (void)parse_script(o.script);
    } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; } catch (const user_error& e) {
        std::fprintf(stderr, "p2p: %s\n", e.what());
        return 2;
    }
    for (int i = 1; i < count; ++i) o.words.emplace_back(arguments[i]);
    return -1;
}

}  // namespace p2p
