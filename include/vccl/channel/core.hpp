#pragma once
/// \file
/// What the sender's and the receiver's protocol cores share: epoch, lane book, probes, suspension, the peer's life.
/// Pure: events and times come in as arguments, actions go out as calls on an executor `Io`, which in production posts
/// work requests and in tests writes down what it was asked. Owner thread only. docs/protocol.md has the state diagram.
///
/// An executor offers:
///   void fence(unsigned lane)                             begin: QPs to ERR and drained, or destroyed; then core.fenced()
///   void tell(const control_message&)                     by every way but the lane that it speaks of
///   bool tell_on(std::uint16_t way, const control_message&)  by one lane, or lane_book::out_of_band_way; false: withheld
///   void report(channel_event)                            tell the handler; the executor fills in `at`
///   void over()                                           the channel has failed or closed; end what is outstanding

#include <vccl/channel/lanes.hpp>

namespace vccl::inline v0 {

/// What a channel is doing, as its end at hand knows it. docs/protocol.md has the diagram.
enum class channel_state : std::uint8_t {
    connecting,
    running,
    fencing,     ///< a lane in use is dead; old QPs are being silenced
    announcing,  ///< receiver: sync sent, not yet acknowledged.  sender: has asked, waits for the sync
    suspended,   ///< no lane is left
    failed,
    closed,
};

struct core_options {
    detection_times times{};
    nanoseconds give_up_after{30'000'000'000};  ///< suspended or unanswered for so long: the channel fails
    nanoseconds peer_grace{5'000'000'000};      ///< out-of-band channel gone and nothing heard for so long: peer_lost
    std::uint64_t connection{};
    std::uint64_t seed{1};
    unsigned lanes{1};
};

template <class Io>
class channel_core {
public:
    VCCL_COLD channel_core(Io& io, const core_options& o) noexcept : io_(io), options_(o), book_(o.lanes, o.times, o.seed) {}

    channel_state state() const noexcept { return state_; }
    bool over() const noexcept { return state_ == channel_state::failed || state_ == channel_state::closed; }
    status why() const noexcept { return why_; }
    vccl::epoch epoch() const noexcept { return vccl::epoch{epoch_}; }
    const lane_book& lanes() const noexcept { return book_; }
    bool usable(unsigned l) const noexcept { return book_.usable(l); }
    /// Does anything need attention at every pass rather than at every tick?
    bool unsettled() const noexcept { return state_ != channel_state::running; }

    /// The out-of-band channel is back, or broke in a way that makes a peer lost that is silent for `grace` from now on.
    VCCL_COLD void oob_changed(bool up, nanoseconds grace, nanoseconds now) noexcept {
        oob_grace_ = grace;
        if (up == oob_up_) return;
        oob_up_ = up;
        oob_lost_at_ = now;
        channel_event e{};
        e.what = up ? channel_event::kind::oob_restored : channel_event::kind::oob_lost;
        report(e);
    }
    /// Anything that shows the peer alive, by whatever way.
    void peer_alive(nanoseconds now) noexcept { alive_at_ = now; }

    /// Has the peer been told that this end failed, as far as it has to be and can be? Until then tick() repeats it.
    bool told() const noexcept { return !telling_; }

    /// Effects: the channel ends in failure; the peer is told, nothing more completes (G7).
    VCCL_COLD void fail(status why, bool tell_peer = true) noexcept {
        if (over()) return;
        why.epoch = epoch_;
        why_ = why;
        state_ = channel_state::failed;
        telling_ = tell_peer;
        if (telling_) io_.tell(abort_message());
        channel_event e{};
        e.what = channel_event::kind::failed;
        e.why = why_;
        if (why.lane != status::no_lane) e.lane = lane_id{why.lane};
        report(e);
        io_.over();
    }

protected:
    using kind = channel_event::kind;

    VCCL_COLD control_message message(control_kind k, unsigned lane) const noexcept {
        control_message m{};
        m.kind = k;
        m.lane = static_cast<std::uint8_t>(lane);
        m.generation = book_[lane].generation;
        return seal(m);
    }
    VCCL_COLD control_message seal(control_message m) const noexcept {
        m.magic = control_message::magic_value;
        m.version = wire_version;
        m.connection = options_.connection;
        m.epoch = epoch_;
        return m;
    }

    VCCL_COLD void report(channel_event e) noexcept {
        e.epoch = vccl::epoch{epoch_};
        io_.report(e);
    }

    /// Common part of a verdict. Returns false if that generation was already condemned.
    VCCL_COLD bool condemn(unsigned l, fault_cause cause, wc_status wc, nanoseconds now) noexcept {
        const bool was_up = book_[l].health == lane_health::up;
        if (!book_.condemn(l)) return false;
        if (was_up) {
            channel_event e{};
            e.what = kind::lane_failed;
            e.lane = lane_id{static_cast<std::uint8_t>(l)};
            e.cause = cause;
            e.wc = wc;
            report(e);
        }
        last_cause_ = cause;
        last_wc_ = wc;
        last_lane_ = static_cast<std::uint8_t>(l);
        book_.hurry(l, now);
        book_[l].fencing = true;
        io_.fence(l);
        return true;
    }

    /// After the end: the peer may still need an answer.
    VCCL_COLD void answer_when_over(const control_message& m) noexcept {
        if (m.kind == control_kind::goodbye) io_.tell(message(control_kind::goodbye_ack, 0));
        if (m.kind == control_kind::abort) io_.tell(message(control_kind::abort_ack, 0));
        if (m.kind == control_kind::abort_ack) telling_ = false;
    }
    /// After the end: repeats the abort until it is acknowledged, for as long as a peer may be silent.
    VCCL_COLD void tick_when_over(nanoseconds now) noexcept {
        if (!telling_) return;
        if (tell_until_.count == 0) {
            tell_until_ = now + options_.peer_grace;
            next_tell_ = now + first_retry;
        }
        if (now >= tell_until_) telling_ = false;
        if (!telling_ || now < next_tell_) return;
        io_.tell(abort_message());
        tell_retry_ = tell_retry_ * 2 < longest_retry ? tell_retry_ * 2 : longest_retry;
        next_tell_ = now + tell_retry_;
    }
    VCCL_COLD control_message abort_message() const noexcept {
        control_message m = message(control_kind::abort, 0);
        m.cause = static_cast<std::uint8_t>(why_.code);
        return m;
    }

    VCCL_COLD void close(nanoseconds) noexcept {
        if (over()) return;
        state_ = channel_state::closed;
        why_ = status{errc::closed};
        channel_event e{};
        e.what = kind::closed;
        report(e);
        io_.over();
    }

    VCCL_COLD void suspend(nanoseconds now) noexcept {
        if (state_ == channel_state::suspended) return;
        state_ = channel_state::suspended;
        suspended_at_ = now;
        channel_event e{};
        e.what = kind::suspended;
        e.cause = last_cause_;
        e.wc = last_wc_;
        e.lane = lane_id{last_lane_};
        report(e);
    }

    /// The peer gave up. That no lane was left is as true here as there; other reasons are the peer's own.
    VCCL_COLD void peer_gave_up(const control_message& m) noexcept {
        io_.tell(message(control_kind::abort_ack, 0));
        const auto cause = static_cast<errc>(m.cause);
        fail(cause == errc::no_lane_left ? lane_status(cause) : status{errc::aborted, subject::peer_code, m.cause}, false);
    }

    VCCL_COLD status lane_status(errc c) const noexcept {
        status s{c};
        s.lane = last_lane_;
        s.wc = last_wc_;
        s.detail = static_cast<std::uint32_t>(last_cause_);
        return s;
    }

    /// Replies to a probe by the way it came.
    VCCL_COLD void answer_probe(const control_message& m, nanoseconds now) noexcept {
        if (m.lane >= book_.count()) return;
        if (m.count == m.lane && m.generation == book_[m.lane].generation && book_.usable(m.lane)) book_.heard(m.lane, now);
        control_message a = message(control_kind::probe_ack, m.lane);
        a.number = m.number;
        a.generation = m.generation;
        a.count = m.count;
        (void)io_.tell_on(m.count, a);
    }
    VCCL_COLD void send_probe(unsigned l, nanoseconds now) noexcept {
        control_message m = seal(book_.open_probe(l, now));
        // Withheld on the lane, the probe must not be answered elsewhere: that would look like a dead lane.
        if (!io_.tell_on(static_cast<std::uint16_t>(l), m)) return;
        m.count = lane_book::out_of_band_way;
        (void)io_.tell_on(lane_book::out_of_band_way, m);
    }

    /// This end itself stood still: its silence is no evidence against anybody.
    VCCL_COLD void forgive(nanoseconds now) noexcept {
        alive_at_ = now;
        if (!oob_up_) oob_lost_at_ = now;
        for (unsigned l = 0; l < book_.count(); ++l) book_.forgive(l, now);
    }

    /// Peer-lost and give-up rules. Returns false if the channel ended.
    VCCL_COLD bool still_worth_it(nanoseconds now, bool waiting_for_peer) noexcept {
        if (!oob_up_ && now - oob_lost_at_ >= oob_grace_ && now - alive_at_ >= oob_grace_) {
            fail(lane_status(errc::peer_lost), false);
            return false;
        }
        if (state_ == channel_state::suspended && now - suspended_at_ >= options_.give_up_after) {
            fail(lane_status(errc::no_lane_left));
            return false;
        }
        if (waiting_for_peer && fault_at_.count != 0 && now - fault_at_ >= options_.give_up_after) {
            fail(lane_status(errc::no_lane_left));
            return false;
        }
        return true;
    }

    Io& io_;
    core_options options_;
    lane_book book_;
    channel_state state_{channel_state::connecting};
    status why_{};
    std::uint32_t epoch_{1};
    bool oob_up_{true}, telling_{};
    fault_cause last_cause_{fault_cause::none};
    wc_status last_wc_{wc_status::success};
    std::uint8_t last_lane_{};
    nanoseconds oob_grace_{}, oob_lost_at_{}, alive_at_{}, suspended_at_{}, fault_at_{};
    nanoseconds next_tell_{}, tell_until_{}, tell_retry_{first_retry};
};

}  // namespace vccl::inline v0
