#pragma once
/// \file
/// `status`: what went wrong and where, in 16 trivially copyable bytes. `result<T>`: a value or a status,
/// with the member names of `std::expected` (which C++20 lacks).

#include <vccl/base/config.hpp>

#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace vccl::inline v0 {

/// What happened. `text(errc)` says it in words, with what to do.
enum class errc : std::uint8_t {
    ok = 0,
    // The caller's arguments.
    invalid_argument,    ///< an argument is out of its range
    not_registered,      ///< the buffer is not (or no longer) registered memory
    out_of_range,        ///< the span leaves its registered memory
    too_large,           ///< more than the configured maximum
    would_block,         ///< the FIFO or queue is full: progress, then try again
    busy,                ///< work in flight still uses the object
    not_connected,       ///< connect() has not succeeded yet
    already_connected,   ///< connect() was called before
    // What the peer sent.
    bad_blob,            ///< a connection blob that is truncated, damaged or not one at all
    version_mismatch,    ///< the peer speaks another wire version
    wrong_peer,          ///< the other end is of another channel, session, role or job
    policy_mismatch,     ///< the ends were built with different QP counts, lanes or limits
    rail_mismatch,       ///< a lane's two ports are cabled to different rails
    protocol_violation,  ///< the peer lied about sizes, epochs, lanes or keys
    message_too_long,    ///< the send was larger than the posted receive
    // The machine.
    no_device,           ///< no such NIC, or none at all
    no_port,             ///< no such port
    permission,          ///< the kernel refused: rights or memlock limit
    no_memory,           ///< the kernel or NIC ran out of memory or objects
    unsupported,         ///< this backend or device cannot do that
    system,              ///< another errno, in `detail`
    // The fabric.
    lane_failed,         ///< lanes met the same local error again and again until the deadline
    port_down,           ///< no port is ACTIVE
    no_lane_left,        ///< every lane is dead and stayed so until the deadline
    remote_access,       ///< the peer's NIC refused the address or key
    local_protection,    ///< our NIC refused our own address or key
    fence_failed,        ///< an old QP could be neither moved to ERR nor destroyed
    peer_lost,           ///< the peer process is gone
    aborted,             ///< this end or the peer gave the channel up
    closed,              ///< the peer closed the channel in order
    timeout,             ///< the deadline passed
    cq_overrun,          ///< a completion queue was too small
    no_replay_log,       ///< a lane died and the channel was built with `no_replay`
    // Names, files and the rest.
    parse_error,         ///< a text (topology, script, option) could not be read
    not_found,           ///< the named thing does not exist
    already_exists,
    io_error,
};

/// Work completion status, numbered as `enum ibv_wc_status` (infiniband/verbs.h).
// clang-format off
enum class wc_status : std::uint8_t {
    success = 0, loc_len_err = 1, loc_qp_op_err = 2, loc_eec_op_err = 3, loc_prot_err = 4, wr_flush_err = 5,
    mw_bind_err = 6, bad_resp_err = 7, loc_access_err = 8, rem_inv_req_err = 9, rem_access_err = 10,
    rem_op_err = 11, retry_exc_err = 12, rnr_retry_exc_err = 13, loc_rdd_viol_err = 14, rem_inv_rd_req_err = 15,
    rem_abort_err = 16, inv_eecn_err = 17, inv_eec_state_err = 18, fatal_err = 19, resp_timeout_err = 20,
    general_err = 21,
};
// clang-format on

/// What a status' two numbers are, where they are more than its code says. `describe` prints them.
enum class subject : std::uint8_t {
    none,
    system_error,    ///< `detail`: errno
    peer_code,       ///< `detail`: the errc that the peer ended with
    in_flight,       ///< `detail`: chunks that still use the object
    room,            ///< `detail`: how many the queue holds
    memlock,         ///< `extra`: the limit that stood in the way, in KiB
    bytes,           ///< `detail`: the most allowed; `extra`: what was asked for, 2^32 - 1 for that or more
    suspended,       ///< no lane is up at present
    shared_memory,   ///< `detail`: MiB of /dev/shm that are wanted; `extra`: MiB that are free
    secret,          ///< who answers does not know the job's secret
    rank,            ///< `detail`: the rank that is to blame; `extra`: where ranks are missing, how many
    // Which kind of thing is missing. `detail`: its index in the topology; `unnamed_index` where a name was looked for.
    host,
    nic,
    port,
    gpu,
    fabric,          ///< software fabric, by name; `detail`: errno or 0
    // `detail`: this end's; `extra`: the peer's.
    wire_version,
    role,            ///< `endpoint_role`
    session_low,     ///< low 32 bits of the session
    session_high,    ///< high 32 bits, where the low ones are alike
    channel,
    qps,             ///< of a lane
    lanes,
    stripes,         ///< of a channel
    ranks,           ///< of a job
    slice,           ///< bytes of a staged message that travel together
    link,            ///< `link_layer` of a lane's port
    rail,            ///< of a lane's port
    // As those above; at the end, since ranks tell each other these numbers.
    peer_address,    ///< the kernel does not know the peer's Ethernet address
    owner,           ///< software fabric of that name is another user's; `detail`: the user's number
};

inline constexpr subject last_subject = subject::owner;  ///< the highest of its numbers

/// In `detail`: a thing was looked for by its name, so it has no index.
inline constexpr std::uint32_t unnamed_index = ~std::uint32_t{0};

/// What happened, where. Converts to true when nothing went wrong.
struct [[nodiscard]] status {
    static constexpr std::uint8_t no_lane = 0xff;  ///< `lane` of an error that concerns no lane, or all.

    errc code{errc::ok};               ///< what kind of thing happened; docs/errors.md has them all
    wc_status wc{wc_status::success};  ///< the completion behind it, if one was
    std::uint8_t lane{no_lane};        ///< index in the channel's lane list, or `no_lane`
    subject about{};                   ///< what `detail` and `extra` are
    std::uint32_t detail{};            ///< a number: see `about`; without, docs/errors.md says for each code
    std::uint32_t epoch{};             ///< the channel's epoch at the time
    std::uint32_t extra{};             ///< a second number; behind a completion (`wc`) its vendor error

    constexpr status() noexcept = default;
    /// `d`: the number that goes with the code, such as a port's, or errno.
    VCCL_HOST_DEVICE constexpr status(errc c, std::uint32_t d = 0) noexcept : code(c), detail(d) {}
    /// `a` says what `d` and `e` are.
    VCCL_HOST_DEVICE constexpr status(errc c, subject a, std::uint32_t d, std::uint32_t e = 0) noexcept
        : code(c), about(a), detail(d), extra(e) {}
    /// True when nothing went wrong.
    VCCL_HOST_DEVICE constexpr explicit operator bool() const noexcept { return code == errc::ok; }
    constexpr bool operator==(const status&) const noexcept = default;
};
static_assert(sizeof(status) == 16 && std::is_trivially_copyable_v<status>);

/// A value, or the status that says why there is none.
template <class T>
class [[nodiscard]] result {
public:
    /// Named as std::expected names them.
    /// @{
    using value_type = T;
    using error_type = status;
    /// @}

    /// From a value, or from the reason why there is none. Requires: a `status` given here is not ok.
    /// @{
    constexpr result(const T& v) noexcept(std::is_nothrow_copy_constructible_v<T>) : has_(true) { ::new (&store_) T(v); }
    constexpr result(T&& v) noexcept : has_(true) { ::new (&store_) T(std::move(v)); }
    constexpr result(status s) noexcept : why_(s) {}
    constexpr result(errc c) noexcept : why_(c) {}
    /// @}
    /// What is moved from keeps a value, itself moved from.
    result(result&& o) noexcept : has_(o.has_), why_(o.why_) {
        if (has_) ::new (&store_) T(std::move(*o));
    }
    /// For those values that can be copied at all.
    result(const result& o)
        requires std::is_copy_constructible_v<T>
        : has_(o.has_), why_(o.why_) {
        if (has_) ::new (&store_) T(*o);
    }
    /// By value: takes copies and temporaries alike.
    result& operator=(result o) noexcept {
        reset();
        why_ = o.why_;
        if (o.has_) {
            ::new (&store_) T(std::move(*o));
            has_ = true;
        }
        return *this;
    }
    ~result() { reset(); }

    /// Whether there is a value.
    /// @{
    bool has_value() const noexcept { return has_; }
    explicit operator bool() const noexcept { return has_; }
    /// @}
    /// Requires: has_value(); not checked.
    /// @{
    T& value() & noexcept { return *ptr(); }
    const T& value() const& noexcept { return *ptr(); }
    T&& value() && noexcept { return std::move(*ptr()); }
    T& operator*() & noexcept { return *ptr(); }
    const T& operator*() const& noexcept { return *ptr(); }
    T&& operator*() && noexcept { return std::move(*ptr()); }
    T* operator->() noexcept { return ptr(); }
    const T* operator->() const noexcept { return ptr(); }
    /// @}
    /// The reason; `status{}` when there is a value.
    status error() const noexcept { return has_ ? status{} : why_; }
    /// The value, or `other` where there is none.
    template <class U>
    T value_or(U&& other) const& {
        return has_ ? **this : static_cast<T>(std::forward<U>(other));
    }

private:
    T* ptr() noexcept { return std::launder(reinterpret_cast<T*>(&store_)); }
    const T* ptr() const noexcept { return std::launder(reinterpret_cast<const T*>(&store_)); }
    void reset() noexcept {
        if (has_) {
            ptr()->~T();
            has_ = false;
        }
    }

    alignas(T) unsigned char store_[sizeof(T)];
    bool has_{false};
    status why_{};
};

/// Small trivially copyable values: the same interface, no destructor, returned in registers.
template <class T>
    requires(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>)
class [[nodiscard]] result<T> {
public:
    /// Named as std::expected names them.
    /// @{
    using value_type = T;
    using error_type = status;
    /// @}

    /// From a value, or from the reason why there is none. Requires: a `status` given here is not ok.
    /// @{
    VCCL_HOST_DEVICE constexpr result(const T& v) noexcept : value_(v) {}
    VCCL_HOST_DEVICE constexpr result(status s) noexcept : why_(s) {}
    VCCL_HOST_DEVICE constexpr result(errc c) noexcept : why_(c) {}
    /// @}

    /// Whether there is a value.
    /// @{
    VCCL_HOST_DEVICE constexpr bool has_value() const noexcept { return why_.code == errc::ok; }
    VCCL_HOST_DEVICE constexpr explicit operator bool() const noexcept { return has_value(); }
    /// @}
    /// Requires: has_value(). Without one it is a default-made T, not undefined.
    /// @{
    VCCL_HOST_DEVICE constexpr T& value() noexcept { return value_; }
    VCCL_HOST_DEVICE constexpr const T& value() const noexcept { return value_; }
    VCCL_HOST_DEVICE constexpr T& operator*() noexcept { return value_; }
    VCCL_HOST_DEVICE constexpr const T& operator*() const noexcept { return value_; }
    VCCL_HOST_DEVICE constexpr T* operator->() noexcept { return &value_; }
    VCCL_HOST_DEVICE constexpr const T* operator->() const noexcept { return &value_; }
    /// @}
    /// The reason; `status{}` when there is a value.
    VCCL_HOST_DEVICE constexpr status error() const noexcept { return why_; }
    /// The value, or `other` where there is none.
    template <class U>
    VCCL_HOST_DEVICE constexpr T value_or(U&& other) const {
        return has_value() ? value_ : static_cast<T>(other);
    }

private:
    T value_{};
    status why_{};
};

}  // namespace vccl::inline v0
