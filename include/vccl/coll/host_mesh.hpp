#pragma once
/// \file
/// `host_mesh`: makes and connects the host endpoints of one rank, for rings and, if wanted, between all pairs; owns them and
/// the scratch memory, and gives the communicator. Owner thread only.
///
/// A link runs on the rail of its receiver: the receiver takes the port nearest to its GPU, the sender its host's port on the
/// same rail, and both have that port's backups. So a ring crosses hosts on the NIC of the GPU where it enters.

#include <vccl/coll/communicator.hpp>
#include <vccl/coll/exchange.hpp>
#include <vccl/coll/mesh_end.hpp>
#include <vccl/host/endpoint.hpp>

#include <memory>
#include <new>

namespace vccl::inline v0 {

/// `count` orders of the ranks: host by host, as `host_of_rank` first names them; in each further ring the ranks of a host
/// are turned on, so that the rings enter a host at different GPUs.
inline std::vector<std::vector<std::uint32_t>> ring_orders(std::span<const std::uint32_t> host_of_rank, std::uint32_t count) {
    std::vector<std::uint32_t> hosts;
    std::vector<std::vector<std::uint32_t>> members;
    for (std::uint32_t r = 0; r < host_of_rank.size(); ++r) {
        std::size_t h = 0;
        while (h < hosts.size() && hosts[h] != host_of_rank[r]) ++h;
        if (h == hosts.size()) {
            hosts.push_back(host_of_rank[r]);
            members.emplace_back();
        }
        members[h].push_back(r);
    }
    std::vector<std::vector<std::uint32_t>> rings(count);
    for (std::uint32_t c = 0; c < count; ++c)
        for (const auto& host : members)
            for (std::size_t i = 0; i < host.size(); ++i) rings[c].push_back(host[(i + c * host.size() / count) % host.size()]);
    return rings;
}

/// The same at all ranks, but for addresses.
struct mesh_options {
    endpoint_options ends{};                        ///< of every end; `oob`: an address at which the other hosts find this one
    std::vector<std::vector<std::uint32_t>> rings{};  ///< the ranks in their order; none: one ring in the order of ranks
    bool pairs{};                                   ///< also ends between all pairs: for send, receive, all-to-all
    ring_limits limits{};                           ///< how finely operations are cut
};

/// One direction between two ranks: of a ring, or (ring == pairs) between two that exchange.
struct mesh_link {
    static constexpr std::uint32_t pairs = ~std::uint32_t{0};  ///< as `ring`: the link is no ring's
    std::uint32_t ring{};  ///< by the order in mesh_options
    std::uint32_t peer{};  ///< the other end's rank
};

/// `Tx` and `Rx`: both driven by the caller, or both by a proxy (`proxy_thread`), which then goes on by itself between and
/// during operations.
template <class Tx, class Rx, clock_source Clock = steady_clock, detection_policy Detect = detect>
class host_mesh {
    using tx_end = detail::mesh_end<Tx>;
    using rx_end = detail::mesh_end<Rx>;
    static constexpr bool has_proxy = !std::same_as<typename tx_end::endpoint, Tx>;
    static_assert(has_proxy != std::same_as<typename rx_end::endpoint, Rx>,
                  "vccl: the senders and the receivers of a host_mesh are driven by the same: all with proxy_thread, or none");

public:
    /// The host endpoints that it makes.
    /// @{
    using sender = typename tx_end::endpoint;
    using receiver = typename rx_end::endpoint;
    /// @}
    using context = host_context<typename Tx::backend>;  ///< where its ends open ports and register scratch
    /// What the communicator stands on.
    using links = communicator_links<typename tx_end::in_collective, typename rx_end::in_collective>;
    /// What make_communicator() gives.
    using communicator_type = communicator<typename tx_end::in_collective, typename rx_end::in_collective, cpu_compute, Clock>;

    /// `from`: this rank's GPU (or port). The context must outlive the mesh.
    host_mesh(context& c, starting_point from, std::uint32_t rank, std::uint32_t ranks, mesh_options options, Clock clock = {},
              Detect detect = {})
        requires(!has_proxy)
        : host_mesh(nullptr, c, from, rank, ranks, std::move(options), clock, detect) {}
    /// The same for ends that a proxy drives; it must outlive the mesh, too.
    host_mesh(proxy& driver, context& c, starting_point from, std::uint32_t rank, std::uint32_t ranks, mesh_options options,
              Clock clock = {}, Detect detect = {})
        requires has_proxy
        : host_mesh(&driver, c, from, rank, ranks, std::move(options), clock, detect) {}
    host_mesh(const host_mesh&) = delete;
    host_mesh& operator=(const host_mesh&) = delete;

    // Connecting by hand, in this order: offer(), carry the parcels; answer(), carry the parcels; finish(); progress() until
    // connected(). connect() does it all. `parcel::peer` is the rank where it goes to, or where it comes from.

    /// Effects: makes the receiving ends. Returns: what the sending ranks need. Errors: invalid_argument (a ring that lacks a
    /// rank), and as endpoints have them.
    result<std::vector<parcel>> offer() {
        if (ranks_ == 0 || rank_ >= ranks_ || !options_.limits.valid()) return errc::invalid_argument;
        if (!receivers_.empty()) return errc::already_connected;
        for (const auto& order : options_.rings)
            if (!detail::names_each_once(order, ranks_)) return errc::invalid_argument;
        if (ranks_ == 1) return std::vector<parcel>{};
        if (status s = take_scratch(); !s) return s;
        std::vector<parcel> out;
        for (std::uint32_t i = 0; i < options_.rings.size(); ++i) {
            const std::uint32_t previous = at_distance(options_.rings[i], ranks_ - 1);
            if (status s = receive_from({i, previous}, out); !s) return s;
        }
        for (std::uint32_t p = 0; p < ranks_ && options_.pairs; ++p)
            if (p != rank_)
                if (status s = receive_from({mesh_link::pairs, p}, out); !s) return s;
        return out;
    }
    /// Effects: makes the sending ends, which begin to connect. Errors: bad_blob (not an offer), wrong_peer (an offer is missing
    /// or twice), not_connected (no offer() before), no_port (`detail`: the rail of which this host has no port), and as endpoints have them.
    result<std::vector<parcel>> answer(const std::vector<parcel>& offers) {
        if (receivers_.empty() && ranks_ > 1) return errc::not_connected;
        std::vector<parcel> out;
        for (const parcel& p : offers)
            if (status s = send_to({p.tag, p.peer}, p.bytes, out); !s) return s;
        if (senders_.size() != receivers_.size()) return errc::wrong_peer;
        return out;
    }
    /// Effects: the receiving ends begin to connect.
    status finish(const std::vector<parcel>& answers) {
        if (answers.size() != receivers_.size()) return errc::wrong_peer;
        for (const parcel& p : answers) {
            Rx* const e = find(receivers_, {p.tag, p.peer});
            if (!e) return status{errc::wrong_peer, subject::rank, p.peer};
            if (status s = e->begin_connect(p.bytes); !s) return s;
        }
        return {};
    }
    /// Do all channels run? Never waits.
    bool connected() const noexcept {
        return all([](const auto& e) { return e.connected(); });
    }
    /// Effects: one pass of all ends; none if a proxy drives them. Returns: whether something moved.
    bool progress() noexcept {
        bool moved = false;
        if constexpr (!has_proxy) {
            for (auto& e : receivers_) moved |= e.end->progress();
            for (auto& e : senders_) moved |= e.end->progress();
        }
        return moved;
    }

    /// Effects: all of it over an exchange. Errors: as the above, as the exchange; timeout with the first peer that is not
    /// connected (`subject::rank`).
    template <parcel_exchange X>
    status connect(X& exchange, nanoseconds timeout) {
        const nanoseconds deadline = clock_.now() + timeout;
        const auto left = [&] { return deadline - clock_.now(); };
        auto offers = offer();
        if (!offers) return offers.error();
        auto offered = exchange.exchange(std::move(*offers), left());
        if (!offered) return offered.error();
        auto answers = answer(*offered);
        if (!answers) return answers.error();
        auto answered = exchange.exchange(std::move(*answers), left());
        if (!answered) return answered.error();
        if (status s = finish(*answered); !s) return s;
        // A peer that has nothing to do closes at once.
        const auto connected = [](const auto& e) { return e.connected() || e.state() == channel_state::closed; };
        const status s = drive(deadline, connected);
        if (s.code != errc::timeout) return s;
        for (const auto& e : senders_)
            if (!tx_end::use(*e.end, connected)) return status{errc::timeout, subject::rank, e.link.peer};
        for (const auto& e : receivers_)
            if (!rx_end::use(*e.end, connected)) return status{errc::timeout, subject::rank, e.link.peer};
        return s;
    }

    /// The ends as a communicator wants them, for one of one's own making; the mesh must outlive it. Requires: connected().
    links ends() {
        links l;
        for (std::uint32_t i = 0; i < options_.rings.size() && ranks_ > 1; ++i)
            l.rings.push_back({options_.rings[i], of_ring(senders_, i), of_ring(receivers_, i)});
        if (options_.pairs && ranks_ > 1) {
            l.to.resize(ranks_);
            l.from.resize(ranks_);
            for (std::uint32_t p = 0; p < ranks_; ++p) {
                l.to[p] = adapted(senders_, {mesh_link::pairs, p});
                l.from[p] = adapted(receivers_, {mesh_link::pairs, p});
            }
        }
        return l;
    }
    /// The collectives over these ends, in host memory; the mesh must outlive it. Requires: connected().
    communicator_type make_communicator() {
        return communicator_type(rank_, ranks_, ends(), scratch_.view(), options_.limits, cpu_compute{}, clock_);
    }
    /// As it was made with.
    const ring_limits& limits() const noexcept { return options_.limits; }

    /// Effects: closes all channels in order, as all ranks do at the same time. Errors: timeout, or why one had failed.
    status close(nanoseconds timeout) {
        const nanoseconds deadline = clock_.now() + timeout;
        for (auto& e : senders_)
            if (const status s = tx_end::use(*e.end, [](auto& x) { return x.close({0}); }); !s && s.code != errc::timeout)
                return s;
        return drive(deadline, [](const auto& e) { return e.state() == channel_state::closed; });
    }

    /// f(mesh_link, endpoint&) for each end, while its proxy, if any, keeps off.
    template <class F>
    void each_sender(F&& f) {
        for (auto& e : senders_) tx_end::use(*e.end, [&](auto& x) { f(e.link, x); });
    }
    /// The same for receivers: `f(link, end)` for each, under the proxy's lock where there is one.
    template <class F>
    void each_receiver(F&& f) {
        for (auto& e : receivers_) rx_end::use(*e.end, [&](auto& x) { f(e.link, x); });
    }

private:
    host_mesh(proxy* driver, context& c, starting_point from, std::uint32_t rank, std::uint32_t ranks, mesh_options options,
              Clock clock, Detect detect)
        : driver_(driver),
          context_(c),
          from_(from),
          rank_(rank),
          ranks_(ranks),
          options_(std::move(options)),
          clock_(clock),
          detect_(detect) {
        if (options_.limits.receives_ahead > options_.ends.window) options_.limits.receives_ahead = options_.ends.window;
        if (options_.rings.empty()) {
            options_.rings.emplace_back();
            for (std::uint32_t r = 0; r < ranks; ++r) options_.rings[0].push_back(r);
        }
    }

    template <class End>
    struct held {
        mesh_link link;
        std::unique_ptr<End> end;
        std::unique_ptr<driven<End>> adapter{};  ///< of a proxied end, once a collective uses it
    };
    template <class End>
    using handler_of = std::remove_cvref_t<decltype(std::declval<End&>().handler())>;
    struct free_pages {
        void operator()(std::byte* p) const noexcept { ::operator delete[](p, std::align_val_t{4096}); }
    };

    template <class End>
    static End* find(const std::vector<held<End>>& list, mesh_link l) noexcept {
        for (const auto& e : list)
            if (e.link.ring == l.ring && e.link.peer == l.peer) return e.end.get();
        return nullptr;
    }
    template <class End>
    static auto* adapted(held<End>& e) {
        if constexpr (has_proxy) {
            if (!e.adapter) e.adapter = std::make_unique<driven<End>>(*e.end);
            return e.adapter.get();
        } else {
            return e.end.get();
        }
    }
    template <class End>
    static typename detail::mesh_end<End>::in_collective* adapted(std::vector<held<End>>& list, mesh_link l) {
        for (auto& e : list)
            if (e.link.ring == l.ring && e.link.peer == l.peer) return adapted(e);
        return nullptr;
    }
    template <class End>
    static typename detail::mesh_end<End>::in_collective* of_ring(std::vector<held<End>>& list, std::uint32_t ring) {
        for (auto& e : list)
            if (e.link.ring == ring) return adapted(e);
        return nullptr;
    }
    template <class Each>
    bool all(Each&& each) const noexcept {
        for (const auto& e : receivers_)
            if (!rx_end::use(*e.end, each)) return false;
        for (const auto& e : senders_)
            if (!tx_end::use(*e.end, each)) return false;
        return true;
    }
    template <class Each>
    status drive(nanoseconds deadline, Each&& each) noexcept {
        while (!all(each)) {
            const bool moved = progress();
            for (auto& e : senders_)
                if (const status s = e.end->health(); !s && s.code != errc::closed) return s;
            for (auto& e : receivers_)
                if (const status s = e.end->health(); !s && s.code != errc::closed) return s;
            if (clock_.now() >= deadline) return errc::timeout;
            if (!moved) ::sched_yield();
        }
        return {};
    }

    status take_scratch() {
        const std::uint64_t bytes = communicator_type::scratch_bytes(options_.rings.size(), ranks_, options_.limits);
        scratch_bytes_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{4096}, std::nothrow)));
        if (!scratch_bytes_) return errc::no_memory;
        auto m = context_.register_memory(scratch_bytes_.get(), bytes);
        if (!m) return m.error();
        scratch_ = std::move(*m);
        return {};
    }

    /// The rank that many places after this one in a ring that names it.
    std::uint32_t at_distance(const std::vector<std::uint32_t>& order, std::uint32_t places) const noexcept {
        std::size_t i = 0;
        while (order[i] != rank_) ++i;
        return order[(i + places) % ranks_];
    }
    /// The same at both ends, and for each link another.
    channel_id channel(std::uint32_t ring, std::uint32_t from, std::uint32_t to) const noexcept {
        const std::uint32_t plane = ring == mesh_link::pairs ? 0 : ring + 1;
        return channel_id{(plane * ranks_ + from) * ranks_ + to};
    }
    endpoint_options options_of(std::uint32_t seed_step) const noexcept {
        endpoint_options o = options_.ends;
        if (o.max_chunk < options_.limits.piece_bytes) o.max_chunk = options_.limits.piece_bytes;
        if (o.seed != 0) o.seed += seed_step;
        o.ack_delay = {0};  // an operation ends with its last acknowledgement
        return o;
    }

    status receive_from(mesh_link l, std::vector<parcel>& out) {
        const channel_id c = channel(l.ring, l.peer, rank_);
        auto end = rx_end::make(driver_, context_, from_, c, options_of(2 * c.value), typename receiver::port_policy{},
                                handler_of<receiver>{}, typename receiver::failback_type{}, detect_, clock_);
        auto blob = end->local_info();
        if (!blob) return blob.error();
        const topology& t = context_.shape();
        const auto port = rx_end::use(*end, [&](auto& e) { return t.find_port(e.lane_port(lane_id{0}).view()); });
        if (!port) return port.error();
        const std::uint16_t rail = t.ports[port->value].rail.value;
        blob->push_back(static_cast<std::byte>(rail & 0xff));
        blob->push_back(static_cast<std::byte>(rail >> 8));
        out.push_back({l.peer, l.ring, std::move(*blob)});
        receivers_.push_back({l, std::move(end)});
        return {};
    }

    status send_to(mesh_link l, std::span<const std::byte> offer, std::vector<parcel>& out) {
        if (!expected(l) || find(senders_, l)) return status{errc::wrong_peer, subject::rank, l.peer};
        if (offer.size() < 2) return errc::bad_blob;
        const auto blob = offer.first(offer.size() - 2), rail = offer.last(2);
        const auto port =
            port_on(static_cast<std::uint16_t>(std::to_integer<unsigned>(rail[0]) | std::to_integer<unsigned>(rail[1]) << 8));
        if (!port) return port.error();
        const channel_id c = channel(l.ring, rank_, l.peer);
        auto end = tx_end::make(driver_, context_, *port, c, options_of(2 * c.value + 1), typename sender::port_policy{},
                                handler_of<sender>{}, typename sender::log_type{}, detect_, clock_);
        auto own = end->local_info();
        if (!own) return own.error();
        if (status s = end->begin_connect(blob); !s) return s;
        out.push_back({l.peer, l.ring, std::move(*own)});
        senders_.push_back({l, std::move(end)});
        return {};
    }
    /// Is that a link from this rank?
    bool expected(mesh_link l) const noexcept {
        if (l.ring == mesh_link::pairs) return options_.pairs && l.peer < ranks_ && l.peer != rank_;
        return l.ring < options_.rings.size() && at_distance(options_.rings[l.ring], 1) == l.peer;
    }
    result<port_id> port_on(std::uint16_t rail) const noexcept {
        const topology& t = context_.shape();
        const host_id own = from_.is_port ? t.host_of(from_.port) : t.gpus[from_.gpu.value].host;
        for (std::uint16_t p = 0; p < t.ports.size(); ++p)
            if (t.ports[p].rail.value == rail && t.host_of(port_id{p}) == own) return port_id{p};
        return status{errc::no_port, rail};
    }

    proxy* driver_;
    context& context_;
    starting_point from_;
    std::uint32_t rank_, ranks_;
    mesh_options options_;
    [[no_unique_address]] Clock clock_;
    [[no_unique_address]] Detect detect_;
    std::unique_ptr<std::byte[], free_pages> scratch_bytes_;
    memory scratch_;
    std::vector<held<Rx>> receivers_;
    std::vector<held<Tx>> senders_;
};

}  // namespace vccl::inline v0
