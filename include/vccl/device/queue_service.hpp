#pragma once
/// \file
/// The host's side of a device queue: opens it, moves it to another lane while kernels go on posting, carries over what they
/// still published on the old one, and tells what their completions say. Service thread only; it never waits.

#include <vccl/device/restart.hpp>
#include <vccl/device/ring_access.hpp>

namespace vccl::inline v0::device {

template <queue_space Space>
class queue_service {
public:
    /// `view`: with pointers that the host can use, too. It may still be filled in until `open`.
    explicit queue_service(const queue_view* view = nullptr, Space space = {}) noexcept
        : v_(view), space_(space), access_(space) {}

    /// Effects: the queue begins, with software index `start` as hardware index `hardware` of the ring's QP.
    void open(unsigned ring, std::uint32_t epoch, std::uint32_t qpn, std::uint64_t start = 0,
              std::uint16_t hardware = 0) noexcept {
        queue_words* const w = v_->words;
        adopted_ = start;
        active_ = gate::make(qpn, start - hardware, epoch, ring);
        opened_[ring] = active_;
        const stamp s = stamp::make(start, active_);
        space_.write(&w->reserve, start);
        space_.write(reinterpret_cast<std::uint64_t*>(&w->credits), v_->depth());
        space_.write(&w->rung, bell::left_at(start).raw);
        space_.write(&w->completed, completions::make(start).raw);
        space_.write(&w->ready, s.raw);
        space_.write(&w->polled, active_.raw);
        store<order::release, scope::system>(&v_->told->rung, s.raw);
        show(s);
    }

    gate active() const noexcept { return active_; }
    /// How far the doorbell has rung: everything below is posted.
    stamp rung() const noexcept { return {load<order::acquire, scope::system>(&v_->told->rung)}; }

    /// Effects: the active lane's completions are read by nobody but scan() from now on. Its QP is about to be fenced.
    void close() noexcept { space_.write(&v_->words->open, active_.close().raw); }

    struct moved {
        std::uint64_t replayed{};   ///< WQEs posted again
        std::uint64_t delivered{};  ///< WQEs that had taken effect although their completion never came
    };
    /// Effects: goes on in `to`, a fresh ring. Requires: close(); after that the old ring's QP was fenced, at
    /// either end. `words`: the peer's signal words since.
    moved move(unsigned to, std::uint32_t epoch, std::uint32_t qpn, const std::uint64_t* words, std::uint32_t count) noexcept {
        (void)adopt();
        const stamp s = rung();
        const std::uint64_t end = s.epoch() == active_.epoch() ? s.index() : adopted_;
        const gate old = active_;
        const device::ring& from = v_->rings[old.ring()].ring;
        const std::uint64_t done = scan().done;
        const std::uint64_t restart = restart_point(done, end, words, count, [&](std::uint64_t i) {
            return effect_of(access_.get(from.slot(old.hardware(i))), space_.read(&v_->notes[i & (v_->depth() - 1)]), v_->signals,
                             v_->signal_count);
        });
        active_ = gate::make(qpn, restart, epoch, to);
        opened_[to] = active_;
        carry(old, restart, end);
        ring_bell(end);
        adopted_ = end;
        show(stamp::make(end, active_));
        return {end - restart, restart - done};
    }

    /// Effects: takes over what posters published on an earlier lane since the gate moved. Returns true if there was any.
    bool adopt() noexcept {
        const stamp s = rung();
        if (s.epoch() == active_.epoch() || s.index() == adopted_) return false;
        carry(opened_[s.ring()], adopted_, s.index());
        ring_bell(s.index());
        adopted_ = s.index();
        space_.write(&v_->words->adopted, stamp::make(adopted_, active_).raw);
        begin_watch();
        return true;
    }

    /// What the active lane's CQ says beyond what pollers have taken. Changes nothing.
    struct seen {
        std::uint64_t done{};  ///< everything below is done
        device_result failure{};      ///< the first error CQE, if there is one
    };
    seen scan() const noexcept {
        const device::ring& r = v_->rings[active_.ring()].ring;
        const bool fresh = space_.read(&v_->words->polled) != active_.raw;
        std::uint64_t n = fresh ? 0 : space_.read(&v_->words->taken);
        seen s{completions{space_.read(&v_->words->completed)}.index(), {}};
        if (fresh) s.done += static_cast<std::uint16_t>(active_.first() - s.done);
        for (const std::uint64_t end = n + r.cq_depth(); n != end; ++n) {
            const cqe64& c = r.entry(n);
            const cqe_tail t = tail_of(access_.word(c, 15));
            if (!is_written(t, n, r.cq_depth_log)) break;
            if (is_error(t)) {
                const std::uint32_t why = access_.word(c, cqe_syndrome_word);
                s.failure = {outcome::error, syndrome_in(why), vendor_in(why), t.wqe_index, active_.epoch()};
                break;
            }
            // A poller may be at the same entries: one that it has counted already lies below `done`.
            const std::uint16_t ahead = static_cast<std::uint16_t>(t.wqe_index + active_.first() - s.done);
            if (ahead < v_->depth()) s.done += ahead + 1u;
        }
        return s;
    }
    /// The first error that a kernel has polled in this epoch; ok if none.
    device_result failure() const noexcept {
        const device_result r = unpack(load<order::acquire, scope::system>(&v_->told->failure));
        return r.what == outcome::error && r.epoch == active_.epoch() ? r : device_result{};
    }

    /// Can no thread touch this ring any more, so that it may be used anew? True once everybody who may have begun to write there
    /// has published and rung, and whoever polled then has left. Asked again and again, while posters go on.
    bool quiescent(unsigned ring) noexcept {
        if (active_.ring() == ring && active_.raw != 0) return false;
        (void)adopt();
        watch();
        return leaving_ == leaving::gone;
    }

private:
    /// How far those have got who may know an earlier gate than the present one.
    enum class leaving : std::uint8_t {
        posting,  ///< some may hold reservations from before
        ringing,  ///< all those are published; one may still ring or poll
        gone,
    };
    /// Each step is a fact that stays true: so it does not matter how slowly this looks, or how busy the queue is.
    void watch() noexcept {
        const queue_words* const w = v_->words;
        if (leaving_ == leaving::posting) {
            if (!counted_) {
                reserved_ = space_.read(&w->reserve);
                counted_ = true;
            }
            const stamp ready{space_.read(&w->ready)};
            if (ready.index() < reserved_ || rung().index() < reserved_) return;
            if (ready.epoch() != active_.epoch() && ready.index() != adopted_) return;
            poller_ = {space_.read(&w->completed)};
            ringer_ = {space_.read(&w->rung)};
            leaving_ = leaving::ringing;
        }
        if (leaving_ != leaving::ringing) return;
        const bool polled = !poller_.is_busy() || completions{space_.read(&w->completed)}.ticket() != poller_.ticket();
        const bell now{space_.read(&w->rung)};
        const bool rang = ringer_.asks() == 0 || now.asks() == 0 || !same_index(now, ringer_);
        if (polled && rang) leaving_ = leaving::gone;
    }
    void begin_watch() noexcept {
        leaving_ = leaving::posting;
        counted_ = false;
    }

    void show(stamp s) noexcept {
        queue_words* const w = v_->words;
        space_.write(&w->opened[active_.ring()], active_.raw);
        space_.write(&w->adopted, s.raw);
        space_.write(&w->open, active_.raw);  // last: whoever sees it finds the rest
        begin_watch();
    }
    /// Rewrites the WQEs [begin, end), published under gate `from`, in the active lane's ring.
    void carry(gate from, std::uint64_t begin, std::uint64_t end) noexcept {
        const ring_view& to = v_->rings[active_.ring()];
        for (std::uint64_t i = begin; i != end; ++i) {
            wqe_block b = access_.get(v_->rings[from.ring()].ring.slot(from.hardware(i)));
            carry_over(b, i, active_, *v_, to);
            access_.put(to.ring.slot(active_.hardware(i)), b);
        }
    }
    void ring_bell(std::uint64_t end) noexcept { access_.ring(v_->rings[active_.ring()].ring, active_, end); }

    const queue_view* v_{};
    [[no_unique_address]] Space space_{};
    [[no_unique_address]] ring_access<Space> access_;
    gate active_{};
    gate opened_[max_rings]{};
    std::uint64_t adopted_{};
    leaving leaving_{};
    bool counted_{};
    std::uint64_t reserved_{};  ///< what was reserved when the gate was new
    completions poller_{};
    bell ringer_{};
};

}  // namespace vccl::inline v0::device
