#pragma once
/// \file
/// The root's side of the TCP bootstrap: lets the ranks in that know the secret, then carries their parcels. Strangers can do
/// no more than take a place in a bounded waiting room for a bounded time. One thread; nothing runs between calls.

#include <vccl/base/clock.hpp>
#include <vccl/bootstrap/address.hpp>
#include <vccl/bootstrap/handshake.hpp>
#include <vccl/bootstrap/parcels.hpp>
#include <vccl/bootstrap/stream.hpp>

#include <poll.h>

#include <functional>

namespace vccl::inline v0 {

/// How much the root lends to callers, known and unknown.
struct bootstrap_limits {
    std::uint32_t frame_bytes{64u << 20};      ///< of a rank's parcels in one exchange
    unsigned waiting{64};                      ///< callers that have not proved anything yet; the one that waits longest goes
    nanoseconds patience{5'000'000'000};       ///< such a caller has so long
};

/// What a frame is about; its first byte.
enum class bootstrap_frame : unsigned char { welcome, parcels, failure };

namespace detail {

/// Until something can be read or written, or for a tenth of a second, by when someone's patience may be over. With something to
/// do meanwhile, does it once.
inline status wait_for(pollfd* p, std::size_t n, nanoseconds deadline, const std::function<void()>& meanwhile) {
    if (meanwhile) meanwhile();
    const std::int64_t left = (deadline - steady_clock{}.now()).count / 1'000'000 + 1;
    const std::int64_t most = meanwhile ? 0 : 100, span = left < 0 ? 0 : left < most ? left : most;
    if (::poll(p, n, static_cast<int>(span)) < 0 && errno != EINTR) return last_socket_error();
    return {};
}

/// A failure as a frame: what happened, about what, and the two numbers.
inline std::vector<std::byte> failure_frame(status s) {
    std::vector<std::byte> out{static_cast<std::byte>(bootstrap_frame::failure), static_cast<std::byte>(s.code),
                               static_cast<std::byte>(s.about)};
    put_word(out, s.detail);
    put_word(out, s.extra);
    return out;
}
inline status failure_of(std::span<const std::byte> frame) noexcept {
    if (frame.size() != 11 || frame[1] == std::byte{} ||
        std::to_integer<unsigned>(frame[1]) > static_cast<unsigned>(errc::io_error) ||
        std::to_integer<unsigned>(frame[2]) > static_cast<unsigned>(last_subject))
        return errc::protocol_violation;
    return status{static_cast<errc>(frame[1]), static_cast<subject>(frame[2]), get_word(frame.subspan(3)),
                  get_word(frame.subspan(7))};
}

/// An error of which one rank is to blame.
inline status rank_fault(errc code, std::uint32_t rank) noexcept { return status{code, subject::rank, rank}; }

}  // namespace detail

/// Made by `tcp_bootstrap` at rank 0; programs see only that.
class bootstrap_root {
public:
    /// Requires: `listener` listens; ranks is at least 1, the root's own included.
    bootstrap_root(detail::socket_fd listener, const job_secret& secret, std::uint32_t ranks, const bootstrap_limits& limits)
        : listener_(std::move(listener)), secret_(secret), limits_(limits), members_(ranks) {}

    /// Effects: lets ranks in until all are there. Errors: timeout (`subject::rank`: the first that is missing, and how many).
    status admit(nanoseconds deadline) {
        while (missing() != 0) {
            const nanoseconds now = steady_clock{}.now();
            if (now >= deadline) {
                const status late{errc::timeout, subject::rank, first_missing(), missing()};
                for (member& m : members_)
                    if (m.line.open()) m.line.put_frame(detail::failure_frame(late));
                pump_members();
                return late;
            }
            if (status s = wait(deadline); !s) return s;
            accept(steady_clock{}.now());
            attend_callers(steady_clock{}.now());
            attend_members();
        }
        callers_.clear();
        listener_.reset();
        return {};
    }

    /// Effects: takes every rank's parcels, `own` being the root's, and gives every rank those for it. Returns: the root's. Errors,
    /// which all ranks get: timeout, peer_lost, protocol_violation, too_large, wrong_peer, aborted, each with its `subject::rank`.
    result<std::vector<parcel>> exchange(std::vector<parcel> own, nanoseconds deadline) {
        std::vector<std::vector<parcel>> from(members_.size());
        from[0] = std::move(own);
        std::vector<bool> there(members_.size());
        for (std::size_t open = members_.size() - 1; open != 0;) {
            for (std::uint32_t r = 1; r < members_.size(); ++r) {
                if (there[r]) continue;
                auto got = take(r);
                if (!got) return fail(got.error());
                if (!*got) continue;
                auto parcels = unpack_parcels(std::span<const std::byte>(**got).subspan(1), ranks());
                if (!parcels) return fail(detail::rank_fault(parcels.error().code, r));
                from[r] = std::move(*parcels);
                there[r] = true;
                --open;
            }
            if (open == 0) break;
            if (steady_clock{}.now() >= deadline) {
                std::uint32_t r = 1;
                while (there[r]) ++r;
                return fail(detail::rank_fault(errc::timeout, r));
            }
            if (status s = wait(deadline); !s) return fail(s);
        }
        return deliver(std::move(from), deadline);
    }

    /// Effects: the ranks' next exchange ends with `aborted` by rank 0, unless they were told of another error before.
    void give_up() { (void)fail(detail::rank_fault(errc::aborted, 0)); }

    std::function<void()> while_waiting;  ///< called again and again while it waits for ranks

private:
    struct caller {
        bootstrap_stream line;
        nanoseconds since{};
        bool challenged{};
        bootstrap_hello hello;
        bootstrap_nonce nonce;
    };
    struct member {
        bootstrap_stream line;
        bool gone{};
    };

    std::uint32_t ranks() const noexcept { return static_cast<std::uint32_t>(members_.size()); }
    std::uint32_t missing() const noexcept {
        std::uint32_t n = 0;
        for (std::uint32_t r = 1; r < ranks(); ++r) n += !members_[r].line.open();
        return n;
    }
    std::uint32_t first_missing() const noexcept {
        std::uint32_t r = 1;
        while (members_[r].line.open()) ++r;
        return r;
    }

    status wait(nanoseconds deadline) {
        std::vector<pollfd> p;
        const auto add = [&](const bootstrap_stream& s) {
            if (s.open()) p.push_back({s.fd(), static_cast<short>(POLLIN | (s.has_output() ? POLLOUT : 0)), 0});
        };
        if (listener_) p.push_back({listener_.get(), POLLIN, 0});
        for (const caller& c : callers_) add(c.line);
        for (const member& m : members_) add(m.line);
        return detail::wait_for(p.data(), p.size(), deadline, while_waiting);
    }

    void accept(nanoseconds now) {
        for (;;) {
            detail::socket_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
            if (!fd) return;
            if (callers_.size() == limits_.waiting) callers_.erase(callers_.begin());
            callers_.push_back({bootstrap_stream(std::move(fd)), now, false, {}, {}});
        }
    }
    void attend_callers(nanoseconds now) {
        for (std::size_t i = 0; i < callers_.size();) {
            caller& c = callers_[i];
            const bool lost = !c.line.pump(sizeof(bootstrap_hello));
            if (!hear(c) || lost || !c.line.open() || now - c.since > limits_.patience)
                callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(i));
            else
                ++i;
        }
    }
    /// False: turn it away, or it has become a member.
    bool hear(caller& c) {
        if (!c.challenged) {
            const auto hello = c.line.take<bootstrap_hello>();
            if (!hello) return true;
            if (hello->magic != bootstrap_hello::magic_value) return false;
            const auto nonce = job_secret::random();
            if (!nonce) return false;
            c.hello = *hello;
            std::memcpy(c.nonce.bytes, nonce->bytes, sizeof c.nonce.bytes);
            bootstrap_challenge challenge;
            challenge.nonce = c.nonce;
            challenge.code = handshake_code(secret_, handshake_role::root_knows, c.hello, c.nonce);
            c.line.put(challenge);
            c.challenged = true;
            return static_cast<bool>(c.line.pump(sizeof(bootstrap_hello)));
        }
        const auto proof = c.line.take<bootstrap_proof>();
        if (!proof) return true;
        if (!(proof->code == handshake_code(secret_, handshake_role::rank_knows, c.hello, c.nonce))) return false;
        c.line.secure(handshake_code(secret_, handshake_role::key, c.hello, c.nonce), true, limits_.frame_bytes);
        status refusal = check_hello(c.hello, ranks());
        if (refusal && members_[c.hello.rank].line.open()) refusal = detail::rank_fault(errc::already_exists, c.hello.rank);
        if (refusal) {
            c.line.put_frame(std::vector<std::byte>{static_cast<std::byte>(bootstrap_frame::welcome)});
            members_[c.hello.rank].line = std::move(c.line);
        } else {
            c.line.put_frame(detail::failure_frame(refusal));
            (void)c.line.pump(0);
        }
        return false;
    }

    /// A rank that leaves before the job is complete may come back.
    void attend_members() {
        for (member& m : members_)
            if (m.line.open() && !m.line.pump(limits_.frame_bytes + bootstrap_stream::head_bytes)) m = member{};
    }
    void pump_members() {
        for (member& m : members_)
            if (m.line.open()) (void)m.line.pump(0);
    }

    /// The next frame of parcels of a rank, if it is there.
    result<std::optional<std::vector<std::byte>>> take(std::uint32_t r) {
        member& m = members_[r];
        if (!m.gone && !m.line.pump(limits_.frame_bytes + bootstrap_stream::head_bytes)) m.gone = true;
        auto frame = m.line.take_frame();
        if (!frame) return detail::rank_fault(frame.error().code, r);
        if (!*frame)
            return m.gone ? result<std::optional<std::vector<std::byte>>>(detail::rank_fault(errc::peer_lost, r))
                          : std::move(frame);
        if ((*frame)->empty()) return detail::rank_fault(errc::protocol_violation, r);
        if ((**frame)[0] == static_cast<std::byte>(bootstrap_frame::failure)) return detail::rank_fault(errc::aborted, r);
        if ((**frame)[0] != static_cast<std::byte>(bootstrap_frame::parcels))
            return detail::rank_fault(errc::protocol_violation, r);
        return frame;
    }

    result<std::vector<parcel>> deliver(std::vector<std::vector<parcel>> from, nanoseconds deadline) {
        std::vector<std::vector<std::byte>> to(members_.size(),
                                               std::vector<std::byte>{static_cast<std::byte>(bootstrap_frame::parcels)});
        std::vector<parcel> own;
        for (std::uint32_t r = 0; r < from.size(); ++r)
            for (parcel& p : from[r]) {
                if (p.peer == 0)
                    own.push_back({r, p.tag, std::move(p.bytes)});
                else
                    pack_parcel(to[p.peer], r, p);
            }
        for (std::uint32_t r = 1; r < to.size(); ++r)
            if (to[r].size() > limits_.frame_bytes) return fail(detail::rank_fault(errc::too_large, r));
        for (std::uint32_t r = 1; r < to.size(); ++r) members_[r].line.put_frame(to[r]);
        for (;;) {
            std::uint32_t slow = 0;
            for (std::uint32_t r = 1; r < members_.size(); ++r) {
                if (!members_[r].line.has_output()) continue;
                if (!members_[r].line.pump(0)) return fail(detail::rank_fault(errc::peer_lost, r));
                if (members_[r].line.has_output()) slow = r;
            }
            if (slow == 0) return own;
            if (steady_clock{}.now() >= deadline) return fail(detail::rank_fault(errc::timeout, slow));
            if (status s = wait(deadline); !s) return fail(s);
        }
    }

    status fail(status why) {
        const auto frame = detail::failure_frame(why);
        for (member& m : members_)
            if (m.line.open()) m.line.put_frame(frame);
        pump_members();
        return why;
    }

    detail::socket_fd listener_;
    job_secret secret_;
    bootstrap_limits limits_;
    std::vector<caller> callers_;
    std::vector<member> members_;  ///< by rank; the root's own is empty
};

}  // namespace vccl::inline v0
