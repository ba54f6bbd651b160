#pragma once
/// \file
/// The staged sender: GPU memory through a ring in host memory, slice by slice, each on the wire while the next is copied.
/// A slice stays in the ring until the receiver has it, so a failover sends it again from there and never reads the GPU twice.
/// From send() to the end of a message: send (queues) -> step (begins copies; sends what was copied; ends what is
/// acknowledged). Owner thread only.

#include <vccl/staging/staged.hpp>

namespace vccl::inline v0 {

/// `Tx`: a host or striped sender. No kernel runs; the engine copies.
template <class Tx, copy_engine Engine>
class staged_sender : public staged<staged_sender<Tx, Engine>, Tx, Engine> {
    using base = staged<staged_sender, Tx, Engine>;
    friend base;

public:
    /// `tx` is used by nobody else and outlives this.
    VCCL_COLD staged_sender(host_context<typename Tx::backend>& context, Tx& tx, Engine engine,
                            const staging_options& options = {})
        : base(context, tx, std::move(engine), options) {}

    /// Effects: queues a message; never blocks. The bytes may be changed once `read(m)`. Errors: not_connected (open() first),
    /// would_block, what the engine's check says, or why the channel ended.
    result<sequence> send(const void* device, std::uint64_t bytes) noexcept { return this->queue(device, bytes); }
    /// The same, of what the stream's work so far will have written; its later work waits until the bytes were read. Somebody
    /// else than the one who waits for the stream must call progress(): a proxy.
    result<sequence> send_on(typename Engine::stream s, const void* device, std::uint64_t bytes) noexcept {
        return this->queue_on(s, device, bytes);
    }
    /// Have the bytes of message `m` been read? `ended(m)`: the receiver has them in its ring or beyond.
    bool read(sequence m) const noexcept { return read_ > m.value; }

private:
    struct slice {
        std::uint64_t message{}, copy{}, sent{};
        std::uint32_t bytes{};
        bool last{};
    };
    slice& of(std::uint64_t n) noexcept { return slices_[n % this->options_.slots]; }

    bool step() noexcept {
        bool moved = begun_ == 0 && greet();
        while (acked_ != sent_ && this->endpoint_.ended(sequence{of(acked_).sent})) {
            if (of(acked_).last) ++this->ended_;
            ++acked_;
            moved = true;
        }
        while (sent_ != begun_ && send_slice()) moved = true;
        while (begun_ != 0 && begun_ - acked_ != this->options_.slots && copying_ != this->tail_ && begin_slice()) moved = true;
        return moved;
    }
    bool greet() noexcept {
        if (!this->connected() || !this->memory_) return false;
        ::new (this->slot(0)) staging_greeting{staging_greeting::magic_value, this->options_.slice_bytes, 0};
        const auto sent = this->endpoint_.send(this->view(0, sizeof(staging_greeting)));
        if (!sent) return false;
        of(0).sent = sent->value;
        begun_ = sent_ = 1;
        return true;
    }
    /// Begins to copy the next slice. False: it could not; the channel has ended.
    bool begin_slice() noexcept {
        auto& m = this->at(copying_);
        slice& s = of(begun_);
        const std::uint64_t left = m.bytes - m.moved;
        s.message = copying_;
        s.last = left < this->options_.slice_bytes;
        s.bytes = s.last ? static_cast<std::uint32_t>(left) : this->options_.slice_bytes;
        const status after = this->begin_after_mark(m);
        const auto copy = after ? this->engine_.read(this->slot(begun_), m.at + m.moved, s.bytes) : result<std::uint64_t>(after);
        if (!copy) {
            this->give_up(copy.error());
            return false;
        }
        s.copy = *copy;
        m.moved += s.bytes;
        copying_ += s.last ? 1 : 0;
        ++begun_;
        return true;
    }
    /// Sends the next slice if it has been copied.
    bool send_slice() noexcept {
        slice& s = of(sent_);
        const auto copied = this->engine_.done(s.copy);
        if (!copied) this->give_up(copied.error());
        if (!copied || !*copied) return false;
        if (s.last && read_ == s.message) this->engine_.release(++read_);
        const auto sent = this->endpoint_.send(this->view(sent_, s.bytes));
        if (!sent) {
            if (sent.error().code != errc::would_block) this->give_up(sent.error());
            return false;
        }
        s.sent = sent->value;
        ++sent_;
        return true;
    }

    slice slices_[copies_in_flight]{};
    std::uint64_t begun_{}, sent_{}, acked_{};  ///< slices: acked <= sent <= begun
    std::uint64_t copying_{};  ///< the message whose slices are begun next
    std::uint64_t read_{};  ///< messages below were read
};

}  // namespace vccl::inline v0
