#pragma once
/// \file
/// An RC queue pair: its states, and posting to it. `post` and `post_recv` are the data path: work requests are
/// filled in place on the stack and handed to the provider in one chained call a batch. One thread at a time.
/// Source: ibv_modify_qp and ibv_post_send of rdma-core; IBA 1.4, 10.3 (QP states).

#include <vccl/base/owned.hpp>
#include <vccl/verbs/ibv/objects.hpp>
#include <vccl/verbs/ibv/port_query.hpp>
#include <vccl/verbs/ibv/soft_fence.hpp>

namespace vccl::inline v0::verbs {

/// What a QP must know of its port to go through its states.
struct ibv_qp_origin {
    std::uint8_t port{1};
    bool atomics{true};           ///< the device executes remote atomics
    bool soft{false};             ///< soft-RoCE
    std::uint8_t read_depth{1};   ///< outstanding READs and atomics, either way
    ibv_path path{};
};

class ibv_queue_pair {
public:
    ibv_queue_pair(ibv_qp* qp, const ibv_qp_origin& origin) noexcept : qp_(qp), origin_(origin) {}

    qpn number() const noexcept { return qpn{qp_->qp_num}; }

    /// Soft-RoCE moves a QP to ERR only after it has shown the error's completion, and so would undo a RESET in between.
    VCCL_COLD status to_reset() noexcept {
        if (origin_.soft && state().value_or(qp_state::error) == qp_state::ready_to_send)
            ibv_detail::let_every_processor_finish();
        return modify_to(IBV_QPS_RESET);
    }

    VCCL_COLD status to_init() noexcept {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.pkey_index = origin_.path.pkey_index;
        attr.port_num = origin_.port;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if (origin_.atomics) attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
        return modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }

    /// Effects: INIT to RTR, with the GID index that the local port has now. Returns: `port_down` when the port has
    /// no address. Waits for the kernel to find the peer's Ethernet address, for seconds if nobody answers: `port.find_peer` first.
    VCCL_COLD status to_ready_to_receive(const qp_peer& peer, const qp_timers& timers) noexcept {
        const auto mtu = ibv_detail::mtu_of(peer.mtu);
        if (!mtu) return mtu.error();
        const auto local = ibv_detail::query_port(qp_->context, origin_.port, origin_.path);
        if (!local) return local.error();
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = *mtu;
        attr.dest_qp_num = peer.number.value;
        attr.rq_psn = peer.first_psn.value & psn_mask;
        attr.max_dest_rd_atomic = origin_.read_depth;
        attr.min_rnr_timer = timers.min_rnr_timer;
        attr.ah_attr.port_num = origin_.port;
        attr.ah_attr.sl = origin_.path.service_level;
        attr.ah_attr.dlid = peer.lid;
        if (local->link == link_layer::ethernet || peer.lid == 0) {
            if (local->address == gid{}) return status{errc::port_down, origin_.port};
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.sgid_index = local->gid_index;
            attr.ah_attr.grh.hop_limit = origin_.path.hop_limit;
            attr.ah_attr.grh.traffic_class = origin_.path.traffic_class;
            std::memcpy(attr.ah_attr.grh.dgid.raw, peer.address.raw, sizeof peer.address.raw);
        }
        return modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    }

    VCCL_COLD status to_ready_to_send(psn first, const qp_timers& timers) noexcept {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = first.value & psn_mask;
        attr.max_rd_atomic = origin_.read_depth;
        attr.timeout = timers.timeout;
        attr.retry_cnt = timers.retry_count;
        attr.rnr_retry = timers.rnr_retry;
        return modify(
            attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    }

    /// Several QPs at once: begin each, then `port.finish_errors()` is the fence of them all.
    status begin_error() noexcept { return modify_to(IBV_QPS_ERR); }
    /// A fence: after it returns, the QP writes no memory.
    VCCL_COLD status to_error() noexcept {
        const status s = begin_error();
        if (s && origin_.soft) ibv_detail::let_every_processor_finish();
        return s;
    }

    VCCL_COLD result<qp_state> state() noexcept {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        if (const int rc = ibv_query_qp(qp_.get(), &attr, IBV_QP_STATE, &init); rc != 0) return ibv_detail::from_return(rc);
        switch (attr.qp_state) {
            case IBV_QPS_RESET: return qp_state::reset;
            case IBV_QPS_INIT: return qp_state::init;
            case IBV_QPS_RTR: return qp_state::ready_to_receive;
            case IBV_QPS_RTS:
            case IBV_QPS_SQD: return qp_state::ready_to_send;
            default: return qp_state::error;
        }
    }

    status post(const work& w) noexcept {
        ibv_send_wr wr;
        ibv_sge sge;
        ibv_send_wr* bad = nullptr;
        ibv_detail::fill(wr, sge, w);
        const int rc = ibv_post_send(qp_.get(), &wr, &bad);
        if (rc != 0) [[unlikely]]
            return ibv_detail::from_post(rc);
        return {};
    }

    /// Returns: how many were taken, in order; the reason only when none was.
    result<unsigned> post(std::span<const work> many) noexcept {
        return chained<ibv_send_wr>(
            many, [this](ibv_send_wr* head, ibv_send_wr** bad) noexcept { return ibv_post_send(qp_.get(), head, bad); });
    }

    result<unsigned> post_recv(std::span<const recv_work> many) noexcept {
        return chained<ibv_recv_wr>(
            many, [this](ibv_recv_wr* head, ibv_recv_wr** bad) noexcept { return ibv_post_recv(qp_.get(), head, bad); });
    }

    VCCL_COLD status destroy() noexcept {
        ibv_qp* const qp = qp_.release();
        return qp == nullptr ? status{} : ibv_detail::from_return(ibv_destroy_qp(qp));
    }

    ibv_qp* native() const noexcept { return qp_.get(); }

private:
    static constexpr std::uint32_t psn_mask = 0xffffff;

    struct release {
        void operator()(ibv_qp* qp) const noexcept { ibv_destroy_qp(qp); }
    };

    status modify(ibv_qp_attr& attr, int mask) noexcept { return ibv_detail::from_return(ibv_modify_qp(qp_.get(), &attr, mask)); }
    VCCL_COLD status modify_to(ibv_qp_state state) noexcept {
        ibv_qp_attr attr{};
        attr.qp_state = state;
        return modify(attr, IBV_QP_STATE);
    }

    template <class Wr, class Value, class Post>
    static VCCL_ALWAYS_INLINE result<unsigned> chained(std::span<const Value> many, Post post) noexcept {
        constexpr unsigned most = 32;  // 4 KiB of work requests a doorbell
        Wr wrs[most];
        ibv_sge sges[most];
        unsigned taken = 0;
        while (taken < many.size()) {
            const auto left = static_cast<unsigned>(many.size()) - taken;
            const unsigned count = left < most ? left : most;
            for (unsigned i = 0; i < count; ++i) {
                ibv_detail::fill(wrs[i], sges[i], many[taken + i]);
                if (i != 0) wrs[i - 1].next = &wrs[i];
            }
            Wr* bad = nullptr;
            if (const int rc = post(wrs, &bad); rc != 0) [[unlikely]] {
                taken += bad != nullptr ? static_cast<unsigned>(bad - wrs) : 0;
                if (taken == 0) return ibv_detail::from_post(rc);
                break;
            }
            taken += count;
        }
        return taken;
    }

    owned<ibv_qp, release> qp_;
    ibv_qp_origin origin_;
};

}  // namespace vccl::inline v0::verbs
