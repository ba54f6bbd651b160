#pragma once
/// \file
/// How an endpoint learns of what happened to a port since it last looked: by comparing one word when nothing did. Owner
/// thread of the endpoint; the context's poll_events() writes what is read here.

#include <vccl/host/context.hpp>

namespace vccl::inline v0 {

struct port_change {
    bool any{}, up{};
    bool went_down{};   ///< a PORT_ERR came, even if the port is up again
    bool renumbered{};  ///< GID or LID
    bool device{};      ///< DEVICE_FATAL or a CQ error
};

class port_watch {
public:
    template <verbs_backend B>
    port_change look(const open_port<B>& p) noexcept {
        const std::uint32_t changes = p.changes.load(std::memory_order_acquire);
        if (changes == changes_) return {};
        changes_ = changes;
        const std::uint32_t down = p.down_events.load(), gid = p.gid_events.load(), device = p.device_events.load();
        const port_change c{true, p.up.load(), down != down_, gid != gid_, device != device_};
        down_ = down;
        gid_ = gid;
        device_ = device;
        return c;
    }

private:
    std::uint32_t changes_{}, down_{}, gid_{}, device_{};
};

}  // namespace vccl::inline v0
