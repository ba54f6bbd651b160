#pragma once
// The two comms over vccl endpoints: data one way, lists of tags the other way, both of them fault-tolerant. Compiled once for
// each backend and QP count; used by whoever holds the comm's mutex.
#include "comm.hpp"

#include <vccl/host/compose.hpp>

namespace nccl_net {

/// What both comms share: one channel for data, one for tags.
template <class Base, class Data, class Tags>
class duplex : public Base {
public:
    bool connected() const noexcept override { return data_.connected() && tags_.connected(); }

    vccl::status introduce(introduction& ours) override {
        auto data = data_.local_info();
        if (!data) return data.error();
        auto tags = tags_.local_info();
        if (!tags) return tags.error();
        ours.keep(0, *data);
        ours.keep(1, *tags);
        return {};
    }

    vccl::status health() const noexcept override {
        if (const vccl::status s = data_.health(); !s) return s;
        // A receiver that has everything closes its tags; that it has, the sender may learn later.
        const vccl::status tags = tags_.health();
        return tags.code == vccl::errc::closed ? vccl::status{} : tags;
    }
    void abort() noexcept override {
        this->label_.quiet = true;
        data_.abort();
        tags_.abort();
    }
    bool idle() const noexcept override { return requests_.idle(); }

protected:
    /// `make_data` and `make_tags` return the endpoints.
    template <class MakeData, class MakeTags>
    duplex(const MakeData& make_data, const MakeTags& make_tags) : data_(make_data()), tags_(make_tags()) {}

    /// Effects: begins to connect both channels, and gives them their names.
    vccl::status join_both(const introduction& theirs, const char* direction) {
        if (vccl::status s = data_.begin_connect(theirs.blob_of(0)); !s) return s;
        if (vccl::status s = tags_.begin_connect(theirs.blob_of(1)); !s) return s;
        channel_label& label = this->label_;
        label.peer = direction + std::string(theirs.host.view());
        label.count = data_.lanes();
        for (std::uint8_t l = 0; l < label.count; ++l)
            label.lanes[l] = std::string(data_.lane_port(vccl::lane_id{l}).view()) + ">" +
                             std::string(data_.peer_port(vccl::lane_id{l}).view());
        data_.handler().label = &label;  // the tags' channel has the same lanes: it would only say everything twice
        return {};
    }

    /// Effects: gets what was posted on its way.
    void post_on() noexcept {
        if (!this->driven) (void)data_.progress();
    }

    /// Effects: what a test does that finds nothing: NCCL asks again at once, so the tags' channel has its turn now and then.
    void step() noexcept {
        if (this->driven) return;
        if (++steps_ % 16 == 0)
            this->pass();
        else
            (void)data_.progress();
    }

    // The endpoints are the last, so that they go before the memory that they use.
    request_pool requests_{*this};
    tag_list lists_[groups_at_once]{};
    vccl::memory tag_memory_;
    Data data_;
    Tags tags_;

private:
    std::uint32_t steps_{};
};

/// What the endpoints of a comm are made with.
struct making {
    const settings& chosen;
    vccl::starting_point from;
    std::uint32_t channel;
    std::uint64_t session;
    std::string_view address;
    unsigned share{};

    vccl::channel_id data() const noexcept { return vccl::channel_id{2 * channel}; }
    vccl::channel_id tags() const noexcept { return vccl::channel_id{2 * channel + 1}; }
    vccl::endpoint_options options(unsigned window) const {
        vccl::endpoint_options o;
        o.session = session;
        o.lanes = chosen.lanes;
        o.window = window;
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

template <class B, unsigned Qps, std::size_t Fifo>
using sender_of = vccl::host_sender<B, chosen_ports, vccl::qp_group<Qps>, event_log, vccl::rollback_fifo<Fifo>>;
template <class B, unsigned Qps>
using receiver_of = vccl::host_receiver<B, chosen_ports, vccl::qp_group<Qps>, event_log, chosen_failback>;

template <class B, unsigned Qps>
class send_channels final : public duplex<send_comm, sender_of<B, Qps, messages_at_once>, receiver_of<B, 1>> {
    using data_type = sender_of<B, Qps, messages_at_once>;
    using base = duplex<send_comm, data_type, receiver_of<B, 1>>;

public:
    send_channels(vccl::host_context<B>& context, const making& m)
        : base(
              [&] { return data_type(context, m.from, m.data(), m.options(messages_at_once), m.ports(), {}, {}, m.detection()); },
              [&] {
                  return receiver_of<B, 1>(context, m.from, m.tags(), m.options(groups_at_once), m.ports(), {}, m.failback(),
                                           m.detection());
              }),
          context_(context) {}

    vccl::status join(const introduction& theirs) override {
        auto memory = context_.register_memory(this->lists_, sizeof this->lists_);
        if (!memory) return memory.error();
        this->tag_memory_ = std::move(*memory);
        return this->join_both(theirs, "to ");
    }

    void pass() noexcept override {
        (void)this->data_.progress();
        look_for_lists();
    }

    /// A message goes where the first group that is not yet full has a place for its tag. It is posted when all places before its
    /// own are taken, since chunks go in the order of the receives.
    code isend(const vccl::memory_view& bytes, int tag, request** out) noexcept override {
        *out = nullptr;
        if (this->tags_.received().value == head_) look_for_lists();
        if (const vccl::status why = this->health(); !why) return this->report(why);
        const tag_list* const group = head_group();
        if (!group) return code::success;
        if (!usable(*group)) return this->report(vccl::errc::protocol_violation);
        const std::uint64_t flying = this->data_.next().value - this->data_.acknowledged().value;
        if (messages_at_once - flying < group->count - sent_) return code::success;
        for (unsigned i = sent_; i < group->count; ++i) {
            if (group->tags[i] != tag || waiting_[i].owner) continue;
            request* const r = this->requests_.take();
            if (!r) return code::success;
            r->bytes = bytes.bytes();
            waiting_[i] = {r, bytes};
            *out = r;
            const code sent = send_on(*group);
            this->post_on();
            return sent;
        }
        return code::success;
    }

    code test(request& r, int* done, int* sizes) noexcept override {
        *done = 0;
        if (!ended(r)) {
            this->step();
            if (!ended(r)) {
                const vccl::status why = this->health();
                return why ? code::success : this->report(why);
            }
        }
        const vccl::status outcome = this->data_.wait(vccl::sequence{r.first}, vccl::nanoseconds{0});
        if (!outcome) return this->report(outcome);
        if (sizes) *sizes = static_cast<int>(r.bytes);
        *done = 1;
        this->requests_.give_back(r);
        return code::success;
    }

    bool part() noexcept override {
        const vccl::status data = this->data_.close(vccl::nanoseconds{0});
        pass();
        const bool data_over = data || data.code != vccl::errc::timeout;
        return data_over && !this->tags_.health();
    }

private:
    struct place {
        request* owner{};
        vccl::memory_view bytes{};
    };

    bool ended(const request& r) const noexcept { return r.count != 0 && this->data_.ended(vccl::sequence{r.first}); }

    void look_for_lists() noexcept {
        (void)this->tags_.progress();
        // As many lists may come as there are places for them.
        for (; posted_ < head_ + groups_at_once; ++posted_)
            if (!this->tags_.recv(this->tag_memory_.view(posted_ % groups_at_once * sizeof(tag_list), sizeof(tag_list)))) break;
    }

    const tag_list* head_group() const noexcept {
        return this->tags_.received().value == head_ ? nullptr : &this->lists_[head_ % groups_at_once];
    }

    /// Effects: posts the messages whose turn it is.
    code send_on(const tag_list& group) noexcept {
        for (; sent_ < group.count && waiting_[sent_].owner; ++sent_) {
            place& p = waiting_[sent_];
            const auto chunk = this->data_.send(p.bytes);
            if (!chunk) return this->report(chunk.error());
            p.owner->first = chunk->value;
            p.owner->count = 1;
            p = {};
        }
        if (sent_ == group.count) {
            sent_ = 0;
            ++head_;
        }
        return code::success;
    }

    vccl::host_context<B>& context_;
    std::uint64_t head_{}, posted_{};  // groups: that is being sent to; that a list may come for
    place waiting_[max_group]{};
    unsigned sent_{};  // places of the head group that were posted
};

template <class B, unsigned Qps>
class recv_channels final : public duplex<recv_comm, receiver_of<B, Qps>, sender_of<B, 1, groups_at_once>> {
    using tags_type = sender_of<B, 1, groups_at_once>;
    using base = duplex<recv_comm, receiver_of<B, Qps>, tags_type>;

public:
    recv_channels(vccl::host_context<B>& context, const making& m)
        : base(
              [&] {
                  return receiver_of<B, Qps>(context, m.from, m.data(), m.options(messages_at_once), m.ports(), {}, m.failback(),
                                             m.detection());
              },
              [&] { return tags_type(context, m.from, m.tags(), m.options(groups_at_once), m.ports(), {}, {}, m.detection()); }),
          context_(context) {}

    vccl::status join(const introduction& theirs) override {
        auto memory = context_.register_memory(this->lists_, sizeof this->lists_);
        if (!memory) return memory.error();
        this->tag_memory_ = std::move(*memory);
        return this->join_both(theirs, "from ");
    }

    void pass() noexcept override {
        (void)this->data_.progress();
        (void)this->tags_.progress();
    }

    code irecv(int n, const vccl::memory_view* rooms, const int* tags, request** out) noexcept override {
        *out = nullptr;
        if (const vccl::status why = this->health(); !why) return this->report(why);
        const auto count = static_cast<std::uint32_t>(n);
        const std::uint64_t flying = this->data_.next().value - this->data_.received().value;
        const std::uint64_t told = this->tags_.next().value;
        if (messages_at_once - flying < count || told - this->tags_.acknowledged().value == groups_at_once) {
            this->step();
            return code::success;
        }
        request* const r = this->requests_.take();
        if (!r) return code::success;
        tag_list& list = this->lists_[told % groups_at_once];
        list.count = count;
        for (unsigned i = 0; i < count; ++i) {
            list.tags[i] = tags[i];
            const auto chunk = this->data_.recv(rooms[i]);
            if (!chunk) return give_up(*r, chunk.error());
            if (i == 0) r->first = chunk->value;
        }
        r->count = count;
        const auto sent = this->tags_.send(this->tag_memory_.view(told % groups_at_once * sizeof(tag_list), sizeof(tag_list)));
        if (!sent) return give_up(*r, sent.error());
        *out = r;
        if (!this->driven) pass();
        return code::success;
    }

    code test(request& r, int* done, int* sizes) noexcept override {
        *done = 0;
        const vccl::sequence last{r.first + r.count - 1};
        if (!this->data_.ended(last)) {
            this->step();
            if (!this->data_.ended(last)) {
                const vccl::status why = this->health();
                return why ? code::success : this->report(why);
            }
        }
        for (unsigned i = 0; i < r.count; ++i) {
            const auto bytes = this->data_.outcome(vccl::sequence{r.first + i});
            if (!bytes) return this->report(bytes.error());
            if (sizes) sizes[i] = static_cast<int>(*bytes);
        }
        *done = 1;
        this->requests_.give_back(r);
        return code::success;
    }

    bool part() noexcept override {
        const vccl::status tags = this->tags_.close(vccl::nanoseconds{0});
        pass();
        return (tags || tags.code != vccl::errc::timeout) && !this->data_.health();
    }

private:
    code give_up(request& r, const vccl::status& why) noexcept {
        this->requests_.give_back(r);
        return this->report(why);
    }

    vccl::host_context<B>& context_;
};

}  // namespace nccl_net
