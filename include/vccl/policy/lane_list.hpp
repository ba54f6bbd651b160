#pragma once
/// \file
/// The ordered local ports of a channel's lanes: the primary first, then its backups, no port twice, at most `max_lanes`.
/// A value of fixed size, so that it travels in a blob and never allocates. Any thread while const.

#include <vccl/base/ids.hpp>
#include <vccl/base/status.hpp>
#include <vccl/model/wire.hpp>

namespace vccl::inline v0 {

/// At most `max_lanes` ports, none twice.
class lane_list {
public:
    /// How many lanes, the primary included.
    constexpr unsigned size() const noexcept { return size_; }
    /// As a policy returns it that knows no backup.
    constexpr bool empty() const noexcept { return size_ == 0; }
    /// Then add() adds nothing more.
    constexpr bool full() const noexcept { return size_ == max_lanes; }
    /// Requires: i < size().
    constexpr port_id operator[](unsigned i) const noexcept { return ports_[i]; }
    /// The primary first, then the backups as they are tried.
    /// @{
    constexpr const port_id* begin() const noexcept { return ports_; }
    constexpr const port_id* end() const noexcept { return ports_ + size_; }
    /// @}
    /// Is a lane on this port? Linear, over at most `max_lanes`.
    constexpr bool contains(port_id p) const noexcept {
        for (port_id q : *this)
            if (q == p) return true;
        return false;
    }
    /// Effects: appends `p` unless it is there already. Returns: false when there was no room for it.
    constexpr bool add(port_id p) noexcept {
        if (contains(p)) return true;
        if (full()) return false;
        ports_[size_++] = p;
        return true;
    }
    /// The same ports in the same order.
    friend constexpr bool operator==(const lane_list& a, const lane_list& b) noexcept {
        if (a.size_ != b.size_) return false;
        for (unsigned i = 0; i < a.size_; ++i)
            if (a.ports_[i] != b.ports_[i]) return false;
        return true;
    }

private:
    port_id ports_[max_lanes]{};
    std::uint8_t size_{};
};
static_assert(std::is_trivially_copyable_v<lane_list>);

}  // namespace vccl::inline v0
