#pragma once
/// \file
/// The objects that applications hold: `soft`, its ports, CQs, QPs and memory regions. Thin: each keeps the engine alive
/// and calls it. Different objects may be used by different threads at once; one object by one thread at a time.

#include <vccl/verbs/soft/engine.hpp>

namespace vccl::inline v0::verbs {

class soft_mr {
public:
    soft_mr() = default;
    soft_mr(std::shared_ptr<soft_detail::engine> e, std::uint32_t key) noexcept : engine_(std::move(e)), key_(key) {}
    soft_mr(soft_mr&&) noexcept = default;
    soft_mr& operator=(soft_mr&& o) noexcept {
        std::swap(engine_, o.engine_);
        std::swap(key_, o.key_);
        return *this;
    }
    ~soft_mr() {
        if (engine_) engine_->remove_memory(key_);
    }

    lkey local_key() const noexcept { return lkey{key_}; }
    rkey remote_key() const noexcept { return rkey{key_ | memory_table::remote_bit}; }

private:
    std::shared_ptr<soft_detail::engine> engine_;
    std::uint32_t key_{};
};

/// Memory of a shared fabric: what is sent from there to another process is copied once. Sole owner.
class soft_memory {
public:
    soft_memory() = default;
    soft_memory(std::shared_ptr<soft_detail::engine> e, std::byte* p, std::size_t bytes) noexcept
        : engine_(std::move(e)), p_(p), bytes_(bytes) {}
    soft_memory(soft_memory&&) noexcept = default;
    soft_memory& operator=(soft_memory&& o) noexcept {
        std::swap(engine_, o.engine_);
        std::swap(p_, o.p_);
        std::swap(bytes_, o.bytes_);
        return *this;
    }
    ~soft_memory() {
        if (engine_) engine_->give_memory(p_, bytes_);
    }

    /// Null where nothing is held.
    std::byte* data() const noexcept { return engine_ ? p_ : nullptr; }
    std::size_t size() const noexcept { return engine_ ? bytes_ : 0; }

private:
    std::shared_ptr<soft_detail::engine> engine_;
    std::byte* p_{};
    std::size_t bytes_{};
};

class soft_cq {
public:
    soft_cq() = default;
    soft_cq(std::shared_ptr<soft_detail::engine> e, std::unique_ptr<soft_detail::completion_queue> q) noexcept
        : engine_(std::move(e)), queue_(std::move(q)) {}
    soft_cq(soft_cq&&) noexcept = default;
    soft_cq& operator=(soft_cq&& o) noexcept {
        std::swap(engine_, o.engine_);
        std::swap(queue_, o.queue_);
        return *this;
    }
    ~soft_cq() {
        if (queue_) engine_->detach(*queue_);
    }

    result<unsigned> poll(completion* out, unsigned room) noexcept {
        if (!queue_) return errc::invalid_argument;
        return engine_->poll(*queue_, out, room);
    }
    soft_detail::completion_queue* queue() noexcept { return queue_.get(); }

private:
    std::shared_ptr<soft_detail::engine> engine_;
    std::unique_ptr<soft_detail::completion_queue> queue_;
};

class soft_qp {
public:
    soft_qp() = default;
    soft_qp(std::shared_ptr<soft_detail::engine> e, soft_detail::queue_pair* q) noexcept : engine_(std::move(e)), qp_(q) {}
    soft_qp(soft_qp&& o) noexcept : engine_(std::move(o.engine_)), qp_(std::exchange(o.qp_, nullptr)) {}
    soft_qp& operator=(soft_qp&& o) noexcept {
        std::swap(engine_, o.engine_);
        std::swap(qp_, o.qp_);
        return *this;
    }
    ~soft_qp() { (void)destroy(); }

    qpn number() const noexcept { return qpn{qp_ != nullptr ? qp_->number : 0}; }
    status to_reset() noexcept { return qp_ ? engine_->to_reset(*qp_) : gone(); }
    status to_init() noexcept { return qp_ ? engine_->to_init(*qp_) : gone(); }
    status to_ready_to_receive(const qp_peer& peer, const qp_timers& timers) noexcept {
        return qp_ ? engine_->to_ready_to_receive(*qp_, peer, timers) : gone();
    }
    status to_ready_to_send(psn first, const qp_timers& timers) noexcept {
        return qp_ ? engine_->to_ready_to_send(*qp_, first, timers) : gone();
    }
    status to_error() noexcept { return qp_ ? engine_->to_error(*qp_) : gone(); }
    result<qp_state> state() noexcept {
        if (qp_ == nullptr) return gone();
        return qp_->state.load(std::memory_order_acquire);
    }
    status post(const work& w) noexcept {
        if (qp_ == nullptr) return gone();
        if (auto s = engine_->push_send(*qp_, w); !s) return s;
        engine_->doorbell(*qp_);
        return {};
    }
    result<unsigned> post(std::span<const work> many) noexcept {
        if (qp_ == nullptr) return gone();
        unsigned taken = 0;
        status s;
        while (taken < many.size() && (s = engine_->push_send(*qp_, many[taken]))) ++taken;
        if (taken != 0) engine_->doorbell(*qp_);
        if (taken == 0 && !s && s.code != errc::would_block) return s;
        return taken;
    }
    result<unsigned> post_recv(std::span<const recv_work> recvs) noexcept {
        if (qp_ == nullptr) return gone();
        return engine_->push_receives(*qp_, recvs);
    }
    status destroy() noexcept {
        if (qp_ != nullptr) engine_->destroy_qp(*std::exchange(qp_, nullptr));
        return {};
    }

private:
    static status gone() noexcept { return errc::invalid_argument; }

    std::shared_ptr<soft_detail::engine> engine_;
    soft_detail::queue_pair* qp_{};
};

class soft_port {
public:
    using qp = soft_qp;
    using cq = soft_cq;
    using mr = soft_mr;

    soft_port() = default;
    soft_port(std::shared_ptr<soft_detail::engine> e, std::unique_ptr<soft_detail::port_domain> d) noexcept
        : engine_(std::move(e)), domain_(std::move(d)) {}
    soft_port(soft_port&&) noexcept = default;
    soft_port& operator=(soft_port&& o) noexcept {
        std::swap(engine_, o.engine_);
        std::swap(domain_, o.domain_);
        return *this;
    }
    ~soft_port() {
        if (domain_) engine_->close(*domain_);
    }

    result<port_attributes> query() noexcept {
        if (!domain_) return errc::no_port;
        const auto& control = engine_->control();
        const auto& p = control.port(domain_->port);
        port_attributes a;
        a.state = soft_detail::active(p) ? port_state::active : port_state::down;
        const std::uint32_t generation = p.gid_generation.load(std::memory_order_acquire);
        a.gid_index = static_cast<std::uint8_t>(generation);
        a.mtu = engine_->mtu();
        a.bytes_per_second = p.rate.load(std::memory_order_relaxed);
        a.address = soft_detail::make_gid(engine_->identity(), domain_->port, generation);
        return a;
    }
    result<soft_cq> create_cq(std::uint32_t depth) noexcept {
        if (!domain_) return errc::no_port;
        if (depth == 0 || depth > 1u << 22) return errc::invalid_argument;
        try {
            return soft_cq(engine_, std::make_unique<soft_detail::completion_queue>(depth, domain_->id));
        } catch (const std::bad_alloc&) { return errc::no_memory; }
    }
    result<soft_qp> create_qp(soft_cq& completions, const qp_limits& limits) noexcept {
        if (!domain_) return errc::no_port;
        if (completions.queue() == nullptr || limits.inline_bytes > inline_limit()) return errc::invalid_argument;
        auto q = engine_->create_qp(*domain_, *completions.queue(), limits);
        if (!q) return q.error();
        return soft_qp(engine_, *q);
    }
    result<soft_mr> register_memory(void* memory, std::size_t bytes) noexcept {
        if (!domain_) return errc::no_port;
        auto key = engine_->add_memory(domain_->id, memory, bytes);
        if (!key) return key.error();
        return soft_mr(engine_, *key);
    }
    result<async_event> next_event() noexcept {
        if (!domain_) return errc::no_port;
        return engine_->next_event(*domain_);
    }
    std::uint32_t inline_limit() noexcept { return 512; }

private:
    std::shared_ptr<soft_detail::engine> engine_;
    std::unique_ptr<soft_detail::port_domain> domain_;
};

/// One host's view of a fabric; see `soft_fabric::host`. A default-constructed one has no ports.
class soft {
public:
    using policy_axis = axis::verbs;
    using port = soft_port;
    using buffer = soft_memory;
    static constexpr backend_capabilities capabilities{};

    soft() = default;
    soft(std::shared_ptr<soft_detail::engine> e, host_id host) noexcept : engine_(std::move(e)), host_(host) {}

    result<topology> discover() const {
        if (!engine_) return errc::no_device;
        return result<topology>(soft_detail::part_of(engine_->shape(), host_));
    }
    result<soft_port> open(const port_name& name) const noexcept {
        if (!engine_) return errc::no_device;
        const topology& t = engine_->shape();
        for (std::uint16_t i = 0; i < t.ports.size(); ++i) {
            if (!(t.ports[i].name == name) || t.host_of(port_id{i}) != host_) continue;
            auto domain = engine_->open(i);
            if (!domain) return domain.error();
            return soft_port(engine_, std::move(*domain));
        }
        return errc::no_port;
    }

    /// Memory of the fabric (`soft_options::memory_bytes`), to be registered like any other; for what devices fill and read:
    /// what arrives there is stored past the caches. Errors: unsupported: the fabric
    /// has none, or is not shared; no_memory.
    result<soft_memory> allocate(std::size_t bytes) const noexcept {
        if (!engine_) return errc::no_device;
        const auto p = engine_->take_memory(bytes);
        if (!p) return p.error();
        return soft_memory(engine_, *p, bytes);
    }

private:
    std::shared_ptr<soft_detail::engine> engine_;
    host_id host_{};
};

}  // namespace vccl::inline v0::verbs
