#pragma once
// What both roles share: the types of their endpoints, buffers, how they connect, how events become lines.
#include "next_nic.hpp"
#include "options.hpp"
#include "rendezvous.hpp"
#include "report.hpp"
#include "witness.hpp"

#include <vccl/host/compose.hpp>

#include <sys/mman.h>
#include <fstream>

namespace p2p {

/// Chunks on their way at once. Those that were granted before a fail-back still take the backup.
inline constexpr unsigned window = 16;
inline constexpr vccl::nanoseconds answer_time{20'000'000'000};

using ports_policy = vccl::each_of<vccl::sibling_port, next_nic>;
template <class B>
using sender = vccl::host_sender<B, ports_policy, vccl::rollback_fifo<window>, handler>;
template <class B>
using receiver = vccl::host_receiver<B, ports_policy, handler, vccl::hold_down<50>>;

inline user_error failure(const std::string& what, const vccl::status& s, std::string_view lane = {}) {
    return user_error(what + ": " + vccl::describe(s, lane));
}

/// Two processes with the same word share a clock.
inline std::string boot_id() {
    std::string word = "unknown";
    std::ifstream("/proc/sys/kernel/random/boot_id") >> word;
    return word;
}

/// What is sent, in how many chunks.
struct plan {
    static constexpr std::uint64_t most_chunks = 1U << 26;  ///< both ends keep 8 bytes about each

    std::uint64_t size{}, chunk{};
    /// Throws user_error if it cannot be done.
    void check() const {
        if (chunk == 0 || chunk > 64U << 20)
            throw user_error("A asks for chunks of " + std::to_string(chunk) + " bytes; 1 to 64 MiB are possible");
        if (chunks() > most_chunks)
            throw user_error(std::to_string(size) + " bytes are " + std::to_string(chunks()) + " chunks, more than " +
                             std::to_string(most_chunks) + "; use a larger --chunk");
    }
    std::uint64_t chunks() const noexcept { return size / chunk + (size % chunk != 0 ? 1 : 0); }
    std::uint64_t offset(std::uint64_t k) const noexcept { return k * chunk; }
    std::uint64_t bytes(std::uint64_t k) const noexcept { return std::min(chunk, size - offset(k)); }
};

/// Registered memory for as many chunks as the window holds; chunk k lies in slot k % window.
class chunk_ring {
public:
    template <class Context>
    chunk_ring(Context& context, const plan& p) : slot_((p.chunk + 63) / 64 * 64), size_(slot_ * window) {
        void* at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (at == MAP_FAILED)
            throw system_error("no memory for " + std::to_string(size_) + " bytes of buffers; use a smaller --chunk");
        at_ = static_cast<std::byte*>(at);
        auto m = context.register_memory(at_, size_);
        if (!m) throw failure("cannot register memory", m.error());
        memory_ = std::move(*m);
    }
    chunk_ring(const chunk_ring&) = delete;
    ~chunk_ring() {
        memory_ = {};
        if (at_) ::munmap(at_, size_);
    }
    std::span<std::byte> bytes(std::uint64_t k, std::uint64_t n) const { return {at_ + k % window * slot_, n}; }
    vccl::memory_view view(std::uint64_t k, std::uint64_t n) const { return memory_.view(k % window * slot_, n); }

private:
    std::uint64_t slot_, size_;
    std::byte* at_{};
    vccl::memory memory_;
};

/// What both roles do alike: the connection to the other role, the endpoint's options, events as lines.
template <class Endpoint>
class session {
public:
    session(const options& o, reporter& out, char who, rendezvous& peer) : options_(o), out_(out), who_(who), peer_(peer) {}

    static vccl::endpoint_options settings(const options& o, const plan& p, const rendezvous& peer) {
        vccl::endpoint_options e;
        e.lanes = o.lanes;
        e.first_lane = o.first_lane;
        e.window = window;
        e.max_chunk = static_cast<std::uint32_t>(p.chunk);
        e.give_up_after = seconds(o.give_up);
        e.oob = vccl::oob_address(std::string_view(peer.own_address() + ":0"));
        return e;
    }

    void connect(Endpoint& e) {
        auto mine = e.local_info();
        if (!mine) throw failure(std::string(1, who_) + " cannot open its ports", mine.error(), lane(e, mine.error()));
        peer_.send(note::blob, {reinterpret_cast<const char*>(mine->data()), mine->size()});
        const std::string theirs = peer_.receive(note::blob);
        const vccl::status s = e.connect(std::as_bytes(std::span(theirs.data(), theirs.size())), peer_.time_left());
        if (!s) throw failure(std::string(1, who_) + " cannot connect" + peer_.when_late(), s, lane(e, s));
        for (std::uint8_t l = 0; l < e.lanes(); ++l) {
            const vccl::port_name own = e.lane_port(vccl::lane_id{l}), other = e.peer_port(vccl::lane_id{l});
            names_.push_back(who_ == 'A' ? lane_name(own.view(), other.view()) : lane_name(other.view(), own.view()));
        }
    }

    void name_lanes(vccl::timeline& t) const {
        for (std::uint8_t l = 0; l < names_.size(); ++l) t.name_lane(vccl::lane_id{l}, names_[l]);
    }
    std::string lanes_text() const {
        std::string out = names_.empty() ? "no lane" : names_[0];
        for (std::size_t l = 1; l < names_.size(); ++l) out += (l == 1 ? "; backups: " : ", ") + names_[l];
        return out;
    }

    /// Effects: shows the events since the last call; throws when the channel has failed or the other role has.
    void attend(Endpoint& e) {
        const auto& events = e.handler().template get<witness>().events;
        vccl::lane_names names{};
        for (std::size_t l = 0; l < names_.size(); ++l) names.names[l] = names_[l];
        for (; shown_ < events.size(); ++shown_) out_.event(who_, events[shown_].at, vccl::describe(events[shown_], names));
        if (const vccl::status s = e.health(); !s && s.code != vccl::errc::closed) {
            // Where the other role gave up, its own words say more.
            if (s.code == vccl::errc::aborted || s.code == vccl::errc::peer_lost)
                (void)peer_.receive(note::refusal, vccl::nanoseconds{1'000'000'000});
            throw failure("the channel failed", s, s.lane < names_.size() ? names_[s.lane] : std::string());
        }
    }

    void say(std::string_view what) { out_.event(who_, what); }

private:
    static std::string lane(const Endpoint& e, const vccl::status& s) {
        return s.lane < e.lanes() ? std::string(e.lane_port(vccl::lane_id{s.lane}).view()) : std::string();
    }

    const options& options_;
    reporter& out_;
    char who_;
    rendezvous& peer_;
    std::vector<std::string> names_;
    std::size_t shown_{};
};

/// Gives the processor away when there was nothing to do, and sleeps a little when there was nothing for long: the other
/// role, the fabric or the kernel may need it.
class idler {
public:
    void after(bool moved) noexcept {
        idle_ = moved ? 0 : idle_ + 1;
        if (idle_ > 1024)
            ::usleep(20);
        else if (idle_ > 64)
            ::sched_yield();
    }

private:
    unsigned idle_{};
};

}  // namespace p2p
