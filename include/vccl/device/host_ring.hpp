#pragma once
/// \file
/// The host ring: kernels ask, a proxy posts. It takes requests off the ring in order, posts each on its channel's queue of a
/// device sender that lives in host memory, and tells how far each channel is. So results and failover are those of the queues,
/// and any verbs backend carries it. Owner thread: the one that drives the sender; `progress()` drives both.

#include <vccl/device/host_ring_ref.hpp>
#include <vccl/device/offer.hpp>
#include <vccl/device/queue.hpp>
#include <vccl/device/sender_ref.hpp>
#include <vccl/device/space.hpp>

#include <utility>

namespace vccl::inline v0 {

/// How much may wait, and for how long.
struct host_ring_options {
    std::uint32_t words{4096};             ///< of the ring: 8 bytes each, a power of two, 16 to 2^30
    nanoseconds timeout{10'000'000'000};   ///< of each operation of a view
    const device::host_wait* wait{};       ///< host build: how a view waits
};

/// `Sender`: a device sender in host_space. `Space`: where the posters' words lie. `Sharing`: who posts at the same time.
template <class Sender, device::queue_space Space = device::host_space, class Sharing = shared_by_gpu>
class host_ring {
    using shared = typename Space::shared;
    static constexpr unsigned channel_count = Sender::policies::group::count;

public:
    using ref_type = device::host_ring_ref<device::queue_policy<Sharing>>;  ///< what a kernel takes; trivially copyable

    /// `sender` must outlive it and be driven by it alone; `space` says where kernels' words lie.
    VCCL_COLD explicit host_ring(Sender& sender, const host_ring_options& options = {}, Space space = {}) noexcept
        : sender_(sender), options_(options), space_(space) {}
    host_ring(const host_ring&) = delete;
    VCCL_COLD ~host_ring() { free(); }

    /// Effects: makes the ring, at any time: what is asked before the sender is connected waits. Errors: invalid_argument (`words`),
    /// no_memory, already_connected if it was made before.
    VCCL_COLD status open() noexcept {
        const std::uint32_t n = options_.words;
        if (n < 16 || n > 1u << 30 || (n & (n - 1)) != 0) return errc::invalid_argument;
        if (ring_) return errc::already_connected;
        ring_ = static_cast<std::uint64_t*>(shared::allocate(std::size_t{n} * 8));
        page_ = static_cast<page*>(shared::allocate(sizeof(page)));
        words_ = static_cast<device::host_ring_words*>(space_.allocate_local(sizeof(device::host_ring_words)));
        if (!ring_ || !page_ || !words_) {
            free();
            return errc::no_memory;
        }
        space_.write(&words_->cursor, device::ring_cursor{0, n}.pack());
        return {};
    }
    /// What kernels take, for channel 0; `ref().channel(c)` for others. Valid until the ring goes. Requires: open() was ok.
    ref_type ref() const noexcept {
        const device::host_ring_view v{words_,         ring_,          size_log(),   channel_count, &page_->head,
                                       page_->channel, page_->replies, &page_->host, options_.wait};
        return {v, 0, options_.timeout.count};
    }
    /// The ring itself, for tools and tests.
    const std::uint64_t* words() const noexcept { return ring_; }
    /// Effects: every wait of a kernel on this ring ends with `aborted`, now and later. Any thread. Nothing before open().
    void abort_kernels() noexcept {
        if (page_) device::store<device::order::release, device::scope::system>(&page_->host.abort, std::uint64_t{1});
    }

    /// Effects: one pass: drives the sender, takes requests, tells what is done. Returns true if something moved.
    bool progress() noexcept {
        bool moved = sender_.progress();
        if (!live_) live_ = ring_ && sender_.connected();
        if (live_) moved |= carry();
        if (!sender_.health()) abort_kernels();
        return moved;
    }

private:
    using request = device::request;
    /// Requires: open() was ok, and the sender has its queues.
    bool carry() noexcept {
        bool moved = false;
        while (take()) moved = true;
        const std::uint32_t epoch = sender_.epoch().value;
        for (unsigned c = 0; c < channel_count; ++c) {
            if (epoch != told_epoch_)
                device::store<device::order::relaxed, device::scope::system>(&page_->channel[c].epoch, std::uint64_t{epoch});
            moved |= tell(c);
        }
        told_epoch_ = epoch;
        return moved;
    }
    /// Requests under way of a channel: where in the ring each begins, and the queue index that ends it.
    struct under_way {
        std::uint64_t begin[Sender::depth]{}, end[Sender::depth]{};
        std::uint64_t first{}, last{};
    };
    struct page {
        device::host_ring_head head;
        device::channel_words channel[channel_count];
        device::reply_words replies[device::reply_slot::count];
        device::host_words host;
    };

    VCCL_COLD void free() noexcept {
        if (ring_) shared::free(std::exchange(ring_, nullptr));
        if (page_) shared::free(std::exchange(page_, nullptr));
        if (words_) space_.free_local(std::exchange(words_, nullptr));
    }
    std::uint32_t size_log() const noexcept { return static_cast<std::uint32_t>(std::countr_zero(options_.words)); }

    /// Takes the next request, if it is there whole and its queue has room. Everything is looked at before anything is posted.
    bool take() noexcept {
        std::uint64_t w[device::max_request_words];
        if (!read(head_, w[0])) return false;
        const unsigned n = device::words_of(static_cast<device::request_op>(w[0] >> 1 & 15));
        for (unsigned i = 1; i < n; ++i)
            if (!read(head_ + i, w[i])) return false;
        const request r = device::decode_request(w);
        const bool odd_reply = r.op == device::request_op::fetch_add && r.length != 0 &&
                               device::reply_slot::unpack(r.length).number >= device::reply_slot::count;
        if (n == 0 || r.channel >= channel_count || odd_reply) {
            // No kernel of ours wrote this, and where the next request begins is anybody's guess.
            for (unsigned c = 0; c < channel_count; ++c) fail(c, {device::outcome::error, device::syndrome::local_qp_operation});
            return false;
        }
        under_way& u = under_way_[r.channel];
        if (u.last - u.first == Sender::depth || !post(r)) return false;
        u.begin[u.last % Sender::depth] = head_;
        u.end[u.last % Sender::depth] = sender_.ref().channel(r.channel).posted();
        ++u.last;
        head_ += n;
        device::store<device::order::release, device::scope::system>(&page_->head.consumed, head_);
        return true;
    }
    bool read(std::uint64_t index, std::uint64_t& word) const noexcept {
        word = device::load<device::order::acquire, device::scope::system>(&ring_[index & (options_.words - 1)]);
        return (word & 1) == device::lap_flag(index, size_log());
    }
    /// Returns false if the queue has no room; what it says of errors comes out of tell().
    bool post(const request& r) noexcept {
        const auto q = sender_.ref().channel(r.channel).within(0);
        const thread_scope me{};
        switch (r.op) {
            case device::request_op::put: return static_cast<bool>(q.put(me, r.remote, r.local, r.length));
            case device::request_op::get: return static_cast<bool>(q.get(me, r.local, r.remote, r.length));
            case device::request_op::signal: return static_cast<bool>(q.signal(me, r.word, r.value));
            case device::request_op::put_signal:
                return static_cast<bool>(q.put_signal(me, r.remote, r.local, r.length, r.word, r.value));
            default: {
                std::uint64_t old = 0;
                const bool posted = static_cast<bool>(q.fetch_add(me, r.word, r.value, old));
                if (posted && r.length != 0) reply(device::reply_slot::unpack(r.length), old);
                return posted;
            }
        }
    }
    void reply(device::reply_slot to, std::uint64_t old) noexcept {
        device::reply_words& out = page_->replies[to.number];
        const auto words = device::reply_words::make(old, to.lap);
        device::store<device::order::release, device::scope::system>(&out.low, words.low);
        device::store<device::order::release, device::scope::system>(&out.high, words.high);
    }
    bool tell(unsigned c) noexcept {
        under_way& u = under_way_[c];
        device::channel_words& out = page_->channel[c];
        if (u.first != u.last) {
            const auto q = sender_.ref().channel(c).within(0);
            const device::device_result r = q.flush(thread_scope{});
            if (r.what == device::outcome::error) fail(c, r);
            const std::uint64_t done = q.completed();
            while (u.first != u.last && u.end[u.first % Sender::depth] <= done) ++u.first;
        }
        const std::uint64_t upto = u.first == u.last ? head_ : u.begin[u.first % Sender::depth];
        if (upto == told_[c]) return false;
        told_[c] = upto;
        device::store<device::order::release, device::scope::system>(&out.done, upto);
        return true;
    }
    void fail(unsigned c, const device::device_result& r) noexcept {
        device::store<device::order::release, device::scope::system>(&page_->channel[c].failure, pack(r));
    }

    Sender& sender_;
    host_ring_options options_;
    [[no_unique_address]] Space space_;
    std::uint64_t* ring_{};
    page* page_{};
    device::host_ring_words* words_{};
    std::uint64_t head_{};
    std::uint64_t told_[channel_count]{};
    std::uint32_t told_epoch_{};
    bool live_{};  ///< there is a ring, and the sender is connected or was
    under_way under_way_[channel_count]{};
};

}  // namespace vccl::inline v0
