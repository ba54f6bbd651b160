#pragma once
/// \file
/// A port opened for use: its own device context and protection domain, and what is made from them. Set-up calls for the
/// owner's thread; `next_event` costs one system call, so ask it now and then, or when `event_fd` is readable.
/// Source: rdma-core's ibv_open_device, ibv_get_async_event, ibv_reg_mr, ibv_create_qp.

#include <vccl/base/owned.hpp>
#include <vccl/verbs/ibv/queue_pair.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <new>

namespace vccl::inline v0::verbs {

namespace ibv_detail {

/// Whether this rdma-core can register memory that another device exports, such as a GPU.
template <class Pd>
concept can_register_dmabuf = requires(Pd* pd) { ibv_reg_dmabuf_mr(pd, std::uint64_t{}, std::size_t{}, std::uint64_t{}, 0, 0); };

struct close_device {
    void operator()(ibv_context* context) const noexcept { ibv_close_device(context); }
};
struct free_domain {
    void operator()(ibv_pd* pd) const noexcept { ibv_dealloc_pd(pd); }
};
using device_ptr = owned<ibv_context, close_device>;
using domain_ptr = owned<ibv_pd, free_domain>;

/// "mlx5_0:1", or "mlx5_0" for its first port.
struct device_port {
    std::string_view device;
    unsigned port{1};
};

VCCL_COLD inline result<device_port> parse(std::string_view name) noexcept {
    device_port out{name};
    const std::size_t colon = name.rfind(':');
    if (colon != std::string_view::npos) {
        out.device = name.substr(0, colon);
        out.port = 0;
        for (const char digit : name.substr(colon + 1)) {
            if (digit < '0' || digit > '9' || out.port > 0xff) return errc::no_port;
            out.port = out.port * 10 + static_cast<unsigned>(digit - '0');
        }
        if (out.port == 0 || out.port > 0xff) return errc::no_port;
    }
    return out;
}

/// Why a listed device did not open. libibverbs tries more than one way in and leaves the errno of the last.
VCCL_COLD inline status why_not_open(const ibv_device& device, int error) noexcept {
    char node[sizeof "/dev/infiniband/" + sizeof device.dev_name];
    std::snprintf(node, sizeof node, "/dev/infiniband/%s", device.dev_name);
    if (::access(node, R_OK | W_OK) != 0) return from_errno(errno);
    return from_errno(error != 0 ? error : ENODEV);
}

/// Returns: `no_device` when no device has the name, with errno in `detail` when not even a list could be had;
/// `permission` when /dev/infiniband may not be opened.
VCCL_COLD inline result<device_ptr> open_device(std::string_view name) noexcept {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr) return status{errc::no_device, subject::system_error, static_cast<std::uint32_t>(errno)};
    ibv_context* context = nullptr;
    status why{errc::no_device};
    for (int i = 0; i < count; ++i) {
        if (name != ibv_get_device_name(list[i])) continue;
        errno = 0;
        context = ibv_open_device(list[i]);
        if (context == nullptr) why = why_not_open(*list[i], errno);
        break;
    }
    ibv_free_device_list(list);
    if (context == nullptr) return why;
    return device_ptr{context};
}

/// Why the kernel would not pin memory. A finite memlock limit is by far the most common reason: `permission`, whose text
/// names `ulimit -l`, with the limit in KiB in `extra`.
VCCL_COLD inline status from_registration(int error) noexcept {
    rlimit limit{};
    if (error == ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        return {errc::permission, subject::memlock, ENOMEM, static_cast<std::uint32_t>(limit.rlim_cur / 1024)};
    }
    return from_errno(error);
}

}  // namespace ibv_detail

class ibv_port {
public:
    using qp = ibv_queue_pair;
    using cq = ibv_queue;
    using mr = ibv_memory;

    VCCL_COLD static result<ibv_port> open(std::string_view name, const ibv_path& path) noexcept {
        const auto where = ibv_detail::parse(name);
        if (!where) return where.error();
        auto device = ibv_detail::open_device(where->device);
        if (!device) return device.error();
        ibv_context* const context = device->get();
        ibv_device_attr attr{};
        if (const int rc = ibv_query_device(context, &attr); rc != 0) return ibv_detail::from_return(rc);
        if (where->port > attr.phys_port_cnt) return status{errc::no_port, where->port};
        const int flags = ::fcntl(context->async_fd, F_GETFL);
        if (flags < 0 || ::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) return ibv_detail::from_errno(errno);
        errno = 0;
        ibv_detail::domain_ptr domain{ibv_alloc_pd(context)};
        if (!domain) return ibv_detail::from_errno(errno);
        ibv_qp_origin origin{};
        origin.port = static_cast<std::uint8_t>(where->port);
        origin.atomics = attr.atomic_cap != IBV_ATOMIC_NONE;
        origin.soft = attr.vendor_id == ibv_detail::rxe_vendor;
        int reads = attr.max_qp_rd_atom < attr.max_qp_init_rd_atom ? attr.max_qp_rd_atom : attr.max_qp_init_rd_atom;
        if (reads > read_depth) reads = read_depth;
        origin.read_depth = static_cast<std::uint8_t>(reads);
        origin.path = path;
        return ibv_port{std::move(*device), std::move(domain), origin};
    }

    /// Effects: the QPs whose `begin_error` was ok write no more memory.
    VCCL_COLD void finish_errors() const noexcept {
        if (origin_.soft) ibv_detail::let_every_processor_finish();
    }

    VCCL_COLD result<port_attributes> query() noexcept {
        return ibv_detail::query_port(device_.get(), origin_.port, origin_.path);
    }

    /// Returns: a queue of at least `depth` entries; `no_memory` or `invalid_argument` beyond the device's limit.
    VCCL_COLD result<cq> create_cq(std::uint32_t depth) noexcept {
        owned<cq::overrun_flag> overrun{new (std::nothrow) cq::overrun_flag};
        if (!overrun) return errc::no_memory;
        errno = 0;
        ibv_cq* const made = ibv_create_cq(device_.get(), static_cast<int>(depth), overrun.get(), nullptr, 0);
        if (made == nullptr) return ibv_detail::from_errno(errno);
        return cq{made, std::move(overrun)};
    }

    VCCL_COLD result<qp> create_qp(cq& queue, const qp_limits& limits) noexcept {
        errno = 0;
        ibv_qp* const made = make_qp(queue.native(), limits);
        if (made == nullptr) return ibv_detail::from_errno(errno);
        return qp{made, origin_};
    }

    VCCL_COLD result<mr> register_memory(void* memory, std::size_t bytes) noexcept {
        errno = 0;
        ibv_mr* const made = ibv_reg_mr(domain_.get(), memory, bytes, access());
        if (made == nullptr) return ibv_detail::from_registration(errno);
        return mr{made};
    }

    /// Memory that another device exports as a dmabuf; `address` is what work requests will call its first byte.
    /// There only where rdma-core has it (`ibv::capabilities.dmabuf`); `unsupported` when the device has not.
    template <class Pd = ibv_pd>
        requires ibv_detail::can_register_dmabuf<Pd>
    VCCL_COLD result<mr> register_dmabuf(int fd, std::uint64_t offset, std::size_t bytes, std::uint64_t address) noexcept {
        errno = 0;
        Pd* const domain = domain_.get();
        ibv_mr* const made = ibv_reg_dmabuf_mr(domain, offset, bytes, address, fd, access());
        if (made == nullptr) return ibv_detail::from_errno(errno);
        return mr{made};
    }

    /// On RoCE, the kernel knows the peer's Ethernet address, or is asked for it from now on. Errors: timeout
    /// (`subject::peer_address`): not known yet. Some system calls; waits for none of them but the kernel's lock of netdevs.
    VCCL_COLD status find_peer(const port_attributes& own, const gid& address) noexcept {
        return ibv_detail::find_peer(device_.get(), origin_.port, own, address);
    }

    VCCL_COLD result<async_event> next_event() noexcept {
        for (ibv_async_event event{};;) {
            if (ibv_get_async_event(device_.get(), &event) != 0) {
                if (errno == EAGAIN || errno == EINTR) return async_event{};
                return ibv_detail::from_errno(errno);
            }
            const async_event seen = translate(event);
            ibv_ack_async_event(&event);  // at once: destroying the object would wait for it
            if (seen.what != async_event::kind::none) return seen;
        }
    }

    /// Readable when an event waits; for poll(2) and the like.
    int event_fd() const noexcept { return device_->async_fd; }

    /// Found by trying, once: libibverbs does not say it beforehand.
    VCCL_COLD std::uint32_t inline_limit() noexcept {
        if (!inline_known_) {
            inline_limit_ = find_inline_limit();
            inline_known_ = true;
        }
        return inline_limit_;
    }

    ibv_context* native() const noexcept { return device_.get(); }
    ibv_pd* domain() const noexcept { return domain_.get(); }
    const ibv_qp_origin& origin() const noexcept { return origin_; }
    /// A QP of this port that was made elsewhere gets this port's ladder and an owner.
    qp adopt(ibv_qp* made) const noexcept { return qp{made, origin_}; }

private:
    /// READs serve probes and GPU flushes, a few at a time; every RNIC executes this many.
    static constexpr int read_depth = 4;

    ibv_port(ibv_detail::device_ptr device, ibv_detail::domain_ptr domain, const ibv_qp_origin& origin) noexcept
        : device_(std::move(device)), domain_(std::move(domain)), origin_(origin) {}

    int access() const noexcept {
        const int always = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        return origin_.atomics ? always | IBV_ACCESS_REMOTE_ATOMIC : always;
    }

    VCCL_COLD ibv_qp* make_qp(ibv_cq* queue, const qp_limits& limits) noexcept {
        ibv_qp_init_attr init{};
        init.send_cq = queue;
        init.recv_cq = queue;
        init.cap.max_send_wr = limits.send_depth;
        init.cap.max_recv_wr = limits.recv_depth;
        init.cap.max_send_sge = 1;
        init.cap.max_recv_sge = 1;
        init.cap.max_inline_data = limits.inline_bytes;
        init.qp_type = IBV_QPT_RC;
        return ibv_create_qp(domain_.get(), &init);
    }

    VCCL_COLD std::uint32_t find_inline_limit() noexcept {
        auto queue = create_cq(1);
        if (!queue) return 0;
        for (std::uint32_t bytes : {1024U, 512U, 256U, 128U, 64U, 32U})
            if (ibv_qp* const probe = make_qp(queue->native(), {.send_depth = 1, .recv_depth = 1, .inline_bytes = bytes})) {
                ibv_destroy_qp(probe);
                return bytes;
            }
        return 0;
    }

    /// Returns: kind::none for an event of the device's other port.
    async_event translate(const ibv_async_event& event) noexcept {
        using kind = async_event::kind;
        const auto of_port = [&](kind k) { return async_event{event.element.port_num == origin_.port ? k : kind::none, {}}; };
        switch (event.event_type) {
            case IBV_EVENT_PORT_ERR: return of_port(kind::port_error);
            case IBV_EVENT_PORT_ACTIVE: return of_port(kind::port_active);
            case IBV_EVENT_GID_CHANGE: return of_port(kind::gid_change);
            case IBV_EVENT_LID_CHANGE: return of_port(kind::lid_change);
            case IBV_EVENT_SM_CHANGE:
            case IBV_EVENT_PKEY_CHANGE:
            case IBV_EVENT_CLIENT_REREGISTER: return of_port(kind::other);
            case IBV_EVENT_DEVICE_FATAL: return {kind::device_fatal, {}};
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR:
            case IBV_EVENT_PATH_MIG_ERR: return {kind::qp_fatal, qpn{event.element.qp->qp_num}};
            case IBV_EVENT_CQ_ERR: {
                auto* const overrun = static_cast<cq::overrun_flag*>(event.element.cq->cq_context);
                if (overrun != nullptr) __atomic_store_n(&overrun->set, true, __ATOMIC_RELAXED);
                return {kind::cq_error, {}};
            }
            default: return {kind::other, {}};
        }
    }

    ibv_detail::device_ptr device_;
    ibv_detail::domain_ptr domain_;
    ibv_qp_origin origin_;
    std::uint32_t inline_limit_{};
    bool inline_known_{false};
};

}  // namespace vccl::inline v0::verbs
