#pragma once
// The two comms over vccl endpoints: one channel for each, in which a receive's tag travels as the note of its grant. Compiled
// once for each backend and QP count; used by whoever holds the comm's turn.
#include "comm.hpp"

#include <vccl/host/compose.hpp>

#include <bit>

namespace nccl_net {

/// What a grant says of its receive: its tag, and its place in the group of receives that NCCL posted together.
struct place_note {
    std::int32_t tag{};
    std::uint8_t place{}, count{};
    std::uint16_t zero{};

    /// Could a receiver have made it?
    constexpr bool usable() const noexcept { return count != 0 && count <= max_group && place < count && zero == 0; }
    constexpr std::uint64_t word() const noexcept { return std::bit_cast<std::uint64_t>(*this); }
    static constexpr place_note of(std::uint64_t word) noexcept { return std::bit_cast<place_note>(word); }
};
static_assert(sizeof(place_note) == 8);

/// What the endpoint of a comm is made with.
struct making {
    const settings& chosen;
    vccl::starting_point from;
    std::uint32_t channel;
    std::uint64_t session;
    std::string_view address;
    unsigned share{};

    vccl::endpoint_options options() const {
        vccl::endpoint_options o;
        o.session = session;
        o.lanes = chosen.lanes;
        o.window = messages_at_once;
        o.timers = chosen.timers;
        o.give_up_after = chosen.give_up_after;
        o.peer_grace = chosen.peer_grace;
        o.flush = chosen.flush;
        o.oob = std::string_view(std::string(address) + ":0");
        return o;
    }
    chosen_ports ports() const noexcept { return {chosen.backup}; }
    chosen_failback failback() const noexcept { return {chosen.failback}; }
    vccl::detect detection() const noexcept { return {chosen.times}; }
};

/// What both comms share. `make` returns the endpoint.
template <class Base, class Endpoint>
class channel_comm : public Base {
public:
    bool connected() const noexcept override { return channel_.connected(); }

    vccl::status introduce(introduction& ours) override {
        auto blob = channel_.local_info();
        if (!blob) return blob.error();
        ours.keep(*blob);
        return {};
    }
    vccl::status join(const introduction& theirs) override {
        if (vccl::status s = channel_.begin_connect(theirs.blob()); !s) return s;
        channel_label& label = this->label_;
        label.peer = Base::direction + std::string(theirs.host.view());
        label.count = channel_.lanes();
        for (std::uint8_t l = 0; l < label.count; ++l)
            label.lanes[l] = std::string(channel_.lane_port(vccl::lane_id{l}).view()) + ">" +
                             std::string(channel_.peer_port(vccl::lane_id{l}).view());
        channel_.handler().label = &label;
        return {};
    }

    void pass() noexcept override { (void)channel_.progress(); }
    vccl::status health() const noexcept override { return channel_.health(); }
    void abort() noexcept override {
        this->label_.quiet = true;
        channel_.abort();
    }
    bool idle() const noexcept override { return requests_.idle(); }

protected:
    template <class Make>
    explicit channel_comm(const Make& make) : channel_(make()) {}

    /// Effects: one look, unless the keeper looks.
    void step() noexcept {
        if (!this->driven) (void)channel_.progress();
    }
    /// Returns: whether there is any use in waiting.
    code state() noexcept {
        const vccl::status why = health();
        return why ? code::success : this->report(why);
    }
    code look() noexcept {
        step();
        return state();
    }

    request_pool requests_{*this};
    Endpoint channel_;
};

template <class B, unsigned Qps>
using sender_of = vccl::host_sender<B, chosen_ports, vccl::qp_group<Qps>, event_log, vccl::rollback_fifo<messages_at_once>>;
template <class B, unsigned Qps>
using receiver_of = vccl::host_receiver<B, chosen_ports, vccl::qp_group<Qps>, event_log, chosen_failback>;

template <class B, unsigned Qps>
class send_channel final : public channel_comm<send_comm, sender_of<B, Qps>> {
    using endpoint = sender_of<B, Qps>;

public:
    send_channel(vccl::host_context<B>& context, const making& m)
        : channel_comm<send_comm, endpoint>([&] {
              return endpoint(context, m.from, vccl::channel_id{m.channel}, m.options(), m.ports(), {}, {}, m.detection());
          }) {}

    /// A message goes where the first group that is not yet full has a place for its tag. It is posted when all places before its
    /// own are taken, since chunks go in the order of the receives.
    code isend(const vccl::memory_view& bytes, int tag, request** out) noexcept override {
        *out = nullptr;
        if (group_ == 0) {
            auto first = this->channel_.note_for(this->channel_.next());
            if (!first) {
                this->step();
                first = this->channel_.note_for(this->channel_.next());
            }
            if (!first) return this->state();
            const place_note note = place_note::of(*first);
            if (!note.usable() || note.place != 0) return this->report(vccl::errc::protocol_violation);
            group_ = note.count;
        }
        const std::uint64_t next = this->channel_.next().value, flying = next - this->channel_.acknowledged().value;
        if (messages_at_once - flying < group_ - sent_) return this->look();
        for (unsigned i = sent_; i < group_; ++i) {
            const auto word = this->channel_.note_for(vccl::sequence{next - sent_ + i});
            if (!word) break;
            if (place_note::of(*word).tag != tag || waiting_[i].owner) continue;
            request* const r = *out = this->requests_.take();
            if (!r) break;
            r->bytes = bytes.bytes();
            if (i == sent_) return send_on(*r, bytes);
            waiting_[i] = {r, bytes};
            return code::success;
        }
        return this->look();
    }

    code test(request& r, int* done, int* sizes) noexcept override {
        *done = 0;
        if (!ended(r)) {
            this->step();
            if (!ended(r)) return this->state();
        }
        const vccl::status outcome = this->channel_.outcome(vccl::sequence{r.first});
        if (!outcome) return this->report(outcome);
        if (sizes) *sizes = static_cast<int>(r.bytes);
        *done = 1;
        this->requests_.give_back(r);
        return code::success;
    }

    bool part() noexcept override {
        const vccl::status closed = this->channel_.close(vccl::nanoseconds{0});
        this->pass();
        return closed || closed.code != vccl::errc::timeout;
    }

private:
    struct waiting {
        request* owner{};
        vccl::memory_view bytes{};
    };

    bool ended(const request& r) const noexcept { return r.count != 0 && this->channel_.ended(vccl::sequence{r.first}); }

    /// Effects: posts the message whose turn it is and those that waited for it, and gets them on their way.
    code send_on(request& r, const vccl::memory_view& bytes) noexcept {
        code c = send_one(r, bytes);
        for (; c == code::success && sent_ < group_ && waiting_[sent_].owner; waiting_[sent_ - 1].owner = nullptr)
            c = send_one(*waiting_[sent_].owner, waiting_[sent_].bytes);
        if (sent_ == group_) group_ = sent_ = 0;
        this->step();
        return c;
    }
    code send_one(request& r, const vccl::memory_view& bytes) noexcept {
        const auto chunk = this->channel_.send(bytes);
        if (!chunk) return this->report(chunk.error());
        r.first = chunk->value;
        r.count = 1;
        ++sent_;
        return code::success;
    }

    waiting waiting_[max_group]{};
    unsigned group_{}, sent_{};  // places of the group that is being sent to, 0: it is not known yet; how many were posted
};

template <class B, unsigned Qps>
class recv_channel final : public channel_comm<recv_comm, receiver_of<B, Qps>> {
    using endpoint = receiver_of<B, Qps>;

public:
    recv_channel(vccl::host_context<B>& context, const making& m)
        : channel_comm<recv_comm, endpoint>([&] {
              return endpoint(context, m.from, vccl::channel_id{m.channel}, m.options(), m.ports(), {}, m.failback(),
                              m.detection());
          }) {}

    code irecv(int n, const vccl::memory_view* rooms, const int* tags, request** out) noexcept override {
        *out = nullptr;
        const auto count = static_cast<std::uint8_t>(n);
        const std::uint64_t first = this->channel_.next().value, flying = first - this->channel_.received().value;
        request* const r = messages_at_once - flying < count ? nullptr : this->requests_.take();
        if (!r) return this->look();
        for (std::uint8_t i = 0; i < count; ++i) {
            const auto chunk = this->channel_.recv(rooms[i], place_note{tags[i], i, count}.word());
            if (chunk) continue;
            this->requests_.give_back(*r);
            return this->report(chunk.error());
        }
        r->first = first;
        r->count = count;
        *out = r;
        // Where the sender has enough granted a grant waits for company anyway, and NCCL tests in a moment.
        unseen_ += count;
        if (4 * unseen_ >= flying + count) see();
        return code::success;
    }

    code test(request& r, int* done, int* sizes) noexcept override {
        *done = 0;
        const vccl::sequence last{r.first + r.count - 1};
        if (!this->channel_.ended(last)) {
            see();
            if (!this->channel_.ended(last)) return this->state();
        }
        for (unsigned i = 0; i < r.count; ++i) {
            const auto bytes = this->channel_.outcome(vccl::sequence{r.first + i});
            if (!bytes) return this->report(bytes.error());
            if (sizes) sizes[i] = static_cast<int>(*bytes);
        }
        *done = 1;
        this->requests_.give_back(r);
        return code::success;
    }

    /// The sender closes; its goodbye comes when it knows that everything has arrived.
    bool part() noexcept override {
        this->pass();
        return !this->health();
    }

private:
    void see() noexcept {
        unseen_ = 0;
        this->step();
    }

    std::uint64_t unseen_{};  // receives posted since the last look
};

}  // namespace nccl_net
