#pragma once
// How two ranks meet: what listen() puts into NCCL's handle, and what the two ends then tell each other over one TCP
// connection before the lanes take over. All of it comes from outside: every field is checked before it is used.
#include "settings.hpp"

#include <vccl/host/blob.hpp>
#include <vccl/host/tcp_oob.hpp>

#include <type_traits>

namespace nccl_net {

inline constexpr std::uint16_t introduction_version = 3;

/// What NCCL carries from listen() to connect().
struct handle {
    static constexpr std::uint64_t magic_value = 0x31746e6c6363767full;

    std::uint64_t magic;
    std::uint16_t version;
    std::uint16_t rail;      // of the listening port: the sender's must be on the same
    std::uint32_t channel;
    std::uint64_t session;   // fresh for every listen()
    vccl::oob_address where;
    vccl::oob_secret secret;
};
static_assert(sizeof(handle) <= 128 && std::is_trivially_copyable_v<handle>);

/// One end's half: who it is and how its channel is reached, or why there will be none.
struct introduction {
    static constexpr std::uint32_t magic_value = 0x7063636e;

    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t bytes;      // of all of it
    vccl::oob_secret secret;  // the sender's: that of the handle
    agreement agreed;
    std::uint16_t blob_bytes;  // 0: refused
    vccl::fixed_name<48> host;
    vccl::fixed_name<256> refusal;
    std::byte blob_room[sizeof(vccl::connection_blob)];

    static introduction make(const settings& s, std::string_view host) {
        introduction out{};
        out.magic = magic_value;
        out.version = introduction_version;
        out.bytes = sizeof(introduction);
        out.agreed = agreement_of(s);
        out.host = host;
        return out;
    }
    bool refused() const noexcept { return blob_bytes == 0; }
    /// Requires: the introduction was checked.
    std::span<const std::byte> blob() const noexcept { return {blob_room, blob_bytes}; }
    void keep(std::span<const std::byte> b) noexcept {
        blob_bytes = static_cast<std::uint16_t>(b.size());
        std::memcpy(blob_room, b.data(), b.size());
    }
};
static_assert(std::is_trivially_copyable_v<introduction> && sizeof(introduction) < 0x10000);

/// The fields by which any version knows whether it can read the rest.
inline constexpr std::size_t introduction_preface = offsetof(introduction, secret);

/// Returns: why the other end's introduction cannot be used, or nothing.
inline std::string objection(const introduction& theirs, const settings& ours) {
    if (theirs.magic != introduction::magic_value) return "what answered is no vccl net plugin";
    if (theirs.version != introduction_version || theirs.bytes != sizeof(introduction))
        return "the other rank's net plugin is of version " + std::to_string(theirs.version) + ", this one of version " +
               std::to_string(introduction_version) + "; give all ranks the same libnccl-net-vccl.so";
    if (std::string d = difference(agreement_of(ours), theirs.agreed); !d.empty()) return d;
    if (theirs.refused()) return "the other rank refused: " + std::string(theirs.refusal.view());
    if (theirs.blob_bytes > sizeof theirs.blob_room) return "the other rank's introduction is damaged";
    return {};
}

enum class transfer : std::uint8_t { going_on, done, broken };

/// One introduction each way over a socket. Never blocks. One thread.
class meeting {
public:
    meeting() = default;
    explicit meeting(vccl::detail::socket_fd fd) : fd_(std::move(fd)) {}

    /// Effects: begins to call. Errors: the address is none, or the kernel refused.
    static vccl::result<meeting> call(std::string_view where) {
        vccl::detail::socket_address a;
        if (!vccl::detail::parse_address(where, a)) return vccl::errc::bad_blob;
        vccl::detail::socket_fd fd{::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        if (!fd) return vccl::status{vccl::errc::system, static_cast<std::uint32_t>(errno)};
        const auto* to = reinterpret_cast<const sockaddr*>(&a.storage);
        if (::connect(fd.get(), to, a.length) != 0 && errno != EINPROGRESS)
            return vccl::status{vccl::errc::system, static_cast<std::uint32_t>(errno)};
        return meeting(std::move(fd));
    }

    explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
    void hang_up() noexcept { fd_.reset(); }

    transfer say(const introduction& what) noexcept {
        const auto* bytes = reinterpret_cast<const std::byte*>(&what);
        while (said_ < sizeof what) {
            const ssize_t n = ::send(fd_.get(), bytes + said_, sizeof what - said_, MSG_NOSIGNAL);
            if (n < 0) return waits() ? transfer::going_on : transfer::broken;
            said_ += static_cast<std::size_t>(n);
        }
        return transfer::done;
    }
    /// `done` as soon as it is complete, or is seen to be of another version or of something else.
    transfer hear(introduction& what) noexcept {
        auto* bytes = reinterpret_cast<std::byte*>(&what);
        while (heard_ < sizeof what) {
            const ssize_t n = ::recv(fd_.get(), bytes + heard_, sizeof what - heard_, 0);
            if (n == 0) return transfer::broken;
            if (n < 0) return waits() ? transfer::going_on : transfer::broken;
            heard_ += static_cast<std::size_t>(n);
            if (heard_ >= introduction_preface &&
                (what.magic != introduction::magic_value || what.version != introduction_version || what.bytes != sizeof what))
                return transfer::done;
        }
        return transfer::done;
    }

private:
    static bool waits() noexcept { return errno == EAGAIN || errno == EINTR || errno == ENOTCONN; }

    vccl::detail::socket_fd fd_;
    std::size_t said_{}, heard_{};
};

}  // namespace nccl_net
