#pragma once
/// \file
/// From errno, as libibverbs reports failures, to `status`; the errno itself is in `detail`. Any thread.
/// Source: rdma-core's ibv_* manual pages.

#include <vccl/base/status.hpp>

#include <cerrno>

namespace vccl::inline v0::verbs::ibv_detail {

VCCL_COLD inline status from_errno(int error) noexcept {
    const auto detail = static_cast<std::uint32_t>(error);
    switch (error) {
        case EINVAL:
        case ERANGE: return {errc::invalid_argument, detail};
        case EPERM:
        case EACCES: return {errc::permission, detail};
        case ENOMEM:
        case ENOSPC:
        case EMFILE:
        case ENFILE: return {errc::no_memory, detail};
        case EOPNOTSUPP:
        case ENOSYS:
        case EPROTONOSUPPORT: return {errc::unsupported, detail};
        case ENODEV:
        case ENXIO: return {errc::no_device, detail};
        case EBUSY: return {errc::busy, detail};
        case ENETDOWN:
        case ENETUNREACH:
        case EHOSTUNREACH: return {errc::port_down, detail};
        case ETIMEDOUT: return {errc::timeout, detail};
        default: return {errc::system, detail};
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
    return error == ENOMEM ? status{errc::would_block, ENOMEM} : from_errno(error);
}

}  // namespace vccl::inline v0::verbs::ibv_detail
