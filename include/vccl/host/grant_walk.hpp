#pragma once
/// \file
/// The receiver's step from posted receives to grants in the sender's ring: one tight loop for runs of fresh receives, and a
/// walk that looks at everything; and acknowledgements, which ride on grants or go alone. Owner thread of the receiver.

#include <vccl/base/owned.hpp>
#include <vccl/host/context.hpp>
#include <vccl/host/grant_run.hpp>
#include <vccl/model/event.hpp>
#include <vccl/qp/lane.hpp>

namespace vccl::inline v0::detail {

/// `Self` has: core_, lanes_, slots_, peer_, hot_lane_, options_, core_fault().
template <class Self, verbs_backend B>
class grant_walk {
protected:
    /// Effects: memory for what is written to the sender, registered.
    VCCL_COLD status make_staging(host_context<B>& context) {
        staging_.reset(new (std::nothrow) cts_slot[max_window + 1]{});
        if (!staging_) return errc::no_memory;
        auto m = context.register_memory(staging_.get(), (max_window + 1) * sizeof(cts_slot));
        if (!m) return m.error();
        staging_memory_ = std::move(*m);
        return {};
    }

    /// Writes the CTS slots of all receives that wait for one; a run of neighbours goes out as one WRITE.
    VCCL_NOINLINE bool grant_any() noexcept {
        std::uint64_t s = 0;
        if (!core().next_grant(s)) return false;
        const unsigned l = core().active();
        self().hot_lane_ = l;
        const std::uint64_t binding = cts_words::make_binding(core().epoch().value, core().lanes()[l].generation, l);
        do {
            if (!self().lanes_[l].room(0)) return false;
            const std::uint64_t first = s, wrap = self().peer_.ring_depth - (first & (self().peer_.ring_depth - 1));
            std::uint64_t n = 0;
            do {
                const incoming& c = core().at(s);
                cts_words& w = staging_[s & (max_window - 1)].words;
                w = {s,       c.addr,        cts_words::make_room(c.length, c.region->remote[self().slots_[l]].value),
                     binding, core().head(), 0};
                w.check = check_of(w);
                core().granted(s);
                ++n;
            } while (n < wrap && core().next_grant(s) && s == first + n);
            if (!write_slots(l, first, n)) return true;
        } while (core().next_grant(s));
        acked_ = core().head();
        return true;
    }

    /// The common case in one tight loop: chunks that were never granted before, up to where a ring begins anew. Prepares
    /// what arrivals() compares. Returns true if there may be more.
    VCCL_ALWAYS_INLINE bool grant_run(bool& moved) noexcept {
        const std::uint64_t first = core().next_fresh(), fresh = core().fresh_end() - first;
        const std::uint64_t binding = core().binding();
        if (binding != plan_.binding) [[unlikely]] {
            const unsigned l = self().hot_lane_ = core().active();
            plan_.make(binding, self().lanes_[l], self().slots_[l], core().mark(), self().options_.flush, staging_memory_,
                       rkey{self().peer_.lane[l].ring_rkey});
        }
        const auto run = plan_.on->begin_run(0, wr_kind::grant, plan_.write);
        if (fresh == 0 || run.credit == 0) return false;
        std::uint64_t count = fresh;
        // To where the peer's ring begins anew.
        if (const std::uint64_t most = self().peer_.ring_depth - (first & (self().peer_.ring_depth - 1)); count > most)
            count = most;
        const std::uint64_t acked = core().head();
        incoming* const in = &core().at(first);
        fill_slots(plan_, in, in + count, &staging_[first & (max_window - 1)], first, acked);
        work& w = plan_.write;
        core().granted_run(first + count);
        moved = true;
        aim(w, staging_.get(), self().peer_.ring_addr, self().peer_.ring_depth, first, count);
        w.flags = w.length <= plan_.on->inline_bytes() ? work_flags::inlined : work_flags::none;
        if (!run.post(w)) [[unlikely]] {
            self().core_fault(self().hot_lane_, fault_cause::local_error, wc_status::success);
            return false;
        }
        plan_.on->end_run(0, 1);
        acked_ = acked;
        return count != fresh;
    }

    /// Has the sender been told of all that was received?
    bool all_acknowledged() noexcept { return acked_ == core().head(); }
    /// What was said of acknowledgements may be lost: it is said again.
    void acknowledge_anew() noexcept { acked_ = nothing_said; }

    /// An acknowledgement on its own: no receive was posted for it to ride on.
    VCCL_COLD void acknowledge() noexcept {
        const unsigned l = core().active();
        if (!core().may_grant() || !self().lanes_[l].room(0)) return;
        acked_ = core().head();
        write_acknowledgement(l, false);
    }
    VCCL_COLD void write_acknowledgement(unsigned l, bool loud) noexcept {
        std::uint64_t& staged = staging_[max_window].note_check;
        staged = core().head();
        work w{};
        w.op = work_op::write;
        w.length = sizeof staged;
        w.local_addr = reinterpret_cast<std::uint64_t>(&staged);
        w.lkey = staging_memory_.region()->local[self().slots_[l]];
        w.remote_addr = self().peer_.ring_addr;
        (void)write_to_sender(l, w, loud);
    }

    owned_array<cts_slot> staging_;  ///< the last is no grant's: it is written while runs of grants are being read
    memory staging_memory_;

private:
    bool write_slots(unsigned l, std::uint64_t first, std::uint64_t n) noexcept {
        work w{};
        w.op = work_op::write;
        w.lkey = staging_memory_.region()->local[self().slots_[l]];
        aim(w, staging_.get(), self().peer_.ring_addr, self().peer_.ring_depth, first, n);
        return write_to_sender(l, w);
    }

    bool write_to_sender(unsigned l, work& w, bool loud = false) noexcept {
        w.rkey = rkey{self().peer_.lane[l].ring_rkey};
        if (w.length <= self().lanes_[l].inline_bytes()) w.flags = work_flags::inlined;
        if (self().lanes_[l].post(0, wr_kind::grant, w, loud)) return true;
        self().core_fault(l, fault_cause::local_error, wc_status::success);
        return false;
    }

    Self& self() noexcept { return static_cast<Self&>(*this); }
    auto& core() noexcept { return *self().core_; }

    static constexpr std::uint64_t nothing_said = ~std::uint64_t{0};
    std::uint64_t acked_{};  ///< as last told to the sender
    detail::grant_run<lane<B>> plan_;  ///< made anew when lane or epoch change
};

}  // namespace vccl::inline v0::detail
