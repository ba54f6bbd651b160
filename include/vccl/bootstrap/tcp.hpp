#pragma once
/// \file
/// `tcp_bootstrap`: the ranks of a job find each other at one address, prove to each other that they know the job's secret, and
/// exchange parcels; models parcel_exchange. Messages are authenticated, not encrypted: who listens learns addresses and keys
/// of queue pairs, as on the fabric itself. Set-up thread; nothing runs between calls. Link OpenSSL (libcrypto).

#include <vccl/base/owned.hpp>
#include <vccl/bootstrap/place.hpp>
#include <vccl/bootstrap/root.hpp>

#include <string>

namespace vccl::inline v0 {

/// Where rank 0 will listen, opened before anybody is told: its port may be chosen by the system.
class bootstrap_listener {
public:
    /// `where`: "host:port", port 0 for any. Errors: invalid_argument, not_found, system (`subject::system_error`).
    static result<bootstrap_listener> open(std::string_view where) {
        auto at = detail::resolve_address(where);
        if (!at) return at.error();
        auto fd = detail::listen_at(*at);
        if (!fd) return fd.error();
        return result<bootstrap_listener>(bootstrap_listener(std::move(*fd)));
    }
    /// "host:port" with the port that was found: for the others' `root`.
    std::string address() const { return std::string(detail::own_address(fd_.get()).view()); }

private:
    friend class tcp_bootstrap;
    explicit bootstrap_listener(detail::socket_fd fd) noexcept : fd_(std::move(fd)) {}
    detail::socket_fd fd_;
};

/// Made once a job and rank; ends are then connected by exchanges of their blobs.
class tcp_bootstrap {
public:
    /// Effects: rank 0 listens at `place.root` until all ranks are there; the others call there until it answers. Errors, which
    /// describe_join_fault (bootstrap/tcp_text.hpp) says in a sentence: invalid_argument, not_found (the root's name), system
    /// (`subject::system_error`), timeout (rank 0: `subject::rank`, the first missing one and how many; the others: the
    /// `subject::system_error` of their last call, if it had one), wrong_peer (`subject::secret`: who answers does not know it; else
    /// as check_hello), bad_blob (who answers is no rank 0), version_mismatch, already_exists (this rank is there already).
    static result<tcp_bootstrap> join(const job_place& place, const job_secret& secret, nanoseconds timeout,
                                      const bootstrap_limits& limits = {}) {
        const nanoseconds deadline = steady_clock{}.now() + timeout;
        if (place.ranks > most_bootstrap_ranks || place.rank >= place.ranks) return errc::invalid_argument;
        if (place.ranks == 1) return result<tcp_bootstrap>(tcp_bootstrap(place));
        if (place.rank != 0) return call(place, secret, deadline, limits);
        auto listener = bootstrap_listener::open(place.root);
        if (!listener) return listener.error();
        return admit(place, std::move(*listener), secret, deadline, limits);
    }
    /// The same for rank 0 with a listener of its own.
    static result<tcp_bootstrap> join(const job_place& place, bootstrap_listener listener, const job_secret& secret,
                                      nanoseconds timeout, const bootstrap_limits& limits = {}) {
        if (place.rank != 0 || place.ranks == 0 || place.ranks > most_bootstrap_ranks) return errc::invalid_argument;
        return admit(place, std::move(listener), secret, steady_clock{}.now() + timeout, limits);
    }

    /// As the `job_place` said that it was made with.
    /// @{
    std::uint32_t rank() const noexcept { return place_.rank; }
    std::uint32_t ranks() const noexcept { return place_.ranks; }
    /// @}
    /// This rank's address towards the root, without a port: `oob = own_host() + ":0"` in endpoint_options lets other hosts find
    /// its ends. Rank 0 has it from its listener; if that takes any address, it is "0.0.0.0": name one of the host instead.
    const std::string& own_host() const noexcept { return own_host_; }

    /// Effects: see parcel_exchange. An error is final, and all ranks get one. Errors: timeout, peer_lost, aborted (another rank had
    /// an error), protocol_violation, too_large, wrong_peer, each with `subject::rank` if one is to blame; invalid_argument (a parcel
    /// to nobody). describe_exchange_fault says them in a sentence.
    result<std::vector<parcel>> exchange(std::vector<parcel> parcels, nanoseconds timeout) {
        if (!why_) return why_;
        for (const parcel& p : parcels) {
            if (p.peer >= place_.ranks) return give_up(detail::rank_fault(errc::invalid_argument, p.peer));
            if (p.bytes.size() > ~std::uint32_t{0}) return give_up(detail::rank_fault(errc::too_large, place_.rank));
        }
        if (place_.ranks == 1) return parcels;
        const nanoseconds deadline = steady_clock{}.now() + timeout;
        auto got = root_ ? root_->exchange(std::move(parcels), deadline) : by_root(parcels, deadline);
        if (!got) return give_up(got.error());
        return got;
    }
    /// Effects: from now on `f` is called again and again while an exchange waits for other ranks: say, to drive ends, without
    /// which those ranks might never come.
    void while_waiting(std::function<void()> f) {
        while_waiting_ = std::move(f);
        if (root_) root_->while_waiting = while_waiting_;
    }
    /// Effects: returns when all ranks have called it.
    status barrier(nanoseconds timeout) { return exchange({}, timeout).error(); }

private:
    explicit tcp_bootstrap(job_place place) : place_(std::move(place)) {}

    static result<tcp_bootstrap> admit(const job_place& place, bootstrap_listener listener, const job_secret& secret,
                                       nanoseconds deadline, const bootstrap_limits& limits) {
        tcp_bootstrap b(place);
        b.own_host_ = detail::host_part(detail::own_address(listener.fd_.get()));
        b.root_.reset(new bootstrap_root(std::move(listener.fd_), secret, place.ranks, limits));
        if (status s = b.root_->admit(deadline); !s) return s;
        return b;
    }

    static result<tcp_bootstrap> call(const job_place& place, const job_secret& secret, nanoseconds deadline,
                                      const bootstrap_limits& limits) {
        auto at = detail::resolve_address(place.root);
        if (!at) return at.error();
        tcp_bootstrap b(place);
        b.limits_ = limits;
        // Until the root listens; a connection that breaks before it is accepted is tried again, too.
        for (;;) {
            const status s = b.introduce(at->where, secret, deadline);
            if (s) return b;
            const bool again = s.code == errc::peer_lost;
            if (!again) return s;
            if (steady_clock{}.now() >= deadline) return status{errc::timeout, s.about, s.detail};
            ::poll(nullptr, 0, 20);
        }
    }
    status introduce(const detail::socket_address& root, const job_secret& secret, nanoseconds deadline) {
        detail::socket_fd fd{::socket(root.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        if (!fd) return detail::last_socket_error();
        if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&root.storage), root.length) != 0 && errno != EINPROGRESS)
            return detail::with_errno(errc::peer_lost);
        // While nobody listens, a socket that was given that very port can reach itself, and would keep it from the root.
        if (detail::own_address(fd.get()).view() == detail::format_address(root.storage).view()) return errc::peer_lost;
        line_ = bootstrap_stream(std::move(fd));
        bootstrap_hello hello;
        hello.rank = place_.rank;
        hello.ranks = place_.ranks;
        const auto nonce = job_secret::random();
        if (!nonce) return nonce.error();
        std::memcpy(hello.nonce.bytes, nonce->bytes, sizeof hello.nonce.bytes);
        line_.put(hello);
        std::optional<bootstrap_challenge> challenge;
        if (status s = until(deadline, sizeof(bootstrap_challenge),
                             [&] { return static_cast<bool>(challenge = line_.take<bootstrap_challenge>()); });
            !s)
            return s;
        if (challenge->magic != bootstrap_hello::magic_value) return errc::bad_blob;
        if (challenge->version != bootstrap_hello::current_version)
            return detail::version_fault(bootstrap_hello::current_version, challenge->version);
        if (!(challenge->code == handshake_code(secret, handshake_role::root_knows, hello, challenge->nonce)))
            return status{errc::wrong_peer, subject::secret, 0};
        line_.put(bootstrap_proof{handshake_code(secret, handshake_role::rank_knows, hello, challenge->nonce)});
        line_.secure(handshake_code(secret, handshake_role::key, hello, challenge->nonce), false, limits_.frame_bytes);
        auto welcome = frame(deadline);
        if (!welcome) return welcome.error();
        if (!welcome->empty() && (*welcome)[0] == static_cast<std::byte>(bootstrap_frame::failure))
            return detail::failure_of(*welcome);
        if (*welcome != std::vector<std::byte>{static_cast<std::byte>(bootstrap_frame::welcome)}) return errc::protocol_violation;
        own_host_ = detail::host_part(detail::own_address(line_.fd()));
        return {};
    }

    /// Effects: no exchange any more, and the others are told, if they were not yet.
    status give_up(status why) {
        why_ = why;
        if (root_) {
            root_->give_up();
        } else if (line_.open()) {
            line_.put_frame(detail::failure_frame(why));
            (void)line_.pump(0);
        }
        return why;
    }

    result<std::vector<parcel>> by_root(const std::vector<parcel>& parcels, nanoseconds deadline) {
        std::vector<std::byte> out{static_cast<std::byte>(bootstrap_frame::parcels)};
        for (const parcel& p : parcels) pack_parcel(out, p.peer, p);
        if (out.size() > limits_.frame_bytes) return detail::rank_fault(errc::too_large, place_.rank);
        line_.put_frame(out);
        auto got = frame(deadline);
        if (!got) return got.error().code == errc::system ? got.error() : detail::rank_fault(got.error().code, 0);
        if (!got->empty() && (*got)[0] == static_cast<std::byte>(bootstrap_frame::failure)) return detail::failure_of(*got);
        if (got->empty() || (*got)[0] != static_cast<std::byte>(bootstrap_frame::parcels))
            return detail::rank_fault(errc::protocol_violation, 0);
        return unpack_parcels(std::span<const std::byte>(*got).subspan(1), place_.ranks);
    }

    result<std::vector<std::byte>> frame(nanoseconds deadline) {
        std::vector<std::byte> payload;
        status why;
        const status s = until(deadline, limits_.frame_bytes + bootstrap_stream::head_bytes, [&] {
            auto f = line_.take_frame();
            if (!f) why = f.error();
            if (f && *f) payload = std::move(**f);
            return !f || *f;
        });
        if (!why) return why;
        if (!s) return s;
        return payload;
    }
    /// Effects: moves bytes until `done`. Errors: timeout, peer_lost.
    template <class Done>
    status until(nanoseconds deadline, std::size_t most, Done&& done) {
        for (;;) {
            const status moved = line_.pump(most);
            if (done()) return {};
            if (!moved) return moved;
            if (steady_clock{}.now() >= deadline) return errc::timeout;
            pollfd p{line_.fd(), static_cast<short>(POLLIN | (line_.has_output() ? POLLOUT : 0)), 0};
            if (status s = detail::wait_for(&p, 1, deadline, while_waiting_); !s) return s;
        }
    }

    job_place place_;
    bootstrap_limits limits_;
    std::string own_host_;
    bootstrap_stream line_;  ///< a rank's, to the root
    owned<bootstrap_root> root_;  ///< rank 0's
    std::function<void()> while_waiting_;
    status why_;
};
static_assert(parcel_exchange<tcp_bootstrap>);

}  // namespace vccl::inline v0
