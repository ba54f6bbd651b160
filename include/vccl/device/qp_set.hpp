#pragma once
/// \file
/// The data QPs of one lane at one end of a device channel, one for each of its queues: the ladder, and how the peer reaches
/// them. At the sender they are QPs with rings, at the receiver plain ones. Owner thread of the endpoint only.

#include <vccl/base/owned.hpp>
#include <vccl/host/options.hpp>

namespace vccl::inline v0::device {

/// One for each lane; its queue pairs climb and are fenced together.
template <class Qp>
class qp_set {
public:
    qp_set() = default;
    qp_set(qp_set&&) = delete;

    /// Queue pairs, one a queue.
    unsigned count() const noexcept { return count_; }
    /// Requires: i < count(), and created.
    Qp& qp(unsigned i) noexcept { return *qps_[i]; }
    /// Requires: count <= max_group.
    void resize(unsigned count) noexcept { count_ = count; }

    /// Effects: any state -> INIT with fresh PSNs. `create` makes QPs that are not there, or not any more.
    template <class Create>
    VCCL_COLD status init(Create&& create) noexcept {
        for (unsigned i = 0; i < count_; ++i) {
            if (!qps_[i]) {
                result<Qp> made = create();
                if (!made) return made.error();
                qps_[i].emplace(std::move(*made));
            } else if (status s = qps_[i]->to_reset(); !s) {
                return s;
            }
            if (status s = qps_[i]->to_init(); !s) return s;
            psns_[i] = static_cast<std::uint32_t>(vccl::detail::random_word(0) >> 20) & 0xffffff;
        }
        return {};
    }
    /// Effects: says in `end` which QPs these are.
    VCCL_COLD void describe(lane_end& end) const noexcept {
        for (unsigned i = 0; i < count_; ++i) {
            end.qpn[i] = qps_[i]->number().value;
            end.psn[i] = psns_[i];
        }
    }
    /// Effects: INIT -> RTR -> RTS towards the peer's half.
    VCCL_COLD status connect(const lane_end& peer, const port_attributes& own, const qp_timers& timers) noexcept {
        for (unsigned i = 0; i < count_; ++i) {
            qp_peer p{};
            p.number = qpn{peer.qpn[i]};
            p.first_psn = psn{peer.psn[i]};
            std::memcpy(p.address.raw, peer.gid, sizeof peer.gid);
            p.lid = peer.lid;
            p.mtu = peer.mtu != 0 && peer.mtu < own.mtu ? peer.mtu : own.mtu;
            if (status s = qps_[i]->to_ready_to_receive(p, timers); !s) return s;
            if (status s = qps_[i]->to_ready_to_send(psn{psns_[i]}, timers); !s) return s;
        }
        return {};
    }
    /// Effects: the QPs write no memory any more when it returns ok (G2): moved to ERR, or else destroyed.
    VCCL_COLD status fence() noexcept {
        status worst{};
        for (unsigned i = 0; i < count_; ++i) {
            if (!qps_[i] || qps_[i]->to_error()) continue;
            if (status s = qps_[i]->destroy(); !s)
                worst = s;
            else
                qps_[i].reset();
        }
        return worst;
    }

private:
    late<Qp> qps_[max_group];
    std::uint32_t psns_[max_group]{};
    unsigned count_{};
};

}  // namespace vccl::inline v0::device
