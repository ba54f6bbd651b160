#pragma once
/// \file
/// How a queue's service gets at a ring: directly, or, where the ring lies in a GPU's memory, by copies. Service thread only.

#include <vccl/device/space.hpp>
#include <vccl/device/words.hpp>

namespace vccl::inline v0::device {

/// A space whose rings the host does not reach directly; its `read` and `upload` do it.
template <class S>
concept has_local_rings = queue_space<S> && requires { requires S::rings_are_local; };

/// Single words and WQEs of rings.
template <queue_space Space>
class ring_access {
public:
    /// `space` as the queue's words need it.
    explicit ring_access(Space space) noexcept : space_(space) {}

    /// The word of a CQE that hands it over, with acquire; or another one, of an entry that is there.
    std::uint32_t word(const cqe64& c, unsigned i) const noexcept {
        if constexpr (has_local_rings<Space>)
            return space_.read(&c.word[i]);
        else
            return load<order::acquire, scope::system>(&c.word[i]);
    }
    /// A WQE that its poster has published.
    wqe_block get(const wqe_block& from) const noexcept {
        if constexpr (has_local_rings<Space>)
            return space_.read(&from);
        else
            return from;
    }
    /// Effects: `b` lies in the slot when ring() is called after it.
    void put(wqe_block& to, const wqe_block& b) noexcept {
        if constexpr (has_local_rings<Space>)
            space_.upload(&to, &b, sizeof b);
        else
            to = b;
    }
    /// Effects: record, then doorbell: everything below `end` is posted under gate `g`.
    void ring(const device::ring& r, gate g, std::uint64_t end) noexcept {
        const std::uint32_t record = encode_record(g.hardware(end));
        const std::uint64_t doorbell = encode_doorbell(g.hardware(end), g.qpn());
        if constexpr (has_local_rings<Space>) {
            space_.upload(&r.doorbell_record[send_record], &record, sizeof record);
            space_.write(r.doorbell, doorbell);
        } else {
            store<order::release, scope::system>(&r.doorbell_record[send_record], record);
            store<order::release, scope::system>(r.doorbell, doorbell);
        }
    }

private:
    [[no_unique_address]] Space space_;
};

}  // namespace vccl::inline v0::device
