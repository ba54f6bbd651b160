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
    using slice = typename base::slice;

    bool step() noexcept {
        bool moved = begun_ == 0 && greet();
        while (acked_ != sent_ && this->endpoint_.ended(sequence{this->of(acked_).chunk})) {
            if (this->of(acked_).last) ++this->ended_;
            ++acked_;
            moved = true;
        }
        while (sent_ != begun_ && send_slice()) moved = true;
        while (begun_ != 0 && begun_ - acked_ != this->options_.slots && this->cutting_ != this->tail_ && begin_slice())
            moved = true;
        return moved;
    }
    bool greet() noexcept {
        if (!this->connected() || !this->memory_) return false;
        ::new (this->slot(0))
            staging_greeting{staging_greeting::magic_value, this->options_.slice_bytes, staging_greeting::current_version};
        if (!this->posted(this->of(0), this->endpoint_.send(this->view(0, sizeof(staging_greeting))))) return false;
        begun_ = sent_ = 1;
        return true;
    }
    /// Cuts the next slice and begins to copy it.
    bool begin_slice() noexcept {
        const auto& m = this->at(this->cutting_);
        slice& s = this->of(begun_);
        const std::uint64_t left = m.bytes - m.moved;
        s.message = this->cutting_;
        s.bytes = next_slice(m.moved, left, this->options_.slice_bytes, this->options_.edge_bytes);
        s.last = s.bytes == left;
        std::byte* const to = this->slot(begun_);
        to[s.bytes] = static_cast<std::byte>(s.last ? slice_mark::last : slice_mark::more);
        if (!this->begin_copy(s, s.bytes, [&](const std::byte* from) { return this->engine_.read(to, from, s.bytes); }))
            return false;
        this->cutting_ += s.last ? 1 : 0;
        ++begun_;
        return true;
    }
    /// Sends the next slice if it has been copied.
    bool send_slice() noexcept {
        slice& s = this->of(sent_);
        if (!this->copied(s)) return false;
        if (s.last && read_ == s.message) this->engine_.release(++read_);
        if (!this->posted(s, this->endpoint_.send(this->view(sent_, s.bytes + sizeof(slice_mark))))) return false;
        ++sent_;
        return true;
    }

    std::uint64_t begun_{}, sent_{}, acked_{};  ///< slices: acked <= sent <= begun
    std::uint64_t read_{};  ///< messages below were read
};

}  // namespace vccl::inline v0
