#pragma once
/// \file
/// A packet of the software fabric and the pool that packets in flight come from. A "train" is a run of packets of one
/// message that travel together; its header counts them, so PSNs are as if each had travelled alone. Engine lock.
/// Source: InfiniBand Architecture Specification 1.x, 9.2 and 9.4 (headers, opcodes).

#include <vccl/verbs/soft/psn.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace vccl::inline v0::verbs::soft_detail {

enum class opcode : std::uint8_t {
    write,
    write_imm,
    send,
    read_request,
    fetch_add,
    cmp_swap,       // requests, in the order of work_op
    acknowledge,
    nak,
    read_response,
    atomic_response,                 // responses
};
inline constexpr std::uint8_t opcodes = 10;
constexpr bool is_response(opcode o) noexcept { return o >= opcode::acknowledge; }

enum class nak_code : std::uint8_t { sequence, invalid_request, remote_access, remote_operation, receiver_not_ready };

enum packet_flags : std::uint8_t { packet_first = 1, packet_last = 2, packet_wants_ack = 4, packet_refers = 8 };

/// What travels. Comes from another process at times: every field is checked where it is used.
struct packet_header {
    std::uint32_t dest_qpn{};
    std::uint32_t psn{};           ///< of the first packet of the train
    std::uint32_t packets{1};
    std::uint32_t length{};        ///< payload bytes
    std::uint32_t message{};       ///< bytes of the whole message (first packet), or to be read
    std::uint32_t rkey{};
    std::uint64_t remote_addr{};
    std::uint64_t swap_add{};      ///< atomics; in their response the old value
    std::uint64_t compare{};
    std::uint32_t immediate{};
    std::uint16_t from_port{}, to_port{};
    std::uint32_t from_generation{}, to_generation{};
    opcode op{};
    std::uint8_t flags{};
    nak_code nak{};
    std::uint8_t rnr_timer{};
    std::uint32_t voucher{};       ///< packet_refers: of the sending QP, see soft/segment.hpp
    std::int64_t due{};            ///< not before this time at its destination
    std::uint64_t at{};            ///< packet_refers: where the payload lies in the sender's part of the fabric's memory
};
static_assert(sizeof(packet_header) == 88);

/// Does the packet only say where its payload lies? Then its sender lets nobody change it before it is acknowledged.
constexpr bool refers(const packet_header& h) noexcept { return (h.flags & packet_refers) != 0; }
/// Payload bytes that follow the header.
constexpr std::uint32_t carried(const packet_header& h) noexcept { return refers(h) ? 0 : h.length; }

/// Payload of a train at most; large enough that the header's cost vanishes, small enough to stay in a core's cache.
inline constexpr std::uint32_t train_bytes = 32768;

struct packet {
    packet_header header;
    packet* next{};
    std::byte* payload{};  ///< null in packets without room for data
};

/// Recycles packets. Grows when more are in flight than ever before.
class packet_pool {
public:
    packet_pool() = default;
    packet_pool(const packet_pool&) = delete;
    packet_pool& operator=(const packet_pool&) = delete;
    ~packet_pool() {
        while (batches_ != nullptr) delete std::exchange(batches_, batches_->next);
    }

    /// A snapshot of the payload; null when there is no memory.
    packet* take(const packet_header& h, const std::byte* payload) noexcept {
        const std::uint32_t bytes = carried(h);
        packet*& list = bytes == 0 ? bare_ : loaded_;
        if (list == nullptr && !grow(bytes == 0)) return nullptr;
        packet* p = list;
        list = p->next;
        p->header = h;
        if (bytes != 0) std::memcpy(p->payload, payload, bytes);
        return p;
    }
    void give(packet* p) noexcept {
        packet*& list = p->payload == nullptr ? bare_ : loaded_;
        p->next = list;
        list = p;
    }

private:
    static constexpr std::size_t batch_size = 16;
    struct batch {
        packet packets[batch_size];
        std::unique_ptr<std::byte[]> bytes;
        batch* next{};
    };

    bool grow(bool bare) noexcept {
        auto* b = new (std::nothrow) batch;
        if (b == nullptr) return false;
        if (!bare) b->bytes.reset(new (std::nothrow) std::byte[batch_size * train_bytes]);
        if (!bare && !b->bytes) {
            delete b;
            return false;
        }
        b->next = std::exchange(batches_, b);
        for (std::size_t i = 0; i < batch_size; ++i) {
            b->packets[i].payload = bare ? nullptr : b->bytes.get() + i * train_bytes;
            give(&b->packets[i]);
        }
        return true;
    }

    packet* bare_{};
    packet* loaded_{};
    batch* batches_{};
};

}  // namespace vccl::inline v0::verbs::soft_detail
