#pragma once
/// \file
/// Send, receive and completion queues: rings between the application (one thread at a time for each) and the engine,
/// which works under its lock. Positions grow without end and are masked when used.
///
/// A send-queue entry is free again when a completion at or after it has been polled, as with real verbs, so an
/// application that never signals runs into `would_block` here as well.

#include <vccl/model/work.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace vccl::inline v0::verbs::soft_detail {

/// Is the answer data, rather than an acknowledgement?
constexpr bool reads(work_op op) noexcept { return op >= work_op::read; }

/// A send WQE and how far it has got.
struct wqe {
    work w;
    std::uint32_t psn{};      ///< of its first packet
    std::uint32_t packets{};  ///< PSNs it takes; for a read, those of the response
    std::uint32_t done{};     ///< write, send: packets sent; read, atomic: response packets received
};

struct send_queue {
    std::unique_ptr<wqe[]> ring;
    std::unique_ptr<std::byte[]> inline_bytes;
    std::uint32_t mask{}, inline_room{};
    std::atomic<std::uint32_t> posted{};  ///< written by the application
    std::uint32_t first{};    ///< oldest that is not complete
    std::uint32_t next{};     ///< next to send from
    std::uint32_t started{};  ///< those before it have a PSN

    void allocate(std::uint32_t depth, std::uint32_t room) {
        const std::uint32_t size = std::bit_ceil(depth);
        ring = std::make_unique<wqe[]>(size);
        if (room != 0) inline_bytes = std::make_unique<std::byte[]>(std::size_t{size} * room);
        mask = size - 1;
        inline_room = room;
    }
    wqe& at(std::uint32_t i) noexcept { return ring[i & mask]; }
    std::byte* inline_at(std::uint32_t i) noexcept { return inline_bytes.get() + std::size_t{i & mask} * inline_room; }
    std::uint32_t size() const noexcept { return mask + 1; }
    void clear() noexcept {
        posted.store(0, std::memory_order_relaxed);
        first = next = started = 0;
    }
};

struct receive_queue {
    std::unique_ptr<recv_work[]> ring;
    std::uint32_t mask{};
    std::atomic<std::uint32_t> posted{};  ///< written by the application
    std::atomic<std::uint32_t> used{};    ///< written by the engine

    void allocate(std::uint32_t depth) {
        const std::uint32_t size = std::bit_ceil(depth);
        ring = std::make_unique<recv_work[]>(size);
        mask = size - 1;
    }
    std::uint32_t size() const noexcept { return mask + 1; }
    /// The oldest posted receive, or null. Engine.
    recv_work* front() noexcept {
        const std::uint32_t i = used.load(std::memory_order_relaxed);
        return i == posted.load(std::memory_order_acquire) ? nullptr : &ring[i & mask];
    }
    void pop() noexcept { used.store(used.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    void clear() noexcept {
        posted.store(0, std::memory_order_relaxed);
        used.store(0, std::memory_order_relaxed);
    }
};

/// A CQE: the completion, and which send-queue position polling it frees.
struct cqe {
    completion what;
    std::uint32_t index{};      ///< of the QP in its table
    std::uint32_t life{};       ///< of the QP; resets make a new one
    std::uint32_t send_done{};  ///< WQEs of that life done, this one included
    bool of_send{};
};

struct completion_queue {
    std::unique_ptr<cqe[]> ring;
    std::uint32_t mask{};
    std::uint32_t domain{};
    alignas(64) std::atomic<std::uint32_t> tail{};  ///< written by the engine
    std::atomic<bool> overrun{};
    alignas(64) std::atomic<std::uint32_t> head{};  ///< written by the application

    explicit completion_queue(std::uint32_t depth, std::uint32_t domain_) : domain(domain_) {
        const std::uint32_t size = std::bit_ceil(depth);
        ring = std::make_unique<cqe[]>(size);
        mask = size - 1;
    }
    bool push(const cqe& e) noexcept {
        const std::uint32_t t = tail.load(std::memory_order_relaxed);
        if (t - head.load(std::memory_order_acquire) > mask) return false;
        ring[t & mask] = e;
        tail.store(t + 1, std::memory_order_release);
        return true;
    }
};

}  // namespace vccl::inline v0::verbs::soft_detail
