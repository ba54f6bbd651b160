/// \file
/// vccl-fabric: looks at a running software fabric and breaks it, from another terminal.
///
///     vccl-fabric status                    vccl-fabric loss A.nic0.p0 5%
///     vccl-fabric down A.nic0.p0            vccl-fabric flap A.nic0.p0 5ms 5ms 10x
///     vccl-fabric watch                     vccl-fabric watch --once -i 0.1

#include "fabric_watch.hpp"

#include <vccl/base/status_text.hpp>
#include <vccl/verbs/soft/command_text.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace vccl;
using namespace vccl::literals;
using verbs::soft_fabric;

constexpr const char* words = R"(Fault commands (TARGET: a port such as A.nic0.p0, a NIC, a host, or all):
  down | up TARGET                 the port, reported at its host (PORT_ERR, PORT_ACTIVE)
  cable-down | cable-up TARGET     its cable
  switch-down | switch-up railN    a switch; nobody is told
  loss | dup | reorder TARGET 5%   of the packets out of and into the port
  delay TARGET 100us               more latency
  rate TARGET 2GB/s                line rate; 0: unlimited
  flap TARGET 5ms 5ms 10x          down, up, ten times
  hang TARGET                      work stays without a completion
  drop-acks TARGET                 acknowledgements for it are lost, the data arrives
  partial TARGET 3                 only the first packets of each message arrive
  error TARGET                     the next work request fails, at this end only
  fail-flush TARGET                loopback reads fail
  no-event TARGET                  port events are lost;  twice TARGET: PORT_ACTIVE comes twice
  gid-change TARGET                the port gets another address
  on-down TARGET retry|op-error|flush|silent   what outstanding work sees when the port goes down
  clear TARGET                     all faults but the links

Exit status: 0 done, 1 not (no such fabric, no such target, …), 2 a wrong command line.)";

int wrong_command(const std::string& what) {
    std::fprintf(stderr, "vccl-fabric: %s; see vccl-fabric --help\n", what.c_str());
    return 2;
}
int complain(const std::string& what) {
    std::fprintf(stderr, "vccl-fabric: %s\n", what.c_str());
    return 1;
}

void pause_for(nanoseconds t) {
    const timespec wanted{static_cast<time_t>(t.count / 1'000'000'000), static_cast<long>(t.count % 1'000'000'000)};
    ::nanosleep(&wanted, nullptr);
}

volatile std::sig_atomic_t interrupted = 0;

/// Looks every `interval` seconds, `count` times (0: until stopped). On a terminal the view stays in its place, on a screen of
/// its own that Ctrl-C leaves; elsewhere one view follows the other.
void watch(const soft_fabric& fabric, const std::string& name, double interval, unsigned count) {
    const bool live = ::isatty(STDOUT_FILENO) == 1 && count != 1;
    struct sigaction stop {};
    stop.sa_handler = [](int) { interrupted = 1; };
    ::sigaction(SIGINT, &stop, nullptr);
    ::sigaction(SIGTERM, &stop, nullptr);
    vccl_fabric::watch_view view(name);
    view.look(fabric.status(), fabric.now());
    if (live) std::fputs("\x1b[?1049h\x1b[?25l", stdout);
    for (unsigned i = 0; (count == 0 || i < count) && !interrupted; ++i) {
        pause_for({static_cast<std::int64_t>(interval * 1e9)});
        view.look(fabric.status(), fabric.now());
        std::printf("%s%s%s", live ? "\x1b[H\x1b[J" : "", view.text().c_str(), live ? "Ctrl-C ends the watch\n" : "");
        std::fflush(stdout);
    }
    if (live) std::fputs("\x1b[?25h\x1b[?1049l", stdout);
}

int run(const std::string& wanted, const std::vector<std::string>& command, double interval, unsigned count) {
    std::string name = wanted;
    if (name.empty() || command[0] == "list") {
        const auto running = verbs::soft_detail::running_fabrics();
        if (command[0] == "list") {
            for (const auto& n : running) std::printf("%s\n", n.c_str());
            return 0;
        }
        if (running.empty()) return complain("no software fabric is running on this machine; start a program that creates one");
        if (running.size() > 1) {
            std::string all;
            for (const auto& n : running) all.append(" ").append(n);
            return complain("several fabrics are running, choose one with --fabric:" + all);
        }
        name = running.front();
    }
    auto fabric = soft_fabric::attach(name);
    if (!fabric) {
        const auto s = fabric.error();
        if (s.code == errc::not_found) return complain("no fabric is called '" + name + "'; see vccl-fabric list");
        if (s.code == errc::version_mismatch) return complain("fabric '" + name + "' was made by another version of vccl");
        if (s.code == errc::bad_blob) return complain("'" + name + "' is damaged or not a fabric");
        return complain("cannot attach to '" + name + "': " + describe(s));
    }

    if (command[0] == "status" || command[0] == "watch") {
        if (command.size() != 1) return wrong_command("'" + command[0] + "' takes no further words");
        if (command[0] == "status")
            std::fputs(vccl_fabric::status_text(fabric->status()).c_str(), stdout);
        else
            watch(*fabric, name, interval, count);
        return 0;
    }
    std::string line;
    for (const auto& w : command) line.append(line.empty() ? "" : " ").append(w);
    if (const status s = fabric->command(line); !s) {
        const std::string why = verbs::describe_command_fault(s, line, fabric->shape());
        return s.code == errc::parse_error ? wrong_command(why) : complain(why);
    }
    while (fabric->next_event_at() < nanoseconds::never()) pause_for(1_ms);  // a flap takes its time
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Looks at a running software fabric and breaks it."};
    app.footer(words);
    std::string fabric;
    std::vector<std::string> command;
    double interval = 1;
    unsigned count = 0;
    app.add_option("--fabric,-f", fabric, "Name of the fabric; default: the only running one");
    app.add_option("--interval,-i", interval, "watch: seconds between two looks")->check(CLI::Range(0.01, 3600.0));
    app.add_option("--count,-n", count, "watch: how many looks; 0: until stopped");
    app.add_flag_callback(
        "--once", [&] { count = 1; }, "watch: one look, \"interval\" after the start");
    app.add_option("command", command, "list, status, watch, or a fault command")->required();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; }
    const int ended = run(fabric, command, interval, count);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return complain("cannot write to standard output");
    return ended;
}
