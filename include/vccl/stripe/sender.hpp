#pragma once
/// \file
/// The striped sender: cuts each chunk over its stripes and counts it as sent when all of them are acknowledged.
/// From send() to the end of a chunk: send (records) -> gather (cuts it, gives each stripe its part) -> the stripes' own walk
/// -> gather (retires). Owner thread only; buffers as for a host sender.

#include <vccl/host/sender.hpp>
#include <vccl/stripe/meter.hpp>
#include <vccl/stripe/striped.hpp>

namespace vccl::inline v0 {

template <unsigned Count, share_policy Share, verbs_backend B, class Port, class Group, class Handler, class Log, class Failback,
          class Detect, class Clock, class Oob>
/// What `striped_sender<...>` names.
class basic_striped_sender
    : public striped_endpoint<
          basic_striped_sender<Count, Share, B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>,
          basic_host_sender<B, stripe_port<Port>, Group, detail::stripe_ear<Handler>, placed<Log>, Failback, Detect, Clock, Oob>,
          Count, B, Port, Handler, Clock> {
    using endpoint_type =
        basic_host_sender<B, stripe_port<Port>, Group, detail::stripe_ear<Handler>, placed<Log>, Failback, Detect, Clock, Oob>;
    using base = striped_endpoint<basic_striped_sender, endpoint_type, Count, B, Port, Handler, Clock>;
    friend base;

public:
    using log_type = Log;  ///< as the policy was named

    /// As a host sender; `share` says how much of a chunk each stripe carries. Each stripe has a log of its own.
    VCCL_COLD basic_striped_sender(host_context<B>& context, starting_point from, channel_id channel,
                                   const endpoint_options& options = {}, Port port = {}, Handler handler = {}, Log = {},
                                   Detect detect = {}, Clock clock = {}, Share share = {})
        : base(context, from, channel, options, std::move(port), std::move(handler), std::move(clock)),
          detect_(detect),
          share_(share) {}
    VCCL_COLD ~basic_striped_sender() { end_all(); }

    /// Effects: queues a chunk; never blocks. Errors: as a host sender's.
    result<sequence> send(const memory_view& bytes) noexcept {
        if (status s = this->ready(); !s) return s;
        if (const std::uint64_t n = bytes.bytes(), most = this->options_.max_chunk; n > most)
            return status{errc::too_large, subject::bytes, this->options_.max_chunk,
                          n < 0xffffffff ? static_cast<std::uint32_t>(n) : 0xffffffff};
        if (status s = bytes.check_in(this->context_.stamp()); !s && !bytes.nothing()) return s;
        if (tail_ - head_ == capacity) return status{errc::would_block, subject::room, static_cast<std::uint32_t>(capacity)};
        chunk& c = at(tail_);
        c = chunk{};
        c.bytes = bytes;
        bytes.region()->hold();
        return sequence{tail_++};
    }

    /// Everything below this has been received by the peer.
    sequence acknowledged() const noexcept { return sequence{head_}; }
    /// What the next send() will return.
    sequence next() const noexcept { return sequence{tail_}; }
    /// Has chunk `s` been acknowledged on all its stripes?
    bool ended(sequence s) const noexcept { return head_ > s.value; }

    /// As a host sender's.
    VCCL_COLD status wait(sequence s, nanoseconds timeout) noexcept {
        if (!this->begun_) return errc::not_connected;
        if (s.value >= tail_) return errc::invalid_argument;
        if (status w = this->wait_until(timeout, [&] { return head_ > s.value; }); !w) return w;
        return tail_ - s.value <= capacity && at(s.value).too_long ? status{errc::message_too_long} : status{};
    }
    /// Drives until everything sent is acknowledged. Errors: timeout; why the channel ended.
    VCCL_COLD status wait_all(nanoseconds timeout) noexcept {
        return this->wait_until(timeout, [&] { return head_ == tail_; });
    }
    /// Effects: waits for everything to be acknowledged, then closes both ends in order.
    VCCL_COLD status close(nanoseconds timeout) noexcept {
        if (!this->begun_) return errc::not_connected;
        const nanoseconds deadline = this->clock_.now() + timeout;
        if (status s = wait_all(timeout); !s) return s;
        for (auto& s : this->stripes_) (void)s->close(nanoseconds{});  // begins; the passes below end it
        const status s = this->wait_until(deadline - this->clock_.now(), [] { return false; });
        return s.code == errc::closed ? status{} : s;
    }

    /// What a stripe has under way, and how fast it carries.
    const stripe_meter& meter(unsigned stripe) const noexcept { return meters_[stripe]; }

private:
    static constexpr std::uint64_t capacity = Log::capacity;

    struct chunk {
        memory_view bytes;
        std::uint64_t item[Count]{};   ///< its part's number in each stripe that has one
        std::uint32_t on{};            ///< which stripes have a part, a bit each
        bool too_long{};
    };
    chunk& at(std::uint64_t s) noexcept { return chunks_[s % capacity]; }

    VCCL_COLD void make(unsigned i, const endpoint_options& o, const stripe_port<Port>& port) {
        this->stripes_[i].emplace(this->context_, starting_point(this->lanes_[i][0]), this->channel_, o, port,
                                  detail::stripe_ear<Handler>{&this->handler_, static_cast<std::uint8_t>(i)}, placed<Log>{},
                                  detect_, this->clock_);
    }
    /// Small chunks go to the stripes in turn, but to none that the policy would leave out.
    VCCL_COLD std::uint8_t homes() const noexcept {
        unsigned some = 0;
        for (unsigned i = 0; i < Count; ++i)
            if (share_.rate({this->own_[i].rate[0], this->own_[i].rate[0], 0, this->own_[i].far[0], 1}) != 0) some |= 1u << i;
        return static_cast<std::uint8_t>(some != 0 ? some : (1u << Count) - 1);
    }
    VCCL_COLD status begun(const stripe_blob_head& peer) noexcept {
        split_from_ = peer.split_from;
        homes_ = homes();
        return {};
    }

    bool gather() noexcept {
        if (head_ == tail_) return false;
        bool moved = false;
        for (unsigned i = 0; i < Count; ++i) moved |= unload(i);
        while (cut_ != tail_ && cut(cut_)) {
            ++cut_;
            moved = true;
        }
        while (head_ != cut_ && done(at(head_))) retire();
        return moved;
    }
    /// A stripe on another lane than when it was measured carries as that lane promises, until it is measured again.
    void watch_lanes() noexcept {
        for (unsigned i = 0; i < Count; ++i) {
            const lane_id now = this->stripes_[i]->active_lane();
            if (now != measured_on_[i]) meters_[i].forget();
            measured_on_[i] = now;
        }
    }
    bool done(const chunk& c) const noexcept {
        for (unsigned i = 0; i < Count; ++i)
            if (c.on >> i & 1 && this->stripes_[i]->acknowledged().value <= c.item[i]) return false;
        return true;
    }
    /// What a stripe's peer has acknowledged is its backlog no longer.
    bool unload(unsigned i) noexcept {
        const std::uint64_t upto = this->stripes_[i]->acknowledged().value;
        std::uint64_t bytes = 0;
        if (unloaded_[i] == upto) return false;
        for (std::uint64_t& n = unloaded_[i]; n != upto; ++n) bytes += carried_[i][n % capacity];
        meters_[i].unload(bytes, this->clock_.now());
        return true;
    }
    void retire() noexcept {
        const chunk& c = at(head_);
        c.bytes.region()->drop();
        if constexpr (detail::hears_chunks<Handler>) {
            chunk_report r{};
            r.sequence = sequence{head_};
            r.bytes = c.too_long ? 0 : c.bytes.bytes();
            if (c.too_long) r.outcome = errc::message_too_long;
            this->handler_.on_done(r);
        }
        ++head_;
    }

    /// Gives every stripe its part of chunk `s`, once the receiver has granted it. False: not yet.
    bool cut(std::uint64_t s) noexcept {
        chunk& c = at(s);
        const unsigned home = home_of(s, homes_);
        const auto room = this->stripes_[home]->room_for(this->stripes_[home]->next());
        if (!room) return false;
        const std::uint64_t whole = c.bytes.bytes();
        c.too_long = whole > *room;
        c.on = *room < split_from_ ? 1u << home : (1u << Count) - 1;
        std::uint64_t share[Count]{};
        watch_lanes();
        if (!c.too_long) {
            if (c.on == 1u << home)
                share[home] = whole;
            else
                divide(whole, share);
        }
        const nanoseconds now = this->clock_.now();
        std::uint64_t offset = 0;
        for (unsigned i = 0; i < Count; ++i) {
            if ((c.on >> i & 1) == 0) continue;
            endpoint_type& stripe = *this->stripes_[i];
            c.item[i] = stripe.next().value;
            carried_[i][c.item[i] % capacity] = static_cast<std::uint32_t>(share[i]);
            meters_[i].load(share[i], now);
            (void)stripe.send_part(memory_view{c.bytes.region(), 0, c.bytes.addr() + offset, share[i]}, {offset, whole});
            offset += share[i];
        }
        return true;
    }
    void divide(std::uint64_t bytes, std::uint64_t* share) const noexcept {
        stripe_load load[Count];
        for (unsigned i = 0; i < Count; ++i) load[i] = {share_.rate(view(i)), Share::levels ? meters_[i].backlog() : 0};
        cut_over_stripes(bytes, load, Count, share);
    }
    stripe_view view(unsigned i) const noexcept {
        const auto slower = [](std::uint64_t a, std::uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; };
        const unsigned lane = this->stripes_[i]->active_lane().value;
        const port_id port = this->lanes_[i][lane];
        stripe_view v;
        v.rate = slower(this->own_[i].rate[lane], this->peer_[i].rate[lane]);
        v.first_rate = slower(this->own_[i].rate[0], this->peer_[i].rate[0]);
        v.measured = meters_[i].rate();
        v.far = this->own_[i].far[lane] > this->peer_[i].far[lane] ? this->own_[i].far[lane] : this->peer_[i].far[lane];
        v.sharing = 0;
        for (unsigned j = 0; j < Count; ++j) v.sharing += this->lanes_[j][this->stripes_[j]->active_lane().value] == port;
        return v;
    }

    VCCL_COLD void end_all() noexcept {
        if (std::exchange(let_go_, true)) return;
        for (std::uint64_t s = head_; s != tail_; ++s) at(s).bytes.region()->drop();
    }

    [[no_unique_address]] Detect detect_;
    [[no_unique_address]] Share share_;
    owned_array<chunk> chunks_{new chunk[capacity]};
    std::uint32_t carried_[Count][capacity]{};  ///< bytes of each part that a stripe has under way
    std::uint64_t head_{}, cut_{}, tail_{};     ///< head <= cut <= tail: below `cut` the stripes have their parts
    stripe_meter meters_[Count]{};
    lane_id measured_on_[Count]{};
    std::uint64_t unloaded_[Count]{};  ///< parts below this number have left the meter
    std::uint32_t split_from_{};
    std::uint8_t homes_{};
    bool let_go_{};
};

}  // namespace vccl::inline v0
