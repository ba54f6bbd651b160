#pragma once
/// \file
/// How posters of a device queue wait: for what they posted, and for credit. Completions lie in the CQ of the lane in use, where
/// all can read them; who takes them, one at a time, gives the credit back. Kernels, or in a host build any threads.

#include <vccl/device/policy.hpp>
#include <vccl/device/words.hpp>

namespace vccl::inline v0::device {

/// The part of a queue_ref that waits.
template <class Policy>
class queue_waits {
public:
    using policy = Policy;  ///< who shares the queue, at compile time

    /// `view` lies where kernels can read it, and outlives them.
    VCCL_HOST_DEVICE explicit queue_waits(const queue_view* view) noexcept : v_(view), w_(view->words) {}
    /// Where everything of the queue lies.
    VCCL_HOST_DEVICE const queue_view& view() const noexcept { return *v_; }

    /// Everything that was reserved before the call.
    VCCL_HOST_DEVICE std::uint64_t posted() const noexcept { return load<order::relaxed, Policy::who>(&w_->reserve); }
    /// Below which index everything is done, as far as somebody has taken completions, which is done when credit is short, or by
    /// poll(). Acquires what those brought.
    VCCL_HOST_DEVICE std::uint64_t completed() const noexcept {
        return completions{load<order::acquire, Policy::who>(&w_->completed)}.index();
    }
    /// Acquire: the lane's ring is as the service left it.
    VCCL_HOST_DEVICE gate open() const noexcept { return {load<order::acquire, Policy::who>(&w_->open)}; }

    /// Effects: waits until everything that is published is done: the posts that have returned.
    VCCL_HOST_DEVICE device_result wait_all(deadline& until) const { return wait(no_index, until); }
    /// Effects: waits until everything below `index` is done. Its data lies at the peer, and what was read lies here: the
    /// poller acquired the NIC's CQE, and this thread the poller's `completed`.
    VCCL_HOST_DEVICE VCCL_NOINLINE device_result wait(std::uint64_t index, deadline& until) const {
        device_result r{};
        std::uint16_t began = 0;
        watch turns;
        std::uint64_t done = 0;
        bool gives_up = false;
        for (unsigned round = 0;; ++round) {
            turns.must = gives_up || round % patience == patience - 1;
            const sight seen = glance(index, turns);
            if (round == 0) began = seen.at.epoch();
            r.epoch = seen.at.epoch();
            done = seen.done;
            if (done >= index) break;
            if (round % 4 == 0 || gives_up) {
                if (const device_result why = look(until); !why) {
                    if (why.what != outcome::timeout || turns.looked || gives_up) return why;
                    gives_up = true;  // others have looked, who need not have said what they found
                }
            } else if (turns.looked) {
                spin(until.host());
            } else {
                pause(until.host());
            }
        }
        if (turns.looked && turns.others) store<order::release, Policy::who>(&w_->reached, done);  // pairs with glance's acquire
        if (r.epoch != began) r.what = outcome::moved;
        return r;
    }

    /// Effects: takes what lies in the active lane's CQ, unless another thread is at it. Returns true if it took anything.
    VCCL_HOST_DEVICE VCCL_NOINLINE bool poll() const {
        const gate g = open();
        if (g.closed()) return false;
        const std::uint64_t before = completed();
        return take(g, no_index, {}) > before;
    }

protected:
    static constexpr std::uint64_t no_index = ~std::uint64_t{0};

    VCCL_HOST_DEVICE void give(std::int64_t n) const noexcept {
        if constexpr (Policy::alone)
            store<released, Policy::who>(&w_->credits, load<order::relaxed, Policy::who>(&w_->credits) + n);
        else
            (void)fetch_add<released, Policy::who>(&w_->credits, n);
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

    const queue_view* v_;
    queue_words* w_;

private:
    static constexpr unsigned patience = 1024;  ///< rounds of a wait, of which one at least looks, whatever others do
    static constexpr unsigned probes = 8;  ///< of a poll: it takes up to 2^(probes - 1) CQEs
    /// Pollers meet the service on `completed` and the gate, whatever the posters share: each writes one and then reads the
    /// other, and one of them must see what the other wrote. On a CPU that takes seq_cst; in a GPU's memory, where the service
    /// reads and writes by copies, both meet in the L2 cache, and program order is enough.
    static constexpr scope poll_scope = scope::system;
#if defined(__CUDA_ARCH__)
    static constexpr order take_poll = order::acquire, look_again = order::acquire;
#else
    static constexpr order take_poll = order::seq_cst, look_again = order::seq_cst;
#endif

    /// What a thread that waits has found: below `done` everything is done, which it has acquired; the gate at that time.
    struct sight {
        std::uint64_t done{};
        gate at{};
    };
    /// A thread that waits, among others that do: each look is a load or more across a bus, which many at once keep from all else.
    /// So they look in turns: a thread alone again and again, one of several when no other has begun since its last round.
    /// Others may be here for a moment only and say nothing: so each looks now and then in any case, and before it gives up.
    struct watch {
        std::uint64_t looks{};  ///< the queue's, as last seen
        unsigned count{};  ///< of its own
        std::uint32_t each{1};  ///< WQEs a CQE, as far as it knows
        bool must{};  ///< look in this round
        bool looked{};  ///< in the last round
        bool others{};  ///< another one looks, too
    };
    /// Effects: whether this round is for a look. `looks`: the queue's, loaded in this round.
    VCCL_HOST_DEVICE bool takes_turn(watch& w, std::uint64_t looks) const noexcept {
        if constexpr (Policy::alone) return true;
        const bool first = w.count == 0, alone = looks == w.looks;
        if (first || w.must || (alone && w.looked)) {
            (void)fetch_add<order::relaxed, Policy::who>(&w_->looks, std::uint64_t{1});
            w.looks = looks + 1;
            return true;
        }
        w.looks = looks;
        w.others = true;
        if (!alone || !compare_exchange<order::relaxed, Policy::who>(&w_->looks, looks, looks + 1)) return false;
        ++w.looks;
        return true;
    }
    /// Effects: takes completions if they say that everything below `index` is done, which it finds out without a lock; in every
    /// fourth look whatever there is. An `index` of no_index becomes what is published now.
    VCCL_HOST_DEVICE sight glance(std::uint64_t& index, watch& w) const {
        // Under way together.
        const stamp published{load<order::relaxed, Policy::who>(&w_->ready)};
        const gate g{load<order::relaxed, Policy::who>(&w_->open)};
        const completions seen{load<order::relaxed, Policy::who>(&w_->completed)};
        const std::uint64_t polled = load<order::relaxed, Policy::who>(&w_->polled);
        const std::uint64_t taken = load<order::relaxed, Policy::who>(&w_->taken);
        const std::uint64_t reached = load<order::relaxed, Policy::who>(&w_->reached);
        const std::uint64_t looks = load<order::relaxed, Policy::who>(&w_->looks);
        if (index == no_index) index = published.index();
        w.looked = seen.index() < index && reached < index && !g.closed() && takes_turn(w, looks);
        if (seen.index() >= index) return {completed(), g};
        if (reached >= index) return {load<order::acquire, Policy::who>(&w_->reached), g};
        if (!w.looked) return {seen.index(), g};
        const std::uint64_t from = polled == g.raw ? taken : 0, done = start_of(seen.index(), g, polled);
        if (done >= index) return {take(g, no_index, {}), g};
        return {look_at_cq(g, from, done, index, w.others ? published.index() : index, w), g};
    }
    /// Effects: looks for the CQE that says that everything below `index` is done, and, for the others, for the one of everything
    /// below `published`. `from` is the first entry that was not taken, `done` what is done without it. Returns: below which index
    /// everything is.
    VCCL_HOST_DEVICE std::uint64_t look_at_cq(gate g, std::uint64_t from, std::uint64_t done, std::uint64_t index,
                                              std::uint64_t published, watch& w) const {
        const device::ring& r = v_->rings[g.ring()].ring;
        const bool takes = w.count % 4 == 1, closely = takes || w.count == 0;
        ++w.count;
        // Under way together. If every post is like the first one, these two say how much is done; `near` says what that one is like.
        std::uint64_t at = entry_for(index - done, from, w, r);
        const std::uint64_t last = published > index ? entry_for(published - done, from, w, r) : at;
        std::uint32_t all = 0, near = 0;
        if (last != at) all = load<acquired_later, scope::system>(&r.entry(last).word[15]);
        if (closely && at != from) near = load<acquired_later, scope::system>(&r.entry(from).word[15]);
        std::uint32_t tail = load<order::acquire, scope::system>(&r.entry(at).word[15]);
        if (at == from) near = tail;
        if (last != at && is_success(all, last, r)) {
            acquire_from_system();
            return settle(g, done, index, last, tail_of(all));
        }
        if (is_success(tail, at, r)) return settle(g, done, index, at, tail_of(tail));
        if (closely && is_success(near, from, r) && reach(tail_of(near), g, done) != w.each) {
            w.each = reach(tail_of(near), g, done);
            at = entry_for(index - done, from, w, r);
            tail = load<order::acquire, scope::system>(&r.entry(at).word[15]);
            if (is_success(tail, at, r)) return settle(g, done, index, at, tail_of(tail));
        }
        return takes && is_written(tail_of(near), from, r.cq_depth_log) ? take(g, no_index, {}) : done;
    }
    /// Where the CQE lies that says that `wqes` more are done.
    VCCL_HOST_DEVICE static std::uint64_t entry_for(std::uint64_t wqes, std::uint64_t from, const watch& w,
                                                    const device::ring& r) noexcept {
        const auto far = static_cast<std::uint32_t>(wqes < r.cq_depth() ? wqes : r.cq_depth());
        return from + (far - 1) / w.each;
    }
    /// A successful entry was found. Unless much has come together, what it says is enough for this thread, and taking it is left
    /// to one that is short of credit: so those who wait do not wait for each other.
    VCCL_HOST_DEVICE std::uint64_t settle(gate g, std::uint64_t done, std::uint64_t index, std::uint64_t at,
                                          cqe_tail tail) const {
        const std::uint64_t said = done + reach(tail, g, done);
        if (said - done > v_->depth()) return done;  // of before `done`: the words were read while another took it
        if (said < index || said - done >= v_->depth() / 4) {
            const std::uint64_t took = take(g, at, tail);
            if (said < index || took >= index) return took;  // else another one is at it
        }
        // It is an entry of this gate's ring if the gate is still the same.
        return load<look_again, poll_scope>(&w_->open) == g.raw ? said : done;
    }
    VCCL_HOST_DEVICE static bool is_success(std::uint32_t tail, std::uint64_t n, const device::ring& r) noexcept {
        return is_written(tail_of(tail), n, r.cq_depth_log) && !is_error(tail_of(tail));
    }
    /// What lies before the first WQE of a new lane was done when the service opened it.
    VCCL_HOST_DEVICE static std::uint64_t start_of(std::uint64_t done, gate g, std::uint64_t polled) noexcept {
        return polled == g.raw ? done : done + static_cast<std::uint16_t>(g.first() - done);
    }
    /// Effects: takes what lies in the CQ of `g`, unless another thread is at it, or the gate has changed. `known`: a successful
    /// entry that was read when the gate was `g`, and with which the caller is content, and its tail; or no_index. Returns: below
    /// which index everything is done.
    VCCL_HOST_DEVICE VCCL_NOINLINE std::uint64_t take(gate g, std::uint64_t known, cqe_tail tail) const {
        const completions found{fetch_or<take_poll, poll_scope>(&w_->completed, completions::busy_bit)};
        if (found.is_busy()) return found.index();
        const ring_view& lane = v_->rings[g.ring()];
        const std::uint64_t polled = load<order::relaxed, Policy::who>(&w_->polled);
        const std::uint64_t taken = load<order::relaxed, Policy::who>(&w_->taken);
        const bool fresh = polled != g.raw;
        const std::uint64_t from = fresh ? 0 : taken;
        std::uint64_t done = start_of(found.index(), g, polled), upto = from;
        if (known != no_index && known >= from) {
            done += reach(tail, g, done);
            upto = known + 1;
        } else {
            upto += take_entries(lane.ring, g, from, done);
        }
        // The gate after the entries: were it closed by now, the service has counted, or will count, what was seen here, and nothing
        // that came later. It changes a CQ only when it has seen that the thread that was at it has left.
        if (load<look_again, poll_scope>(&w_->open) != g.raw) {
            store<released, poll_scope>(&w_->completed, found.left(found.index()).raw);
            return found.index();
        }
        if (upto != from || fresh) store<order::relaxed, Policy::who>(&w_->taken, upto);
        if (fresh) store<order::release, poll_scope>(&w_->polled, g.raw);  // the service reads it before `taken`
        // Half a send queue late at most, since the store is dear for a GPU: the CQ is twice as deep as the send queue.
        const bool tells = (upto ^ from) >= v_->depth() / 2;
        if (tells) store<order::relaxed, scope::system>(lane.ring.cq_record, encode_cq_record(upto));
        // Pairs with who takes the lock next, with who waits for `completed`, and with who takes the credit.
        if (tells)
            release_to_system();
        else
            release_to_gpu();
        store<released, poll_scope>(&w_->completed, found.left(done).raw);
        if (done != found.index()) give(static_cast<std::int64_t>(done - found.index()));
        return done;
    }
    /// How much further than `done` a successful CQE says that everything is done.
    VCCL_HOST_DEVICE static unsigned reach(cqe_tail t, gate g, std::uint64_t done) noexcept {
        return static_cast<std::uint16_t>(t.wqe_index + g.first() - done) + 1u;
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
            done += reach(t, g, done);
        }
        return count;
    }
    /// The first error CQE of an epoch stands for all: those behind it are flushes.
    VCCL_HOST_DEVICE VCCL_NOINLINE void latch(gate g, const cqe_tail& t, std::uint32_t word) const noexcept {
        const device_result known = unpack(load<order::relaxed, Policy::who>(&w_->failure));
        if (known.what == outcome::error && known.epoch == g.epoch()) return;
        const device_result r{outcome::error, syndrome_in(word), vendor_in(word), t.wqe_index, g.epoch()};
        store<order::relaxed, Policy::who>(&w_->failure, pack(r));
        store<order::release, scope::system>(&v_->told->failure, pack(r));
    }
};

}  // namespace vccl::inline v0::device
