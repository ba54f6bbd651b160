/// \file
/// vccl-fabric: looks at a running software fabric and breaks it, from another terminal.
///
///     vccl-fabric status                    vccl-fabric loss A.nic0.p0 5%
///     vccl-fabric down A.nic0.p0            vccl-fabric flap A.nic0.p0 5ms 5ms 10x

#include <vccl/base/status_text.hpp>
#include <vccl/verbs/soft.hpp>

#include <CLI/CLI.hpp>

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
  clear TARGET                     all faults but the links)";

int complain(const std::string& what) {
    std::fprintf(stderr, "vccl-fabric: %s\n", what.c_str());
    return 1;
}

/// "1.50 GB/s"
std::string rate_text(double bytes_per_second) {
    char out[32];
    if (bytes_per_second >= 1e9)
        std::snprintf(out, sizeof out, "%.2f GB/s", bytes_per_second * 1e-9);
    else if (bytes_per_second >= 1e6)
        std::snprintf(out, sizeof out, "%.1f MB/s", bytes_per_second * 1e-6);
    else
        std::snprintf(out, sizeof out, "%.1f kB/s", bytes_per_second * 1e-3);
    return out;
}

std::string faults_text(std::uint32_t faults) {
    using namespace verbs::soft_detail;
    static constexpr struct {
        std::uint32_t bit;
        const char* name;
    } names[] = {{fault_loss, "loss"},         {fault_duplicate, "dup"},     {fault_reorder, "reorder"},
                 {fault_delay, "delay"},       {fault_hang, "hang"},         {fault_drop_acks, "drop-acks"},
                 {fault_no_event, "no-event"}, {fault_flush, "fail-flush"},  {fault_partial, "partial"},
                 {fault_error_once, "error"},  {fault_active_twice, "twice"}};
    std::string out;
    for (const auto& n : names)
        if ((faults & n.bit) != 0) out.append(out.empty() ? "" : ",").append(n.name);
    return out.empty() ? "-" : out;
}

/// One line a port; with the rates since `before` when there is one.
void print(const std::vector<verbs::soft_port_status>& rows, const std::vector<verbs::soft_port_status>* before, double seconds) {
    std::printf("%-14s %4s  %-12s %-10s %12s %12s %9s %5s  %s\n", "PORT", "RAIL", "STATE", "LIMIT", before ? "OUT" : "OUT MB",
                before ? "IN" : "IN MB", "DROPPED", "DOWNS", "FAULTS");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& p = rows[i];
        const char* state = !p.up ? "down" : !p.cable ? "no cable" : !p.switch_up ? "switch down" : "active";
        const auto flow = [&](std::uint64_t now, std::uint64_t then) {
            if (before) return rate_text(static_cast<double>(now - then) / seconds);
            char out[32];
            std::snprintf(out, sizeof out, "%.1f", static_cast<double>(now) * 1e-6);
            return std::string(out);
        };
        std::printf("%-14.*s %4u  %-12s %-10s %12s %12s %9llu %5u  %s\n", static_cast<int>(p.name.view().size()),
                    p.name.view().data(), p.rail.value, state,
                    p.bytes_per_second ? rate_text(static_cast<double>(p.bytes_per_second)).c_str() : "-",
                    flow(p.bytes_out, before ? (*before)[i].bytes_out : 0).c_str(),
                    flow(p.bytes_in, before ? (*before)[i].bytes_in : 0).c_str(), static_cast<unsigned long long>(p.dropped),
                    p.downs, faults_text(p.faults).c_str());
    }
    std::fflush(stdout);
}

void pause_for(nanoseconds t) {
    const timespec wanted{static_cast<time_t>(t.count / 1'000'000'000), static_cast<long>(t.count % 1'000'000'000)};
    ::nanosleep(&wanted, nullptr);
}

void watch(const soft_fabric& fabric, double interval, unsigned count) {
    auto before = fabric.status();
    for (unsigned i = 0; count == 0 || i < count; ++i) {
        const auto start = fabric.now();
        pause_for({static_cast<std::int64_t>(interval * 1e9)});
        const auto rows = fabric.status();
        print(rows, &before, static_cast<double>((fabric.now() - start).count) * 1e-9);
        before = rows;
    }
}

/// What is wrong with a command, and with which of its words.
std::string explain(status s, const std::vector<std::string>& command, const soft_fabric& fabric) {
    const std::string word = s.detail < command.size() ? "'" + command[s.detail] + "'" : "the end";
    if (s.code == errc::not_found) {
        std::string known;
        for (const auto& p : fabric.shape().ports) known.append(" ").append(p.name.view());
        return "nothing is called " + word + "; ports:" + known;
    }
    if (s.code == errc::parse_error && s.detail == 0) return word + " is no command; see vccl-fabric --help";
    if (s.code == errc::parse_error && s.detail >= command.size())
        return "'" + command[0] + "' needs more words; see vccl-fabric --help";
    if (s.code == errc::parse_error) return "cannot make sense of " + word + " or of what follows it; see vccl-fabric --help";
    return std::string(text(s.code));
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
        return complain("cannot attach to '" + name + "': " + std::string(text(s.code)));
    }

    if (command[0] == "status" || command[0] == "watch") {
        if (command.size() != 1) return complain("'" + command[0] + "' takes no further words");
        if (command[0] == "status")
            print(fabric->status(), nullptr, 0);
        else
            watch(*fabric, interval, count);
        return 0;
    }
    std::string line;
    for (const auto& w : command) line.append(line.empty() ? "" : " ").append(w);
    if (const status s = fabric->command(line); !s) return complain(explain(s, command, *fabric));
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
    app.add_option("command", command, "list, status, watch, or a fault command")->required();
    CLI11_PARSE(app, argc, argv);
    return run(fabric, command, interval, count);
}
