#pragma once
/// \file
/// A device queue: credit, reservation, WQEs, in-order publication, doorbell, and polling of completions. Kernels, or in a
/// host build any threads; as many at once as the sharing policy says. The walk of a post: reserve -> write -> turn ->
/// publish. A failover is the same walk with another gate. docs/device.md has the rules and why they hold.

#include <vccl/device/doorbell.hpp>
#include <vccl/device/policy.hpp>
#include <vccl/device/scope.hpp>
#include <vccl/device/words.hpp>
#include <vccl/device/wqe.hpp>

namespace vccl::inline v0::device {

/// A queue as a poster sees it, for operations of one's own; sender_ref has the usual ones.
template <class Policy>
class queue_ref {
public:
    using policy = Policy;  ///< Who shares the queue, at compile time.

    /// `view` lies where kernels can read it, and outlives them.
    VCCL_HOST_DEVICE explicit queue_ref(const queue_view* view) noexcept : v_(view), w_(view->words) {}
    /// Where everything of the queue lies.
    VCCL_HOST_DEVICE const queue_view& view() const noexcept { return *v_; }

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
        const gate g{who.broadcast(open().raw)};
        const std::uint64_t own = base + who.rank() * each;
        write(g, own, each, encode);
        // The WQEs become visible to the NIC: here, where posters wait side by side, and not at their turn, where they would wait
        // for each other. Pairs with the NIC's load of the record or the doorbell, which comes from whoever rings.
        release_to_system();
        who.sync();
        gate target{};
        if (who.rank() == 0) target = turn(base, g, until);
        target = {who.broadcast(target.raw)};
        if (target != g) [[unlikely]] {
            write(target, own, each, encode);
            release_to_system();
            who.sync();
        }
        if (who.rank() == 0) {
            at_turn(base);
            publish(base, base + who.size() * each, target);
        }
        return {};
    }
    /// The same for who does not want to know the index of what was posted.
    template <class Group, class Encode>
    VCCL_HOST_DEVICE device_result post(const Group& who, unsigned each, deadline& until, Encode&& encode) const {
        return post(who, each, until, encode, [](std::uint64_t) {});
    }

    /// Everything that was reserved before the call.
    VCCL_HOST_DEVICE std::uint64_t posted() const noexcept { return load<order::relaxed, Policy::who>(&w_->reserve); }
    /// Everything below this index is done; acquire: what it read has arrived.
    VCCL_HOST_DEVICE std::uint64_t completed() const noexcept { return load<order::acquire, Policy::who>(&w_->completed); }
    /// Acquire: the lane's ring is as the service left it.
    VCCL_HOST_DEVICE gate open() const noexcept { return {load<order::acquire, Policy::who>(&w_->open)}; }

    /// Effects: waits until everything below `index` is done. Its data lies at the peer, and what was read lies here: the
    /// poller acquired the NIC's CQE, and this thread the poller's `completed`.
    VCCL_HOST_DEVICE device_result wait(std::uint64_t index, deadline& until) const {
        const std::uint16_t began = open().epoch();
        while (completed() < index) {
            if (poll()) continue;
            if (const device_result r = look(until); !r) return r;
        }
        const std::uint16_t ended = open().epoch();
        device_result r{};
        r.epoch = ended;
        if (ended != began) r.what = outcome::moved;
        return r;
    }

    /// Effects: takes what lies in the active lane's CQ, unless another thread is at it. Returns true if it took anything.
    VCCL_HOST_DEVICE bool poll() const {
        std::uint32_t ticket = 0;
        if (!begin_poll(ticket)) return false;
        // Read after `polling` is taken: the service changes a CQ only when it has seen `polling` 0 after it moved the gate.
        const gate g{load<look_again, poll_scope>(&w_->open)};
        if (g.closed()) {
            end_poll(ticket);
            return false;
        }
        const device::ring& r = v_->rings[g.ring()].ring;
        std::uint64_t done = load<order::relaxed, Policy::who>(&w_->completed);
        std::uint64_t taken = load<order::relaxed, Policy::who>(&w_->consumed[g.ring()]);
        const std::uint64_t before = done;
        const bool fresh = load<order::relaxed, Policy::who>(&w_->polled) != g.raw;
        // What lies before the first WQE of a new lane was done when the service opened it.
        if (fresh) done += static_cast<std::uint16_t>(g.first() - done);
        const std::uint64_t from = taken;
        taken += take_entries(r, g, taken, done);
        // Closed meanwhile: the service has counted, or will count, what was seen here, and nothing that came later.
        if (load<look_again, poll_scope>(&w_->open) != g.raw) {
            end_poll(ticket);
            return false;
        }
        if (fresh) store<order::relaxed, Policy::who>(&w_->polled, g.raw);
        if (taken != from) store<order::relaxed, Policy::who>(&w_->consumed[g.ring()], taken);
        if (done != before) {
            store<order::release, Policy::who>(&w_->completed, done);
            give(static_cast<std::int64_t>(done - before));
        }
        // Half a send queue late at most, since the store is dear for a GPU: the CQ is twice as deep as the send queue.
        if ((taken ^ from) >= v_->depth() / 2) store<order::relaxed, scope::system>(r.cq_record, encode_cq_record(taken));
        end_poll(ticket);
        return done != before;
    }

private:
    static constexpr std::uint64_t no_index = ~std::uint64_t{0};
    static constexpr unsigned probes = 8;  ///< of a poll: it takes up to 2^(probes - 1) CQEs
    /// Pollers meet the service on `polling` and the gate, whatever the posters share: each writes one and then reads the
    /// other, and one of them must see what the other wrote. On a CPU that takes seq_cst; in a GPU's memory, where the service
    /// reads and writes by copies, both meet in the L2 cache, and program order is enough.
    static constexpr scope poll_scope = scope::system;
#if defined(__CUDA_ARCH__)
    static constexpr order take_poll = order::acq_rel, look_again = order::acquire;
#else
    static constexpr order take_poll = order::seq_cst, look_again = order::seq_cst;
#endif

    /// Credit first, then the reservation: who gives up has reserved nothing. Both are plain additions, which do not fail when
    /// many posters come at once, as compare-and-swaps do.
    VCCL_HOST_DEVICE device_result reserve(unsigned count, std::uint64_t& base, deadline& until) const {
        const std::int64_t n = count;
        while (take(n) < n) {
            give(n);
            if (!poll())
                if (const device_result r = look(until); !r) return r;
        }
        if constexpr (Policy::alone) {
            base = load<order::relaxed, Policy::who>(&w_->reserve);
            store<order::relaxed, Policy::who>(&w_->reserve, base + count);
        } else {
            base = fetch_add<order::relaxed, Policy::who>(&w_->reserve, std::uint64_t{count});
        }
        return {};
    }
    /// Acquire: a slot is written only after the NIC has read what was in it, which its completion says.
    VCCL_HOST_DEVICE std::int64_t take(std::int64_t n) const noexcept {
        if constexpr (!Policy::alone) return fetch_add<order::acquire, Policy::who>(&w_->credits, -n);
        const std::int64_t before = load<order::acquire, Policy::who>(&w_->credits);
        store<order::relaxed, Policy::who>(&w_->credits, before - n);
        return before;
    }
    VCCL_HOST_DEVICE void give(std::int64_t n) const noexcept {
        if constexpr (Policy::alone)
            store<order::release, Policy::who>(&w_->credits, load<order::relaxed, Policy::who>(&w_->credits) + n);
        else
            (void)fetch_add<order::release, Policy::who>(&w_->credits, n);
    }

    template <class Encode>
    VCCL_HOST_DEVICE void write(gate g, std::uint64_t index, unsigned count, Encode&& encode) const {
        const ring_view& lane = v_->rings[g.ring()];
        for (unsigned i = 0; i < count; ++i) {
            const std::uint16_t hardware = g.hardware(index + i);
            wqe_head head{g.qpn(), hardware, 0};
            if (i + 1 == count) head.flags = wqe_flag::completion;
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

    /// Waits until everything below `base` is published. Returns: the gate under which `base` is to be published. Those
    /// before never leave without having published, so this wait is as long as theirs, which end at their deadlines.
    VCCL_HOST_DEVICE gate turn(std::uint64_t base, gate g, deadline& until) const {
        stamp r{};
        for (;;) {
            r = {load<order::acquire, Policy::who>(&w_->ready)};
            if (r.index() == base) break;
            spin(until.host());
        }
        if (r.epoch() == g.epoch()) [[likely]]
            return g;
        return unusual_turn(r, until);
    }

    /// The lane was changed while this thread was on its way, or nobody has published on the new one yet: then the service
    /// must first have carried over all that came before. Gives up at the deadline by publishing on the old lane, from where
    /// the service takes it: a reservation is never left unpublished.
    VCCL_HOST_DEVICE VCCL_NOINLINE gate unusual_turn(stamp before, deadline& until) const {
        // The one before may have left the doorbell to this one; the service carries over what was rung.
        if constexpr (!Policy::alone) ring_until(before.index());
        for (;;) {
            const gate g{load<order::acquire, scope::system>(&w_->open)};
            if (before.epoch() == g.epoch()) return g;
            if (load<order::acquire, scope::system>(&w_->adopted) == stamp::make(before.index(), g).raw) return g;
            if (is_aborted() || until.passed()) return {load<order::relaxed, scope::system>(&w_->opened[before.ring()])};
            pause(until.host());
        }
    }

    VCCL_HOST_DEVICE void publish(std::uint64_t base, std::uint64_t end, gate g) const {
        const stamp mine = stamp::make(end, g);
        if constexpr (Policy::alone) {
            ring_bell(mine, g);
            store<order::release, Policy::who>(&w_->ready, mine.raw);
            return;
        }
        store<order::release, Policy::who>(&w_->ready, mine.raw);  // pairs with the acquire in turn()
        // Whoever has reserved behind publishes before it returns, and does the same as this one here.
        if ((end ^ base) < Policy::batch && load<order::relaxed, Policy::who>(&w_->reserve) != end) return;
        ring_until(end);
    }
    /// Returns when the doorbell has rung for everything below `end`, all of which is published. One poster rings at a time, for
    /// all that is published by then.
    VCCL_HOST_DEVICE void ring_until(std::uint64_t end) const noexcept {
        while (stamp{load<order::acquire, Policy::who>(&w_->rung)}.index() < end) {
            std::uint32_t ticket = load<order::relaxed, Policy::who>(&w_->ringing);
            if (is_busy(ticket) || !compare_exchange<order::acquire, Policy::who>(&w_->ringing, ticket, ticket + 1)) {
                spin(v_->wait);
                continue;
            }
            const stamp all{load<order::acquire, Policy::who>(&w_->ready)};
            if (stamp{load<order::relaxed, Policy::who>(&w_->rung)}.index() < all.index()) {
                ring_bell(all, {load<order::relaxed, Policy::who>(&w_->opened[all.ring()])});
                store<order::release, Policy::who>(&w_->rung, all.raw);
            }
            store<order::release, Policy::who>(&w_->ringing, ticket + 2);
        }
    }
    VCCL_HOST_DEVICE void ring_bell(stamp upto, gate g) const noexcept {
        const device::ring& r = v_->rings[g.ring()].ring;
        store<released, scope::system>(&v_->told->rung, upto.raw);
        store<released, scope::system>(&r.doorbell_record[send_record], encode_send_record(g.hardware(upto.index())));
        store<order::release, scope::system>(r.doorbell, encode_doorbell(g.hardware(upto.index()), g.qpn()));  // record first
    }

    VCCL_HOST_DEVICE bool is_aborted() const noexcept { return load<order::relaxed, scope::system>(&v_->host->abort) != 0; }

    /// One round of a wait. Returns: ok to go on, else why not.
    VCCL_HOST_DEVICE VCCL_NOINLINE device_result look(deadline& until) const {
        device_result latched = unpack(load<order::relaxed, Policy::who>(&w_->failure));
        const std::uint16_t epoch = open().epoch();
        const bool failed = latched.what == outcome::error && latched.epoch == epoch;
        if (failed && (!Policy::can_replay || is_fatal(latched.why))) return latched;
        device_result r{};
        r.epoch = epoch;
        if (until.now_and_then() && is_aborted()) {  // the word lies across the bus
            r.what = outcome::aborted;
            return r;
        }
        if (until.passed()) {
            if (failed) r = latched;
            r.what = outcome::timeout;
            return r;
        }
        pause(until.host());
        return r;
    }

    /// Effects: looks at the entries 0, 1, 3, 7, ... behind `n`, all in one round trip to where the CQ lies. One that is there and
    /// no error stands for all before it: CQEs come in order, and behind the first error all are errors. Returns: how many entries
    /// that makes; `done` becomes what the last of them says.
    VCCL_HOST_DEVICE unsigned take_entries(const device::ring& r, gate g, std::uint64_t n, std::uint64_t& done) const noexcept {
        std::uint32_t tails[probes];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
        for (unsigned i = 0; i < probes; ++i)
            tails[i] = load<acquired_later, scope::system>(&r.entry(n + (1u << i) - 1).word[15]);
        acquire_from_system();  // pairs with the NIC's release of the entries
        unsigned count = 0;
        for (unsigned i = 0; i < probes && 1u << i <= r.cq_depth(); ++i) {
            const cqe_tail t = tail_of(tails[i]);
            if (!is_written(t, n + (1u << i) - 1, r.cq_depth_log)) break;
            if (is_error(t)) {
                if (i == 0) latch(g, t, load<order::relaxed, scope::system>(&r.entry(n).word[cqe_syndrome_word]));
                break;
            }
            count = 1u << i;
            done += static_cast<std::uint16_t>(t.wqe_index + g.first() - done) + 1u;
        }
        return count;
    }

    VCCL_HOST_DEVICE bool begin_poll(std::uint32_t& ticket) const noexcept {
        ticket = load<order::relaxed, Policy::who>(&w_->polling);
        return !is_busy(ticket) && compare_exchange<take_poll, poll_scope>(&w_->polling, ticket, ticket + 1);
    }
    VCCL_HOST_DEVICE void end_poll(std::uint32_t ticket) const noexcept {
        store<order::release, poll_scope>(&w_->polling, ticket + 2);
    }

    /// The first error CQE of an epoch stands for all: those behind it are flushes.
    VCCL_HOST_DEVICE VCCL_NOINLINE void latch(gate g, const cqe_tail& t, std::uint32_t word) const noexcept {
        const device_result known = unpack(load<order::relaxed, Policy::who>(&w_->failure));
        if (known.what == outcome::error && known.epoch == g.epoch()) return;
        const device_result r{outcome::error, syndrome_in(word), vendor_in(word), t.wqe_index, g.epoch()};
        store<order::relaxed, Policy::who>(&w_->failure, pack(r));
        store<order::release, scope::system>(&v_->told->failure, pack(r));
    }

    const queue_view* v_;
    queue_words* w_;
};

}  // namespace vccl::inline v0::device
