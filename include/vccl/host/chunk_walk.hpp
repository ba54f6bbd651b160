#pragma once
/// \file
/// The sender's step from a grant to the WRs of its chunk: one tight loop for runs of fresh chunks, and a walk that looks at
/// everything. Mixed into the sender, which records chunks before and retires them after. Owner thread of the sender.

#include <vccl/host/chunk_run.hpp>
#include <vccl/host/cts_ring.hpp>
#include <vccl/host/memory.hpp>
#include <vccl/model/event.hpp>
#include <vccl/qp/lane.hpp>

namespace vccl::inline v0::detail {

/// `Self` has: core_, ring_, lanes_, slots_, hot_lane_, core_fault(), acknowledged_to(). `Qps`: of a lane.
template <class Self, verbs_backend B, unsigned Qps>
class chunk_walk {
protected:
    enum class run_end : std::uint8_t { more, idle, unusual };  ///< how a run ended: try again, nothing to post, post_any()

    /// The walk that looks at everything: posts chunks until one has no grant or the queues are full.
    VCCL_NOINLINE bool post_any() noexcept {
        bool moved = false;
        std::uint64_t s = 0;
        while (core().next_post(s)) {
            const cts_words c = ring().read(s);
            const auto g = core().judge(c, s);
            if (g == Self::core_type::grant::absent) break;
            if (g == Self::core_type::grant::violation) {
                core().fail(status{errc::protocol_violation, c.lane()});
                break;
            }
            moved |= self().acknowledged_to(c.acked);
            if (!post_chunk(s, c)) break;
            moved = true;
        }
        return moved;
    }

    /// The common case in one tight loop: fresh chunks in one piece, granted in one epoch on one lane, up to where a ring
    /// begins anew. Stops at whatever else there is. Raises `acked_upto` to what the grants say, sets `moved` if it posted.
    VCCL_ALWAYS_INLINE run_end post_run(std::uint64_t& acked_upto, bool& moved) noexcept {
        const std::uint64_t first = core().fresh(), fresh = core().tail() - first;
        if (fresh == 0) return core().all_posted() ? run_end::idle : run_end::unusual;
        cts_slot* slot = &ring().slots[first & (max_window - 1)];
        if (cts_ring::word_of<&cts_words::sequence>(*slot) != first) return run_end::idle;
        const std::uint64_t binding = cts_ring::word_of<&cts_words::binding>(*slot);
        if ((binding != plan_.binding || !plan_.on) && !make_plan(binding)) [[unlikely]]
            return run_end::unusual;

        work& w = plan_.write;
        w.immediate = immediate::whole(cts_words::epoch_of(binding), first).raw - immediate::one_sequence;
        const auto run = plan_.on->begin_run(0, wr_kind::data, w);
        const std::uint32_t port = plan_.port;
        const std::uint64_t mark = plan_.mark;
        const std::uint64_t limits[] = {run.credit, max_window - (first & (max_window - 1)), core().contiguous(first)};
        std::uint64_t count = fresh;
        for (const std::uint64_t most : limits)
            if (count > most) count = most;
        outgoing* o = &core().at(first);
        std::uint64_t acked = cts_ring::word_of<&cts_words::acked>(*slot), shared = cts_shared_mix(binding, acked),
                      own = cts_sequence_mix(first);
        bool ok = true;
        cts_slot* const begin = slot;
        for (cts_slot* const end = slot + count; slot != end; ++slot, ++o, own += cts_sequence_step) {
            // The check tells all: written for this sequence, on this binding, with the acknowledgement of the slot before.
            const std::uint64_t addr = cts_ring::word_of<&cts_words::addr>(*slot),
                                room = cts_ring::word_of<&cts_words::room>(*slot);
            const std::uint64_t check = cts_ring::word_of<&cts_words::check>(*slot) - cts_own_mix(own, addr, room);
            if (check != shared) [[unlikely]] {
                const std::uint64_t newer = cts_ring::word_of<&cts_words::acked>(*slot);
                shared = cts_shared_mix(binding, newer);
                if (check != shared) break;
                acked = newer;
            }
            if (o->length > cts_words::length_of(room)) [[unlikely]]
                break;
            w.local_addr = o->addr;
            w.lkey = o->region->local[port];
            w.remote_addr = addr;
            w.length = o->length;
            w.rkey = rkey{cts_words::rkey_of(room)};
            w.immediate += immediate::one_sequence;
            w.flags = o->flags;
            if (!run.post(w)) [[unlikely]] {
                ok = false;
                break;
            }
            static_cast<posting&>(*o) = std::bit_cast<posting>(mark);
        }
        const std::uint64_t posted = static_cast<std::uint64_t>(slot - begin);
        if (posted == 0 && ok) return run_end::unusual;
        if (acked_upto < acked) acked_upto = acked;
        plan_.on->end_run(0, posted);
        core().posted_run(first + posted);
        self().hot_lane_ = cts_words::lane_of(binding);
        moved = true;
        if (!ok) [[unlikely]] {
            core().posted(first + posted, self().hot_lane_);
            self().core_fault(self().hot_lane_, fault_cause::local_error, wc_status::success);
        }
        return posted == fresh ? run_end::idle : run_end::more;
    }

    /// The lane that the last run was on may not be written on any more.
    void forget_run() noexcept { plan_.on = nullptr; }

private:
    VCCL_COLD bool make_plan(std::uint64_t binding) noexcept {
        plan_.on = nullptr;
        if (!core().alive(binding)) return false;
        const unsigned l = cts_words::lane_of(binding);
        plan_.make(binding, self().lanes_[l], self().slots_[l], core().mark(l));
        return true;
    }

    /// Posts the parts of chunk `s` that the receiver does not have, each on its own QP. False: the queues are full.
    bool post_chunk(std::uint64_t s, const cts_words& c) noexcept {
        outgoing& o = core().at(s);
        lane<B>& lane = self().lanes_[c.lane()];
        placement place{0, o.length};
        if constexpr (Self::core_type::places) place = core().place(s);
        o.too_long = place.whole > c.length();
        const chunk_cut cut = o.too_long ? chunk_cut{1, 0} : cut_chunk(o.length, Qps);
        for (unsigned p = 0; p < cut.parts; ++p)
            if (!lane.room(queue_of(s, p, Qps))) return false;
        work w{};
        w.op = work_op::write_imm;
        w.rkey = rkey{c.rkey()};
        w.lkey = o.region->local[self().slots_[c.lane()]];
        for (unsigned p = 0; p < cut.parts; ++p) {
            if (o.arrived >> p & 1) continue;
            aim(w, o, cut, p, c, place.offset, s);
            if (status e = lane.post(queue_of(s, p, Qps), wr_kind::data, w); !e) {
                core().posted(s, c.lane());
                self().core_fault(c.lane(), fault_cause::local_error, wc_status::success);
                return false;
            }
        }
        core().posted(s, c.lane());
        self().hot_lane_ = c.lane();
        return true;
    }

    Self& self() noexcept { return static_cast<Self&>(*this); }
    auto& core() noexcept { return *self().core_; }
    cts_ring& ring() noexcept { return *self().ring_; }

    chunk_run<lane<B>> plan_{};
};

}  // namespace vccl::inline v0::detail
