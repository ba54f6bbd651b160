#pragma once
// Buffers of the examples.
#include "network.hpp"

#include <sys/mman.h>

namespace coll_example {

/// Memory that a NIC may use.
class pages {
public:
    template <class Context>
    pages(Context& context, std::uint64_t bytes) : size_(bytes == 0 ? 64 : bytes) {
        void* p = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) throw p2p::system_error("no memory for " + std::to_string(size_) + " bytes");
        at_ = static_cast<std::byte*>(p);
        auto m = context.register_memory(at_, size_);
        if (!m) throw failure("cannot register memory", m.error());
        memory_ = std::move(*m);
    }
    pages(const pages&) = delete;
    ~pages() {
        memory_ = {};
        ::munmap(at_, size_);
    }
    std::byte* data() const noexcept { return at_; }
    memory_view view(std::uint64_t offset, std::uint64_t bytes) const noexcept { return memory_.view(offset, bytes); }

private:
    std::uint64_t size_;
    std::byte* at_;
    memory memory_;
};

}  // namespace coll_example
