#pragma once
/// \file
/// The executors of the two cores in the simulation, with the users' buffers: who may write which one, and what must lie in it.

#include "end_base.hpp"

namespace vccl_sim {

/// A replay log that can be told at run time that it cannot replay.
struct sim_log : rollback_fifo<ring> {
    static inline bool can_replay = true;
};

class sender_side : public end_base<sender_side, sender_end> {
public:
    using core_type = sender_core<sender_side, sim_log>;
    sender_side(common& c, const core_options& o) : end_base(c), core_(*this, o, sim_log{}, c.parts) {
        for (auto& w : slots_) w.sequence = ~std::uint64_t{0};
    }
    core_type& core() { return core_; }
    const core_type& core() const { return core_; }
    void announced(const control_message&) { c_.broke("G3: the sender decided"); }
    void message(const control_message& m) {
        core_.on_message(m, c_.now, [this](sequence s, outgoing& o) { retired(s, o); });
    }
    void part(unsigned, const arrived&) {}
    /// A sync was followed. If its lane is dead here, the receiver is told at once, whatever it was told before (G4).
    void turned(std::size_t said) {
        const auto& all = c_.net.messages;
        unsigned chosen = most_lanes;
        for (std::size_t n = said; n-- > 0 && chosen == most_lanes;)
            if (all[n].kind == control_kind::sync && all[n].epoch == core_.epoch().value) chosen = all[n].lane;
        bool told = chosen == most_lanes || core_.over() || core_.usable(chosen);
        for (std::size_t n = said; n < all.size(); ++n) told |= all[n].kind == control_kind::notify && all[n].lane == chosen;
        if (!told) c_.broke("G4: the lane that the receiver chose is dead at the sender, which does not say so");
    }

    bool rebuild(unsigned l, const lane_end& peer, std::uint32_t generation, lane_end& own) {
        if (!renewed(l, generation, own)) return false;
        at(l).connect(peer.psn[0]);
        return true;
    }

    /// The user's send, of so many parts. False: no room.
    bool send(unsigned parts) {
        if (core_.room() == 0) return false;
        outgoing o{};
        o.length = parts == 0 ? most_parts * part_bytes + 1 : parts == 1 ? 100 : parts * part_bytes;
        core_.push(o);
        c_.sent.push_back({o.length});
        return true;
    }
    void land(const packet& p) {
        if (p.what == packet::kind::acknowledgement) acked_ = p.sequence;
        for (std::uint32_t i = 0; p.what == packet::kind::grants && i < p.count; ++i)
            slots_[(p.sequence + i) % ring] = c_.net.grants[p.grant + i];
    }
    void pump() {
        for (unsigned l = 0; l < c_.lanes; ++l) poll(l);
        if (core_.over()) return;
        acknowledge(acked_);
        std::uint64_t s = 0;
        while (!core_.over() && core_.next_post(s)) {
            const cts_words w = slots_[s % ring];
            const auto g = core_.judge(w, s);
            if (g == core_type::grant::absent) break;
            if (g == core_type::grant::violation) {
                c_.broke("a grant of a lane that does not exist");
                break;
            }
            acknowledge(w.acked);
            if (!post(s, w)) break;
        }
        for (std::uint64_t ahead = core_.tail(); !core_.over(); ++ahead) {
            const cts_words w = slots_[ahead % ring];
            if (w.sequence != ahead || w.check != check_of(w)) break;
            acknowledge(w.acked);
        }
    }
    std::uint64_t done() const { return done_; }

private:
    void acknowledge(std::uint64_t upto) {
        if (upto <= core_.acked()) return;
        telling(told::arrival, most_lanes,
                [&](auto& core) { core.acknowledge(upto, [this](sequence s, outgoing& o) { retired(s, o); }); });
    }
    void retired(sequence s, outgoing&) {
        if (ended_) c_.broke("G7: a send completed after the end");
        if (s.value != done_) c_.broke("G1: a send completed out of order");
        if (s.value < c_.sent.size()) c_.sent[s.value].retired = true;
        ++done_;
    }
    bool post(std::uint64_t s, const cts_words& w) {
        outgoing& o = core_.at(s);
        half& h = at(w.lane());
        o.too_long = o.length > w.length();
        const chunk_cut cut = o.too_long ? chunk_cut{1, 0} : cut_chunk(o.length, c_.parts);
        for (unsigned p = 0; p < cut.parts; ++p)
            if (!h.room((s + p) % c_.parts)) return false;
        for (unsigned p = 0; p < cut.parts; ++p) {
            if (o.arrived >> p & 1) continue;
            const std::uint32_t from = p * cut.part_bytes;
            packet d{};
            d.sequence = s;
            d.buffer = static_cast<std::uint8_t>(w.addr);
            d.part = static_cast<std::uint8_t>(p);
            d.count = o.too_long ? 0 : std::min(o.length - from, cut.part_bytes);
            d.imm = immediate::make(w.epoch(), s, p, cut.parts, o.too_long);
            h.post(static_cast<unsigned>((s + p) % c_.parts), d);
        }
        core_.posted(s, w.lane());
        return true;
    }

    core_type core_;
    cts_words slots_[ring]{};
    std::uint64_t acked_{}, done_{};
};

class receiver_side : public end_base<receiver_side, receiver_end> {
public:
    using core_type = receiver_core<receiver_side, any_failback>;
    receiver_side(common& c, const core_type::options& o, any_failback f, bool flush)
        : end_base(c), core_(*this, o, f), flush_(flush) {}
    core_type& core() { return core_; }
    const core_type& core() const { return core_; }

    /// A sync goes out: what it calls dead must be silent here (G2), and what it says has arrived must have.
    void announced(const control_message& m) {
        for (unsigned l = 0; l < c_.lanes; ++l) {
            const half& h = at(l);
            for (unsigned q = 0; q < queues; ++q)
                if (h.ready[q] && h.generation <= m.dead_generation[l]) c_.broke("G2: a sync left before its lane was fenced");
        }
        if (m.sequence != core_.head()) c_.broke("a sync with another restart point than the first incomplete chunk");
    }
    void message(const control_message& m) { core_.on_message(m, c_.now); }
    void turned(std::size_t) {}

    bool prepare(unsigned l, lane_end& own) { return renewed(l, core_.lanes()[l].generation, own); }
    bool join(unsigned l, const lane_end& peer) {
        at(l).connect(peer.psn[0]);
        return true;
    }
    void fence(unsigned l) {
        end_base::fence(l);
        said_ = ~std::uint64_t{0};
    }
    void mark(unsigned l) {
        if (at(l).room(0)) acknowledge(l);
        marks_[l] = at(l).posted[0];
    }
    bool marked(unsigned l) { return at(l).retired[0] >= marks_[l]; }

    bool recv() {
        if (core_.room() == 0) return false;
        const std::uint64_t s = core_.tail();
        buffers_[s % ring] = {s, true, {}};
        core_.post(s % ring, most_parts * part_bytes, nullptr);
        (void)core_.posted();
        return true;
    }
    /// A part is written into memory. `whole`: with its last byte; `stale`: the sender's buffer was in other use already.
    void land(const packet& p, unsigned l, bool stale) {
        buffer& b = buffers_[p.buffer % ring];
        if (p.count == 0) return;
        if (!b.posted || b.sequence != p.sequence)
            c_.broke("G1: a late write into a buffer that was consumed");
        else if (stale)
            c_.broke("G1: a part was sent from a buffer that its user had back");
        b.parts[p.part] = true;
        const incoming& in = core_.at(p.sequence);
        if (p.sequence < core_.head() || (in.phase == chunk_phase::received && in.lane != l))
            c_.broke("G1: a chunk that had been received was written again");
    }
    void part(unsigned l, const arrived& a) {
        std::uint64_t s = 0;
        telling(told::arrival, l, [&](auto& core) {
            using arrival = core_type::arrival;
            switch (core.on_immediate(l, a.generation & 0xffff, a.imm, a.bytes, c_.now, s)) {
                case arrival::complete: complete(l, s); break;
                case arrival::violation: c_.broke("G1: an honest part was called a lie"); break;
                case arrival::part:
                case arrival::stale: break;
            }
        });
    }
    void pump() {
        for (unsigned l = 0; l < c_.lanes; ++l) poll(l);
        if (core_.over()) return;
        core_.deliver([this](sequence s, incoming& in) { ended(s, in); });
        std::uint64_t s = 0;
        const unsigned l = core_.active();
        while (core_.may_grant() && at(l).room(0) && core_.next_grant(s)) {
            packet p{};
            p.what = packet::kind::grants;
            p.sequence = s;
            p.grant = static_cast<std::uint32_t>(c_.net.grants.size());
            const std::uint64_t first = s;
            do {
                const incoming& in = core_.at(s);
                cts_words w{s, in.addr, cts_words::make_room(in.length, 1), core_.binding(), core_.head(), 0};
                w.check = check_of(w);
                c_.net.grants.push_back(w);
                core_.granted(s);
                ++p.count;
            } while (core_.next_grant(s) && s == first + p.count);
            at(l).post(0, p);
            said_ = core_.head();
        }
        if (said_ != core_.head() && core_.may_grant() && at(l).room(0)) {
            said_ = core_.head();
            acknowledge(l);
        }
    }
    void flushed(bool ok) {
        if (flushes_.empty()) return;
        const flush f = flushes_.front();
        flushes_.pop_front();
        if (at(f.lane).generation != f.generation) return;
        if (ok && f.sequence >= core_.head() && core_.at(f.sequence).phase == chunk_phase::flushing)
            flushed_[f.sequence % ring] = f.sequence + 1;
        core_.flushed(f.sequence, ok);
        if (!ok && at(f.lane).connected) fault(f.lane, fault_cause::local_error, wc_status::rem_access_err);
    }
    bool flushing() const { return !flushes_.empty(); }
    std::uint64_t done() const { return done_; }

private:
    struct buffer {
        std::uint64_t sequence{};
        bool posted{};
        bool parts[most_parts]{};
    };
    struct flush {
        unsigned lane{};
        std::uint32_t generation{};
        std::uint64_t sequence{};
    };

    void acknowledge(unsigned l) {
        packet p{};
        p.what = packet::kind::acknowledgement;
        p.sequence = core_.head();
        at(l).post(0, p);
    }
    void complete(unsigned l, std::uint64_t s) {
        incoming& in = core_.at(s);
        if (!flush_ || in.bytes == 0) {
            in.phase = chunk_phase::received;
            return;
        }
        in.phase = chunk_phase::flushing;
        if (at(l).connected) flushes_.push_back({l, at(l).generation, s});
    }
    void ended(sequence s, const incoming& in) {
        if (ended_) c_.broke("G7: a receive completed after the end");
        if (s.value != done_) c_.broke("G1: a receive completed out of order");
        ++done_;
        buffer& b = buffers_[s.value % ring];
        const std::uint32_t bytes = c_.sent[s.value].bytes;
        if (s.value >= c_.sent.size() || (!in.too_long && in.bytes != bytes) || (in.too_long && bytes <= in.length)) {
            c_.broke("G1: a receive completed that is not its send");
            return;
        }
        const chunk_cut cut = in.too_long ? chunk_cut{0, 0} : cut_chunk(bytes, c_.parts);
        for (unsigned p = 0; p < cut.parts; ++p)
            if (!b.parts[p]) c_.broke("G1: a receive completed without all of its bytes");
        if (flush_ && !in.too_long && flushed_[s.value % ring] != s.value + 1)
            c_.broke("G9: a receive completed without its flush");
        b.posted = false;
    }

    core_type core_;
    bool flush_;
    buffer buffers_[ring]{};
    std::uint64_t flushed_[ring]{};
    std::deque<flush> flushes_;
    std::uint64_t said_{}, done_{}, marks_[max_lanes]{};
};

}  // namespace vccl_sim
