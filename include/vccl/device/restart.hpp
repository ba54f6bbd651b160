#pragma once
/// \file
/// What a failover of a device queue decides and rewrites: from where to post again, and as what. Pure; service thread.

#include <vccl/device/words.hpp>
#include <vccl/device/wqe_decode.hpp>

namespace vccl::inline v0::device {

/// A WQE that tells the peer something: which signal word it changes, and what that word holds from then on.
struct signal_effect {
    static constexpr std::uint32_t none = ~0u;
    std::uint32_t word{none};
    std::uint64_t value{};
};

/// Effects of one WQE on the peer's signal words. `note`: what the poster wrote down for a fetch-add.
constexpr signal_effect effect_of(const wqe_block& b, std::uint64_t note, std::uint64_t signals, std::uint32_t count) noexcept {
    const wqe_fields f = decode(b, b);
    const std::uint64_t offset = f.remote.addr - signals;
    if (offset >= std::uint64_t{count} * 8 || offset % 8 != 0) return {};
    const std::uint32_t word = static_cast<std::uint32_t>(offset / 8);
    if (f.opcode == static_cast<std::uint8_t>(wqe_opcode::fetch_add)) return {word, note};
    if (f.opcode != static_cast<std::uint8_t>(wqe_opcode::write) || !f.inlined || f.local.length != 8) return {};
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{inline_byte(b, b, i)} << (8 * i);
    return {word, value};
}

/// Has a word that holds `now` seen the change to `value`? Words only grow; they may wrap round.
constexpr bool has_seen(std::uint64_t now, std::uint64_t value) noexcept { return static_cast<std::int64_t>(now - value) >= 0; }

/// The index from which to post again, in [done, end]. A QP executes in order, so what took effect at the peer is a prefix; it
/// reaches at least to the last signal that the peer's fenced words show. Nothing below the result is posted a second time, and
/// so no signal and no atomic is applied twice. What lies behind it is puts and gets of which the peer knows nothing yet.
/// `effect(i)`: the signal_effect of the WQE with index i. `words`: the peer's, read after its fence (G2).
template <class Effect>
constexpr std::uint64_t restart_point(std::uint64_t done, std::uint64_t end, const std::uint64_t* words, std::uint32_t count,
                                      Effect&& effect) noexcept {
    std::uint64_t restart = done;
    for (std::uint64_t i = done; i != end; ++i) {
        const signal_effect e = effect(i);
        if (e.word < count && has_seen(words[e.word], e.value)) restart = i + 1;
    }
    return restart;
}

/// Rewrites a WQE of one slot for lane `to` under gate `g`.
constexpr void carry_over(wqe_block& b, std::uint64_t index, gate g, const queue_view& v, const ring_view& to) noexcept {
    const wqe_fields f = decode(b, b);
    const bool atomic = f.opcode == static_cast<std::uint8_t>(wqe_opcode::fetch_add);
    const bool signal = f.remote.addr - v.signals < std::uint64_t{v.signal_count} * 8;
    wqe_block unused = b;
    reencode(b, unused,
             {g.qpn(), g.hardware(index), atomic ? to.scratch_key : to.local_key, signal ? to.signal_key : to.remote_key});
}

}  // namespace vccl::inline v0::device
