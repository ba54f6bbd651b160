#pragma once
/// \file
/// What a verbs backend must offer. `verbs::ibv` (rdma-core) and `verbs::soft` (the software RNIC) model it and pass
/// one contract suite, testing/contracts.hpp; a user's own backend does the same.
///
/// Ownership: `port`, `cq`, `qp`, `mr` are move-only and release what they hold in their destructor. Destroy QPs and MRs
/// before the CQs they use, CQs before their port, ports before the backend. Set-up calls may allocate and block
/// briefly; `post`, `post_recv` and `poll` do neither. One thread at a time per object unless the backend says more.

#include <vccl/base/status.hpp>
#include <vccl/base/time.hpp>
#include <vccl/model/topology.hpp>
#include <vccl/model/work.hpp>

#include <concepts>
#include <span>

namespace vccl::inline v0 {

/// A port's address on the fabric; RoCE v2 keeps an IP address in it.
struct gid {
    std::uint8_t raw[16]{};  ///< network byte order
    friend constexpr bool operator==(const gid&, const gid&) noexcept = default;
};

/// May it carry traffic now?
enum class port_state : std::uint8_t { down, active };
/// What runs below: it decides whether the GID or the LID leads to the peer.
enum class link_layer : std::uint8_t { infiniband, ethernet };

/// A port as `query()` finds it now. RoCE may renumber the GID table after a flap, so it is read anew each time.
struct port_attributes {
    /// As found at this moment.
    /// @{
    port_state state{port_state::down};
    link_layer link{link_layer::ethernet};
    std::uint8_t gid_index{};
    std::uint16_t lid{};
    /// @}
    std::uint32_t mtu{};             ///< active path MTU in bytes
    std::uint64_t bytes_per_second{};///< line rate; 0 if unknown
    gid address{};                   ///< the GID at `gid_index`
};

/// Queue sizes of a QP. The backend rounds up, never down.
struct qp_limits {
    /// Work requests that may be outstanding.
    /// @{
    std::uint32_t send_depth{128};
    std::uint32_t recv_depth{128};
    /// @}
    std::uint32_t inline_bytes{64};  ///< largest payload taken while posting; at most the port's inline_limit()
};

/// Whom an RC QP is connected to.
struct qp_peer {
    vccl::qpn number{};  ///< its number at the peer
    psn first_psn{};     ///< the peer's first send PSN
    gid address{};       ///< the peer port's GID; RoCE needs nothing else
    std::uint16_t lid{};  ///< the peer port's LID; InfiniBand's own subnets need it
    std::uint32_t mtu{}; ///< path MTU in bytes: the smaller of both ports' active MTU
};

/// The hardware's own timers. Retry time is 4.096 us * 2^timeout * (retries + 1); many NICs have a floor far above.
/// retry_count 7 means "for ever" on soft-RoCE, so the stock value stays below it.
struct qp_timers {
    std::uint8_t timeout{14};  ///< exponent, see above; 0 to verbs means no time-out at all
    std::uint8_t retry_count{2};  ///< times that a time-out is retried before the queue pair gives up
    std::uint8_t rnr_retry{6};  ///< the same for a receiver that is not ready; 7 is for ever
    std::uint8_t min_rnr_timer{12};  ///< code of the wait that a receiver that is not ready asks for; 12 is 0.64 ms

    /// One time-out, and with all retries. Not for a `timeout` of 0, which means none.
    /// @{
    constexpr nanoseconds time_out() const noexcept { return {std::int64_t{4096} << (timeout & 31)}; }
    constexpr nanoseconds retry_time() const noexcept { return time_out() * (retry_count + 1); }
    /// @}
};

/// The wait in nanoseconds that a code of `min_rnr_timer` stands for (InfiniBand Architecture Specification 1.x, 9.7.5.2.8).
constexpr std::int64_t rnr_wait(std::uint8_t code) noexcept {
    constexpr std::uint32_t hundredths[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                              48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                              2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return static_cast<std::int64_t>(hundredths[code & 31]) * 10'000;
}

/// The states of an RC queue pair that the library uses; docs/concepts.md says what each step must do.
enum class qp_state : std::uint8_t { reset, init, ready_to_receive, ready_to_send, error };

/// What a device says without being asked.
struct async_event {
    /// The events that matter here; the rest is `other`.
    enum class kind : std::uint8_t {
        none,
        port_error,
        port_active,
        gid_change,
        lid_change,
        device_fatal,
        qp_fatal,
        cq_error,
        other
    };
    kind what{kind::none};  ///< `none`: nothing to say.
    vccl::qpn qp{};  ///< qp_fatal only
};

/// What a backend can do, known at compile time (`B::capabilities`).
struct backend_capabilities {
    bool dmabuf{};            ///< port.register_dmabuf exists
    bool manual_time{};       ///< driven by a manual clock: nothing moves while the caller waits
    bool loopback{true};      ///< a QP may be connected to a QP of the same port (the GPU flush does that)
    bool atomics{true};       ///< FETCH_ADD and CMP_SWAP work.
};

template <class Q>
concept verbs_qp = requires(Q q, const Q c, const work& w, std::span<const work> many, std::span<const recv_work> recvs,
                            const qp_peer& peer, const qp_timers& timers, psn first) {
    { c.number() } noexcept -> std::same_as<qpn>;
    { q.to_reset() } noexcept -> std::same_as<status>;
    { q.to_init() } noexcept -> std::same_as<status>;  // RESET -> INIT, remote write/read/atomic allowed
    { q.to_ready_to_receive(peer, timers) } noexcept -> std::same_as<status>;  // INIT -> RTR; reads the local GID index anew
    { q.to_ready_to_send(first, timers) } noexcept -> std::same_as<status>;  // RTR -> RTS with this first send PSN
    { q.to_error() } noexcept -> std::same_as<status>;  // any -> ERR; after it returns, the QP writes no memory
    { q.state() } noexcept -> std::same_as<result<qp_state>>;
    { q.post(w) } noexcept -> std::same_as<status>;  // would_block when the send queue is full
    { q.post(many) } noexcept -> std::same_as<result<unsigned>>;  // how many of them were taken, in order; one doorbell
    { q.post_recv(recvs) } noexcept -> std::same_as<result<unsigned>>;
    { q.destroy() } noexcept -> std::same_as<status>;  // also done by the destructor; a fence, too
};

template <class C>
concept verbs_cq = requires(C c, completion* out, unsigned room) {
    { c.poll(out, room) } noexcept -> std::same_as<result<unsigned>>;  // 0 when empty; cq_overrun is final
};

template <class M>
concept verbs_mr = requires(const M m) {
    { m.local_key() } noexcept -> std::same_as<lkey>;
    { m.remote_key() } noexcept -> std::same_as<rkey>;
};

template <class P>
concept verbs_port =
    requires(P p, typename P::cq& cq, const qp_limits& limits, void* memory, std::size_t bytes, std::uint32_t depth) {
        requires verbs_qp<typename P::qp> && verbs_cq<typename P::cq> && verbs_mr<typename P::mr>;
        { p.query() } noexcept -> std::same_as<result<port_attributes>>;
        { p.create_cq(depth) } noexcept -> std::same_as<result<typename P::cq>>;
        { p.create_qp(cq, limits) } noexcept -> std::same_as<result<typename P::qp>>;  // RC; one CQ for both queues
        {
            p.register_memory(memory, bytes)
        } noexcept -> std::same_as<result<typename P::mr>>;  // local write, remote write, read, atomic
        { p.next_event() } noexcept -> std::same_as<result<async_event>>;  // kind::none when there is none; never blocks
        { p.inline_limit() } noexcept -> std::same_as<std::uint32_t>;  // largest inlined payload a QP of this port takes
    };

/// Optional: a port whose kernel may not know a peer's address, and would keep the caller of `to_ready_to_receive` until it
/// does. `p.find_peer(own, address)`: ok if RTR would not have to wait, or nobody can say; else the address is being asked for
/// from now on, and `is_too_early` is true of what is returned. `own`: what `query` said. Asked once before a lane's QPs climb.
template <class P>
concept finds_peers = requires(P p, const port_attributes& own, const gid& address) {
    { p.find_peer(own, address) } noexcept -> std::same_as<status>;
};
/// Returns: whether a lane was left for later, since its peer's address is still being asked for.
constexpr bool is_too_early(const status& s) noexcept { return s.code == errc::timeout && s.about == subject::peer_address; }

/// Optional: a port that fences several of its QPs at the price of one. `q.begin_error()` for each, then
/// `p.finish_errors()`; afterwards it is as if `q.to_error()` had returned ok for those.
template <class P>
concept fences_together = requires(const P p, typename P::qp q) {
    { q.begin_error() } noexcept -> std::same_as<status>;
    { p.finish_errors() } noexcept -> std::same_as<void>;
};

/// Optional: a backend with memory of its own, out of which it sends with less work than out of other memory.
template <class B>
concept allocates_memory = requires(B b, std::size_t bytes, const typename B::buffer held) {
    { b.allocate(bytes) } noexcept -> std::same_as<result<typename B::buffer>>;  // move-only; gives it back when it goes
    { held.data() } noexcept -> std::same_as<std::byte*>;
};

/// A backend is a cheap handle (copyable) from which ports are opened by the name that the topology gives them.
template <class B>
concept verbs_backend = on_axis<B, axis::verbs> && std::copy_constructible<B> && verbs_port<typename B::port> &&
                        requires(B b, const port_name& name) {
                            { B::capabilities } -> std::convertible_to<const backend_capabilities&>;
                            { b.discover() } -> std::same_as<result<topology>>;  // this host's NICs, ports, GPUs
                            { b.open(name) } noexcept -> std::same_as<result<typename B::port>>;
                        };

}  // namespace vccl::inline v0
