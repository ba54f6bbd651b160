#pragma once
/// \file
/// An out-of-band channel inside one process, for tests under a manual clock: messages are queues of bytes. A test can
/// lose them, cut the channel and mend it. One thread only.

#include <vccl/host/oob.hpp>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace vccl::inline v0::testing {

/// Both directions between one listener and its caller; the test holds it, too.
struct memory_oob_link {
    /// What is under way, in order.
    /// @{
    std::deque<std::vector<std::byte>> to_listener, to_caller;
    /// @}
    bool cut{};                       ///< both ends see a broken channel
    bool listener_gone{};             ///< the caller sees that nobody listens any more
    bool caller_gone{};               ///< the listener sees that the caller's kernel closed it
    bool caller_present{};            ///< somebody has connected
    unsigned lost_percent{};          ///< of messages, either way
    std::uint64_t random{0x2545f4914f6cdd1d};  ///< the state of the coin that decides about losses
    /// Tosses it once.
    bool loses() noexcept {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random % 100 < lost_percent;
    }
};

/// Models oob_channel. Names are given out in order, and are worth something in this process only.
class memory_oob {
public:
    using policy_axis = axis::oob;

    /// The link of the channel that was listened on last: for the test to break.
    static std::shared_ptr<memory_oob_link> last() { return last_; }

    /// As oob_channel says, without a system call; what the test has cut stays cut.
    /// @{
    result<oob_address> listen(const oob_address&, const oob_secret&) noexcept {
        link_ = std::make_shared<memory_oob_link>();
        last_ = link_;
        listening_ = true;
        char name[32];
        std::snprintf(name, sizeof name, "memory:%llu", static_cast<unsigned long long>(++names_));
        registry_[name] = link_;
        return oob_address{name};
    }
    status connect(const oob_address& where, const oob_secret&) noexcept {
        const auto l = registry_.find(std::string(where.view()));
        if (l == registry_.end() || !(link_ = l->second.lock())) return errc::not_found;
        link_->caller_present = true;
        return {};
    }
    oob_state advance(nanoseconds) noexcept {
        if (!link_) return oob_state::opening;
        push_out();
        if (!listening_ && link_->listener_gone) return oob_state::refused;
        if (listening_ && link_->caller_gone) return oob_state::closed;
        if (link_->cut || (listening_ && !link_->caller_present)) return was_up_ ? oob_state::broken : oob_state::opening;
        was_up_ = true;
        return oob_state::up;
    }
    bool send(std::span<const std::byte> m) noexcept {
        if (!link_ || link_->cut || link_->loses()) return false;
        waiting_.emplace_back(m.begin(), m.end());
        return true;
    }
    std::size_t receive(std::span<std::byte> m) noexcept {
        if (!link_ || link_->cut) return 0;
        auto& q = listening_ ? link_->to_listener : link_->to_caller;
        if (q.empty()) return 0;
        const std::vector<std::byte> one = std::move(q.front());
        q.pop_front();
        if (one.size() > m.size()) return 0;
        std::memcpy(m.data(), one.data(), one.size());
        return one.size();
    }
    void close() noexcept { leave(); }
    /// @}
    memory_oob() = default;
    memory_oob(const memory_oob&) = delete;
    ~memory_oob() { leave(); }

private:
    /// As a socket's messages, what waits goes out with the next advance(), or is lost with a link that is cut.
    void push_out() noexcept {
        auto& q = listening_ ? link_->to_caller : link_->to_listener;
        for (auto& m : waiting_)
            if (!link_->cut) q.push_back(std::move(m));
        waiting_.clear();
    }
    void leave() noexcept {
        if (!link_) return;
        push_out();
        if (listening_)
            link_->listener_gone = true;
        else
            link_->caller_present = false;
        link_.reset();
    }

    static inline std::map<std::string, std::weak_ptr<memory_oob_link>> registry_{};
    static inline std::shared_ptr<memory_oob_link> last_{};
    static inline unsigned long long names_{};
    std::shared_ptr<memory_oob_link> link_;
    std::vector<std::vector<std::byte>> waiting_;
    bool listening_{}, was_up_{};
};

static_assert(oob_channel<memory_oob>);

}  // namespace vccl::inline v0::testing
