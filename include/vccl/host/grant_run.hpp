#pragma once
/// \file
/// A run of grants as it is written: the receiver's hot loop over chunks that were never granted before. Owner thread of
/// the receiver.

#include <vccl/channel/ledger.hpp>
#include <vccl/host/memory.hpp>
#include <vccl/host/options.hpp>
#include <vccl/model/work.hpp>

namespace vccl::inline v0::detail {

/// What a run needs to know of the active lane in the present epoch.
struct grant_plan {
    std::uint64_t binding{};
    std::uint32_t port{};         ///< the lane's, in every registration
    std::uint32_t
        origins[2]{};   ///< `origin` of whole arrivals in host memory and in GPU memory: 0 where there is something to flush
    std::uint64_t mark{};         ///< a `chunk_state` as the word that it is
};

/// A function of its own, so that the loop has all registers to itself.
VCCL_NOINLINE inline void fill_slots(const grant_plan& plan, incoming* in, incoming* const end, cts_slot* slot, std::uint64_t s,
                                     std::uint64_t acked) noexcept {
    const cts_words common{0, 0, 0, plan.binding, acked, 0};
    const std::uint64_t shared = cts_shared_mix(plan.binding, acked), mark = plan.mark;
    const std::uint32_t port = plan.port, origins[2] = {plan.origins[0], plan.origins[1]};
    std::uint32_t imm = immediate::whole(cts_words::epoch_of(plan.binding), s).raw;
    std::uint64_t own = cts_sequence_mix(s);
    for (; in != end; ++in, ++slot, ++s) {
        slot->words.sequence = s;
        memory_region& region = *in->region;
        const std::uint64_t addr = in->addr, room = in->fresh_room(region.remote[port].value);
        in->expected.origin = origins[region.device];
        slot->words.addr = addr;
        slot->words.room = room;
        slot->words.share(common);
        slot->words.check = cts_own_mix(own, addr, room) + shared;
        in->expected.immediate = imm;
        static_cast<chunk_state&>(*in) = std::bit_cast<chunk_state>(mark);
        own += cts_sequence_step;
        imm += immediate::one_sequence;
    }
}

/// Effects: makes `w` the WRITE that carries `n` slots from that of chunk `first` on. A slot is staged where the peer has it,
/// but for the depths of the rings, of which the peer's divides ours.
inline void aim(work& w, const cts_slot* staging, std::uint64_t ring_addr, std::uint64_t ring_depth, std::uint64_t first,
                std::uint64_t n) noexcept {
    w.local_addr = reinterpret_cast<std::uint64_t>(&staging[first & (max_window - 1)]);
    w.remote_addr = ring_addr + sizeof(ack_line) + (first & (ring_depth - 1)) * sizeof(cts_slot);
    w.length = static_cast<std::uint32_t>(n * sizeof(cts_slot));
}

/// The plan, its lane and the WRITE that carries the slots.
template <class Lane>
struct grant_run : grant_plan {
    Lane* on{};
    work write{};

    VCCL_COLD void make(std::uint64_t bound, Lane& lane, unsigned slot, chunk_state granted, flush_mode flush,
                        const memory& staging, rkey ring) noexcept {
        static_cast<grant_plan&>(*this) = {bound, slot, {}, std::bit_cast<std::uint64_t>(granted)};
        on = &lane;
        if (lane.group() == 1 && flush != flush_mode::always) origins[0] = lane.arrival_origin(0);
        if (lane.group() == 1 && flush == flush_mode::none) origins[1] = lane.arrival_origin(0);
        write = {};
        write.op = work_op::write;
        write.lkey = staging.region()->local[slot];
        write.rkey = ring;
    }
};

}  // namespace vccl::inline v0::detail
