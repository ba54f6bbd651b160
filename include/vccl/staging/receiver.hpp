#pragma once
/// \file
/// The staged receiver: receives slices into a ring in host memory and copies them on to the GPU, in order, while the next
/// are on the wire. From recv() to the end of a message: recv (queues) -> step (posts slots; copies what came; ends what was
/// copied). Owner thread only.

#include <vccl/staging/staged.hpp>

namespace vccl::inline v0 {

/// `Rx`: a host or striped receiver. No kernel runs; the engine copies.
template <class Rx, copy_engine Engine>
class staged_receiver : public staged<staged_receiver<Rx, Engine>, Rx, Engine> {
    using base = staged<staged_receiver, Rx, Engine>;
    friend base;

public:
    /// `rx` is used by nobody else and outlives this.
    VCCL_COLD staged_receiver(host_context<typename Rx::backend>& context, Rx& rx, Engine engine,
                              const staging_options& options = {})
        : base(context, rx, std::move(engine), options) {}

    /// Effects: queues room for a message; never blocks. The bytes are there once `ended(m)`. Errors: as staged_sender::send.
    result<sequence> recv(void* device, std::uint64_t room) noexcept { return this->queue(device, room); }
    /// The same, not before the stream's work so far is done; its later work waits until the bytes are there. If the channel
    /// fails the stream is let go, and health() says why. Somebody else than the one who waits for the stream must call
    /// progress(): a proxy.
    result<sequence> recv_on(typename Engine::stream s, void* device, std::uint64_t room) noexcept {
        return this->queue_on(s, device, room);
    }
    /// The bytes of message `m`, or message_too_long: the room was filled, the rest dropped, and the channel goes on. Kept
    /// until copies_in_flight more were queued.
    result<std::uint64_t> outcome(sequence m) const noexcept {
        if (m.value >= this->tail_ || this->tail_ - m.value > copies_in_flight) return errc::invalid_argument;
        const status why = this->health();
        if (m.value >= this->ended_) return why ? status{errc::would_block} : why;
        const auto& x = this->at(m.value);
        return x.too_long ? result<std::uint64_t>(errc::message_too_long) : result<std::uint64_t>(x.moved);
    }

private:
    using slice = typename base::slice;

    bool step() noexcept {
        bool moved = false;
        while (copied_ != begun_ && end_slice()) moved = true;
        while (begun_ != posted_ && this->cutting_ != this->tail_ && begin_slice()) moved = true;
        while (posted_ - copied_ != this->options_.slots && post_slice()) moved = true;
        return moved;
    }
    bool post_slice() noexcept {
        if (!this->posted(this->of(posted_), this->endpoint_.recv(this->view(posted_, this->room())))) return false;
        ++posted_;
        return true;
    }
    /// Begins to copy the next slice to where it belongs, if it has come.
    bool begin_slice() noexcept {
        slice& s = this->of(begun_);
        if (!this->endpoint_.ended(sequence{s.chunk})) return false;
        const auto arrived = this->endpoint_.outcome(sequence{s.chunk});
        if (!arrived) {
            this->give_up(arrived.error());  // a slice larger than ours: the ends differ in slice_bytes
            return false;
        }
        if (begun_ == 0) return greeted(*arrived);
        const std::byte* const from = this->slot(begun_);
        if (*arrived < sizeof(slice_mark) || from[*arrived - 1] > static_cast<std::byte>(slice_mark::last)) {
            this->give_up(errc::protocol_violation);
            return false;
        }
        const std::uint64_t bytes = *arrived - sizeof(slice_mark);
        auto& m = this->at(this->cutting_);
        const std::uint64_t room = m.bytes - m.moved, take = bytes < room ? bytes : room;
        m.too_long = m.too_long || bytes > room;
        s.message = this->cutting_;
        s.last = from[bytes] == static_cast<std::byte>(slice_mark::last);
        if (!this->begin_copy(s, take, [&](std::byte* to) { return this->engine_.write(to, from, take); })) return false;
        this->cutting_ += s.last ? 1 : 0;
        ++begun_;
        return true;
    }
    bool greeted(std::uint64_t bytes) noexcept {
        staging_greeting g{};
        if (bytes == sizeof g) std::memcpy(&g, this->slot(0), sizeof g);
        status wrong;
        if (g.magic != staging_greeting::magic_value)
            wrong = errc::protocol_violation;
        else if (g.version != staging_greeting::current_version)
            wrong = status{errc::version_mismatch, g.version};
        else if (g.slice_bytes != this->options_.slice_bytes)
            wrong = status{errc::policy_mismatch, subject::slice, this->options_.slice_bytes, g.slice_bytes};
        if (!wrong) {
            this->give_up(wrong);
            return false;
        }
        begun_ = copied_ = 1;
        return true;
    }
    bool end_slice() noexcept {
        const slice& s = this->of(copied_);
        if (!this->copied(s)) return false;
        ++copied_;
        if (s.last) this->engine_.release(++this->ended_);
        return true;
    }

    std::uint64_t posted_{}, begun_{}, copied_{};  ///< slices: copied <= begun <= posted
};

}  // namespace vccl::inline v0
