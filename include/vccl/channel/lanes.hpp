#pragma once
/// \file
/// The lanes of one end of a channel as the protocol sees them: health, generation, probes. Pure: no I/O, no clock.
/// Both cores are built on it; owner thread only.
///
/// A lane's life:  up -> failed (verdict; its QPs may still write) -> fenced (they cannot) -> restoring (new QPs are
/// being agreed upon) -> verifying (connected; a probe is under way) -> up, with a new generation each time round.

#include <vccl/model/event.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/policy/timing.hpp>

namespace vccl::inline v0 {

/// Where in its life a lane is; the life is told at the top of this header.
enum class lane_health : std::uint8_t { up, failed, fenced, restoring, verifying };

/// All that one end knows of a lane; an endpoint's `lane_health(l)` shows it. Written by the owner thread.
struct lane_state {
    lane_health health{lane_health::fenced};  ///< only `up` carries chunks
    bool port_up{true};             ///< of this end's port, as last told
    bool fencing{};                 ///< the executor has been asked to fence and has not answered yet
    bool probe_open{};              ///< a probe was sent that the lane itself has not answered yet
    bool probe_heard_elsewhere{};   ///< another way answered the open probe
    bool suspected{};               ///< something was amiss and no probe has cleared it up so far
    bool told_back{};               ///< the peer has said that its port is back, since the lane died
    std::uint32_t generation{1};    ///< which life of the lane this is: grows with each rebuild
    std::uint32_t dead_generation{};///< every generation up to this one is dead
    std::uint32_t probe_number{};   ///< of the last probe; answers to earlier ones are no news
    unsigned times_failed{};        ///< verdicts on this lane so far, over all its lives
    unsigned restore_tries{};       ///< since it last was up
    nanoseconds heard_at{};         ///< last sign of life of this very lane
    nanoseconds probed_at{};        ///< when the last probe was sent, on the endpoint's clock
    nanoseconds up_since{};         ///< since when it has carried chunks, or would have
    nanoseconds next_try{};         ///< of a restore (receiver) or notice (sender)
    nanoseconds retry_after{};      ///< current interval of those
};

/// Request intervals: first and longest, doubled from one to the other.
/// @{
inline constexpr nanoseconds first_retry{1'000'000}, longest_retry{64'000'000};
/// @}
/// A restore that the peer refused or that a probe did not confirm is tried again after at most this.
inline constexpr nanoseconds longest_restore_retry{200'000'000};

/// Place in the order of preference: `first`, then the others as they are listed.
constexpr unsigned lane_rank(unsigned first, unsigned l) noexcept { return l == first ? 0 : l < first ? l + 1 : l; }

class lane_book {
public:
    static constexpr std::uint16_t out_of_band_way = 0xffff;

    lane_book() = default;
    lane_book(unsigned count, const detection_times& times, std::uint64_t seed) noexcept
        : count_(count), times_(times), random_(seed | 1) {}

    unsigned count() const noexcept { return count_; }
    lane_state& operator[](unsigned l) noexcept { return lanes_[l]; }
    const lane_state& operator[](unsigned l) const noexcept { return lanes_[l]; }
    const detection_times& times() const noexcept { return times_; }
    bool usable(unsigned l) const noexcept { return l < count_ && lanes_[l].health == lane_health::up; }

    bool any_up() const noexcept {
        for (unsigned l = 0; l < count_; ++l)
            if (lanes_[l].health == lane_health::up) return true;
        return false;
    }
    /// The lane of the best rank among those up that are `fit`; count() if there is none.
    template <class Fit>
    unsigned best(unsigned first, Fit&& fit) const noexcept {
        unsigned found = count_;
        for (unsigned l = 0; l < count_; ++l)
            if (usable(l) && fit(lanes_[l]) && (found == count_ || lane_rank(first, l) < lane_rank(first, found))) found = l;
        return found;
    }
    bool any_fencing() const noexcept {
        for (unsigned l = 0; l < count_; ++l)
            if (lanes_[l].health == lane_health::failed) return true;
        return false;
    }

    /// A sign of life on the lane itself.
    void heard(unsigned l, nanoseconds now) noexcept {
        lanes_[l].heard_at = now;
        lanes_[l].suspected = false;
    }

    /// Effects: verdict: the lane's present generation is dead. Returns false if it was already.
    bool condemn(unsigned l) noexcept {
        lane_state& s = lanes_[l];
        if (s.health == lane_health::failed || s.health == lane_health::fenced) return false;
        s.times_failed += s.health == lane_health::up;
        s.health = lane_health::failed;
        s.dead_generation = s.generation;
        s.probe_open = s.suspected = s.told_back = false;
        return true;
    }

    void raise(unsigned l, nanoseconds now) noexcept {
        lane_state& s = lanes_[l];
        s.health = lane_health::up;
        s.up_since = s.heard_at = now;
        s.probe_open = s.suspected = false;
        s.restore_tries = 0;
    }

    /// Effects: opens a probe of `l`; the caller sends what is returned on the lane itself and out of band.
    control_message open_probe(unsigned l, nanoseconds now) noexcept {
        lane_state& s = lanes_[l];
        s.probe_open = true;
        s.probe_heard_elsewhere = false;
        s.probed_at = now;
        control_message m{};
        m.kind = control_kind::probe;
        m.lane = static_cast<std::uint8_t>(l);
        m.generation = s.generation;
        m.number = ++s.probe_number;
        m.count = static_cast<std::uint16_t>(l);
        return m;
    }
    /// Returns true if it closes the lane's probe: the lane itself answered.
    bool probe_answer(const control_message& m, nanoseconds now) noexcept {
        lane_state& s = lanes_[m.lane];
        if (!s.probe_open || m.number != s.probe_number || m.generation != s.generation) return false;
        if (m.count != m.lane) {
            s.probe_heard_elsewhere = true;
            return false;
        }
        s.probe_open = false;
        heard(m.lane, now);
        return true;
    }
    /// Is it time to probe an `up` lane?
    bool probe_due(unsigned l, nanoseconds now) const noexcept {
        const lane_state& s = lanes_[l];
        return s.health == lane_health::up && !s.probe_open && (s.suspected || now - s.heard_at >= times_.probe_interval);
    }
    /// Has the open probe been answered by another way but not by the lane? Silence everywhere condemns nothing: then the
    /// peer itself may be stopped, and the NIC's own errors will tell.
    bool probe_lost(unsigned l, nanoseconds now) const noexcept {
        const lane_state& s = lanes_[l];
        return s.probe_open && s.probe_heard_elsewhere && now - s.probed_at >= times_.probe_timeout;
    }
    /// An unanswered probe is sent again this often (a stopped peer reads the last one).
    bool probe_stale(unsigned l, nanoseconds now) const noexcept {
        return lanes_[l].probe_open && now - lanes_[l].probed_at >= times_.probe_timeout * 4;
    }

    void forgive(unsigned l, nanoseconds now) noexcept {
        lanes_[l].heard_at = lanes_[l].probed_at = now;
        lanes_[l].suspected = lanes_[l].probe_heard_elsewhere = false;
    }

    /// Effects: sets the next time for a request about `l`, doubling the interval up to `longest`, with up to 25 % jitter.
    void back_off(unsigned l, nanoseconds now, nanoseconds longest) noexcept {
        lane_state& s = lanes_[l];
        s.retry_after = s.retry_after.count == 0 ? first_retry : s.retry_after * 2;
        if (s.retry_after > longest) s.retry_after = longest;
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        s.next_try = now + s.retry_after + s.retry_after * static_cast<std::int64_t>(random_ % 64) / 256;
    }
    /// Effects: the next request about `l` waits for `first_retry` doubled `times`, or the longest.
    void postpone(unsigned l, nanoseconds now, unsigned times) noexcept {
        lanes_[l].next_try = now + (times < 8 ? first_retry * (std::int64_t{1} << times) : longest_restore_retry);
    }
    void hurry(unsigned l, nanoseconds now) noexcept {
        lanes_[l].retry_after = {};
        lanes_[l].next_try = now;
    }
    /// A port came back: its link, and what the kernel knows of the peer's address, are given a moment to settle: a restore
    /// that comes too early is in vain.
    void settle(unsigned l, nanoseconds now) noexcept {
        lanes_[l].retry_after = {};
        lanes_[l].next_try = now + times_.settle_time;
    }

private:
    lane_state lanes_[max_lanes]{};
    unsigned count_{};
    detection_times times_{};
    std::uint64_t random_{1};
};

}  // namespace vccl::inline v0
