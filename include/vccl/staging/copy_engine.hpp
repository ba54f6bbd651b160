#pragma once
/// \file
/// What staging needs of whatever copies between GPU and host memory: copies that begin at once and end in order, memory
/// that they can reach, and two ways to be in order with a stream. One engine serves one direction of one staged endpoint.
/// Owner thread of that endpoint, but for `mark` and `hold`: the thread that calls `send_on` or `recv_on`, under its lock.

#include <vccl/base/status.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace vccl::inline v0 {

/// Copies that an engine must take before the first has ended, and marks that it must keep.
inline constexpr unsigned copies_in_flight = 64;

/// Host memory that an engine copies to and from, page-locked where that matters. Sole owner.
class staging_buffer {
public:
    using deleter = void (*)(void*) noexcept;  ///< how the memory is given back
    staging_buffer() = default;
    /// Takes `bytes` at `p`, which `d` will free.
    staging_buffer(std::byte* p, std::size_t bytes, deleter d) noexcept : p_(p), bytes_(bytes), delete_(d) {}
    /// `o` holds nothing afterwards.
    staging_buffer(staging_buffer&& o) noexcept : p_(o.p_), bytes_(o.bytes_), delete_(o.delete_) { o.p_ = nullptr; }
    /// What was held before is freed.
    staging_buffer& operator=(staging_buffer&& o) noexcept {
        const staging_buffer old(static_cast<staging_buffer&&>(*this));
        p_ = o.p_;
        bytes_ = o.bytes_;
        delete_ = o.delete_;
        o.p_ = nullptr;
        return *this;
    }
    ~staging_buffer() {
        if (p_) delete_(p_);
    }
    /// Null where nothing is held.
    std::byte* data() const noexcept { return p_; }
    /// Bytes.
    std::size_t size() const noexcept { return bytes_; }

private:
    std::byte* p_{};
    std::size_t bytes_{};
    deleter delete_{};
};

/// A copy engine has, besides the type `stream`, these, all noexcept:
///   allocate(bytes)        host memory for the ring
///   check(p, bytes)        may it copy there? invalid_argument for memory of another device, or of none
///   read(host, device, bytes), write(device, host, bytes)   begin a copy and number it; at most copies_in_flight not done
///   done(copy)             has it ended, and with it all before it? An error: it failed
///   mark(stream)           numbers the point that the stream's work has come to; at most copies_in_flight not followed
///   follow(mark)           copies begun from now on wait for that point
///   hold(stream, n)        the stream's work from now on waits for release(n), or of more
///   release(n)
template <class E>
concept copy_engine = requires(E e, typename E::stream s, void* to, const void* from, std::size_t bytes, std::uint64_t n) {
    { e.allocate(bytes) } noexcept -> std::same_as<result<staging_buffer>>;
    { e.check(from, bytes) } noexcept -> std::same_as<status>;
    { e.read(to, from, bytes) } noexcept -> std::same_as<result<std::uint64_t>>;
    { e.write(to, from, bytes) } noexcept -> std::same_as<result<std::uint64_t>>;
    { e.done(n) } noexcept -> std::same_as<result<bool>>;
    { e.mark(s) } noexcept -> std::same_as<result<std::uint64_t>>;
    { e.follow(n) } noexcept -> std::same_as<status>;
    { e.hold(s, n) } noexcept -> std::same_as<status>;
    { e.release(n) } noexcept -> std::same_as<void>;
};

/// Optional: an engine that can also use host memory that it did not allocate, page-locked while the buffer lives.
template <class E>
concept pins_memory = requires(E e, std::byte* p, std::size_t bytes) {
    { e.pin(p, bytes) } noexcept -> std::same_as<result<staging_buffer>>;
};

}  // namespace vccl::inline v0
