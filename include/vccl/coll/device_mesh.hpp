#pragma once
/// \file
/// `device_mesh`: a rank's device senders and receivers to and from all other ranks, each with a window of its own in memory that
/// kernels and NIC share. Made like a host_mesh, over any exchange. Owner thread: the one that calls progress(), kernels running or
/// not.

#include <vccl/coll/exchange.hpp>
#include <vccl/device/receiver.hpp>
#include <vccl/device/sender.hpp>

#include <memory>

namespace vccl::inline v0 {

/// The same at all ranks, but for addresses.
struct device_mesh_options {
    device_options ends{};  ///< of every end
    std::uint64_t window_bytes{};  ///< between two ranks, in each direction
};

/// `Tx`, `Rx`: a device_sender and a device_receiver over the same backend. `Space`: whose kernels use the windows; another than the
/// senders' if these post for host rings.
template <class Tx, class Rx, device::queue_space Space = typename Tx::policies::space>
class device_mesh {
public:
    using sender = Tx;  ///< to each other rank
    using receiver = Rx;  ///< from each other rank
    using space = Space;  ///< where what posters touch lies
    using source = typename Tx::policies::source;  ///< of queue pairs with rings
    using clock = typename Tx::policies::clock;  ///< as the policy was named
    using context = host_context<typename Tx::backend>;  ///< where its ends open ports and register windows

    /// `nic` makes the senders' rings, `from` is this rank's GPU (or port). Both and the context must outlive the mesh.
    device_mesh(context& c, source& nic, starting_point from, std::uint32_t rank, std::uint32_t ranks,
                const device_mesh_options& options, clock time = {}, space memory = {})
        : context_(c), nic_(nic), from_(from), rank_(rank), ranks_(ranks), options_(options), clock_(time), space_(memory) {}
    device_mesh(const device_mesh&) = delete;

    // By hand: offer(), carry the parcels, answer(), progress() until connected(). connect() does it all.

    /// Effects: makes the windows and the ends. Errors: invalid_argument, already_connected, no_memory, and as endpoints have them.
    result<std::vector<parcel>> offer() {
        if (ranks_ == 0 || rank_ >= ranks_ || options_.window_bytes == 0) return errc::invalid_argument;
        if (out_.bytes) return errc::already_connected;
        for (window* w : {&out_, &in_}) {
            w->bytes.reset(static_cast<std::byte*>(space::shared::allocate(options_.window_bytes * ranks_)));
            if (!w->bytes) return errc::no_memory;
            auto m = context_.register_memory(w->bytes.get(), options_.window_bytes * ranks_);
            if (!m) return m.error();
            w->registered = std::move(*m);
        }
        tx_.resize(ranks_);
        rx_.resize(ranks_);
        std::vector<parcel> blobs;
        for (std::uint32_t p = 0; p < ranks_; ++p) {
            if (p == rank_) continue;
            tx_[p] = std::make_unique<Tx>(context_, nic_, from_, channel(rank_, p),
                                          out_.registered.view(share(p), options_.window_bytes), options_of(2 * p),
                                          typename Tx::port_policy{}, handler_of<Tx>{}, detection_of<Tx>{}, clock_, own_space());
            rx_[p] = std::make_unique<Rx>(
                context_, from_, channel(p, rank_), in_.registered.view(share(p), options_.window_bytes), options_of(2 * p + 1),
                typename Rx::port_policy{}, handler_of<Rx>{}, typename Rx::policies::failback{}, detection_of<Rx>{}, clock_);
            auto of_tx = tx_[p]->local_info(), of_rx = rx_[p]->local_info();
            if (!of_tx) return of_tx.error();
            if (!of_rx) return of_rx.error();
            blobs.push_back({p, sent, std::move(*of_tx)});
            blobs.push_back({p, received, std::move(*of_rx)});
        }
        return blobs;
    }
    /// Effects: the ends begin to connect. Errors: wrong_peer (a blob is missing, twice, or of nobody), and as endpoints have them.
    status answer(const std::vector<parcel>& blobs) {
        if (tx_.empty()) return errc::not_connected;
        std::vector<bool> seen(2 * ranks_);
        for (const parcel& p : blobs) {
            if (p.peer >= ranks_ || p.peer == rank_ || p.tag > received || seen[2 * p.peer + p.tag])
                return status{errc::wrong_peer, p.peer};
            seen[2 * p.peer + p.tag] = true;
            const status s = p.tag == received ? tx_[p.peer]->begin_connect(p.bytes) : rx_[p.peer]->begin_connect(p.bytes);
            if (!s) return s;
        }
        return blobs.size() == 2 * std::size_t{ranks_ - 1} ? status{} : status{errc::wrong_peer};
    }
    /// Do all channels run? Never waits.
    bool connected() const noexcept {
        for (std::uint32_t p = 0; p < ranks_; ++p)
            if (p != rank_ && (tx_.empty() || !tx_[p]->connected() || !rx_[p]->connected())) return false;
        return true;
    }
    /// Effects: one pass over all ends. Returns: whether something moved.
    bool progress() noexcept {
        bool moved = false;
        for (auto& e : rx_)
            if (e) moved |= e->progress();
        for (auto& e : tx_)
            if (e) moved |= e->progress();
        return moved;
    }
    /// Effects: all of it over an exchange; drives the ends meanwhile. Errors: as the above, as the exchange; timeout.
    template <parcel_exchange X>
    status connect(X& exchange, nanoseconds timeout) {
        const nanoseconds deadline = clock_.now() + timeout;
        auto blobs = offer();
        if (!blobs) return blobs.error();
        auto got = exchange.exchange(std::move(*blobs), deadline - clock_.now());
        if (!got) return got.error();
        if (status s = answer(*got); !s) return s;
        while (!connected()) {
            const bool moved = progress();
            if (status s = health(); !s) return s;
            if (clock_.now() >= deadline) return errc::timeout;
            if (!moved) ::sched_yield();
        }
        return {};
    }
    /// Why the first end that ended did.
    status health() const noexcept {
        for (std::uint32_t p = 0; p < ranks_; ++p) {
            if (p == rank_ || tx_.empty()) continue;
            if (const status s = tx_[p]->health(); !s) return s;
            if (const status s = rx_[p]->health(); !s) return s;
        }
        return {};
    }

    std::uint32_t rank() const noexcept { return rank_; }  ///< as it was made with
    std::uint32_t ranks() const noexcept { return ranks_; }  ///< this one included
    const device_mesh_options& options() const noexcept { return options_; }  ///< as it was made with
    space& memory() noexcept { return space_; }  ///< for words of one's own beside the mesh's
    /// Requires: a peer other than this rank.
    Tx& to(std::uint32_t peer) noexcept { return *tx_[peer]; }
    /// Requires: a peer other than this rank.
    Rx& from(std::uint32_t peer) noexcept { return *rx_[peer]; }
    /// The window that is sent to a peer, and the one that it writes. One's own are memory that nobody else uses.
    std::byte* out(std::uint32_t peer) const noexcept { return out_.bytes.get() + share(peer); }
    /// The window that the peer writes.
    std::byte* in(std::uint32_t peer) const noexcept { return in_.bytes.get() + share(peer); }

private:
    static constexpr std::uint32_t sent = 0, received = 1;  // tags: whose blob it is
    struct free_shared {
        void operator()(std::byte* p) const noexcept { space::shared::free(p); }
    };
    struct window {
        owned<std::byte, free_shared> bytes;
        vccl::memory registered;
    };
    template <class End>
    using handler_of = std::remove_cvref_t<decltype(std::declval<End&>().handler())>;
    template <class End>
    using detection_of = typename End::policies::detection;

    typename Tx::policies::space own_space() const noexcept {
        if constexpr (std::same_as<space, typename Tx::policies::space>)
            return space_;
        else
            return {};
    }
    std::uint64_t share(std::uint32_t peer) const noexcept { return peer * options_.window_bytes; }
    channel_id channel(std::uint32_t from, std::uint32_t to) const noexcept { return channel_id{from * ranks_ + to}; }
    device_options options_of(std::uint32_t step) const noexcept {
        device_options o = options_.ends;
        if (o.channel.seed != 0) o.channel.seed += step;
        return o;
    }

    context& context_;
    source& nic_;
    starting_point from_;
    std::uint32_t rank_, ranks_;
    device_mesh_options options_;
    [[no_unique_address]] clock clock_;
    [[no_unique_address]] space space_;
    window out_, in_;  // before the ends, which must go first
    std::vector<std::unique_ptr<Rx>> rx_;
    std::vector<std::unique_ptr<Tx>> tx_;
};

}  // namespace vccl::inline v0
