#pragma once
// Role A: reads, hashes and sends; tells B at the end what was sent.
#include "conveyor.hpp"
#include "digest.hpp"
#include "session.hpp"
#include "summary.hpp"

#include <vccl/telemetry/timeline_trace.hpp>

namespace p2p {

template <class Fabric>
judgement send_role(const options& o, reporter& out, rendezvous& peer) {
    using endpoint = sender<typename Fabric::backend>;
    source from(o.file, o.size);
    const plan p{from.size(), o.chunk};
    p.check();
    fields hello;
    hello.set("size", p.size);
    hello.set("chunk", p.chunk);
    hello.set("name", from.name());
    hello.set("boot", boot_id());
    peer.send(note::hello, hello.encode());
    const fields ready(peer.receive(note::ready));
    Fabric fabric(o, 'A', ready.text("fabric"));

    vccl::host_context<typename Fabric::backend> context(fabric.verbs(), fabric.shape());
    chunk_ring ring(context, p);
    vccl::timeline line(reporter::now());
    endpoint tx(context, fabric.primary(), vccl::channel_id{0}, session<endpoint>::settings(o, p, peer), {},
                handler{witness(p.chunks()), vccl::counters{}, {&line}});
    session<endpoint> s(o, out, 'A', peer);
    s.connect(tx);
    s.name_lanes(line);
    s.attend(tx);
    s.say("sends " + size_text(static_cast<double>(p.size)) + " (" + from.name() + ") to B over " + s.lanes_text());

    sha256 whole;
    std::vector<std::uint64_t> checks(p.chunks());
    conveyor reading([&](std::uint64_t k) {
        const auto bytes = ring.bytes(k, p.bytes(k));
        from.read(bytes);
        whole.add(bytes);
        checks[k] = chunk_check(bytes);
    });
    idler rest;
    for (std::uint64_t sent = 0; tx.acknowledged().value < p.chunks();) {
        const std::uint64_t acknowledged = tx.acknowledged().value;
        reading.give(std::min(p.chunks(), acknowledged + window));
        const std::uint64_t prepared = reading.done();
        while (sent < prepared) {
            const auto r = tx.send(ring.view(sent, p.bytes(sent)));
            if (!r && r.error().code == vccl::errc::would_block) break;
            if (!r) throw failure("cannot send chunk " + std::to_string(sent), r.error());
            ++sent;
        }
        rest.after(tx.progress());
        s.attend(tx);
        if (peer.readable()) (void)peer.receive(note::refusal, answer_time);
    }
    const vccl::status closed = tx.close(answer_time);
    s.attend(tx);
    if (!closed) throw failure("cannot close the channel", closed);

    const auto& counted = tx.handler().template get<vccl::counters>();
    fields summary;
    summary.set("sha256", whole.hex());
    summary.set("replayed", counted.replayed);
    summary.set("already_delivered", counted.already_delivered);
    std::string faults;
    for (const fault& f : faults_in(tx.handler().template get<witness>().events))
        faults += std::to_string(f.lane) + " " + std::to_string(f.at) + " ";
    summary.set("faults", faults);
    peer.send(note::summary, summary.encode());
    peer.send(note::summary, vccl::trace_events(line, "A sends", 1));
    for (std::size_t at = 0; at < checks.size(); at += checks_at_once)
        peer.send(note::checks, join(std::span(checks).subspan(at, std::min(checks_at_once, checks.size() - at))));
    const fields verdict(peer.receive(note::verdict, answer_time));
    judgement j;
    j.counted = true;
    for (const judgement::count& c : judgement::counts) j.*c.value = verdict.number(c.name);
    j.reason = verdict.text("reason");
    return j;
}

}  // namespace p2p
