#pragma once
/// \file
/// What a collective needs of a channel's two ends. Host endpoints are models as they are; those of a proxy through
/// `driven`. Whoever drives a collective drives its ends: owner thread only.

#include <vccl/base/ids.hpp>
#include <vccl/base/status.hpp>
#include <vccl/host/memory.hpp>

#include <concepts>

namespace vccl::inline v0 {

/// Chunks go out in the order of send(). `ended(s)`: the receiver has it, and its bytes may be changed.
template <class T>
concept chunk_sender = requires(T t, const T seen, const memory_view& bytes, sequence s) {
    { t.send(bytes) } noexcept -> std::same_as<result<sequence>>;  // would_block: later
    { seen.ended(s) } noexcept -> std::same_as<bool>;
    { seen.health() } noexcept -> std::same_as<status>;
    { t.progress() } noexcept -> std::same_as<bool>;
    { t.abort() } noexcept -> std::same_as<void>;
};

/// Chunks come in in the order of recv(), each into the receive of its number. `outcome(s)`: the bytes of one that ended.
template <class T>
concept chunk_receiver = requires(T t, const T seen, const memory_view& room, sequence s) {
    { t.recv(room) } noexcept -> std::same_as<result<sequence>>;  // would_block: later
    { seen.ended(s) } noexcept -> std::same_as<bool>;
    { seen.outcome(s) } noexcept -> std::same_as<result<std::uint64_t>>;
    { seen.health() } noexcept -> std::same_as<status>;
    { t.progress() } noexcept -> std::same_as<bool>;
    { t.abort() } noexcept -> std::same_as<void>;
};

/// An endpoint that a proxy drives, as an end of a collective. The endpoint must outlive it.
template <class Proxied>
class driven {
public:
    /// `e` must outlive it.
    explicit driven(Proxied& e) noexcept : endpoint_(&e) {}
    /// As the proxied end, each under its lock.
    /// @{
    auto send(const memory_view& bytes) noexcept { return endpoint_->send(bytes); }
    auto recv(const memory_view& room) noexcept { return endpoint_->recv(room); }
    bool ended(sequence s) const noexcept {
        return endpoint_->locked([s](auto& e) noexcept { return e.ended(s); });
    }
    result<std::uint64_t> outcome(sequence s) const noexcept {
        return endpoint_->locked([s](auto& e) noexcept { return e.outcome(s); });
    }
    /// @}
    /// As the proxied end, under its lock.
    status health() const noexcept { return endpoint_->health(); }
    /// Never moves anything: the proxy does.
    bool progress() noexcept { return false; }  // the proxy's business
    /// Ends the channel at both ends, under the lock.
    void abort() noexcept {
        endpoint_->locked([](auto& e) noexcept { e.abort(); });
    }

private:
    Proxied* endpoint_;
};

}  // namespace vccl::inline v0
