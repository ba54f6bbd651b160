#pragma once
/// \file
/// From errno, as libibverbs reports failures, to `status`; the errno itself is in `detail`. Any thread.
/// Source: rdma-core's ibv_* manual pages.

#include <vccl/base/status.hpp>

#include <cerrno>

namespace vccl::inline v0::verbs::ibv_detail {

VCCL_COLD inline status from_errno(int error) noexcept {
    const auto because = [error](errc c) { return status{c, subject::system_error, static_cast<std::uint32_t>(error)}; };
    switch (error) {
        case EINVAL:
        case ERANGE: return because(errc::invalid_argument);
        case EPERM:
        case EACCES: return because(errc::permission);
        case ENOMEM:
        case ENOSPC:
        case EMFILE:
        case ENFILE: return because(errc::no_memory);
        case EOPNOTSUPP:
        case ENOSYS:
        case EPROTONOSUPPORT: return because(errc::unsupported);
        case ENODEV:
        case ENXIO: return because(errc::no_device);
        case EBUSY: return because(errc::busy);
        case ENETDOWN:
        case ENETUNREACH:
        case EHOSTUNREACH: return because(errc::port_down);
        case ETIMEDOUT: return because(errc::timeout);
        default: return because(errc::system);
    }
}

/// A provider that returns -1 left the reason in errno; others return it.
inline status from_return(int rc) noexcept {
    if (rc == 0) return {};
    return from_errno(rc > 0 ? rc : errno);
}

/// A post that fails: libibverbs says ENOMEM when the queue is full.
inline status from_post(int rc) noexcept {
    const int error = rc > 0 ? rc : errno;
    return error == ENOMEM ? errc::would_block : from_errno(error);
}

}  // namespace vccl::inline v0::verbs::ibv_detail
