#pragma once
// Role B: receives, writes, checks; runs the fault script; judges, and draws the picture.
#include "background_command.hpp"
#include "conveyor.hpp"
#include "digest.hpp"
#include "session.hpp"
#include "summary.hpp"

#include <vccl/telemetry/timeline_svg.hpp>
#include <vccl/telemetry/timeline_trace.hpp>

#include <filesystem>

namespace p2p {

/// Carries the steps out as their share of the bytes arrives. One that was begun is carried to its end whatever happens:
/// no port stays down.
template <class Fabric>
class script_runner {
public:
    script_runner(const std::string& text, Fabric& fabric, reporter& out, vccl::timeline& line)
        : steps_(parse_script(text)), fabric_(fabric), out_(out), line_(line) {}
    script_runner(const script_runner&) = delete;
    ~script_runner() {
        try {
            if (next_ != 0) reached(1);
        } catch (const user_error& e) { out_.event('*', e.what()); }
    }

    /// Throws user_error if a step cannot be carried out here: before anything is sent, not in the middle of it.
    static void check(const std::string& text, const Fabric& fabric) {
        for (const script_step& step : parse_script(text))
            if (!is_shell(step.command)) fabric.check(step.command);
    }

    /// Effects: does what is left, and waits for it.
    void finish() {
        reached(1);
        background_.start({});
    }
    void reached(double share) {
        background_.attend();
        while (next_ < steps_.size() && steps_[next_].share <= share) {
            const std::string& command = steps_[next_++].command;
            const vccl::nanoseconds now = reporter::now();
            out_.event('*', now, command);
            line_.add_mark({now, vccl::mark_kind::fault, vccl::lane_id{0}, std::string_view(command)});
            background_.start(is_shell(command) ? std::vector<std::string>{"sh", "-c", command.substr(4)}
                                                : fabric_.command(command));
        }
    }

private:
    static bool is_shell(const std::string& command) { return command.starts_with("run "); }

    std::vector<script_step> steps_;
    std::size_t next_{};
    Fabric& fabric_;
    reporter& out_;
    vccl::timeline& line_;
    background_command background_;
};

/// Tells the reporter how far it is, twenty times a second, with the rate of the last moments.
class progress_meter {
public:
    progress_meter(reporter& out, const plan& p) : out_(out), plan_(p), last_(reporter::now()) {}
    void at(std::uint64_t chunks) {
        const vccl::nanoseconds now = reporter::now();
        if (now - last_ < vccl::nanoseconds{50'000'000} && chunks != plan_.chunks()) return;
        const std::uint64_t bytes = std::min(plan_.size, chunks * plan_.chunk);
        const double rate =
            static_cast<double>(bytes - bytes_) * 1e9 / static_cast<double>(std::max<std::int64_t>(1, (now - last_).count));
        if (chunks != plan_.chunks() || bytes_ == 0) smooth_ = bytes_ == 0 ? rate : 0.6 * smooth_ + 0.4 * rate;
        last_ = now;
        bytes_ = bytes;
        out_.progress(bytes, plan_.size, smooth_);
    }

private:
    reporter& out_;
    const plan& plan_;
    vccl::nanoseconds last_;
    std::uint64_t bytes_{};
    double smooth_{};
};

/// The picture and the trace. Tried before the transfer, so that a wrong folder is found out before it.
class result_files {
public:
    explicit result_files(const std::string& folder) : picture_(folder + "/p2p.svg"), trace_(folder + "/p2p-trace.json") {
        std::error_code failed;
        std::filesystem::create_directories(folder, failed);
        try {
            for (const std::string& path : {picture_, trace_}) sink(path, 0);  // never finished: nothing stays
        } catch (const user_error& e) { throw user_error(std::string(e.what()) + "; choose another folder with --results"); }
    }

    /// Returns: where they are, for a person.
    std::string write(const plan& p, const judgement& j, const vccl::timeline& line, const std::string& trace_of_a) {
        const auto count = [](std::uint64_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); };
        std::string subtitle = count(j.failovers, "failover");
        if (j.gap_us != 0) subtitle += " (gap " + vccl::duration_text({static_cast<std::int64_t>(j.gap_us) * 1000}) + ")";
        subtitle += ", " + count(j.failbacks, "fail-back") + ", " + count(j.replayed, "chunk") + " replayed; lost " +
                    std::to_string(j.lost) + ", duplicated " + std::to_string(j.duplicated) + ", corrupted " +
                    std::to_string(j.corrupted);
        const auto keep = [](const std::string& path, const std::string& text) {
            sink to(path, 0);
            to.write(std::as_bytes(std::span(text)), 0);
            to.finish();
        };
        keep(picture_,
             vccl::timeline_svg(line, {.title = size_text(static_cast<double>(p.size)) + " from A to B", .subtitle = subtitle}));
        keep(trace_, vccl::trace_document({trace_of_a, vccl::trace_events(line, "B receives", 2)}));
        return "picture: " + picture_ + "   trace for ui.perfetto.dev: " + trace_;
    }

private:
    std::string picture_, trace_;
};

template <class Fabric>
judgement receive_role(const options& o, reporter& out, rendezvous& peer) {
    using endpoint = receiver<typename Fabric::backend>;
    const fields hello(peer.receive(note::hello));
    const plan p{hello.number("size"), hello.number("chunk")};
    p.check();
    sink to(o.output, p.size);
    result_files results(o.results);
    Fabric fabric(o, 'B', o.fabric);
    script_runner<Fabric>::check(o.script, fabric);
    fields ready;
    ready.set("fabric", fabric.name());
    peer.send(note::ready, ready.encode());

    vccl::host_context<typename Fabric::backend> context(fabric.verbs(), fabric.shape());
    chunk_ring ring(context, p);
    vccl::timeline line(reporter::now());
    endpoint rx(context, fabric.primary(), vccl::channel_id{0}, session<endpoint>::settings(o, p, peer), {},
                handler{witness(p.chunks()), vccl::counters{}, {&line}});
    session<endpoint> s(o, out, 'B', peer);
    s.connect(rx);
    s.name_lanes(line);
    s.attend(rx);
    if (o.script.empty()) out.event('*', fabric.by_hand());

    sha256 whole;
    std::vector<std::uint64_t> checks(p.chunks());
    conveyor writing([&](std::uint64_t k) {
        const auto bytes = ring.bytes(k, p.bytes(k));
        checks[k] = chunk_check(bytes);
        whole.add(bytes);
        to.write(bytes, p.offset(k));
    });
    idler rest;
    progress_meter meter(out, p);
    {
        script_runner<Fabric> script(o.script, fabric, out, line);
        std::uint64_t posted = 0, written = 0;
        while (written < p.chunks()) {
            written = writing.done();
            while (posted < std::min(p.chunks(), written + window)) {
                const auto r = rx.recv(ring.view(posted, p.bytes(posted)));
                if (!r && r.error().code == vccl::errc::would_block) break;
                if (!r) throw failure("cannot receive chunk " + std::to_string(posted), r.error());
                ++posted;
            }
            rest.after(rx.progress());
            const std::uint64_t received = rx.received().value;
            writing.give(received);
            s.attend(rx);
            script.reached(static_cast<double>(received) / static_cast<double>(p.chunks()));
            meter.at(received);
            if (received < p.chunks() && peer.readable()) (void)peer.receive(note::refusal, answer_time);
        }
        script.finish();
    }
    const vccl::status closed = rx.wait_closed(answer_time);
    s.attend(rx);
    if (!closed) throw failure("the channel did not close in order", closed);

    const fields summary(peer.receive(note::summary, answer_time));
    const std::string trace_of_a = peer.receive(note::summary, answer_time);
    std::vector<std::uint64_t> sent;
    while (sent.size() < p.chunks()) {
        const auto more = split(peer.receive(note::checks, answer_time));
        if (more.empty()) throw user_error("the other end's message lacks the checks of its chunks");
        sent.insert(sent.end(), more.begin(), more.end());
    }
    const auto& saw = rx.handler().template get<witness>();
    const auto& counted = rx.handler().template get<vccl::counters>();
    judgement j;
    j.counted = true;
    j.bytes = counted.bytes;
    j.chunks = saw.distinct;
    j.failovers = counted.failovers;
    j.failbacks = counted.failbacks;
    j.replayed = summary.number("replayed");
    j.already_delivered = summary.number("already_delivered");
    j.lost = p.chunks() - saw.distinct;
    j.duplicated = saw.duplicated;
    for (std::uint64_t k = 0; k < p.chunks(); ++k) j.corrupted += sent[k] != checks[k] ? 1U : 0U;
    const std::string digest = whole.hex();
    if (digest != summary.text("sha256")) j.reason = "SHA-256 differs: A sent " + summary.text("sha256") + ", B has " + digest;
    std::vector<fault> faults;
    if (hello.text("boot") == boot_id()) {
        std::istringstream in(summary.text("faults"));
        for (fault f; in >> f.lane >> f.at;) faults.push_back(f);
    }
    j.gap_us = longest_gap_us(saw.events, faults);
    if (j.ok()) to.finish();

    fields verdict;
    for (const judgement::count& c : judgement::counts) verdict.set(c.name, j.*c.value);
    verdict.set("reason", j.reason);
    peer.send(note::verdict, verdict.encode());
    if (j.ok()) s.say("SHA-256 " + digest + ": the same at both ends");
    s.say(results.write(p, j, line, trace_of_a));
    return j;
}

}  // namespace p2p
