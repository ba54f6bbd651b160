#pragma once
// Registered memory as NCCL asks for it: the same buffer, or a piece of one that is registered already, costs a look-up. A
// registration is good for every connection and every port. Any thread.
#include <vccl/host/context.hpp>

#include <memory>
#include <mutex>
#include <vector>

namespace nccl_net {

/// What NCCL holds: a registration that contains its buffer, with every share of the connections (network_of.hpp).
struct registration {
    std::vector<vccl::memory> memories;  // of each share
    std::uint64_t begin{}, end{};
    bool device{};
    unsigned users{1};

    vccl::memory_view view(unsigned share, const void* data, std::size_t bytes) const noexcept {
        return memories[share].view(reinterpret_cast<std::uint64_t>(data) - begin, bytes);
    }
};

class registrations {
public:
    explicit registrations(unsigned shares) noexcept : shares_(shares) {}

    /// Returns: a registration that holds [data, data + bytes), an old one if there is, else one with what `make` registers
    /// with each share.
    template <class Make>
    vccl::result<registration*> find_or_make(void* data, std::size_t bytes, bool device, const Make& make) {
        const std::scoped_lock lock(mutex_);
        const auto begin = reinterpret_cast<std::uint64_t>(data);
        for (const auto& r : all_)
            if (r->device == device && r->begin <= begin && begin + bytes <= r->end) {
                ++r->users;
                return r.get();
            }
        auto fresh = std::make_unique<registration>(registration{{}, begin, begin + bytes, device});
        for (unsigned share = 0; share < shares_; ++share) {
            auto memory = make(share);
            if (!memory) return memory.error();
            fresh->memories.push_back(std::move(*memory));
        }
        all_.push_back(std::move(fresh));
        return all_.back().get();
    }

    /// Effects: takes one user away; the last one deregisters. Work in flight on it is ended first by `silence`, since NCCL
    /// frees the bytes as soon as this returns. Returns: false if it is none of ours.
    template <class Silence>
    bool drop(registration* r, const Silence& silence) {
        const std::scoped_lock lock(mutex_);
        for (auto at = all_.begin(); at != all_.end(); ++at) {
            if (at->get() != r) continue;
            if (--r->users != 0) return true;
            for (vccl::memory& m : r->memories)
                if (m.release().code == vccl::errc::busy) silence();
            all_.erase(at);
            return true;
        }
        return false;
    }

    std::size_t count() const {
        const std::scoped_lock lock(mutex_);
        return all_.size();
    }

private:
    unsigned shares_;
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<registration>> all_;
};

}  // namespace nccl_net
