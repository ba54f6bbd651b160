#pragma once
/// \file
/// A device queue: credit, reservation, WQEs, in-order publication, doorbell. Kernels, or in a host build any threads; as many at
/// once as the sharing policy says. The walk of a post: reserve -> write -> hand in -> ring. A failover is the same walk with
/// another gate. docs/device.md has the rules and why they hold.

#include <vccl/device/doorbell.hpp>
#include <vccl/device/queue_waits.hpp>
#include <vccl/device/scope.hpp>

namespace vccl::inline v0::device {

/// A queue as a poster sees it, for operations of one's own; sender_ref has the usual ones.
template <class Policy>
class queue_ref : public queue_waits<Policy> {
    using base_type = queue_waits<Policy>;
    using base_type::give, base_type::is_aborted, base_type::look, base_type::no_index, base_type::v_, base_type::w_;

public:
    using base_type::base_type, base_type::open, base_type::poll, base_type::posted;

    /// Effects: posts `each` WQEs of one slot for every member of `who`, behind each other. `encode(i, head, lane)` makes the
    /// member's i-th; it may be called again, for another lane. `at_turn(index)` is called once, when everything before
    /// `index` is published and nothing behind it. Returns: ok, or why nothing was posted.
    template <class Group, class Encode, class AtTurn>
    VCCL_HOST_DEVICE device_result post(const Group& who, unsigned each, deadline& until, Encode&& encode,
                                        AtTurn&& at_turn) const {
        std::uint64_t base = no_index;
        device_result why{};
        if (who.rank() == 0) why = reserve(who.size() * each, base, until);
        base = who.broadcast(base);
        if (base == no_index) [[unlikely]]
            return unpack(who.broadcast(pack(why)));
        const std::uint64_t end = base + who.size() * each;
        gate g{who.broadcast(open().raw)};
        for (bool turn_came = false;; turn_came = true) {
            write(g, base + who.rank() * each, each, who.rank() + 1 == who.size(), encode);
            // The WQEs become visible to the NIC: here, where posters wait side by side, and not at their turn, where they would
            // wait for each other. Pairs with the NIC's load of the record or the doorbell, which comes from whoever rings.
            release_to_system();
            who.sync();
            gate again{};
            if (who.rank() == 0) again = hand_in(base, end, g, until, at_turn, turn_came);
            again = {who.broadcast(again.raw)};
            if (again.raw == handed_in) [[likely]]
                return {};
            g = again;
        }
    }
    /// The same, where nothing is to be done at the turn.
    template <class Group, class Encode>
    VCCL_HOST_DEVICE device_result post(const Group& who, unsigned each, deadline& until, Encode&& encode) const {
        return post(who, each, until, encode, nothing{});
    }

private:
    static constexpr std::uint64_t handed_in = 0;  ///< no gate: a QP number is not 0
    /// A post of which others need to know nothing at its turn.
    struct nothing {
        VCCL_HOST_DEVICE void operator()(std::uint64_t) const noexcept {}
    };
    /// Doorbells of different posters meet where they leave the GPU.
    static constexpr scope bell_scope = scope::gpu;

    /// Credit first, then the reservation: who gives up has reserved nothing. Both are plain additions, which do not fail when
    /// many posters come at once, as compare-and-swaps do. Acquire: the gate is read after it, so that whoever reserves when the
    /// service has looked at `reserve` finds the new one.
    VCCL_HOST_DEVICE device_result reserve(unsigned count, std::uint64_t& base, deadline& until) const {
        const std::int64_t n = count;
        const std::int64_t left = take_credit(n) - n, half = v_->depth() / 2;
        if (left < 0) [[unlikely]] {
            if (const device_result r = wait_for_credit(n, until); !r) return r;
        } else if (left < half && left + n >= half) [[unlikely]] {
            (void)poll();  // before it is short of credit: one for all
        }
        if constexpr (Policy::alone) {
            base = load<order::relaxed, Policy::who>(&w_->reserve);
            store<order::relaxed, Policy::who>(&w_->reserve, base + count);
        } else {
            base = fetch_add<order::acquire, Policy::who>(&w_->reserve, std::uint64_t{count});
        }
        return {};
    }
    /// Requires: take_credit(n) has not found enough.
    VCCL_HOST_DEVICE VCCL_NOINLINE device_result wait_for_credit(std::int64_t n, deadline& until) const {
        do {
            give(n);
            do {
                if (!poll())
                    if (const device_result r = look(until); !r) return r;
            } while (load<order::relaxed, Policy::who>(&w_->credits) < n);
        } while (take_credit(n) < n);
        return {};
    }
    /// Acquire: a slot is written only after the NIC has read what was in it, which its completion says.
    VCCL_HOST_DEVICE std::int64_t take_credit(std::int64_t n) const noexcept {
        if constexpr (!Policy::alone) return fetch_add<order::acquire, Policy::who>(&w_->credits, -n);
        const std::int64_t before = load<order::acquire, Policy::who>(&w_->credits);
        store<order::relaxed, Policy::who>(&w_->credits, before - n);
        return before;
    }
    /// One CQE for all who post together: of the last WQE, of the `last` member.
    template <class Encode>
    VCCL_HOST_DEVICE void write(gate g, std::uint64_t index, unsigned count, bool last, Encode&& encode) const {
        const ring_view& lane = v_->rings[g.ring()];
        for (unsigned i = 0; i < count; ++i) {
            const std::uint16_t hardware = g.hardware(index + i);
            wqe_head head{g.qpn(), hardware, 0};
            if (last && i + 1 == count) head.flags = wqe_flag::completion;
            put_block(&lane.ring.slot(hardware), encode(i, head, lane));
        }
    }

    /// As few stores as there can be: each is a transaction of its own on the bus.
    VCCL_HOST_DEVICE static void put_block(wqe_block* to, const wqe_block& b) noexcept {
#if defined(__CUDA_ARCH__)
        auto* const halves = reinterpret_cast<ulonglong2*>(to);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) halves[i] = make_ulonglong2(b.word[2 * i], b.word[2 * i + 1]);
#else
        *to = b;
#endif
    }

    /// Effects: when everything below `base` is published, publishes up to `end`, and sees to the doorbell. Those before never
    /// leave without having published, so this wait is as long as theirs, which end at their deadlines. Returns: `handed_in`; or
    /// the turn has come, and the WQEs are to be written again, for this gate, and handed in at once.
    template <class AtTurn>
    VCCL_HOST_DEVICE gate hand_in(std::uint64_t base, std::uint64_t end, gate g, deadline& until, AtTurn&& at_turn,
                                  bool turn_came) const {
        const stamp mine = stamp::make(end, g);
        bool passed = false;
        std::uint64_t reserved = 0;
        if constexpr (!Policy::alone && std::is_same_v<std::remove_cvref_t<AtTurn>, nothing>) {
            // One operation says that the turn has come, under the same gate, and passes it on. It pairs with the next one's.
            while (!turn_came && !passed) {
                stamp found = stamp::make(base, g);
                passed = compare_exchange<in_turn, Policy::who>(&w_->ready, found.raw, mine.raw);
                reserved = posted();  // under way at the same time
                if (passed) [[likely]]
                    break;
                if (found.index() == base) [[unlikely]]
                    return unusual_turn(found, until);
                spin(until.host());
            }
        } else if (!turn_came) {
            stamp found{load<order::acquire, Policy::who>(&w_->ready)};
            for (; found.index() != base; found = {load<order::acquire, Policy::who>(&w_->ready)}) spin(until.host());
            if (found.epoch() != g.epoch()) [[unlikely]]
                return unusual_turn(found, until);
        }
        if (!passed) at_turn(base);
        if constexpr (Policy::alone) {
            ring_bell(mine, g);
            store<released, Policy::who>(&w_->ready, mine.raw);
        } else {
            if (!passed) {
                store<order::release, Policy::who>(&w_->ready, mine.raw);
                reserved = posted();
            }
            ring_or_leave(base, reserved, mine, g);
        }
        return {handed_in};
    }

    /// The lane was changed while this thread was on its way, or nobody has published on the new one yet: then the service
    /// must first have carried over all that came before. Gives up at the deadline by publishing on the old lane, from where
    /// the service takes it: a reservation is never left unpublished.
    VCCL_HOST_DEVICE VCCL_NOINLINE gate unusual_turn(stamp before, deadline& until) const {
        const gate old{load<order::relaxed, scope::system>(&w_->opened[before.ring()])};
        for (;;) {
            // The one before may have left the doorbell to this one; the service carries over what was rung.
            if constexpr (!Policy::alone)
                if (!bell{load<order::relaxed, Policy::who>(&w_->rung)}.has_rung_for(before.index())) ring_for(before, old, true);
            const gate g{load<order::acquire, scope::system>(&w_->open)};
            if (before.epoch() == g.epoch()) return g;
            if (load<order::acquire, scope::system>(&w_->adopted) == stamp::make(before.index(), g).raw) return g;
            if (is_aborted() || until.passed()) return old;
            pause(until.host());
        }
    }

    /// Whoever has reserved behind publishes before it returns, and does the same as this one here: so it may be left the bell.
    VCCL_HOST_DEVICE void ring_or_leave(std::uint64_t base, std::uint64_t reserved, stamp mine, gate g) const noexcept {
        const bool must = (mine.index() ^ base) >= Policy::batch;
        if (must || reserved == mine.index()) ring_for(mine, g, must);
    }
    /// Effects: the doorbell rings for everything below `upto`, which is published: by this thread; or by the one that is at it,
    /// which looks again when it has done; or, unless it `must` ring now, by one that has reserved behind.
    VCCL_HOST_DEVICE void ring_for(stamp upto, gate g, bool must) const noexcept {
        for (;;) {
            bell own{fetch_add<in_turn, Policy::who>(&w_->rung, bell::one)};
            const std::uint64_t reserved = posted();  // under way at the same time
            if (own.asks() != 0) return;
            const bool rings = !own.has_rung_for(upto.index()) && (must || reserved == upto.index());
            if (rings) {
                ring_bell(upto, g);
                own = bell::left_at(upto.index());
                release_to_gpu();  // this doorbell before the next one's
            }
            if (bell{exchange<in_turn, bell_scope>(&w_->rung, own.raw)}.asks() == 1) return;
            // Others have asked and left. Whoever has reserved behind them has yet to publish, and will ask.
            upto = {load<order::acquire, Policy::who>(&w_->ready)};
            if (own.has_rung_for(upto.index()) || posted() != upto.index()) return;
            g = {load<order::relaxed, Policy::who>(&w_->opened[upto.ring()])};
        }
    }
    VCCL_HOST_DEVICE void ring_bell(stamp upto, gate g) const noexcept {
        const device::ring& r = v_->rings[g.ring()].ring;
        store<released, scope::system>(&v_->told->rung, upto.raw);
        store<released, scope::system>(&r.doorbell_record[send_record], encode_record(g.hardware(upto.index())));
        store<order::release, scope::system>(r.doorbell, encode_doorbell(g.hardware(upto.index()), g.qpn()));  // record first
    }
};

}  // namespace vccl::inline v0::device
