#pragma once
/// \file
/// One lane at one end: the CQ, the QP group, the control QP and the flush QP of a port, with an account of every WR
/// posted. Owner thread of the endpoint only.

#include <vccl/base/owned.hpp>
#include <vccl/model/wire.hpp>
#include <vccl/qp/account.hpp>

#include <bit>

namespace vccl::inline v0 {

/// Sizes and timers of a lane's QPs.
struct lane_shape {
    unsigned group{1};
    std::uint32_t send_depth{256};   ///< of each data QP
    std::uint32_t recv_depth{0};     ///< of each data QP; 0 at the sender, which receives nothing there
    std::uint32_t inline_bytes{64};
    bool flush{false};
    qp_timers timers{};
};

template <verbs_backend B>
class lane {
public:
    using port_type = typename B::port;
    using qp_type = typename port_type::qp;
    static constexpr unsigned control_index = max_group, flush_index = max_group + 1, qp_slots = max_group + 2;
    static constexpr unsigned control_receives = 16, control_sends = 8, rearm_batch = 16;

    /// Effects: makes the CQ, QPs and control buffers on `port` and moves the QPs to INIT. `id` goes into every wr_id.
    VCCL_COLD status create(port_type& port, unsigned id, const lane_shape& shape, std::uint64_t seed) noexcept {
        port_ = &port;
        id_ = id;
        shape_ = shape;
        random_ = seed * 0x9e3779b97f4a7c15u + id + 1;
        if (shape_.inline_bytes > port.inline_limit()) shape_.inline_bytes = port.inline_limit();
        const std::uint32_t depth = shape.group * (shape.send_depth + shape.recv_depth) + control_receives + control_sends +
                                    2 * shape.recv_depth + 16 + qp_slots;
        auto cq = port.create_cq(depth);
        if (!cq) return cq.error();
        cq_.emplace(std::move(*cq));
        buffers_.reset(new (std::nothrow) control_message[control_receives + control_sends]);
        if (shape_.recv_depth != 0) arrivals_.reset(new (std::nothrow) recv_work[shape_.group * rearm_batch]{});
        if (!buffers_ || (shape_.recv_depth != 0 && !arrivals_)) return errc::no_memory;
        auto mr = port.register_memory(buffers_.get(), sizeof(control_message) * (control_receives + control_sends));
        if (!mr) return mr.error();
        buffers_mr_.emplace(std::move(*mr));
        if (status s = make_qps(); !s) return s;
        return init();
    }

    lane() = default;
    lane(lane&&) = delete;
    VCCL_COLD ~lane() {
        for (auto& q : qps_) q.reset();
        buffers_mr_.reset();
        cq_.reset();
    }

    unsigned id() const noexcept { return id_; }
    std::uint32_t generation() const noexcept { return generation_; }
    std::uint32_t inline_bytes() const noexcept { return shape_.inline_bytes; }
    unsigned group() const noexcept { return shape_.group; }
    qp_type& qp(unsigned i) noexcept { return *qps_[i]; }
    wr_account& account(unsigned i) noexcept { return accounts_[i]; }
    bool connected() const noexcept { return connected_; }

    /// How the peer reaches this half now.
    VCCL_COLD result<lane_end> end() noexcept {
        auto a = port_->query();
        if (!a) return a.error();
        lane_end e{};
        e.generation = generation_;
        for (unsigned i = 0; i < shape_.group; ++i) {
            e.qpn[i] = qps_[i]->number().value;
            e.psn[i] = psns_[i];
        }
        e.control_qpn = qps_[control_index]->number().value;
        e.control_psn = psns_[control_index];
        e.mtu = a->mtu;
        e.lid = a->lid;
        std::memcpy(e.gid, a->address.raw, sizeof e.gid);
        return e;
    }

    /// Effects: INIT -> RTR -> RTS for every QP, towards the peer's half; posts the receives. The ladder is climbed here only.
    /// Errors: `is_too_early`: nothing was done, the peer's address is being asked for; try again.
    VCCL_COLD status connect(const lane_end& peer) noexcept {
        auto a = port_->query();
        if (!a) return a.error();
        if constexpr (finds_peers<port_type>) {
            gid where{};
            std::memcpy(where.raw, peer.gid, sizeof where.raw);
            if (status s = port_->find_peer(*a, where); !s) return s;
        }
        for (unsigned i = 0; i < qp_slots; ++i) {
            if (!qps_[i]) continue;
            qp_peer p{};
            p.mtu = peer.mtu != 0 && peer.mtu < a->mtu ? peer.mtu : a->mtu;
            if (i == flush_index) {
                p.number = qps_[i]->number();
                p.first_psn = psn{psns_[i]};
                p.address = a->address;
                p.lid = a->lid;
            } else {
                p.number = qpn{i == control_index ? peer.control_qpn : peer.qpn[i]};
                p.first_psn = psn{i == control_index ? peer.control_psn : peer.psn[i]};
                std::memcpy(p.address.raw, peer.gid, sizeof peer.gid);
                p.lid = peer.lid;
            }
            if (status s = qps_[i]->to_ready_to_receive(p, shape_.timers); !s) return s;
            if (status s = qps_[i]->to_ready_to_send(psn{psns_[i]}, shape_.timers); !s) return s;
        }
        connected_ = talks_ = true;
        return {};
    }

    /// Effects: the QPs can write no memory when it returns ok (G2): moved to ERR, or else destroyed. Completions of what
    /// was in their queues follow; poll until drained().
    VCCL_COLD status silence() noexcept {
        talks_ = false;
        return silence_data();
    }
    /// The same for all QPs but the control QP, unless that is silenced already.
    VCCL_COLD status silence_data() noexcept {
        connected_ = false;
        bool silent[qp_slots]{};
        for (unsigned i = 0; i < qp_slots; ++i)
            if (qps_[i] && must_be_silent(i)) silent[i] = static_cast<bool>(begin_silence(*qps_[i]));
        if constexpr (fences_together<port_type>) port_->finish_errors();
        status worst{};
        for (unsigned i = 0; i < qp_slots; ++i) {
            if (!qps_[i] || !must_be_silent(i)) continue;
            if (silent[i]) {
                mark_end(i);
                continue;
            }
            const status s = qps_[i]->destroy();
            if (s)
                qps_[i].reset();
            else
                worst = s;
        }
        return worst;
    }
    /// Have all completions been polled? Of a QP that is gone there come no more than already lie in the CQ.
    bool drained() const noexcept {
        for (unsigned i = 0; i < qp_slots; ++i)
            if (qps_[i] && !accounts_[i].drained()) return false;
        return true;
    }

    /// Effects: a new generation on silenced QPs: through RESET, or destroyed and created anew where the driver cannot;
    /// fresh PSNs. Completions of the old generation are told by their wr_id.
    VCCL_COLD status renew(std::uint32_t generation) noexcept {
        generation_ = generation;
        unheard_ = 0;
        bool reset = true;
        for (auto& q : qps_)
            if (q && !q->to_reset()) reset = false;
        for (unsigned i = 0; i < qp_slots; ++i) {
            accounts_[i] = {};
            if (wanted(i) && !qps_[i]) reset = false;
        }
        if (reset && init()) return {};
        for (auto& q : qps_) q.reset();
        for (auto& a : accounts_) a = {};
        if (status s = make_qps(); !s) return s;
        return init();
    }

    // --- data path ----------------------------------------------------------------------------------------------

    result<unsigned> poll(completion* out, unsigned room) noexcept { return cq_->poll(out, room); }

    /// Room for another WR in QP `i`'s send queue?
    bool room(unsigned i) const noexcept { return accounts_[i].in_queue() < shape_.send_depth; }

    /// Effects: posts `w` on QP `i`, signaled every quarter of the queue or when `loud`; its wr_id is made here.
    status post(unsigned i, wr_kind kind, work& w, bool loud = false) noexcept {
        wr_account& a = accounts_[i];
        w.wr_id = wr_id_of(i, kind, a.posted + 1);
        if (loud || (w.wr_id & signal_mask_) == 0) w.flags = w.flags | work_flags::signaled;
        const status s = qps_[i]->post(w);
        if (s) ++a.posted;
        return s;
    }

    using run = post_run<qp_type>;
    run begin_run(unsigned i, wr_kind kind, work& w) noexcept {
        w.wr_id = wr_id_of(i, kind, accounts_[i].posted);
        return {*qps_[i], signal_mask_, shape_.send_depth - accounts_[i].in_queue()};
    }
    void end_run(unsigned i, std::uint64_t posted) noexcept { accounts_[i].posted += posted; }

    /// What the receives of data QP `i` in this generation have in the low half of their wr_id.
    std::uint32_t arrival_origin(unsigned i) const noexcept {
        return static_cast<std::uint32_t>(wr_id_of(i, wr_kind::arrival, 0));
    }
    /// Effects: `count` immediates have consumed as many receives of data QP `i`; once a batch is missing it gets them back.
    void arrived(unsigned i, unsigned count) noexcept {
        accounts_[i].receives -= count;
        if (connected_) (void)post_arrivals(i);
    }

    /// Effects: sends a control message on this lane. would_block: the NIC has not completed the earlier ones. busy: the
    /// peer has shown no life since so many of them that its receives may be used up (a stopped process; more would end
    /// in RNR_RETRY_EXC on a healthy lane). Either way the message is repeated by whoever needs the answer.
    VCCL_COLD status send_control(const control_message& m) noexcept {
        wr_account& a = accounts_[control_index];
        if (!talks_ || a.in_queue() >= control_sends) return errc::would_block;
        if (unheard_ >= control_receives / 2) return errc::busy;
        ++unheard_;
        control_message& slot = buffers_[control_receives + a.posted % control_sends];
        std::memcpy(static_cast<void*>(&slot), &m, m.size());
        work w{};
        w.op = work_op::send;
        w.local_addr = reinterpret_cast<std::uint64_t>(&slot);
        w.length = static_cast<std::uint32_t>(m.size());
        w.lkey = buffers_mr_->local_key();
        return post(control_index, wr_kind::control, w, true);
    }
    /// The peer has shown life, by whatever way: it takes its messages.
    void peer_heard() noexcept { unheard_ = 0; }
    /// A control message that came in: its buffer goes back with `repost_control`.
    const control_message& control_buffer(std::uint64_t slot) const noexcept { return buffers_[slot]; }
    /// Not on a silenced lane: some drivers keep what is posted in ERR for ever, and the fence would wait for it.
    VCCL_COLD status repost_control(std::uint64_t slot) noexcept {
        return talks_ ? post_control_receive(slot) : status{errc::not_connected};
    }

private:
    VCCL_COLD status post_control_receive(std::uint64_t slot) noexcept {
        if (!qps_[control_index]) return errc::not_connected;
        recv_work r{};
        r.wr_id = wr_id::make(wr_kind::control_recv, id_, control_index, generation_, slot).raw;
        r.addr = reinterpret_cast<std::uint64_t>(&buffers_[slot]);
        r.length = sizeof(control_message);
        r.lkey = buffers_mr_->local_key();
        auto n = qps_[control_index]->post_recv(std::span<const recv_work>(&r, 1));
        if (n) accounts_[control_index].receives += *n;
        return n.error();
    }

    /// Effects: fills data QP `i` up with receives, in whole batches.
    status post_arrivals(unsigned i) noexcept {
        while (accounts_[i].receives + rearm_batch <= shape_.recv_depth) {
            auto done = qps_[i]->post_recv(std::span<const recv_work>(&arrivals_[i * rearm_batch], rearm_batch));
            if (!done) return done.error();
            accounts_[i].receives += *done;
            if (*done < rearm_batch) break;
        }
        return {};
    }

    bool must_be_silent(unsigned i) const noexcept { return i != control_index || !talks_; }
    static status begin_silence(qp_type& q) noexcept {
        if constexpr (fences_together<port_type>)
            return q.begin_error();
        else
            return q.to_error();
    }

    /// A WR behind all others of a QP in ERR: its flush error tells that everything before it is done, also unsignaled
    /// WRs that had succeeded and make no completion of their own. make_qps keeps a place in the queue for it.
    VCCL_COLD void mark_end(unsigned i) noexcept {
        if (accounts_[i].in_queue() == 0) return;
        work end{};
        (void)post(i, wr_kind::grant, end, true);
    }

    bool wanted(unsigned i) const noexcept {
        return i < shape_.group || i == control_index || (i == flush_index && shape_.flush);
    }

    VCCL_COLD status make_qps() noexcept {
        for (unsigned i = 0; i < qp_slots; ++i) {
            if (!wanted(i)) continue;
            qp_limits l{};
            l.inline_bytes = shape_.inline_bytes;
            l.send_depth = (i == control_index ? control_sends : shape_.send_depth) + 1;
            l.recv_depth = i == control_index       ? control_receives
                           : i == flush_index       ? 1
                           : shape_.recv_depth == 0 ? 1
                                                    : shape_.recv_depth;
            auto q = port_->create_qp(*cq_, l);
            if (!q) return q.error();
            qps_[i].emplace(std::move(*q));
        }
        return {};
    }

    std::uint64_t wr_id_of(unsigned i, wr_kind kind, std::uint64_t mark) const noexcept {
        return ids_[i] | static_cast<std::uint64_t>(kind) | mark << wr_id::mark_shift;
    }

    /// RESET -> INIT with fresh PSNs; the receives are posted before the peer can know the QP.
    VCCL_COLD status init() noexcept {
        for (unsigned i = 0; i < qp_slots; ++i) {
            if (!qps_[i]) continue;
            if (status s = qps_[i]->to_init(); !s) return s;
            ids_[i] = wr_id::make({}, id_, i, generation_, 0).raw;
            random_ ^= random_ << 13;
            random_ ^= random_ >> 7;
            random_ ^= random_ << 17;
            psns_[i] = static_cast<std::uint32_t>(random_ >> 20) & 0xffffff;
            if (i < shape_.group && shape_.recv_depth != 0) {
                for (unsigned n = 0; n < rearm_batch; ++n)
                    arrivals_[i * rearm_batch + n].wr_id = wr_id::make(wr_kind::arrival, id_, i, generation_, 0).raw;
                if (status s = post_arrivals(i); !s) return s;
            }
        }
        for (unsigned b = 0; b < control_receives; ++b)
            if (status s = post_control_receive(b); !s) return s;
        signal_mask_ = wr_id::make({}, 0, 0, 0, (shape_.send_depth < 4 ? 1 : std::bit_floor(shape_.send_depth / 4)) - 1).raw;
        return {};
    }

    port_type* port_{};
    late<typename port_type::cq> cq_;
    late<qp_type> qps_[qp_slots];
    wr_account accounts_[qp_slots]{};
    std::uint32_t psns_[qp_slots]{};
    owned_array<control_message> buffers_;
    owned_array<recv_work> arrivals_;  ///< a batch of receives for each data QP, ready to be posted again and again
    late<typename port_type::mr> buffers_mr_;
    lane_shape shape_{};
    std::uint64_t random_{1};
    std::uint32_t generation_{1};
    unsigned unheard_{};
    std::uint64_t ids_[qp_slots]{};  ///< of each QP's WRs in this generation, but for kind and mark
    std::uint64_t signal_mask_{};  ///< the bits of a mark that are 0 where a completion is asked for
    unsigned id_{};
    bool connected_{};  ///< the data QPs are in RTS
    bool talks_{};  ///< the control QP is
};

}  // namespace vccl::inline v0
