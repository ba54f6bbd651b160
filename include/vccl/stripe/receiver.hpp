#pragma once
/// \file
/// The striped receiver: posts each receive, whole, on all of its stripes, or on one if it is small, and counts it as
/// received when all parts have come. From recv() to the end of a chunk: recv (posts) -> the stripes' own walk -> gather
/// (delivers). Owner thread only; buffers as for a host receiver.

#include <vccl/host/receiver.hpp>
#include <vccl/stripe/striped.hpp>

namespace vccl::inline v0 {

template <unsigned Count, share_policy Share, verbs_backend B, class Port, class Group, class Handler, class Log, class Failback,
          class Detect, class Clock, class Oob>
/// What `striped_receiver<...>` names.
class basic_striped_receiver
    : public striped_endpoint<
          basic_striped_receiver<Count, Share, B, Port, Group, Handler, Log, Failback, Detect, Clock, Oob>,
          basic_host_receiver<B, stripe_port<Port>, Group, detail::stripe_ear<Handler>, Log, Failback, Detect, Clock, Oob>, Count,
          B, Port, Handler, Clock> {
    using endpoint_type =
        basic_host_receiver<B, stripe_port<Port>, Group, detail::stripe_ear<Handler>, Log, Failback, Detect, Clock, Oob>;
    using base = striped_endpoint<basic_striped_receiver, endpoint_type, Count, B, Port, Handler, Clock>;
    friend base;

public:
    using failback_type = Failback;  ///< as the policy was named

    /// As a host receiver. The sender's share policy alone counts.
    VCCL_COLD basic_striped_receiver(host_context<B>& context, starting_point from, channel_id channel,
                                     const endpoint_options& options = {}, Port port = {}, Handler handler = {},
                                     Failback failback = {}, Detect detect = {}, Clock clock = {})
        : base(context, from, channel, options, std::move(port), std::move(handler), std::move(clock)),
          failback_(failback),
          detect_(detect) {}

    /// Effects: posts a receive; never blocks. Errors: as a host receiver's.
    result<sequence> recv(const memory_view& room) noexcept {
        if (status s = this->ready(); !s) return s;
        if (tail_ - head_ == this->options_.window) return status{errc::would_block, subject::room, this->options_.window};
        const bool whole = room.bytes() < this->options_.split_from;
        chunk& c = at(tail_);
        c = chunk{};
        c.on = whole ? 1u << home_of(tail_, homes_) : (1u << Count) - 1;
        for (unsigned i = 0; i < Count; ++i) {
            if ((c.on >> i & 1) == 0) continue;
            const auto item = this->stripes_[i]->recv(room);
            // Refused on its first stripe, it is nowhere: all stripes would refuse it alike.
            if (!item) return item.error();
            c.item[i] = item->value;
        }
        return sequence{tail_++};
    }

    /// Everything below this has been received, flush included.
    sequence received() const noexcept { return sequence{head_}; }
    /// What the next recv() will return.
    sequence next() const noexcept { return sequence{tail_}; }
    /// Has chunk `s` ended, on all its stripes?
    bool ended(sequence s) const noexcept { return head_ > s.value; }

    /// As a host receiver's.
    VCCL_COLD result<std::uint64_t> outcome(sequence s) const noexcept {
        if (s.value >= tail_) return errc::invalid_argument;
        if (s.value >= head_) {
            const status why = this->health();
            return why ? status{errc::would_block} : why;
        }
        if (tail_ - s.value > max_window) return errc::invalid_argument;
        const chunk& c = chunks_[s.value % max_window];
        return c.too_long ? result<std::uint64_t>(errc::message_too_long) : result<std::uint64_t>(c.bytes);
    }
    /// As a host receiver's: the bytes of chunk `s`, or why there are none.
    VCCL_COLD result<std::uint64_t> wait(sequence s, nanoseconds timeout) noexcept {
        if (!this->begun_) return errc::not_connected;
        if (s.value >= tail_) return errc::invalid_argument;
        if (status w = this->wait_until(timeout, [&] { return head_ > s.value; }); !w) return w;
        return outcome(s);
    }
    /// Effects: progresses until the sender has closed (ok), or the channel failed, or `timeout`.
    VCCL_COLD status wait_closed(nanoseconds timeout) noexcept {
        if (!this->begun_) return errc::not_connected;
        const status s = this->wait_until(timeout, [] { return false; });
        return s.code == errc::closed ? status{} : s;
    }

private:
    struct chunk {
        std::uint64_t item[Count]{};  ///< its number in each stripe that has a part of it
        std::uint64_t bytes{};
        std::uint32_t on{};           ///< which stripes those are, a bit each
        bool too_long{};
    };
    chunk& at(std::uint64_t s) noexcept { return chunks_[s % max_window]; }

    VCCL_COLD void make(unsigned i, const endpoint_options& o, const stripe_port<Port>& port) {
        this->stripes_[i].emplace(this->context_, starting_point(this->lanes_[i][0]), this->channel_, o, port,
                                  detail::stripe_ear<Handler>{&this->handler_, static_cast<std::uint8_t>(i)}, failback_, detect_,
                                  this->clock_);
    }
    static constexpr std::uint8_t homes() noexcept { return 0; }
    VCCL_COLD status begun(const stripe_blob_head& peer) noexcept {
        if (peer.homes == 0 || peer.homes >> Count != 0) return errc::bad_blob;
        homes_ = peer.homes;
        return {};
    }

    bool gather() noexcept {
        const std::uint64_t from = head_;
        while (head_ != tail_ && done(at(head_))) deliver();
        return head_ != from;
    }
    bool done(const chunk& c) const noexcept {
        for (unsigned i = 0; i < Count; ++i)
            if (c.on >> i & 1 && this->stripes_[i]->received().value <= c.item[i]) return false;
        return true;
    }
    void deliver() noexcept {
        chunk& c = at(head_);
        for (unsigned i = 0; i < Count; ++i) {
            if ((c.on >> i & 1) == 0) continue;
            const auto part = this->stripes_[i]->outcome(sequence{c.item[i]});
            if (part)
                c.bytes += *part;
            else
                c.too_long = true;
        }
        if constexpr (detail::hears_chunks<Handler>) {
            chunk_report r{};
            r.sequence = sequence{head_};
            r.bytes = c.too_long ? 0 : c.bytes;
            if (c.too_long) r.outcome = errc::message_too_long;
            this->handler_.on_done(r);
        }
        ++head_;
    }
    static void end_all() noexcept {}

    Failback failback_;
    [[no_unique_address]] Detect detect_;
    owned_array<chunk> chunks_{new chunk[max_window]};
    std::uint64_t head_{}, tail_{};
    std::uint8_t homes_{};
};

}  // namespace vccl::inline v0
